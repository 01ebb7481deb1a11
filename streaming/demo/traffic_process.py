"""The process that sends and reads the demo's records: started, watched, started again while a demo is kept, ended."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from streaming.demo.traffic import TrafficOrder, TrafficReport, read_report
from streaming.errors import RebalancerError
from streaming.runtime import processes

END_GRACE_S = 90.0
"""Readers leave their group and the last records are acknowledged: seconds, or more on a busy machine."""
RESTARTS_MAX = 5
RESTART_WAIT_S = 2.0


@dataclass(slots=True)
class TrafficProcess:
    """One producer and its readers, as `order` says; `log` gets what they print."""

    order: TrafficOrder
    log: Path
    restart_wait_s: float = RESTART_WAIT_S
    _process: subprocess.Popen[bytes] | None = None
    _restarts: int = 0
    _restart_at_s: float | None = None

    def start(self) -> None:
        """Begin to send and to read."""
        file = Path(self.order.report_file).with_name("traffic-order.json")
        file.write_text(json.dumps(asdict(self.order)))
        self._process = processes.start([sys.executable, "-m", "streaming.demo.traffic", str(file)], log=self.log)

    def report(self) -> TrafficReport | None:
        """Report of records sent and acknowledged so far; None before the first report."""
        return read_report(Path(self.order.report_file))

    def check(self) -> None:
        """Raises RebalancerError if the process has ended unasked."""
        if self._process is not None and self._process.poll() is not None:
            raise RebalancerError(f"the traffic ended by itself (exit code {self._process.returncode}): see {self.log}")

    def revive(self) -> None:
        """Starts the process again if it has ended unasked, a few times. Raises RebalancerError after the last time."""
        if self._restart_at_s is not None:
            if time.monotonic() >= self._restart_at_s:
                self._restart_at_s = None
                self.start()
        elif self.process_id is None:
            if self._restarts >= RESTARTS_MAX:
                self.check()
            self._restarts += 1
            self._restart_at_s = time.monotonic() + self.restart_wait_s

    @property
    def process_id(self) -> int | None:
        """Id of the process that runs now; None if no process runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def end(self) -> None:
        """Stop sending, wait for what was sent to be acknowledged, end; nothing happens if it has ended."""
        if self._process is None:
            return
        if self._process.poll() is None:
            processes.end([psutil.Process(self._process.pid)], grace_s=END_GRACE_S)
        self._process.wait()
