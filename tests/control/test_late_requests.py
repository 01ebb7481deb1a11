"""After an execution: requests that a broker held back, copies that metadata misses, brokers that answer nobody."""

import pytest
import structlog

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE, LEADER_REPLICAS, tagged
from streaming.control import run
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.late_requests import CHECKS_AFTER_MS, GIVEN_UP_AFTER_MS
from streaming.control.run import ControlLoop
from streaming.control.sweeping import READ_INTERVAL_MS
from streaming.control.wiring import journal_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster, approve, approve_plan, plan
from tests.simulated_cluster import Fate, PlannedFault, RequestKind

LATE_MS = 30_000
RATE = tagged(1_000_000)


def approve_slow(settings: Settings, cluster: NotedCluster) -> ExecutionRecord:
    """A plan that moves t-0 from broker 1 to 2; t-0 is too large to be copied within a test."""
    let_it_copy_for_long(cluster)
    made = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),), SKEW, SKEW)
    journal = journal_of(settings)
    return approve_plan(journal, made, live=cluster.describe())


def let_it_copy_for_long(cluster: NotedCluster) -> None:
    """No partition of t is copied within a test."""
    for partition in cluster.cluster.contents.topics["t"].partitions.values():
        partition.end_bytes = partition.acknowledged_bytes = 10**11
        for copy in partition.copies.values():
            copy.end_bytes = 10**11


def aborted_while_late(
    settings: Settings, cluster: NotedCluster, request: RequestKind, loop: ControlLoop | None = None
) -> ExecutionRecord:
    """An execution that was aborted while one of its requests lay in a broker that was frozen."""
    record, loop = approve_slow(settings, cluster), loop or ControlLoop(cluster, settings, now_ms=NOON_MS)
    cluster.faults.planned.append(PlannedFault(Fate.LATE, request, LATE_MS))
    with pytest.raises(ClusterUnreachable):
        loop.tick(now_ms=NOON_MS)
    journal = journal_of(settings)
    journal.request_abort(record.execution, "a person", now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + 1_000)
    record.execution = journal.execution(record.execution.execution_id)
    assert record.execution.last_event == "aborted"
    cluster.cluster.advance(LATE_MS)
    return record


def last_detail(settings: Settings, record: ExecutionRecord) -> str:
    event = journal_of(settings).execution(record.execution.execution_id).last
    return f"{event.event}: {event.detail}"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_move_that_begins_after_the_end_is_cancelled_and_named(settings: Settings, restarted: bool) -> None:
    cluster = NotedCluster()
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    record = aborted_while_late(settings, cluster, RequestKind.REASSIGN, loop)
    assert cluster.describe().partitions["t", 0].reassigning
    if restarted:
        loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000)
    loop.tick(now_ms=NOON_MS + CHECKS_AFTER_MS[0])
    assert cluster.describe().partitions["t", 0].reassigning  # not due yet: the end was a second later
    loop.tick(now_ms=NOON_MS + 1_000 + CHECKS_AFTER_MS[0])
    assert not cluster.describe().partitions["t", 0].reassigning
    assert last_detail(settings, record) == (
        "swept: late requests, carried out after the end: 1 move cancelled, first t-0"
    )


def test_a_throttle_that_is_set_after_the_end_is_removed(settings: Settings) -> None:
    cluster = NotedCluster()
    record = aborted_while_late(settings, cluster, RequestKind.CHANGE_THROTTLES)
    assert cluster.throttled_replicas(["t"])["t", LEADER_REPLICAS] == "0:1"
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000)
    loop.tick(now_ms=NOON_MS + 1_000 + CHECKS_AFTER_MS[0])
    assert cluster.throttled_replicas(["t"]) == {}
    assert last_detail(settings, record).startswith("swept: late requests, carried out after the end: throttle removed")


@pytest.mark.parametrize("others_move", [False, True])
def test_a_rate_alone_is_removed_at_the_first_look_that_shows_it(settings: Settings, others_move: bool) -> None:
    """Another tool may move something without a throttle, for ever: Kafka never ends a move that leaves out a replica
    which was being added.
    """
    cluster = NotedCluster()
    record = aborted_while_late(settings, cluster, RequestKind.REASSIGN)
    cluster.cluster.reassign({("t", 0): None})
    if others_move:
        cluster.cluster.reassign({("t", 1): (2, 3)})
        cluster.cluster.reassign({("t", 1): (1,)})
        cluster.cluster.advance(60_000)
    cluster.cluster.set_throttle_rate(1, LEADER_RATE, RATE)
    cluster.cluster.set_throttle_rate(1, FOLLOWER_RATE, 5)  # somebody's own
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000)
    loop.tick(now_ms=NOON_MS + 1_000 + CHECKS_AFTER_MS[0])
    assert cluster.throttle_rates() == {1: {FOLLOWER_RATE: 5}}
    assert cluster.describe().partitions["t", 1].reassigning == others_move
    assert "removed from 0 topics and brokers [1]" in last_detail(settings, record)


def test_what_others_do_after_the_end_is_left_alone(settings: Settings) -> None:
    """Another tool moves a partition of the plan elsewhere, with a throttle of its own."""
    cluster = NotedCluster()
    record = aborted_while_late(settings, cluster, RequestKind.REASSIGN)
    cluster.cluster.reassign({("t", 0): (3,)})
    cluster.cluster.set_throttle_rate(1, LEADER_RATE, 5)
    cluster.cluster.set_throttled_replicas("t", LEADER_REPLICAS, "0:1")
    before = last_detail(settings, record)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000)
    for after_ms in CHECKS_AFTER_MS:
        loop.tick(now_ms=NOON_MS + 1_000 + after_ms)
    assert cluster.describe().partitions["t", 0].target_replicas == (3,)
    assert cluster.throttle_rates() == {1: {LEADER_RATE: 5}}
    assert cluster.throttled_replicas(["t"])["t", LEADER_REPLICAS] == "0:1"
    assert last_detail(settings, record) == before


def test_entries_of_the_plan_go_where_another_tool_moves_another_partition(settings: Settings) -> None:
    cluster = NotedCluster()
    aborted_while_late(settings, cluster, RequestKind.CHANGE_THROTTLES)
    cluster.cluster.reassign({("t", 1): (3,)})
    cluster.cluster.append_throttled_replicas("t", LEADER_REPLICAS, "1:1")
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000)
    loop.tick(now_ms=NOON_MS + 1_000 + CHECKS_AFTER_MS[0])
    assert cluster.throttled_replicas(["t"]) == {("t", LEADER_REPLICAS): "1:1"}


def test_after_the_last_look_nothing_is_asked_any_more(settings: Settings) -> None:
    cluster = NotedCluster()
    record = aborted_while_late(settings, cluster, RequestKind.REASSIGN)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000 + CHECKS_AFTER_MS[-1])
    loop.tick(now_ms=NOON_MS + 3_000 + CHECKS_AFTER_MS[-1])
    assert cluster.describe().partitions["t", 0].reassigning
    assert last_detail(settings, record).startswith("aborted")


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_late_request_of_an_earlier_plan_took_back_is_named_once(settings: Settings, restarted: bool) -> None:
    """Nothing is left to cancel: the partition is empty, so the request ended as soon as it was carried out."""
    cluster = NotedCluster(moves=True)
    journal, loop = journal_of(settings), ControlLoop(cluster, settings, now_ms=NOON_MS)
    for number, (old, new) in enumerate(((1, 2), (2, 1))):
        made = Plan("c", (Movement("t", 0, (old,), (new,), 5.0),), SKEW, SKEW)
        record = approve_plan(journal, made, live=cluster.describe(), now_ms=NOON_MS + number)
        for tick in range(5):
            loop.tick(now_ms=NOON_MS + 1_000 * number + tick)
        assert journal.execution(record.execution.execution_id).done_ms is not None
    cluster.settle(("t", 0), (2,))
    if restarted:
        loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 10_000)
    for after_ms in CHECKS_AFTER_MS:
        loop.tick(now_ms=NOON_MS + 2_000 + after_ms)
    swept = [row.detail for row in journal.execution(record.execution.execution_id).events if row.event is Event.SWEPT]
    assert swept == [
        "late requests, carried out after the end: partitions that lie where an earlier plan wanted them: t-0 on [2]"
    ]


def test_a_step_of_a_move_that_comes_late_is_named_once(settings: Settings) -> None:
    """It has ended when it is seen, so there is nothing to cancel."""
    cluster = NotedCluster(moves=True, brokers=4)
    cluster.settle(("t", 0), (1, 2))
    journal, loop = journal_of(settings), ControlLoop(cluster, settings, now_ms=NOON_MS)
    made = Plan("c", (Movement("t", 0, (1, 2), (3, 4), 5.0),), SKEW, SKEW)
    record = approve_plan(journal, made, live=cluster.describe())
    for tick in range(10):
        loop.tick(now_ms=NOON_MS + tick)
    assert journal.execution(record.execution.execution_id).done_ms is not None
    cluster.settle(("t", 0), (1, 4))
    for after_ms in CHECKS_AFTER_MS:
        loop.tick(now_ms=NOON_MS + 1_000 + after_ms)
    events = journal.execution(record.execution.execution_id).events
    [swept] = [row.detail for row in events if row.event is Event.SWEPT]
    assert swept.endswith("that lie on a step of their move: t-0 on [1, 4]; a new plan takes them from there")


def test_a_look_that_kafka_refuses_keeps_control_from_nothing_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = NotedCluster()
    aborted_while_late(settings, cluster, RequestKind.CHANGE_THROTTLES)

    def refused(*_: object, **__: object) -> list[int]:
        raise ClusterRequestFailed("throttle of topic t can't be changed: PolicyViolationError")

    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000)
    decided: list[int] = []
    monkeypatch.setattr(loop._decider, "tick", lambda now_ms: decided.append(now_ms))
    monkeypatch.setattr(cluster, "clear_throttle", refused)
    ticks = [NOON_MS + 1_000 + CHECKS_AFTER_MS[0] + 60_000 * minute for minute in range(30)]
    for now_ms in ticks:
        loop.tick(now_ms=now_ms)
    assert decided == ticks
    assert cluster.throttled_replicas(["t"]) != {}


HOUR_MS = 3_600_000
KEY = ("t", 0)


def under_way(settings: Settings, cluster: NotedCluster) -> ControlLoop:
    """After three ticks the controller lists t-0, and from now on no metadata shows it."""
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    for second in range(3):
        loop.tick(now_ms=NOON_MS + 1_000 * second)
    assert KEY in cluster.describe().listed
    cluster.faults.hidden_topics.add("t")
    return loop


def last_event(journal: Journal, record: ExecutionRecord) -> str:
    return journal.execution(record.execution.execution_id).last.event.value


@pytest.mark.parametrize("by_deadline", [False, True])
def test_what_ends_cancels_it(settings: Settings, by_deadline: bool) -> None:
    cluster = NotedCluster()
    record = approve_slow(settings, cluster)
    loop, journal = under_way(settings, cluster), journal_of(settings)
    now_ms = NOON_MS + 5_000
    if by_deadline:
        now_ms = NOON_MS + settings.control.execution_deadline_ms + 1
    else:
        journal.request_abort(record.execution, "a person", now_ms=now_ms)
    for second in range(15):
        loop.tick(now_ms=now_ms + 1_000 * second)
    assert last_event(journal, record) == "aborted"
    assert "1 move in flight cancelled" in journal.execution(record.execution.execution_id).last.detail
    assert cluster.describe().listed == {}


def test_it_does_not_pause_while_it_copies(settings: Settings) -> None:
    """A pause removes the throttle: the rest of the copy would take all that the network has."""
    settings = Settings.model_validate({**settings.model_dump(), "control": {"maintenance_windows": ["12:00-13:00"]}})
    cluster, journal = NotedCluster(), journal_of(settings)
    let_it_copy_for_long(cluster)
    record = ExecutionRecord(journal.approve(plan(journal, 0), "a test", now_ms=NOON_MS, in_windows_only=True))
    loop = under_way(settings, cluster)
    loop.tick(now_ms=NOON_MS + HOUR_MS + 1_000)
    assert last_event(journal, record) != "paused"
    assert cluster.throttle_rates() != {}
    cluster.cluster.reassign({KEY: None})
    cluster.faults.hidden_topics.clear()
    loop.tick(now_ms=NOON_MS + HOUR_MS + 2_000)
    assert last_event(journal, record) == "paused"
    assert cluster.throttle_rates() == {}


def test_a_late_look_cancels_it(settings: Settings) -> None:
    cluster = NotedCluster()
    record, loop = approve_slow(settings, cluster), ControlLoop(cluster, settings, now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS)
    journal_of(settings).request_abort(record.execution, "a person", now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + 1_000)
    cluster.cluster.reassign({KEY: (2,)})  # a request that a broker held back
    cluster.faults.hidden_topics.add("t")
    loop.tick(now_ms=NOON_MS + 1_000 + CHECKS_AFTER_MS[0])
    assert last_event(journal_of(settings), record) == "swept"
    assert cluster.describe().listed == {}


SILENT_TICK_MS = 10_000
SILENT = 2


class Decisions:
    """Counts in the place of a decider."""

    def __init__(self) -> None:
        self.count = 0

    def tick(self, *, now_ms: int) -> ProposedPlan | None:  # noqa: ARG002 - as a decider takes it
        self.count += 1
        return None


class Watched:
    """A control with an execution of one movement to `SILENT`."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decisions = Decisions()
        monkeypatch.setattr(run, "decider_of", lambda *_, **__: self.decisions)
        self.cluster = NotedCluster(moves=True)
        self.journal = journal_of(settings)
        self.loop = ControlLoop(self.cluster, settings, now_ms=NOON_MS)
        self.record = approve(self.journal, 0)
        self.now_ms = NOON_MS

    @property
    def execution(self) -> Execution:
        return self.journal.execution(self.record.execution.execution_id)

    def tick(self, ms: int = 1_000) -> None:
        self.now_ms += ms
        self.cluster.cluster.advance(ms)
        self.loop.tick(now_ms=self.now_ms)

    def tick_until_it_ends(self) -> None:
        for _ in range(120):
            self.tick()
            if self.execution.ended:
                return
        raise AssertionError("it does not end")

    def tick_while_silent(self, ms: int) -> list[dict[str, object]]:
        """Ticks with the broker frozen: its session would end if the time of the cluster passed. Returns the log."""
        self.cluster.cluster.freeze_broker(SILENT)
        with structlog.testing.capture_logs() as logs:
            for at_ms in range(self.now_ms, self.now_ms + ms, SILENT_TICK_MS):
                self.loop.tick(now_ms=at_ms)
        self.now_ms += ms
        return [dict(row) for row in logs]

    def answers_again(self) -> None:
        self.cluster.cluster.resume_broker(SILENT)


def owing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The broker was down at the end and kept its rate; now it is back."""
    watched = Watched(settings, monkeypatch)
    watched.loop.tick(now_ms=NOON_MS)
    watched.cluster.cluster.kill_broker(SILENT)
    watched.cluster.cluster.advance(20_000)
    watched.journal.request_abort(watched.record.execution, "a person", now_ms=NOON_MS)
    watched.tick_until_it_ends()
    return watched


def test_a_late_look_that_a_broker_does_not_answer_holds_up_no_decision(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(settings, monkeypatch)
    watched.tick_until_it_ends()
    logs = watched.tick_while_silent(2 * CHECKS_AFTER_MS[-1])
    assert watched.decisions.count == 2 * CHECKS_AFTER_MS[-1] // SILENT_TICK_MS
    unanswered = [row for row in logs if row["event"] == "late_look_unanswered"]
    assert 1 < len(unanswered) < watched.decisions.count / 3  # it asks again, and not at each tick


def test_a_late_look_is_made_once_the_broker_answers_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(settings, monkeypatch)
    watched.tick_until_it_ends()
    watched.tick_while_silent(2 * CHECKS_AFTER_MS[-1])
    watched.answers_again()
    watched.cluster.cluster.set_throttle_rate(SILENT, FOLLOWER_RATE, tagged(5))
    watched.cluster.set_throttled_replicas({}, {"t": frozenset({(0, SILENT)})})
    for _ in range(20):
        watched.tick(SILENT_TICK_MS)
    assert watched.cluster.throttle_rates() == {}


def test_a_late_look_that_is_never_answered_is_given_up_at_last(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(settings, monkeypatch)
    watched.tick_until_it_ends()
    logs = watched.tick_while_silent(2 * GIVEN_UP_AFTER_MS)
    assert [row["event"] for row in logs if str(row["event"]).startswith("late_look")][-1] == "late_look_given_up"
    assert [row["event"] for row in logs].count("late_look_given_up") == 1


def test_a_sweep_that_a_broker_does_not_answer_holds_up_no_decision(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = owing(settings, monkeypatch)
    assert watched.execution.owes
    watched.cluster.cluster.restart_broker(SILENT)
    logs = watched.tick_while_silent(10 * READ_INTERVAL_MS)
    assert watched.decisions.count >= 10 * READ_INTERVAL_MS // SILENT_TICK_MS
    assert 1 < [row["event"] for row in logs].count("sweep_unanswered") <= 11
    watched.answers_again()
    watched.tick(READ_INTERVAL_MS)
    watched.tick(READ_INTERVAL_MS)
    assert not watched.execution.owes
