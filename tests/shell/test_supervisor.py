"""The supervisor of `rebalancer run`: which exit code it ends with once a role fails for good."""

import signal
import sys
from pathlib import Path

import pytest
import structlog

from streaming.runtime import supervisor
from streaming.runtime.supervisor import Supervisor
from tests.waiting import DEADLINE_S, until


class Failing(Supervisor):
    """Every role is a process that ends at once, in a way of its own."""

    def __init__(self, script: str, folder: Path) -> None:
        super().__init__((), roles=("role",), log_folder=str(folder))
        self._script = script

    def _launch(self, supervised: supervisor.RoleProcess) -> None:
        supervised.command = [sys.executable, "-c", self._script]
        super()._launch(supervised)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "exit_code"),
    [
        ("raise SystemExit(5)", 5),
        ("raise SystemExit(2)", 2),
        ("pass", 1),
        (f"import os, signal; os.kill(os.getpid(), {signal.SIGKILL})", 128 + signal.SIGKILL),
    ],
)
def test_a_role_that_keeps_ending_ends_the_run_with_its_code(
    script: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_WAIT_S", 0.0)
    codes: list[int] = []
    supervised = Failing(script, tmp_path)
    supervised.start()

    def has_failed() -> bool:
        code = supervised.poll()
        codes.extend([] if code is None else [code])
        return bool(codes)

    try:
        until("the role fails for good", has_failed)
    finally:
        supervised.stop()
    assert codes == [exit_code]


def test_a_role_that_ends_is_started_again_at_once_and_one_that_ends_again_soon_after_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_WAIT_S", 3_600.0)
    supervised = Failing("pass", tmp_path)

    def end() -> None:
        process = supervised._running[0].process
        assert process is not None
        process.wait(DEADLINE_S)
        assert supervised.poll() is None

    supervised.start()
    try:
        end()
        assert supervised._running[0].process is not None
        end()
        assert supervised._running[0].process is None
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
