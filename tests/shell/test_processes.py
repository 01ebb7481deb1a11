"""Starting processes: an interrupt that comes in the middle of it is neither lost nor printed as an accident."""

import subprocess
import sys
from pathlib import Path

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
