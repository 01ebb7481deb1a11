"""All roles on one machine: each a process of its own, started again when it ends, ended together.

A role that fails soon after its start again and again ends the whole run with its exit code: a supervisor above
(systemd, Kubernetes) then sees it, instead of a loop that restarts for ever.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil
import structlog

from streaming.runtime import processes

log = structlog.get_logger()

ROLES = ("collect", "pipeline", "control", "serve")
POLL_INTERVAL_S = 0.5
RESTART_WAIT_S = 2.0
"""Before a role is started again that has ended soon after its start twice in a row."""
QUICK_DEATH_S = 60.0
QUICK_DEATHS_MAX = 5
STOP_GRACE_S = 60.0
"""A pipeline that is told to end while it starts has Spark's start, a batch and Spark's end before it."""
SIGNAL_BASE = 128


@dataclass(slots=True)
class RoleProcess:
    """One role: how it is started, and the process that runs it now."""

    role: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    quick_deaths: int = 0
    restart_at_s: float = 0.0


@dataclass(slots=True)
class Supervisor:
    """Starts roles, starts them again, ends them."""

    arguments: Sequence[str]
    roles: tuple[str, ...] = ROLES
    log_folder: str | None = None
    _running: list[RoleProcess] = field(default_factory=list)

    def start(self) -> None:
        """Start every role; their output goes to ours, or to files in `log_folder`."""
        for role in self.roles:
            supervised = RoleProcess(role, [sys.executable, "-m", "streaming", role, *self.arguments])
            self._launch(supervised)
            self._running.append(supervised)

    def poll(self) -> int | None:
        """Start again what has ended; the exit code to end with once a role fails for good, else None."""
        now_s = time.monotonic()
        for supervised in self._running:
            process = supervised.process
            if process is not None and process.poll() is not None:
                code = self._ended(supervised, process.returncode, now_s)
                if code is not None:
                    return code
            if supervised.process is None and now_s >= supervised.restart_at_s:
                self._launch(supervised)
        return None

    def stop(self) -> None:
        """End every role: SIGTERM, then SIGKILL after a grace in which a batch can be finished."""
        alive = {
            supervised.process.pid: supervised.role
            for supervised in self._running
            if supervised.process is not None and supervised.process.poll() is None
        }
        log.info("stopping", roles=list(alive.values()))
        killed = processes.end([psutil.Process(pid) for pid in alive], grace_s=STOP_GRACE_S)
        if killed:
            log.warning("roles_killed", roles=[alive[pid] for pid in killed], grace_s=STOP_GRACE_S)
        for supervised in self._running:
            if supervised.process is not None:
                supervised.process.wait()
        self._running.clear()

    def process_id(self, role: str) -> int | None:
        """Process id of a role that runs now."""
        process = next((row.process for row in self._running if row.role == role), None)
        return process.pid if process is not None and process.poll() is None else None

    def _launch(self, supervised: RoleProcess) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.log_folder is None:
            supervised.process = subprocess.Popen(
                supervised.command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
                preexec_fn=processes.die_with_parent,
            )  # fmt: skip
        else:
            log_file = Path(self.log_folder) / f"{supervised.role}.log"
            supervised.process = processes.start(supervised.command, log=log_file, environment=environment)
        supervised.started_s = time.monotonic()

    def _ended(self, supervised: RoleProcess, code: int, now_s: float) -> int | None:
        quick = now_s - supervised.started_s < QUICK_DEATH_S
        supervised.quick_deaths = supervised.quick_deaths + 1 if quick else 1
        supervised.process = None
        supervised.restart_at_s = now_s + (RESTART_WAIT_S if supervised.quick_deaths > 1 else 0.0)
        log.warning("role_ended", role=supervised.role, exit_code=code, quick_deaths=supervised.quick_deaths)
        if code == 2 or supervised.quick_deaths > QUICK_DEATHS_MAX:
            # Wrong input doesn't mend itself, and neither does a role that keeps dying.
            return _exit_code(code)
        return None


def _exit_code(code: int) -> int:
    """The code that a shell would show: a process that signal 9 ended has 137; a role may not end by itself with 0."""
    return SIGNAL_BASE - code if code < 0 else code or 1


def run_all(arguments: Sequence[str], check_cluster: Callable[[], None]) -> int:
    """Run all roles until SIGTERM or SIGINT (0), or until one fails for good (its code).

    `check_cluster` runs first, and raises ClusterUnreachable: one clear line in place of four roles that can't connect.
    """
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    check_cluster()
    supervisor = Supervisor(arguments)
    supervisor.start()
    log.info("started", roles=list(ROLES))
    try:
        while not stopping.wait(POLL_INTERVAL_S):
            code = supervisor.poll()
            if code is not None:
                return code
    finally:
        supervisor.stop()
    return 0
