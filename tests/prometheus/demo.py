"""The real demo with Prometheus and Alertmanager watching it from its first scrape to its last."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from streaming import tables
from streaming.config import load_settings
from streaming.runtime import processes
from tests.prometheus.live import Watch, watching
from tests.waiting import DEADLINE_S, until

STORY_DEADLINE_S = 540.0
STORY_OPTIONS = ("--rate", "4000", "--topics", "orders,returns")
CLUSTER = "demo"


@dataclass(slots=True)
class WatchedDemo:
    """The demo's process, its folder and output, and who watches it."""

    process: subprocess.Popen[bytes]
    home: Path
    log: Path
    watch: Watch

    @property
    def finished(self) -> bool:
        """Whether the result is told; it then runs on until `end`."""
        return "kept running until Ctrl-C" in self.log.read_text()

    def role(self, name: str) -> psutil.Process | None:
        """The process that plays a role now."""
        return self._process_of("-m", "streaming", name)

    def traffic(self) -> psutil.Process | None:
        """The process that sends and reads records now."""
        return self._process_of("-m", "streaming.demo.traffic")

    def _process_of(self, *arguments: str) -> psutil.Process | None:
        for child in self.descendants():
            with suppress(psutil.NoSuchProcess):  # one that has just ended
                if child.cmdline()[1 : 1 + len(arguments)] == list(arguments):
                    return child
        return None

    @property
    def login(self) -> re.Match[str] | None:
        """Address of the page, and name and password of who may approve there; None before they are printed."""
        return re.search(r"page and metrics: (\S+) \(sign in as (\w+) with the password (\w+)\)", self.log.read_text())

    def descendants(self) -> list[psutil.Process]:
        """All that run now."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=DEADLINE_S)


@contextmanager
def watched_demo(folder: Path, *options: str, stalled_after_s: int) -> Iterator[WatchedDemo]:
    """The demo with `--keep`, in `folder`; ended whatever happens."""
    home = folder / "home"
    log = folder / "demo.log"
    command = [sys.executable, "-m", "streaming", "demo", "--home", str(home), "--keep", *options]
    process = processes.start(command, log=log)
    try:
        settings = until("the demo's settings", lambda: _file(home / "rebalancer.yaml", process, log))
        with watching(folder, load_settings(settings).serve.port, stalled_after_s=stalled_after_s) as watch:
            yield WatchedDemo(process, home, log, watch)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=DEADLINE_S)


def assert_balanced_once(home: Path, output: str) -> None:
    """What a demo with `STORY_OPTIONS` leaves that has ended, in which kill -9 of the pipeline happened."""
    assert "verdict  balanced, nothing lost" in output
    assert "exit_code=-9" in output  # the kill did happen, and the role was started again
    events = [row["event"] for row in tables.read(str(home / "tables"), "execution")]
    decisions = tables.read(str(home / "tables"), "decision")
    plans = [f"{row['decided_at']} {row['reason']}: {row['detail']}" for row in decisions if row["plan_id"]]
    assert (events.count("started"), events.count("done")) == (1, 1), (events, plans)  # carried out once
    assert {row["topic"] for row in tables.read(str(home / "tables"), "movement")} >= {"orders"}
    assert (home / "report.html").stat().st_size > 50_000
    assert (home / "report.png").is_file()


def assert_gone(processes: list[psutil.Process]) -> None:
    """All of them end."""
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
    assert not alive, f"left running: {alive}"


def _file(file: Path, process: subprocess.Popen[bytes], log: Path) -> Path | None:
    assert process.poll() is None, log.read_text()
    return file if file.exists() and time.time() - file.stat().st_mtime > 1 else None
