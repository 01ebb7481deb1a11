"""Brokers with SASL_SSL (SCRAM) and mutual TLS listeners and an authorizer; certificates made on the spot by openssl.

PLAINTEXT stays for the brokers themselves and for the test, as a super user.
"""

import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

from streaming.demo.brokers import EmbeddedCluster
from tests.java_programs import tool
from tests.waiting import DEADLINE_S

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def secured_cluster(home: Path, certificates: Path) -> EmbeddedCluster:
    """One broker that asks every client of its secured listeners who it is, and what it may."""
    return EmbeddedCluster(
        home,
        broker_count=1,
        listeners=("SASL_SSL", "SSL"),
        broker_settings={
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "broker.keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": SCRAM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )


def make_certificates(folder: Path, clients: Iterable[str]) -> None:
    """A certificate authority, the brokers' certificate for 127.0.0.1 and one for each client, as PEM files."""
    folder.mkdir(parents=True, exist_ok=True)
    _openssl(folder, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem")
    for name in ("broker", *clients):
        _openssl(folder, f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
        (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
        signed = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {name}.pem"
        _openssl(folder, f"{signed} -extfile extensions")
    keystore = (folder / "broker.key").read_text() + (folder / "broker.pem").read_text()
    (folder / "broker.keystore.pem").write_text(keystore)


def kafka_acls(folder: Path) -> dict[str, str]:
    """Environment in which `kafka-acls.sh` is Kafka's own tool, run from the jars."""
    script = folder / "kafka-acls.sh"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(tool("org.apache.kafka.tools.AclCommand"))} "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def _openssl(folder: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True, timeout=DEADLINE_S)
