"""Plans whose throttle names more replicas of one topic than the lists of that topic take."""

from collections import Counter
from collections.abc import Collection, Mapping

import pytest

from assignor_core import throttles
from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, VALUE_BYTES_MAX, ThrottledReplicas
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.simulated_cluster import ClientErrors, SimulatedClient, SimulatedCluster

BROKERS = tuple(2_000_000_000 + number for number in range(4))
"""Their ids are as long as Kafka's may be."""
IN_FLIGHT = 400
TICKS_MAX = 200
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


class Watched(SimulatedClient):
    """Notes how many movements are asked for without an entry for each replica that is added."""

    requests: Counter[str]
    unnamed: int = 0

    def reassign(self, targets: Mapping[tuple[str, int], tuple[int, ...] | None]) -> None:
        for (topic, partition), target in targets.items():
            row = self.cluster.contents.topics[topic]
            named = row.throttled_replicas.get(FOLLOWER_REPLICAS, "").split(",")
            added = set(target or ()) - set(row.partitions[partition].replicas)
            self.unnamed += any(f"{partition}:{broker}" not in named for broker in added)
        super().reassign(targets)

    def set_throttled_replicas(
        self, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        self.requests["named"] += 1
        super().set_throttled_replicas(leaders, followers)

    def clear_throttle(
        self,
        brokers: Collection[int],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,
    ) -> list[int]:
        self.requests["cleared"] += 1
        return super().clear_throttle(brokers, leaders, followers, untagged=untagged)


class Drained:
    """`count` partitions of one topic leave the first broker, all in one wave as an earlier version planned them."""

    def __init__(self, tables: str, count: int) -> None:
        control = {
            "movements_in_flight_max": IN_FLIGHT,
            "movements_per_broker_max": IN_FLIGHT,
            "throttle_adaptive": False,
        }
        self.settings = Settings.model_validate({"storage": {"tables": tables}, "control": control})
        self.cluster = SimulatedCluster.of(dict.fromkeys(BROKERS))
        self.cluster.create_topic("t", dict.fromkeys(range(count), BROKERS[:3]), size_bytes=1_000)
        self.client = Watched(self.cluster, errors=ClientErrors(ClusterRequestFailed, ClusterUnreachable))
        self.client.requests = Counter()
        moves = (Movement("t", number, BROKERS[:3], (*BROKERS[1:3], BROKERS[3]), 1_000.0) for number in range(count))
        self.plan = Plan("c", tuple(moves), SKEW, SKEW)
        journal = journal_of(self.settings)
        journal.make_tables()
        proposed = ProposedPlan(self.plan, elapsed_ms=1.0)
        self.journal, self.approved = journal, journal.write_plan(proposed, decision=None, now_ms=NOON_MS)
        self.record = ExecutionRecord(journal.approve(self.approved, "a test", now_ms=NOON_MS))
        self.executor = executor_of(self.client, journal, self.settings)
        assert self.executor.begin(self.record, self.approved, now_ms=NOON_MS)

    def tick(self) -> bool:
        """One tick, and the second after it; True once the execution has ended."""
        ended = self.executor.tick(self.record, self.plan, now_ms=NOON_MS + self.cluster.now_ms)
        self.cluster.advance(1_000)
        return ended

    def to_the_end(self) -> None:
        assert any(self.tick() for _ in range(TICKS_MAX)), self.record.execution.last

    def restart(self) -> None:
        """Another process goes on."""
        self.executor = executor_of(self.client, self.journal, self.settings)
        self.executor.resume(self.approved)

    def abort(self) -> None:
        now_ms = NOON_MS + self.cluster.now_ms
        self.journal.request_abort(self.record.execution, "a person", now_ms=now_ms)
        self.record.execution = self.journal.execution(self.record.execution.execution_id)

    def lists(self) -> dict[str, str]:
        """As the controller keeps them."""
        return self.cluster.contents.topics["t"].throttled_replicas

    def moved(self) -> int:
        return sum(BROKERS[0] not in row.replicas for row in self.cluster.contents.topics["t"].partitions.values())


def test_a_topic_is_drained_whose_entries_would_fill_the_lists_many_times_over(tables_in_memory: str) -> None:
    drained = Drained(tables_in_memory, 1_000)
    drained.to_the_end()
    assert drained.record.execution.last_event is Event.DONE
    assert drained.moved() == 1_000
    assert drained.client.unnamed == 0
    assert drained.lists() == {}
    assert drained.client.throttle_rates() == {}


def test_what_fits_is_named_once(tables_in_memory: str) -> None:
    drained = Drained(tables_in_memory, 100)
    drained.to_the_end()
    assert drained.client.requests == {"named": 1, "cleared": 1}
    assert drained.client.unnamed == 0


def test_an_abort_ends_whatever_an_earlier_version_has_named(tables_in_memory: str) -> None:
    """It named all of the plan at once, as far as Kafka took it."""
    drained = Drained(tables_in_memory, 1_000)
    drained.tick()
    for setting, brokers in zip(LISTS, (BROKERS[:3], BROKERS[3:]), strict=True):
        entries = throttles.entries_text((number, broker) for number in range(1_000) for broker in brokers)
        drained.cluster.set_throttled_replicas("t", setting, entries[: VALUE_BYTES_MAX - 4].rpartition(",")[0] + ",7:7")
    drained.restart()
    drained.abort()
    drained.to_the_end()
    assert drained.record.execution.last_event is Event.ABORTED
    assert drained.lists() == dict.fromkeys(LISTS, "7:7")


@pytest.mark.parametrize("free", [0, 400])
def test_entries_of_others_stay_and_leave_less_room(tables_in_memory: str, free: int) -> None:
    """Without any room nothing is moved; the execution says so, and goes on once there is some."""
    drained = Drained(tables_in_memory, 60)
    foreign = "7:".ljust(VALUE_BYTES_MAX - free - 1, "0") + "7"
    for setting in LISTS:
        drained.cluster.set_throttled_replicas("t", setting, foreign)
    for _ in range(5):
        drained.tick()
    assert drained.client.unnamed == 0
    if not free:
        assert drained.moved() == 0
        details = [event.detail for event in drained.record.execution.events]
        assert any("lists of throttled replicas of topic t have no room" in detail for detail in details)
        for setting in LISTS:
            drained.cluster.set_throttled_replicas("t", setting, "7:7")
    drained.to_the_end()
    assert drained.record.execution.last_event is Event.DONE
    assert drained.moved() == 60
    assert drained.lists() == dict.fromkeys(LISTS, foreign if free else "7:7")
    assert drained.client.unnamed == 0


@pytest.fixture
def small_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a value of Kafka had 260 bytes at most."""
    monkeypatch.setattr(throttles, "VALUE_BYTES_MAX", 260)
    monkeypatch.setattr(throttles, "LIST_BYTES_MAX", 130)


@pytest.mark.usefixtures("small_lists")
def test_another_process_may_go_on_at_any_time(tables_in_memory: str) -> None:
    """It finds entries of what is made by now, which fill the lists."""
    drained = Drained(tables_in_memory, 12)
    while not drained.tick():
        drained.restart()
        assert drained.cluster.now_ms < TICKS_MAX * 1_000, drained.record.execution.last
    assert drained.record.execution.last_event is Event.DONE
    assert drained.moved() == 12
    assert drained.client.unnamed == 0
    assert drained.lists() == {}
