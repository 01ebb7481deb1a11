"""Starting processes: an interrupt that comes in the middle of it is neither lost nor printed as an accident, and no
connection takes the port that a process is to listen at.
"""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.runtime import processes
from tests.waiting import DEADLINE_S

SCRIPT = """
import os, signal, sys
from pathlib import Path
from streaming.runtime import processes

def stop(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, stop)
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGTERM))
try:
    processes.start([sys.executable, "-c", "pass"], log=Path(sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGTERM) is stop)
"""


def test_an_interrupt_while_python_forks_arrives(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("interrupted True\n", "")


def test_free_ports_are_none_of_outgoing_connections() -> None:
    # Brokers knock at each other's ports before these listen: each attempt takes a port of the range for itself.
    outgoing = range(*map(int, processes.OUTGOING_PORTS.read_text().split()))
    ports = [port for _ in range(20) for port in processes.free_ports(9)]
    assert len(set(ports)) == 180
    assert not set(ports) & set(outgoing)


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        taken = listener.getsockname()[1]
        monkeypatch.setattr(processes, "PORTS_FROM", taken)
        file = tmp_path / "range"
        file.write_text(f"{taken + 1} 65535")  # no other is left
        monkeypatch.setattr(processes, "OUTGOING_PORTS", file)
        assert processes.free_port() not in (0, taken)


@pytest.mark.parametrize("range_of_all", ["1024 65535", "nonsense"])
def test_without_ports_outside_the_system_chooses(
    range_of_all: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "range"
    file.write_text(range_of_all)
    monkeypatch.setattr(processes, "OUTGOING_PORTS", file)
    assert len(set(processes.free_ports(3))) == 3


def test_a_host_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        processes.free_port("192.0.2.1")
