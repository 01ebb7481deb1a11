"""Child processes and the supervisor of `rebalancer run`: how they start and end, and what becomes of the others."""

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from streaming.runtime import processes, supervisor
from streaming.runtime.supervisor import Supervisor
from streaming.settings import Settings
from streaming.settings.changes import RoleChanges, RoleOf, changes, roles_of
from streaming.settings.clusters import NamedClusterSettings
from tests.waiting import DEADLINE_S, until

PYTHON = (sys.executable, "-IS", "-c")
"""Without what a start reads of the environment and of installed packages: it takes a third of the time."""


class Failing(Supervisor):
    """Its role is a process that ends at once, in a way of its own; the others live."""

    def __init__(self, script: str, folder: Path, *others: str) -> None:
        super().__init__((), roles=[*map(RoleOf, ("role", *others))], log_folder=str(folder))
        self._script = script

    def _launch(self, supervised: supervisor.RoleProcess) -> None:
        script = self._script if supervised.role == "role" else "import signal; signal.pause()"
        supervised.command = [*PYTHON, script]
        super()._launch(supervised)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "exit_code"),
    [
        ("raise SystemExit(5)", 5),
        ("raise SystemExit(3)", 3),
        ("pass", 1),
        (f"import os, signal; os.kill(os.getpid(), {signal.SIGKILL})", 128 + signal.SIGKILL),
    ],
)
def test_a_role_that_keeps_failing_is_retried_with_growing_pauses_and_ends_no_other(
    script: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_WAIT_S", 0.001)
    monkeypatch.setattr(supervisor, "RESTART_WAIT_MAX_S", 0.01)
    supervised = Failing(script, tmp_path, "control")
    supervised.start()
    control = supervised.process_id("control")
    pauses: list[float] = []
    try:
        with structlog.testing.capture_logs() as logged:

            def has_failed() -> bool:
                assert supervised.poll() is None
                pauses[:] = [row["restart_in_s"] for row in logged if row["event"] == "role_ended"]
                return len(pauses) >= 8

            until("the role has ended eight times", has_failed, pause_s=0.01)
        assert supervised.process_id("control") == control is not None
        assert supervised.exit_code() == exit_code
    finally:
        supervised.stop()
    assert pauses[:8] == [0, 0.001, 0.002, 0.004, 0.008, 0.01, 0.01, 0.01]
    levels = [row["log_level"] for row in logged if row["event"] == "role_ended"]
    assert levels[:8] == ["warning"] * 5 + ["error"] * 3


def first_end(supervised: Failing) -> int | None:
    """The answer of the poll that finds the end of the role's process."""
    process = supervised._running[0].process
    assert process is not None
    process.wait(DEADLINE_S)
    return supervised.poll()


@pytest.mark.long
@pytest.mark.parametrize(("later", "code"), [(False, 2), (True, None)])
def test_wrong_settings_end_the_run_at_the_first_start_alone(tmp_path: Path, later: bool, code: int | None) -> None:
    begun = tmp_path / "begun"
    script = (
        f"import pathlib; begun = pathlib.Path({str(begun)!r}); first = not begun.exists(); begun.touch(); "
        f"raise SystemExit(5 if {later} and first else 2)"
    )
    supervised = Failing(script, tmp_path)
    supervised.start()
    try:
        answers = [first_end(supervised) for _ in range(1 + later)]
    finally:
        supervised.stop()
    assert answers[-1] == code


@pytest.mark.long
def test_a_role_that_has_run_for_a_while_fails_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, moment = tmp_path / "ends", tmp_path / "ended"
    ends.touch()
    monkeypatch.setattr(supervisor, "RESTART_WAIT_S", 0.0)
    script = (
        f"import os, signal, sys; os.path.exists({str(ends)!r}) and sys.exit(5); open({str(moment)!r}, 'w'); "
        "signal.pause()"
    )
    supervised = Failing(script, tmp_path)
    supervised.start()

    def fails() -> bool:
        assert supervised.poll() is None
        return supervised.exit_code() == 5

    def lives() -> bool:
        assert supervised.poll() is None
        return moment.exists()

    try:
        until("the role keeps failing", fails, pause_s=0.01)
        ends.unlink()
        until("the role lives", lives, pause_s=0.01)
        assert supervised.exit_code() == 5  # it has only begun
        monkeypatch.setattr(supervisor, "QUICK_DEATH_S", 0.0)
        assert supervised.poll() is None
        assert supervised.exit_code() == 0
    finally:
        supervised.stop()


def test_a_role_that_does_not_end_in_time_is_killed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.1)
    deaf = tmp_path / "deaf"
    script = (
        f"import signal, pathlib; signal.signal({signal.SIGTERM:d}, signal.SIG_IGN); "
        f"pathlib.Path({str(deaf)!r}).touch(); signal.pause()"
    )
    supervised = Failing(script, tmp_path)
    supervised.start()
    try:
        until("the role takes no SIGTERM", deaf.exists)
    finally:
        with structlog.testing.capture_logs() as logged:
            supervised.stop()
    assert supervised.process_id("role") is None
    assert [row["event"] for row in logged] == ["stopping", "roles_killed"]


class OfClusters(Supervisor):
    """Roles that only live, and write down each SIGHUP; but for the collect of east, which ends with the code of wrong
    input. Those of north take no SIGTERM.
    """

    def __init__(self, folder: Path, clusters: Mapping[str, Settings]) -> None:
        super().__init__(("--config", "f"), roles_of(clusters), str(folder))
        self.commands: list[list[str]] = []
        self.folder = folder

    def _launch(self, supervised: supervisor.RoleProcess) -> None:
        if supervised.starts == 0:
            self.commands.append(supervised.command[3:])
        is_deaf = str(supervised.of.cluster == "north")
        script = "raise SystemExit(2)" if supervised.name == "collect-east" else LIVES
        arguments = [str(self.folder / supervised.name), is_deaf]
        supervised.command = [*PYTHON, script, *arguments]
        super()._launch(supervised)

    def process_ids(self) -> dict[str, int]:
        """By name of the role, without those whose process has ended."""
        return {row.name: row.process.pid for row in self._running if row.process is not None and row.is_alive}

    def wait_until_ready(self, *names: str) -> None:
        """Until these roles take signals."""
        for name in names:
            until(f"{name} is ready", (self.folder / name).exists, pause_s=0.01)

    def settle(self, changes: RoleChanges, *names: str) -> None:
        """Change the roles, and wait until these are all that run."""
        self.change(changes)

        def is_settled() -> bool:
            assert self.poll() is None
            return self.process_ids().keys() == {*names} and all(row.afterwards is None for row in self._running)

        until(f"{names} run", is_settled, pause_s=0.01)


LIVES = """
import pathlib, signal, sys
file = pathlib.Path(sys.argv[1])
def note(*_): file.open("a").write("hup ")
signal.signal(signal.SIGHUP, note)
if sys.argv[2] == "True":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
file.touch()
while True:
    signal.pause()
"""


def of_clusters(**clusters: Any) -> dict[str, Settings]:
    return {
        name: NamedClusterSettings.model_validate({"kafka": {"cluster_name": name}, **own})
        for name, own in clusters.items()
    }


@pytest.mark.long
def test_each_of_several_clusters_has_a_collect_and_a_control_that_end_no_other(tmp_path: Path) -> None:
    supervised = OfClusters(tmp_path, of_clusters(east={}, west={}))
    with structlog.testing.capture_logs() as logged:
        supervised.start()
        before = {row.name: row.process and row.process.pid for row in supervised._running}
        try:

            def has_ended() -> bool:
                assert supervised.poll() is None
                return any(row["event"] == "role_ended" for row in logged)

            until("the collect of east has ended", has_ended, pause_s=0.01)
            after = {row.name: row.process and row.process.pid for row in supervised._running}
        finally:
            supervised.stop()
    shared = ["--config", "f"]
    assert supervised.commands == [
        ["collect", *shared, "--cluster", "east"],
        ["collect", *shared, "--cluster", "west"],
        ["pipeline", *shared],
        ["control", *shared, "--cluster", "east"],
        ["control", *shared, "--cluster", "west"],
        ["serve", *shared],
    ]
    assert {name for name in before if before[name] != after[name]} == {"collect-east"}
    ended = next(row for row in logged if row["event"] == "role_ended")
    assert (ended["role"], ended["kafka_cluster"], ended["exit_code"]) == ("collect", "east", 2)


@pytest.mark.long
def test_clusters_come_go_and_change_while_the_processes_of_others_run_on(tmp_path: Path) -> None:
    old = of_clusters(south={}, west={}, main={})
    new = of_clusters(main={}, west={"trigger": {"enter_ratio": 3.0}}, xeno={})
    supervised = OfClusters(tmp_path, old)
    supervised.start()
    try:
        supervised.wait_until_ready("pipeline", "serve")
        before = supervised.process_ids()
        names = {f"{role}-{name}" for role in ("collect", "control") for name in new} | {"pipeline", "serve"}
        supervised.settle(changes(old, new), *names)
        after = supervised.process_ids()
        assert {name for name in before if before[name] == after.get(name)} == {
            "collect-west", "collect-main", "control-main", "pipeline", "serve",
        }  # fmt: skip
        assert after["control-west"] != before["control-west"]
        until(
            "both have heard of it",
            lambda: {(tmp_path / name).read_text() for name in ("pipeline", "serve")} == {"hup "},
        )
    finally:
        supervised.stop()


@pytest.mark.long
def test_a_role_of_a_cluster_that_comes_back_while_it_still_ends_is_started_anew(tmp_path: Path) -> None:
    """With the grace over, it is killed."""
    both, west = of_clusters(north={}, west={}, main={}), of_clusters(west={}, main={})
    supervised = OfClusters(tmp_path, both)
    names = [role.name for role in roles_of(both)]
    supervised.start()
    try:
        supervised.wait_until_ready(*names)
        before = supervised.process_ids()
        supervised.change(changes(both, west))
        assert supervised.poll() is None
        assert supervised.process_ids() == before, "those of north take their time"
        for row in supervised._running:
            row.kill_at_s = 0.0
        with structlog.testing.capture_logs() as logged:
            supervised.settle(changes(west, both), *names)
        assert {row["event"] for row in logged} == {"roles_killed", "role_restarted"}
        after = supervised.process_ids()
        assert {name for name in before if after[name] != before[name]} == {"collect-north", "control-north"}
    finally:
        for row in supervised._running:
            if row.process is not None and row.of.cluster == "north":
                row.process.kill()
        supervised.stop()


@pytest.mark.long
def test_a_role_that_waits_for_its_next_start_can_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_WAIT_S", 3_600.0)
    old, new = of_clusters(east={}, west={}, main={}), of_clusters(west={}, main={})
    supervised = OfClusters(tmp_path, old)
    supervised.start()
    try:

        def waits() -> bool:
            assert supervised.poll() is None
            return any(row.name == "collect-east" and row.process is None for row in supervised._running)

        until("the collect of east waits", waits, pause_s=0.01)
        supervised.settle(changes(old, new), *(role.name for role in roles_of(new)))
    finally:
        supervised.stop()


@pytest.mark.long
@pytest.mark.parametrize(
    ("together", "clusters"),
    [
        ({"west"}, [["--cluster", "east"], []]),
        ({"east", "west"}, [[]]),
        (set(), [["--cluster", "east"], ["--cluster", "west"]]),
    ],
)
def test_clusters_that_share_a_process_have_one_beside_those_of_the_others(
    tmp_path: Path, together: set[str], clusters: list[list[str]]
) -> None:
    own = {name: {"control": {"own_process": name not in together}} for name in ("east", "west")}
    supervised = OfClusters(tmp_path, of_clusters(**own))
    supervised.start()
    supervised.stop()
    assert [row[3:] for row in supervised.commands if row[0] == "control"] == clusters
    assert [row[3:] for row in supervised.commands if row[0] == "collect"] == [
        ["--cluster", "east"],
        ["--cluster", "west"],
    ]


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
