"""A throttle that others change: lists of replicas that brokers hear of late, that are `*` or gone, and rates."""

from collections.abc import Iterable

import pytest

from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.throttles import (
    EVERY_REPLICA,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    tagged,
)
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.journal import ExecutionRecord
from streaming.control.throttle import RATE_READ_INTERVAL_MS
from streaming.control.throttled_lists import ThrottledLists, throttle_scope
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster
from tests.simulated_cluster import ClientErrors, SimulatedClient, SimulatedCluster

MB = 1_000_000
RATE = tagged(MB // 10)
TICK_MS = 1_000
TICKS_MAX = 400
DELAY_MS = 4_000
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
RATES = tuple((broker_id, setting) for broker_id in (1, 2) for setting in (LEADER_RATE, FOLLOWER_RATE))


class Carried:
    """A partition of 20 MB goes from broker 1 to 2 at RATE, where the network would carry five times as much."""

    def __init__(self, tables: str) -> None:
        control = {"throttle_bytes_per_sec": RATE, "throttle_adaptive": False}
        settings = Settings.model_validate({"storage": {"tables": tables}, "control": control})
        self.cluster = SimulatedCluster.of({1: "a", 2: "b"}, network_bytes_per_sec=5 * RATE)
        self.cluster.create_topic("t", {0: (1,)}, size_bytes=20 * MB)
        self.client = SimulatedClient(self.cluster, errors=ClientErrors(ClusterRequestFailed, ClusterUnreachable))
        self.plan = Plan("c", (Movement("t", 0, (1,), (2,), 20.0 * MB),), SKEW, SKEW)
        journal = journal_of(settings)
        journal.make_tables()
        journal.write_plan(ProposedPlan(self.plan, elapsed_ms=1.0), decision=None, now_ms=NOON_MS)
        approved = journal.plan(self.plan.plan_id)
        self.record = ExecutionRecord(journal.approve(approved, "a test", now_ms=NOON_MS))
        self.executor = executor_of(self.client, journal, settings)
        assert self.executor.begin(self.record, approved, now_ms=NOON_MS)
        self.unthrottled_ms = 0
        """How long it was copied faster than RATE."""
        self.refused = 0

    def tick(self) -> bool:
        """One tick, and the time until the next; True once it has ended."""
        before = self.copied_bytes()
        try:
            return self.executor.tick(self.record, self.plan, now_ms=NOON_MS + self.cluster.now_ms)
        except RETRIED_ERRORS:
            self.refused += 1
            return False
        finally:
            self.cluster.advance(TICK_MS)
            self.unthrottled_ms += TICK_MS * (self.copied_bytes() - before > RATE)

    def copied_bytes(self) -> int:
        copy = self.cluster.contents.topics["t"].partitions[0].copies.get(2)
        return 0 if copy is None else copy.end_bytes

    def ticks(self, count: int) -> None:
        assert not any(self.tick() for _ in range(count))

    def to_the_end(self) -> None:
        """It ends as done, with nothing of ours left."""
        assert any(self.tick() for _ in range(TICKS_MAX)), self.record.execution.last
        assert self.record.execution.last_event is Event.DONE
        assert self.cluster.contents.topics["t"].partitions[0].replicas == (2,)
        assert self.client.throttle_rates() == {}

    def somebody_sets_every_replica(self) -> None:
        for setting in LISTS:
            self.cluster.set_throttled_replicas("t", setting, EVERY_REPLICA)

    def somebody_removes_the_lists(self) -> None:
        for setting in LISTS:
            self.cluster.remove_throttled_replicas("t", setting)

    def somebody_removes_rates(self, rates: Iterable[tuple[int, str]]) -> None:
        for broker_id, setting in rates:
            self.cluster.set_throttle_rate(broker_id, setting, None)

    def rates(self) -> dict[int, dict[str, int]]:
        """As the controller keeps them."""
        return self.cluster.contents.throttle_rates

    def lists(self) -> dict[str, str]:
        """As the controller keeps them."""
        return self.cluster.contents.topics["t"].throttled_replicas


@pytest.fixture
def carried(tables_in_memory: str) -> Carried:
    return Carried(tables_in_memory)


@pytest.mark.parametrize("delay_ms", [0, DELAY_MS])
def test_a_copy_is_unthrottled_no_longer_than_brokers_take_to_hear(carried: Carried, delay_ms: int) -> None:
    carried.cluster.contents.list_delay_ms = delay_ms
    carried.ticks(20)
    assert carried.unthrottled_ms <= delay_ms, "from the first request on"
    carried.unthrottled_ms = 0
    carried.somebody_sets_every_replica()
    carried.ticks(22)
    assert carried.unthrottled_ms == 0
    carried.somebody_removes_the_lists()
    carried.ticks(30)
    assert 0 < carried.unthrottled_ms <= RATE_READ_INTERVAL_MS + TICK_MS + delay_ms
    assert carried.lists() == {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:2"}
    carried.to_the_end()
    assert carried.lists() == {}


def test_entries_beside_every_replica_are_refused_until_brokers_show_it(carried: Carried) -> None:
    """Control asks again at each tick, and submits nothing before."""
    carried.cluster.contents.list_delay_ms = DELAY_MS
    carried.somebody_sets_every_replica()
    carried.ticks(DELAY_MS // TICK_MS)
    assert carried.refused == DELAY_MS // TICK_MS
    assert carried.copied_bytes() == 0
    carried.to_the_end()
    assert carried.unthrottled_ms == 0
    assert carried.refused == DELAY_MS // TICK_MS
    assert set(carried.lists().values()) == {EVERY_REPLICA}


def test_entries_are_removed_where_brokers_still_show_every_replica(carried: Carried) -> None:
    """`*` was there when the copy began and went shortly before its end, so that our entries came late."""
    carried.ticks(3)
    carried.cluster.contents.list_delay_ms = 1_000
    carried.somebody_sets_every_replica()
    carried.ticks(10)
    carried.somebody_removes_the_lists()
    while not carried.lists():
        carried.ticks(1)
    carried.cluster.contents.list_delay_ms = 3_600_000
    topic = carried.cluster.contents.topics["t"]
    topic.unheard.clear()
    topic.heard_replicas = dict.fromkeys(LISTS, EVERY_REPLICA)
    carried.to_the_end()
    assert carried.lists() == {}


def test_others_may_set_and_remove_lists_at_any_time(carried: Carried) -> None:
    carried.cluster.contents.list_delay_ms = 2_500
    for change in range(40):
        if change % 2:
            carried.somebody_removes_the_lists()
        else:
            carried.somebody_sets_every_replica()
        if any(carried.tick() for _ in range(1 + change * 7 % 5)):
            break
    else:
        carried.somebody_removes_the_lists()
        carried.to_the_end()
    assert carried.record.execution.last_event is Event.DONE
    assert set(carried.lists().values()) <= {EVERY_REPLICA}


def test_a_copy_is_unthrottled_no_longer_than_until_the_next_look_at_rates(carried: Carried) -> None:
    carried.ticks(2 * RATE_READ_INTERVAL_MS // TICK_MS + 1)  # right after a look
    carried.somebody_removes_rates(RATES)
    carried.ticks(30)
    assert 0 < carried.unthrottled_ms <= RATE_READ_INTERVAL_MS + TICK_MS
    assert carried.rates() == {broker_id: {LEADER_RATE: RATE, FOLLOWER_RATE: RATE} for broker_id in (1, 2)}
    carried.to_the_end()


@pytest.mark.parametrize("removed", RATES)
def test_one_rate_that_others_remove_is_set_again(carried: Carried, removed: tuple[int, str]) -> None:
    carried.ticks(10)
    carried.somebody_removes_rates([removed])
    carried.ticks(RATE_READ_INTERVAL_MS // TICK_MS + 1)
    assert carried.rates() == {broker_id: {LEADER_RATE: RATE, FOLLOWER_RATE: RATE} for broker_id in (1, 2)}
    carried.to_the_end()


def test_a_broker_that_hangs_is_not_asked_for_its_rate_for_ever(carried: Carried) -> None:
    """It takes no rate either: control goes on, and looks again once the broker answers."""
    carried.ticks(10)
    carried.cluster.freeze_broker(2)
    carried.ticks(RATE_READ_INTERVAL_MS // TICK_MS + 1)
    assert carried.refused == 0
    carried.somebody_removes_rates(RATES)
    carried.cluster.resume_broker(2)
    carried.ticks(RATE_READ_INTERVAL_MS // TICK_MS + 1)
    assert carried.rates() == {broker_id: {LEADER_RATE: RATE, FOLLOWER_RATE: RATE} for broker_id in (1, 2)}
    carried.to_the_end()


def test_what_could_not_be_named_is_not_submitted() -> None:
    cluster = NotedCluster(throttles_refused=True)
    plan = Plan("c", tuple(Movement("t", number, (1,), (2,), 5.0) for number in range(2)), SKEW, SKEW)
    keys = [row.key for row in plan.movements]
    lists = ThrottledLists(cluster)
    with pytest.raises(ClusterRequestFailed):
        lists.name(plan, plan.topics, keys, ())
    assert lists.unnamed(plan, keys) == keys
    cluster.throttles_refused = False
    lists.restore(plan, keys, ())
    assert lists.unnamed(plan, keys) == []
    assert cluster.throttled_replicas(["t"]) == {("t", LEADER_REPLICAS): "0:1,1:1", ("t", FOLLOWER_REPLICAS): "0:2,1:2"}


def test_only_partitions_that_copy_are_throttled() -> None:
    plan = Plan("c", (Movement("t", 0, (1, 2), (2, 1), 0.0), Movement("t", 1, (1,), (3,), 5.0)))
    scope = throttle_scope(plan)
    assert scope.brokers == {1, 3}
    assert scope.leaders == {"t": frozenset({(1, 1)})}
    assert scope.followers == {"t": frozenset({(1, 3)})}
