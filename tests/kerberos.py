"""A Kerberos realm for tests: Debian's KDC as a process of ours, with all that it keeps in one folder."""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streaming.runtime import processes
from tests.waiting import DEADLINE_S, until

NAME = "TEST.LOCAL"
HOST = "127.0.0.1"
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util")


@dataclass(frozen=True)
class Realm:
    """A running KDC, and how it is asked and administered."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def configuration(self) -> Path:
        """What `KRB5_CONFIG` and `java.security.krb5.conf` name."""
        return self.folder / "krb5.conf"

    def keytab(self, principal: str, *, life: str = "1 day") -> Path:
        """The key of a principal, made new; its tickets live so long at most."""
        file = self.folder / f"{principal.replace('/', '-')}.keytab"
        self.administer(f'addprinc +requires_preauth -randkey -maxlife "{life}" {principal}')
        self.administer(f"ktadd -k {file} {principal}")
        return file

    def administer(self, query: str) -> None:
        """Run a query of kadmin."""
        self._run("kadmin.local", "-q", query)

    def tickets(self, principal: str) -> int:
        """How often a principal has logged in to the KDC."""
        issued = f", {principal}@{NAME} for krbtgt/"
        return sum(
            ": ISSUE: " in line and issued in line for line in (self.folder / "kdc.log").read_text().splitlines()
        )

    def create(self) -> None:
        """The database of principals, empty."""
        self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "of the database")

    def _run(self, program: str, *arguments: str) -> None:
        command = [path_of(program), *arguments]
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=DEADLINE_S)


def missing_for_kerberos() -> str:
    """The KDC's programs or the package gssapi, where they are not installed; else empty."""
    missing = [program for program in PROGRAMS if not path_of(program)]
    if missing:
        return f"{', '.join(missing)}: not installed (Debian: krb5-kdc, krb5-admin-server)"
    if importlib.util.find_spec("gssapi") is None:
        return "gssapi is not installed: deploy/extras/kerberos.lock"
    return ""


def path_of(program: str) -> str:
    return shutil.which(program, path=SEARCHED) or ""


def host_of_loopback() -> str:
    """What Kerberos' clients make of 127.0.0.1: the host in the principals of brokers."""
    return socket.getnameinfo((HOST, 0), 0)[0].lower()


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    """A realm whose KDC runs meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    port = processes.free_port()
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {NAME}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n clockskew = 1\n"
        f" udp_preference_limit = 1\n[realms]\n {NAME} = {{\n  kdc = {HOST}:{port}\n }}\n"
        f"[domain_realm]\n {host_of_loopback()} = {NAME}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_listen = {HOST}:{port}\n kdc_tcp_listen = {HOST}:{port}\n[realms]\n {NAME} = {{\n"
        f"  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n"
        f"  max_life = 1d\n }}\n[logging]\n kdc = FILE:{folder}/kdc.log\n admin_server = FILE:{folder}/admin.log\n"
    )
    configured = {"KRB5_CONFIG": str(folder / "krb5.conf"), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
    started = Realm(folder, {**os.environ, **configured})
    started.create()
    output = folder / "output.log"
    kdc = processes.start([path_of("krb5kdc"), "-n"], log=output, environment=started.environment)
    try:
        until("the KDC listens", lambda: kdc.poll() is None and is_open(port), state=output.read_text)
        yield started
    finally:
        kdc.kill()
        kdc.wait(timeout=DEADLINE_S)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
