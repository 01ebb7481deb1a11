"""A wall clock that was hours ahead while an execution ended, and results that are measured in time or not at all."""

import pytest
import structlog

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.proposed_plan import ProposedPlan
from streaming.control import run
from streaming.control.absences import Absences
from streaming.control.late_requests import CHECKS_AFTER_MS
from streaming.control.run import ENDED_READ_INTERVAL_MS, MEASURE_PATIENCE_WINDOWS, ControlLoop
from streaming.control.wiring import decider_of, journal_of
from streaming.settings import DAY_MS, Settings
from tests.control.noted_cluster import NOON_MS, NotedCluster, approve
from tests.control.test_deciding import MINUTE_MS, crowded, last
from tests.control.test_late_requests import aborted_while_late, last_detail
from tests.control.windows import write_windows
from tests.simulated_cluster import RequestKind

AHEAD_MS = 6 * 3_600_000


def end_ahead(settings: Settings, event: Event, *, automatic: bool = False) -> None:
    journal, at_ms = journal_of(settings), NOON_MS + AHEAD_MS
    record = approve(journal, 0, now_ms=at_ms, in_windows_only=automatic)
    journal.write_event(record, Event.STARTED, "a test", now_ms=at_ms)
    journal.write_event(record, event, "a test", now_ms=at_ms)


@pytest.mark.long
def test_an_execution_that_ended_in_the_future_holds_up_decisions_for_minutes(settings: Settings) -> None:
    end_ahead(settings, Event.DONE)
    cluster = crowded()
    decider = decider_of(cluster, journal_of(settings), settings)
    verdicts = []
    for minute in range(1, 30, 2):
        now_ms = NOON_MS + minute * MINUTE_MS
        write_windows(settings, cluster.live, end_ms=now_ms, windows=12)
        decider.tick(now_ms=now_ms)
        verdicts.append(last(settings)["verdict"])
    assert verdicts[0] == "hold"  # it counts as a change that was just made
    assert "plan" in verdicts


def test_an_execution_that_was_given_up_in_the_future_is_followed_by_one_pause(settings: Settings) -> None:
    end_ahead(settings, Event.ABORTED, automatic=True)
    journal = journal_of(settings)
    given_up = journal.given_up(now_ms=NOON_MS)
    assert given_up.reason(NOON_MS) is not None
    later_ms = NOON_MS + given_up.pause_ms
    assert journal.given_up(now_ms=later_ms).reason(later_ms) is None


def test_after_the_clock_was_set_back_a_throttle_that_another_process_has_left_is_swept(settings: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(settings)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + AHEAD_MS)
    record = approve(journal, 0)
    journal.write_event(record, Event.STARTED, "a test", now_ms=NOON_MS)
    journal.write_event(record, Event.ABORTED, "a test", now_ms=NOON_MS, throttled_brokers=(2,))
    loop.tick(now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + ENDED_READ_INTERVAL_MS)
    assert not journal.execution(record.execution.execution_id).owes


def test_a_broker_that_a_clock_ahead_has_seen_offline_fails_after_its_grace_time() -> None:
    absences = Absences(2 * MINUTE_MS, 0.5)
    live = LiveCluster("c", dict.fromkeys((1, 2)), {("u", 0): LivePartition((1, 2, 3), 1, (1, 2))})
    absences.note(live, NOON_MS + AHEAD_MS)
    reasons = []
    for minute in range(3):
        absences.note(live, NOON_MS + minute * MINUTE_MS)
        reasons.append(absences.in_vain(live, []))
    assert reasons == [None, None, "broker 3 has been offline for 2 min: its replicas are re-created first"]


def test_late_requests_of_an_execution_that_ended_in_the_future_are_taken_back(settings: Settings) -> None:
    cluster = NotedCluster()
    record = aborted_while_late(settings, cluster, RequestKind.REASSIGN)
    set_back_ms = NOON_MS - AHEAD_MS
    loop = ControlLoop(cluster, settings, now_ms=set_back_ms)
    loop.tick(now_ms=set_back_ms)
    assert cluster.describe().partitions["t", 0].reassigning, "it is due a minute later"
    loop.tick(now_ms=set_back_ms + CHECKS_AFTER_MS[0])
    assert not cluster.describe().partitions["t", 0].reassigning
    assert "1 move cancelled" in last_detail(settings, record)


def test_the_result_of_an_execution_that_ended_in_the_future_is_measured(settings: Settings) -> None:
    end_ahead(settings, Event.DONE)
    cluster = NotedCluster()
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    for minute in range(12):
        now_ms = NOON_MS + minute * MINUTE_MS
        write_windows(settings, cluster.describe(), end_ms=now_ms, windows=12)
        loop.tick(now_ms=now_ms)
    (execution,) = journal_of(settings).executions(now_ms=NOON_MS + 12 * MINUTE_MS)
    assert execution.measured is not None


def test_bytes_of_an_execution_that_ended_in_the_future_are_of_one_day(settings: Settings) -> None:
    day_ms, journal = 24 * 60 * MINUTE_MS, journal_of(settings)
    at_ms = NOON_MS + 365 * day_ms
    record = approve(journal, 0, now_ms=at_ms, in_windows_only=True)
    journal.write_event(record, Event.STARTED, "a test", now_ms=at_ms)
    journal.write_event(record, Event.DONE, "a test", now_ms=at_ms, bytes_moved=5)
    copied = [
        journal.automatic_bytes(since_ms=now_ms - day_ms, now_ms=now_ms)
        for now_ms in (NOON_MS, NOON_MS + day_ms - 1, NOON_MS + day_ms)
    ]
    assert copied == [5, 5, 0]


@pytest.fixture
def undecided(tables_in_memory: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(run, "decider_of", lambda *_, **__: NoDecisions())
    return Settings.model_validate({"storage": {"tables": tables_in_memory}})


class NoDecisions:
    def tick(self, *, now_ms: int) -> ProposedPlan | None:  # noqa: ARG002 - as a decider takes it
        return None


def carried_out(undecided: Settings, cluster: NotedCluster) -> Execution:
    loop, journal = ControlLoop(cluster, undecided, now_ms=NOON_MS), journal_of(undecided)
    execution_id = approve(journal, 0).execution.execution_id
    for second in range(60):
        loop.tick(now_ms=NOON_MS + second * 1_000)
        cluster.cluster.advance(1_000)
    execution = journal.execution(execution_id)
    assert execution.last_event is Event.DONE
    return execution


def restarted(undecided: Settings, cluster: NotedCluster, now_ms: int) -> list[str]:
    """A control that starts then, and what it logs at its first tick."""
    with structlog.testing.capture_logs() as logs:
        ControlLoop(cluster, undecided, now_ms=now_ms).tick(now_ms=now_ms)
    return [str(row["event"]) for row in logs]


def test_a_control_that_starts_days_later_measures_nothing(undecided: Settings) -> None:
    cluster = NotedCluster(moves=True)
    execution = carried_out(undecided, cluster)
    later_ms = NOON_MS + 20 * DAY_MS
    write_windows(undecided, cluster.describe(), end_ms=later_ms, windows=12)
    assert "result_not_measured" in restarted(undecided, cluster, later_ms)
    assert journal_of(undecided).execution(execution.execution_id).last_event is Event.DONE


def test_a_control_that_starts_minutes_later_measures_what_came_after_the_end(undecided: Settings) -> None:
    cluster = NotedCluster(moves=True)
    execution = carried_out(undecided, cluster)
    later_ms = NOON_MS + (MEASURE_PATIENCE_WINDOWS + 2) * undecided.pipeline.window_ms
    write_windows(undecided, cluster.describe(), end_ms=later_ms, windows=12)
    assert "measured" in restarted(undecided, cluster, later_ms)
    measured = journal_of(undecided).execution(execution.execution_id).last
    assert measured.event is Event.MEASURED
    # One of the three partitions has left broker 1, where all of them were before.
    assert measured.detail == "max/mean measured (promised): bytes_in 2.000 (2.000)"
