"""What `apply` and `abort` do where no control runs: real tables and lease, a cluster that is only described."""

import os
import signal
import sys
import time
from contextlib import suppress

import pytest
import structlog

from assignor_core.execution.life_cycle import Execution
from assignor_core.marker import MARKER_TTL_MS, Marker
from streaming import tables
from streaming.commands.acting import noted
from streaming.commands.apply import _Following
from streaming.control.lease import Lease
from streaming.control.throttle import CLEAR_TRIES_MAX
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.runtime.own_process import os_user
from streaming.serve.api.audit import ActOutcome
from streaming.settings import Settings
from tests.control.noted_cluster import NotedCluster, approve


@pytest.fixture(autouse=True)
def _marker_stands_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other tables here: `test_cluster_marker.py` has the seconds for which a marker is announced."""
    monkeypatch.setattr("streaming.control.cluster_marker.ANNOUNCED_BEFORE_MS", 0)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here needs the second between two looks."""
    monkeypatch.setattr("streaming.commands.apply.POLL_INTERVAL_S", 0.01)


def following(settings: Settings, cluster: NotedCluster) -> _Following:
    lease = Lease(settings.storage.tables, settings.kafka.cluster_name, settings.control.lease_ms)
    return _Following(cluster, journal_of(settings), lease, settings)


def test_a_request_that_fails_is_tried_again(settings: Settings) -> None:
    cluster = NotedCluster(moves=True, unanswered=1)
    record = approve(journal_of(settings), 0, now_ms=now_ms())
    assert following(settings, cluster).to_the_end(record.execution).event == "done"
    assert cluster.changes == ["throttle", "move t-0", "clear"]


def test_who_gives_up_says_what_stays_open(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    own = Settings.model_validate({**settings.model_dump(), "control": {"execution_deadline_ms": 1}})
    cluster = NotedCluster(unanswered=1_000)
    record = approve(journal_of(own), 0, now_ms=now_ms())
    with pytest.raises(ClusterUnreachable):
        following(own, cluster).to_the_end(record.execution)
    message = f"execution {record.execution.execution_id} stays open (approved); to stop it: rebalancer abort\n"
    assert capsys.readouterr().err.endswith(message)


def test_a_marker_that_nobody_renews_keeps_a_command_waiting_for_its_time_only(settings: Settings) -> None:
    """Whatever fails meanwhile, what was seen of the marker stays known."""
    cluster = NotedCluster(moves=True)
    cluster.cluster.contents.markers.append(Marker("0" * 32, "a-machine-that-burned/1", 5, 5))
    execution = approve(journal_of(settings), 0, now_ms=now_ms()).execution
    clock_ms = 0
    lease = Lease(settings.storage.tables, settings.kafka.cluster_name, 10**9, clock=lambda: clock_ms)
    watched = _Following(cluster, journal_of(settings), lease, settings)
    while not execution.ended:
        assert clock_ms < MARKER_TTL_MS + 60_000
        execution = watched._poll(execution)
        clock_ms += 10_000
    assert execution.last_event == "done"


def test_a_second_ctrl_c_names_what_the_last_step_has_made(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    record = approve(journal_of(settings), 0, now_ms=now_ms())
    watched = following(settings, NotedCluster())
    monkeypatch.setattr("streaming.commands.apply.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watched.to_the_end(record.execution)
    assert f"execution {record.execution.execution_id} stays open (submitted); " in capsys.readouterr().err


def test_a_second_ctrl_c_leaves_although_its_exception_is_lost(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is in code that Python calls back, for an object that is destroyed."""
    execution = approve(journal_of(settings), 0, now_ms=now_ms()).execution
    watched, steps = following(settings, NotedCluster()), 0

    def step(known: Execution) -> Execution:
        nonlocal steps
        steps += 1
        assert steps == 1
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(KeyboardInterrupt):
                signal.raise_signal(number)
        return known

    monkeypatch.setattr(watched, "_step", step)
    with pytest.raises(KeyboardInterrupt):
        watched.to_the_end(execution)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_the_end_of_the_terminal_asks_for_an_abort_as_ctrl_c_does(
    settings: Settings, number: signal.Signals, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {other: signal.getsignal(other) for other in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    cluster = NotedCluster()
    execution = approve(journal_of(settings), 0, now_ms=now_ms()).execution
    try:
        watched = following(settings, cluster)
        monkeypatch.setattr("streaming.commands.apply.time.sleep", lambda _s: signal.raise_signal(number))
        ended = watched.to_the_end(execution)
    finally:
        for other, handler in before.items():
            signal.signal(other, handler)
    assert ended.event == "aborted"
    assert cluster.changes[-1] == "clear", "no throttle is left"
    assert "asked to stop" in capsys.readouterr().err
    (request,) = [row for row in acts(settings) if row["stage"] == "begun"]
    assert (request["action"], request["target"], request["actor"]) == ("abort", execution.execution_id, os_user())


def test_who_runs_with_the_end_of_the_terminal_ignored_goes_on(settings: Settings) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        following(settings, NotedCluster())
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def acts(settings: Settings) -> list[tables.Row]:
    """Rows of the table `audit`, in their order."""
    return sorted(tables.read(settings.storage.tables, "audit"), key=lambda row: row["event_time"])


def test_an_act_at_the_command_line_is_in_the_audit_with_its_person_and_end(settings: Settings) -> None:
    from streaming.commands.lifecycle import note_and_cordon
    from streaming.views.intents import Intent

    note_and_cordon(settings, "undrain", Intent.USE, (3,))
    begun, ended = acts(settings)
    shown = ("stage", "action", "target", "actor", "signed_in_by", "state")
    assert [begun[name] for name in shown] == ["begun", "undrain", "3", os_user(), "command line", None]
    assert [ended[name] for name in shown] == ["ended", "undrain", "3", os_user(), "command line", "noted"]
    (note,) = tables.read(settings.storage.tables, "broker_intent")
    assert note["by"].startswith(f"{os_user()} (command line on ")


def test_an_act_that_fails_is_in_the_audit_as_that(settings: Settings) -> None:
    with pytest.raises(ClusterUnreachable), noted(settings, "abort", "x", ActOutcome("abort_asked", "asked")):
        raise ClusterUnreachable("no broker answered")
    _, ended = acts(settings)
    assert (ended["state"], ended["detail"]) == ("failed", "ClusterUnreachable: no broker answered")


def test_every_open_execution_is_stopped_in_any_order(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    records = [approve(journal, number, now_ms=now_ms() + number) for number in range(3)]
    for record in records[:2]:  # two at a time, as an `apply` of before could leave them
        executor_of(cluster, journal, settings).begin(record, journal.plan(record.execution.plan_id), now_ms=now_ms())
    for record in records:
        journal.request_abort(record.execution, "a person", now_ms=now_ms())
    watched = following(settings, cluster)
    assert [watched.to_the_end(record.execution).event for record in reversed(records)] == ["aborted"] * 3
    assert journal.open_executions(now_ms=now_ms()) == []
    assert cluster.changes == ["clear", "clear"]


def test_what_a_dead_control_has_left_is_carried_out_first(settings: Settings) -> None:
    cluster, journal = NotedCluster(moves=True), journal_of(settings)
    left = approve(journal, 0, now_ms=now_ms())
    executor_of(cluster, journal, settings).begin(left, journal.plan(left.execution.plan_id), now_ms=now_ms())
    record = approve(journal, 1, now_ms=now_ms())
    assert following(settings, cluster).to_the_end(record.execution).event == "done"
    assert cluster.changes == ["throttle", "move t-0", "clear", "throttle", "move t-1", "clear"]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_throttle_that_kafka_refuses_to_remove_ends_it_after_as_many_tries_as_by_control(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> list[int]:
        raise ClusterRequestFailed("throttle of topic t can't be changed: PolicyViolationError")

    cluster, journal = NotedCluster(), journal_of(settings)
    monkeypatch.setattr(cluster, "clear_throttle", refused)
    record = approve(journal, 0, now_ms=now_ms())
    follower = following(settings, cluster)
    execution = follower._poll(record.execution)
    while not execution.started_ms:
        execution = follower._poll(execution)
    journal.request_abort(execution, "a person", now_ms=now_ms())
    tries = 0
    while not execution.ended and tries <= CLEAR_TRIES_MAX:
        execution = follower._poll(execution)
        tries += 1
    assert execution.ended
    assert "PolicyViolationError" in execution.last.detail


def test_whoever_read_the_output_may_go_and_the_plan_is_carried_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = NotedCluster(moves=True)
    record = approve(journal_of(settings), 0, now_ms=now_ms())
    reading, writing = os.pipe()
    os.close(reading)
    nobody_reads = os.fdopen(writing, "w", buffering=1)
    with monkeypatch.context() as patched, structlog.testing.capture_logs():
        patched.setattr(sys, "stdout", nobody_reads)
        end = following(settings, cluster).to_the_end(record.execution)
    with suppress(BrokenPipeError):
        nobody_reads.close()
    assert end.event == "done"
    assert cluster.throttle_rates() == {}
