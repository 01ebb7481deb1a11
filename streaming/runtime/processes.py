"""Child processes that never outlive their parent, and can be ended after a crash.

Every process is noted with its id and its start time in a file of its home folder, so that a later start can end what
a killed run left behind and never hits a stranger that got the same id.
"""

import ctypes
import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
TERMINATE_GRACE_S = 8.0
START_TIME_SLACK_S = 1.0
OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORTS_FROM = 10_000
"""Lowest port that is given out: below are the usual ports of services, such as 9092 and 3000."""
PORTS_OF_A_PROCESS = 347
"""Distance between the ports at which processes begin that are started one after the other; prime, so that any port may
be the first.
"""
ANY_PORT = 0
"""Port with which the system chooses one."""

_steps = itertools.count()
"""Goes on over all calls: whoever got a port may not listen at it yet."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns `count` ports that were free a moment ago, each another one, and others than in the calls before.

    They are not among those that the system gives to outgoing connections. One of these could be taken before its
    server listens, even by a client of this very server: TCP lets a connection meet itself.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in _candidate_ports():
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE or port == ANY_PORT:
                    raise
                continue
            ports.append(int(probe.getsockname()[1]))
        return ports


def _candidate_ports() -> Iterator[int]:
    """All ports outside the range of outgoing connections, each process from another one on; then any, without end."""
    outside = range(PORTS_FROM, max(PORTS_FROM, _outgoing_ports_from()))
    for step in itertools.islice(_steps, len(outside)):
        yield outside[(os.getpid() * PORTS_OF_A_PROCESS + step) % len(outside)]
    yield from itertools.repeat(ANY_PORT)


def _outgoing_ports_from() -> int:
    """The first port that the system gives to outgoing connections."""
    try:
        return int(OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768  # Linux unless changed; other systems begin higher


def start(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None, orphan_allowed: bool = False
) -> subprocess.Popen[bytes]:
    """Start `command` with its output in `log`; unless `orphan_allowed`, the kernel ends it when this process dies."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, _handlers_wait():
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment) if environment is not None else None,
            # A group of its own: Ctrl-C on the terminal goes to us alone, and we end it in order.
            start_new_session=True,
            preexec_fn=None if orphan_allowed else die_with_parent,
        )


@contextmanager
def _handlers_wait() -> Iterator[None]:
    """Ctrl-C and SIGTERM are handled once this is over. An exception that a handler raises while Python forks would be
    printed and forgotten: it runs hooks of its own there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {number: handler for number, handler in before.items() if callable(handler)}
    for number in replaced:
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        for arrived in came:
            signal.raise_signal(arrived)


def note(processes: Mapping[str, int], file: Path) -> None:
    """Write names, ids and start times of running processes to `file`, whole or not at all."""
    rows = {name: {"pid": pid, "started": psutil.Process(pid).create_time()} for name, pid in processes.items()}
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(rows))
    os.replace(fresh, file)


def end_noted(file: Path) -> list[str]:
    """End the processes noted in `file` that still run and are the ones noted; returns their names."""
    with suppress(FileNotFoundError):
        rows = json.loads(file.read_text())
        alive = {name: process for name, row in rows.items() if (process := _same_process(row)) is not None}
        end(list(alive.values()))
        file.unlink()
        return sorted(alive)
    return []


def end(processes: Sequence[psutil.Process], grace_s: float = TERMINATE_GRACE_S) -> list[int]:
    """SIGTERM to all, SIGKILL after `grace_s`; waits until all are gone, returns the ids of those that were killed."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stubborn = psutil.wait_procs(processes, timeout=grace_s)
    for process in stubborn:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, timeout=grace_s)
    return [process.pid for process in stubborn]


def wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], deadline_s: float) -> bool:
    """Returns True once something listens; False when `process` ended or `deadline_s` (time.monotonic) has passed."""
    while time.monotonic() < deadline_s and process.poll() is None:
        with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return True
        time.sleep(0.1)
    return False


def _same_process(row: dict[str, float]) -> psutil.Process | None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(row["pid"]))
        if abs(process.create_time() - row["started"]) < START_TIME_SLACK_S:
            return process
    return None


def die_with_parent() -> None:
    """Run in a child before exec: the kernel kills it when its parent dies, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
