"""Requests that a broker holds back and carries out after the end: named, cancelled, their throttles removed."""

import pytest

from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE, LEADER_REPLICAS, tagged
from streaming.control.journal import ExecutionRecord
from streaming.control.late_requests import CHECKS_AFTER_MS
from streaming.control.run import ControlLoop
from streaming.control.wiring import journal_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster
from tests.simulated_cluster import Fate, PlannedFault, RequestKind

LATE_MS = 30_000
RATE = tagged(1_000_000)


def approve(settings: Settings, cluster: NotedCluster) -> ExecutionRecord:
    """A plan that moves t-0 from broker 1 to 2; t-0 is too large to be copied within a test."""
    let_it_copy_for_long(cluster)
    made = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),), SKEW, SKEW)
    journal = journal_of(settings)
    proposed = ProposedPlan(made, Observed.of(made, cluster.describe()), elapsed_ms=1.0)
    kept = journal.write_plan(proposed, decision=None, now_ms=NOON_MS)
    return ExecutionRecord(journal.approve(kept, "a test", now_ms=NOON_MS))


def let_it_copy_for_long(cluster: NotedCluster) -> None:
    """No partition of t is copied within a test."""
    for partition in cluster.cluster.contents.topics["t"].partitions.values():
        partition.end_bytes = partition.acknowledged_bytes = 10**11
        for copy in partition.copies.values():
            copy.end_bytes = 10**11


def aborted_while_late(settings: Settings, cluster: NotedCluster, request: RequestKind) -> ExecutionRecord:
    """An execution that was aborted while one of its requests lay in a broker that was frozen."""
    record, loop = approve(settings, cluster), ControlLoop(cluster, settings, now_ms=NOON_MS)
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
    record, journal = approve(settings, cluster), journal_of(settings)
    cluster.faults.planned.append(PlannedFault(Fate.LATE, RequestKind.REASSIGN, LATE_MS))
    with pytest.raises(ClusterUnreachable):
        loop.tick(now_ms=NOON_MS)
    journal.request_abort(record.execution, "a person", now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + 1_000)
    cluster.cluster.advance(LATE_MS)
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


def assert_our_rate_goes_at_the_first_look(cluster: NotedCluster, settings: Settings) -> None:
    cluster.cluster.set_throttle_rate(1, LEADER_RATE, RATE)
    cluster.cluster.set_throttle_rate(1, FOLLOWER_RATE, 5)  # somebody's own
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2_000)
    loop.tick(now_ms=NOON_MS + 1_000 + CHECKS_AFTER_MS[0])
    assert cluster.throttle_rates() == {1: {FOLLOWER_RATE: 5}}


def test_a_rate_alone_is_removed_at_the_first_look_that_shows_it(settings: Settings) -> None:
    cluster = NotedCluster()
    record = aborted_while_late(settings, cluster, RequestKind.REASSIGN)
    cluster.cluster.reassign({("t", 0): None})
    assert_our_rate_goes_at_the_first_look(cluster, settings)
    assert "removed from 0 topics and brokers [1]" in last_detail(settings, record)


def test_a_rate_alone_is_removed_though_another_tool_moves_something_without_a_throttle(settings: Settings) -> None:
    """That move may go on for ever: Kafka never ends one that leaves out a replica which was being added."""
    cluster = NotedCluster()
    aborted_while_late(settings, cluster, RequestKind.REASSIGN)
    cluster.cluster.reassign({("t", 0): None})
    cluster.cluster.reassign({("t", 1): (2, 3)})
    cluster.cluster.reassign({("t", 1): (1,)})
    cluster.cluster.advance(60_000)
    assert cluster.describe().partitions["t", 1].reassigning
    assert_our_rate_goes_at_the_first_look(cluster, settings)
    assert cluster.describe().partitions["t", 1].reassigning


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
        proposed = ProposedPlan(made, Observed.of(made, cluster.describe()))
        kept = journal.write_plan(proposed, decision=None, now_ms=NOON_MS)
        record = ExecutionRecord(journal.approve(kept, "a test", now_ms=NOON_MS + number))
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
