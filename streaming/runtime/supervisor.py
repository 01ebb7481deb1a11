"""All roles on one machine: each a process of its own, started again when it ends, stopped together.

A role that fails again and again is retried with growing pauses, and the other roles continue: control may be in the
middle of an execution. Only a role whose first start finds wrong settings ends the whole run. Of several clusters each
has a collect and a control of its own, which end no process of another cluster, whatever they find. Clusters that the
settings let share have one process together, with a thread for each.

As settings change, roles are started, ended and started anew while the others run on. Nothing of that is remembered:
whoever starts the supervisor again starts the roles that the settings name then.
"""

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal, Protocol

import psutil
import structlog

from streaming.runtime import processes
from streaming.runtime.own_process import has_own_terminal, stopped_by_signals, taken
from streaming.settings.changes import ROLES, RoleChanges, RoleOf

log = structlog.get_logger()

POLL_INTERVAL_S = 0.5
RESTART_WAIT_S = 2.0
"""The pause before a role is started again that ended soon after its start twice in a row; each next pause is twice as
long.
"""
RESTART_WAIT_MAX_S = 60.0
QUICK_DEATH_S = 60.0
QUICK_DEATHS_MAX = 5
"""Number of quick ends in a row above which a role counts as failing."""
USAGE_CODE = 2
STOP_GRACE_S = 60.0
"""A pipeline that is asked to end while it starts has Spark's start, a batch and Spark's end before it."""
SIGNAL_BASE = 128


@dataclass(slots=True)
class RoleProcess:
    """One role: how it is started, and the process that runs it now."""

    of: RoleOf
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    starts: int = 0
    quick_deaths: int = 0
    last_code: int = 0
    restart_at_s: float = 0.0
    afterwards: Literal["again", "gone"] | None = None
    """What becomes of a role that is asked to end: it is started anew, or it is no more. None while it may run."""
    kill_at_s: float = 0.0

    @property
    def role(self) -> str:
        """The role without its cluster."""
        return self.of.role

    @property
    def name(self) -> str:
        """The role, with the cluster where it works for one of several."""
        return self.of.name

    @property
    def named(self) -> dict[str, str]:
        """The role and its cluster, as log lines have them."""
        return {"role": self.role, **({} if self.of.cluster is None else {"kafka_cluster": self.of.cluster})}

    @property
    def is_alive(self) -> bool:
        """Whether its process runs now."""
        return self.process is not None and self.process.poll() is None

    @property
    def is_failing(self) -> bool:
        """Whether the role's process has ended again and again soon after its start."""
        return self.quick_deaths > QUICK_DEATHS_MAX


@dataclass(slots=True)
class Supervisor:
    """Starts roles, starts them again, ends them."""

    arguments: Sequence[str]
    roles: Sequence[RoleOf] = tuple(map(RoleOf, ROLES))
    log_folder: str | None = None
    _running: list[RoleProcess] = field(default_factory=list)
    _has_changed: bool = False

    def start(self) -> None:
        """Start every role; their output goes to ours, or to files in `log_folder`."""
        for role in self.roles:
            self._add(role)

    def change(self, changes: RoleChanges) -> None:
        """Start, end and restart roles. Returns at once: `poll` starts anew what has ended by then, and kills what has
        not ended in time. A role of all clusters reads the settings again, whether they have changed for it or not.
        """
        self._has_changed = True
        known = {supervised.of: supervised for supervised in self._running}
        for role in changes.ended:
            self._ask_to_end(known[role], "gone")
        for role in changes.restarted:
            self._ask_to_end(known[role], "again")
        for role in changes.started:
            if role in known:  # it is about to end
                known[role].afterwards = "again"
            else:
                self._add(role)
        for supervised in known.values():
            if supervised.afterwards is None and supervised.of.cluster is None and supervised.is_alive:
                assert supervised.process is not None
                supervised.process.send_signal(signal.SIGHUP)

    def poll(self) -> int | None:
        """Start again what has ended; the exit code to end with if the first start of a role found wrong input."""
        now_s = time.monotonic()
        for supervised in [*self._running]:
            process = supervised.process
            if supervised.afterwards is not None:
                self._end_on_request(supervised, supervised.afterwards, now_s)
            elif process is None:
                if now_s >= supervised.restart_at_s:
                    self._launch(supervised)
            elif process.poll() is None:
                self._lives(supervised, now_s)
            else:
                self._ended(supervised, process.returncode, now_s)
                is_alone = supervised.of.cluster is None and not self._has_changed
                if is_alone and supervised.starts == 1 and process.returncode == USAGE_CODE:
                    log.error("role_refuses_to_start", role=supervised.role, exit_code=USAGE_CODE)
                    return USAGE_CODE
                if supervised.restart_at_s <= now_s:
                    self._launch(supervised)
        return None

    def exit_code(self) -> int:
        """The code of a role that fails again and again at this moment; 0 if there is none."""
        return next((_exit_code(row.last_code) for row in self._running if row.is_failing), 0)

    def stop(self) -> None:
        """End every role: SIGTERM, then SIGKILL after a grace in which a batch can be finished."""
        alive = {
            supervised.process.pid: supervised.name
            for supervised in self._running
            if supervised.process is not None and supervised.is_alive
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

    def _add(self, role: RoleOf) -> None:
        chosen = [] if role.cluster is None else ["--cluster", role.cluster]
        supervised = RoleProcess(role, [sys.executable, "-m", "streaming", role.role, *self.arguments, *chosen])
        self._launch(supervised)
        self._running.append(supervised)

    def _ask_to_end(self, supervised: RoleProcess, afterwards: Literal["again", "gone"]) -> None:
        if supervised.afterwards is None:
            supervised.kill_at_s = time.monotonic() + STOP_GRACE_S
            if supervised.is_alive:
                assert supervised.process is not None
                supervised.process.terminate()
        supervised.afterwards = afterwards

    def _end_on_request(self, supervised: RoleProcess, afterwards: Literal["again", "gone"], now_s: float) -> None:
        if supervised.is_alive:
            if now_s >= supervised.kill_at_s:
                assert supervised.process is not None
                log.warning("roles_killed", roles=[supervised.name], grace_s=STOP_GRACE_S)
                supervised.process.kill()
                supervised.process.wait()
            else:
                return
        if afterwards == "gone":
            self._running.remove(supervised)
            log.info("role_removed", **supervised.named)
            return
        supervised.afterwards, supervised.quick_deaths = None, 0
        self._launch(supervised)
        log.info("role_restarted", **supervised.named)

    def _launch(self, supervised: RoleProcess) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.log_folder is None:
            supervised.process = subprocess.Popen(
                supervised.command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
                preexec_fn=processes.die_with_parent,
            )  # fmt: skip
        else:
            log_file = Path(self.log_folder) / f"{supervised.name}.log"
            supervised.process = processes.start(supervised.command, log=log_file, environment=environment)
        supervised.started_s = time.monotonic()
        supervised.starts += 1

    def _lives(self, supervised: RoleProcess, now_s: float) -> None:
        if supervised.quick_deaths and now_s - supervised.started_s >= QUICK_DEATH_S:
            if supervised.is_failing:
                log.info("role_runs_again", **supervised.named)
            supervised.quick_deaths = 0

    def _ended(self, supervised: RoleProcess, code: int, now_s: float) -> None:
        quick = now_s - supervised.started_s < QUICK_DEATH_S
        supervised.quick_deaths = supervised.quick_deaths + 1 if quick else 1
        supervised.process = None
        supervised.last_code = code
        pause_s = _pause_s(supervised.quick_deaths)
        supervised.restart_at_s = now_s + pause_s
        level = log.error if supervised.is_failing else log.warning
        level(
            "role_ended", **supervised.named, exit_code=code, quick_deaths=supervised.quick_deaths,
            restart_in_s=pause_s,
        )  # fmt: skip


def _pause_s(quick_deaths: int) -> float:
    """The pause before the next start: none after the first quick end, then growing up to a bound."""
    if quick_deaths <= 1:
        return 0.0
    return min(RESTART_WAIT_MAX_S, RESTART_WAIT_S * 2.0 ** min(quick_deaths - 2, 30))


def _exit_code(code: int) -> int:
    """The code that a shell would show: a process that signal 9 ended has 137; a role may not end by itself with 0."""
    return SIGNAL_BASE - code if code < 0 else code or 1


class Settled(Protocol):
    """The settings that are in force, as `run_all` sees them."""

    def roles(self) -> Sequence[RoleOf]:
        """Returns the roles that these settings need."""

    def reload(self, *, asked: bool) -> RoleChanges | None:
        """Returns what new settings change, which are in force from now on; None if there are none. `asked`: somebody
        says so; else the file is looked at. Raises nothing: settings that are refused are logged.
        """


def run_all(arguments: Sequence[str], check: Callable[[], None], settled: Settled) -> int:
    """Run all roles until SIGTERM or SIGINT, or until the first start of a role finds wrong input (2). SIGHUP lets it
    read the settings again.

    The code at the end is 0, or that of a role which failed again and again when the signal came.

    `check` runs first, and raises an error of ours: one clear line in place of four roles that can't do their work.
    """
    stopping, asked = stopped_by_signals(), queue.SimpleQueue[None]()
    has_terminal = has_own_terminal()

    def reload(_number: int, _frame: FrameType | None) -> None:
        if has_terminal and not has_own_terminal():  # the terminal is closed, and means that all is to end
            stopping.set()
        asked.put(None)

    signal.signal(signal.SIGHUP, reload)
    check()
    supervisor = Supervisor(arguments, settled.roles())
    supervisor.start()
    log.info("started", roles=[role.name for role in supervisor.roles])
    try:
        while not stopping.wait(POLL_INTERVAL_S):
            code = supervisor.poll()
            if code is not None:
                return code
            changes = settled.reload(asked=taken(asked))
            if changes is not None:
                supervisor.change(changes)
        return supervisor.exit_code()
    finally:
        supervisor.stop()
