"""Throttles: their rates, lists of replicas that others change or that are too long, and brokers that come back."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from assignor_core import throttles
from assignor_core.execution.adaptive_rates import ADAPT_INTERVAL_MS
from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import (
    EVERY_REPLICA,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    VALUE_BYTES_MAX,
    ThrottledReplicas,
    tagged,
)
from streaming import tables
from streaming.control import throttle
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.throttle import RATE_READ_INTERVAL_MS, Clearing, Remains
from streaming.control.throttled_lists import ThrottledLists, throttle_scope
from streaming.control.wiring import rates_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import Settings
from tests.control import test_movements_within_brokers as within
from tests.control.carried import ERRORS, MB, TICK_MS, TICKS_MAX, BothMoved, Carried
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster
from tests.control.windows import window_columns
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

RATE = tagged(MB // 10)
DELAY_MS = 4_000
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
RATES = tuple((broker_id, setting) for broker_id in (1, 2) for setting in (LEADER_RATE, FOLLOWER_RATE))


class Throttled(Carried):
    """A partition of 20 MB goes from broker 1 to 2 at RATE, where the network would carry five times as much."""

    def __init__(self, tables: str) -> None:
        control = {"throttle_bytes_per_sec": RATE, "throttle_adaptive": False}
        cluster = SimulatedCluster.of({1: "a", 2: "b"}, network_bytes_per_sec=5 * RATE)
        cluster.create_topic("t", {0: (1,)}, size_bytes=20 * MB)
        settings = Settings.model_validate({"storage": {"tables": tables}, "control": control})
        plan = Plan("c", (Movement("t", 0, (1,), (2,), 20.0 * MB),), SKEW, SKEW)
        super().__init__(settings, cluster, plan)
        assert self.begin()
        self.unthrottled_ms = 0
        """How long it was copied faster than RATE."""
        self.refused = 0

    def tick(self) -> bool:
        before = self.copied_bytes()
        try:
            return super().tick()
        except RETRIED_ERRORS:
            self.refused += 1
            return False
        finally:
            self.unthrottled_ms += TICK_MS * (self.copied_bytes() - before > RATE)

    def copied_bytes(self) -> int:
        copy = self.cluster.contents.topics["t"].partitions[0].copies.get(2)
        return 0 if copy is None else copy.end_bytes

    def made(self) -> None:
        """It ends as done, with nothing of ours left."""
        assert self.to_the_end()[-1] is Event.DONE
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
        """Throttle rates by broker and setting, as the controller keeps them."""
        return self.cluster.contents.throttle_rates


@pytest.fixture
def carried(tables_in_memory: str) -> Throttled:
    return Throttled(tables_in_memory)


@pytest.mark.parametrize("delay_ms", [0, DELAY_MS])
def test_a_copy_is_unthrottled_no_longer_than_brokers_take_to_hear(carried: Throttled, delay_ms: int) -> None:
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
    carried.made()
    assert carried.lists() == {}


def test_entries_beside_every_replica_are_refused_until_brokers_show_it(carried: Throttled) -> None:
    """Control asks again at each tick, and submits nothing before."""
    carried.cluster.contents.list_delay_ms = DELAY_MS
    carried.somebody_sets_every_replica()
    carried.ticks(DELAY_MS // TICK_MS)
    assert carried.refused == DELAY_MS // TICK_MS
    assert carried.copied_bytes() == 0
    carried.made()
    assert carried.unthrottled_ms == 0
    assert carried.refused == DELAY_MS // TICK_MS
    assert set(carried.lists().values()) == {EVERY_REPLICA}


def test_entries_are_removed_where_brokers_still_show_every_replica(carried: Throttled) -> None:
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
    carried.made()
    assert carried.lists() == {}


def test_others_may_set_and_remove_lists_at_any_time(carried: Throttled) -> None:
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
        carried.made()
    assert carried.record.execution.last_event is Event.DONE
    assert set(carried.lists().values()) <= {EVERY_REPLICA}


def test_a_copy_is_unthrottled_no_longer_than_until_the_next_look_at_rates(carried: Throttled) -> None:
    carried.ticks(2 * RATE_READ_INTERVAL_MS // TICK_MS + 1)  # right after a look
    carried.somebody_removes_rates(RATES)
    carried.ticks(30)
    assert 0 < carried.unthrottled_ms <= RATE_READ_INTERVAL_MS + TICK_MS
    assert carried.rates() == {broker_id: {LEADER_RATE: RATE, FOLLOWER_RATE: RATE} for broker_id in (1, 2)}
    carried.made()


@pytest.mark.parametrize("removed", RATES)
def test_one_rate_that_others_remove_is_set_again(carried: Throttled, removed: tuple[int, str]) -> None:
    carried.ticks(10)
    carried.somebody_removes_rates([removed])
    carried.ticks(RATE_READ_INTERVAL_MS // TICK_MS + 1)
    assert carried.rates() == {broker_id: {LEADER_RATE: RATE, FOLLOWER_RATE: RATE} for broker_id in (1, 2)}
    carried.made()


def test_a_broker_that_hangs_is_not_asked_for_its_rate_for_ever(carried: Throttled) -> None:
    """It takes no rate either: control goes on, and looks again once the broker answers."""
    carried.ticks(10)
    carried.cluster.freeze_broker(2)
    carried.ticks(RATE_READ_INTERVAL_MS // TICK_MS + 1)
    assert carried.refused == 0
    carried.somebody_removes_rates(RATES)
    carried.cluster.resume_broker(2)
    carried.ticks(RATE_READ_INTERVAL_MS // TICK_MS + 1)
    assert carried.rates() == {broker_id: {LEADER_RATE: RATE, FOLLOWER_RATE: RATE} for broker_id in (1, 2)}
    carried.made()


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


SILENT_MS = 20_000
"""After this long Kafka no longer shows a broker that was killed."""


def small_cluster(**replicas: Any) -> SimulatedCluster:
    made = SimulatedCluster.of(dict.fromkeys((1, 2, 3, 4)), network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    made.create_topic("t", {int(name[1:]): row for name, row in replicas.items()}, size_bytes=20 * MB)
    return made


def test_a_broker_that_was_away_at_the_start_sends_with_a_rate(settings: Settings) -> None:
    cluster = small_cluster(p0=(3, 1), p1=(3, 1))
    cluster.kill_broker(3)
    cluster.advance(SILENT_MS)
    moves = (Movement("t", 0, (3, 1), (3, 2), 20.0 * MB), Movement("t", 1, (3, 1), (3, 4), 20.0 * MB))
    carried = BothMoved(settings, cluster, Plan("c", moves, SKEW, SKEW))
    assert carried.record.execution.throttled_brokers == (1, 2, 4)
    carried.tick()
    cluster.restart_broker(3)
    cluster.advance(5_000)
    carried.client.elect_preferred([("t", 0), ("t", 1)])
    sent_with = []
    while not carried.tick():
        led = {row.leader for row in carried.client.describe().partitions.values() if row.reassigning}
        sent_with += [carried.client.throttle_rates().keys() for _ in led & {3}]
    assert sent_with
    assert all(3 in brokers for brokers in sent_with)
    details = [event.detail for event in carried.record.execution.events]
    assert "brokers [3] take the throttle now: they were offline, or had a rate of somebody else's" in details
    assert carried.client.throttle_rates() == {}


def test_where_somebody_takes_away_a_rate_ours_takes_its_place(settings: Settings) -> None:
    cluster = small_cluster(p0=(1,), p1=(1,))
    for broker in (1, 2):
        for rate in (LEADER_RATE, FOLLOWER_RATE):
            cluster.set_throttle_rate(broker, rate, MB // 2)
    plan = Plan("c", tuple(Movement("t", number, (1,), (2,), 20.0 * MB) for number in (0, 1)), SKEW, SKEW)
    carried = BothMoved(settings, cluster, plan)
    assert carried.record.execution.throttled_brokers == ()
    for _ in range(10):
        carried.tick()
    assert carried.client.throttle_rates()[1] == {LEADER_RATE: MB // 2, FOLLOWER_RATE: MB // 2}
    for broker in (1, 2):
        for rate in (LEADER_RATE, FOLLOWER_RATE):
            cluster.set_throttle_rate(broker, rate, None)
    for _ in range(10):
        carried.tick()
    assert carried.client.describe().reassigning()
    assert carried.client.throttle_rates().keys() == {1, 2}
    carried.to_the_end()
    assert carried.client.throttle_rates() == {}


def test_a_broker_that_was_away_when_its_movements_went_on_copies_with_a_rate(settings: Settings) -> None:
    control = {
        "maintenance_windows": ["Mon 11:00-12:01", "Mon 12:10-13:00"], "movements_per_broker_max": 1,
        "log_dir_throttle_bytes_per_sec": MB, "throttle_min_bytes_per_sec": MB,
    }  # fmt: skip
    own = Settings.model_validate({**settings.model_dump(), "control": {**settings.model_dump()["control"], **control}})
    cluster = within.cluster_of_two_log_dirs()
    cluster.advance(54_000)
    carried = within.MovedWithin(own, cluster, in_windows_only=True)
    assert carried.begin()
    while not carried.record.execution.paused:
        assert not carried.tick()
    while carried.record.execution.paused:
        if carried.now_ms >= NOON_MS + 599_000 and cluster.contents.brokers[1].running:
            cluster.kill_broker(1)
            cluster.advance(SILENT_MS)
        assert not carried.tick()
    assert carried.record.execution.throttled_brokers == ()
    cluster.restart_broker(1)
    copied_with = []
    while not carried.tick():
        rates = carried.client.log_dir_rates()
        partitions = [cluster.contents.partition(key) for key in within.KEYS]
        is_copying = any(row is not None and row.copies[1].future is not None for row in partitions)
        copied_with += [rates] if is_copying else []
    assert copied_with
    assert all(1 in rates for rates in copied_with)


RATES_NOON_MS = 1_700_000_040_000
HOUR_MS = 3_600_000
WINDOW_MS = 60_000
BROKERS = frozenset({1, 2})
LOOKS_MAX = 20


def test_rates_that_no_broker_took_are_told_again(tmp_path: Path) -> None:
    settings = Settings.model_validate({"storage": {"tables": str(tmp_path)}})
    rates = rates_of(settings)
    first = rates.initial(BROKERS, now_ms=0)
    rates.sent(first)
    lowest = dict.fromkeys(BROKERS, tagged(settings.control.throttle_min_bytes_per_sec))
    wanted = first
    for look in range(1, LOOKS_MAX):
        wanted = rates.changed(BROKERS, pressed=True, now_ms=look * ADAPT_INTERVAL_MS) or {}
    assert wanted == lowest, "as long as it is refused"
    rates.sent(wanted)
    assert rates.changed(BROKERS, pressed=True, now_ms=LOOKS_MAX * ADAPT_INTERVAL_MS) is None


def test_a_clock_that_is_set_back_does_not_keep_rates_as_they_are(tables_in_memory: str) -> None:
    settings = Settings.model_validate({"storage": {"tables": tables_in_memory}})
    rates = rates_of(settings)
    rates.sent(rates.initial(BROKERS, now_ms=RATES_NOON_MS))
    assert rates.changed(BROKERS, pressed=True, now_ms=RATES_NOON_MS - HOUR_MS) is not None


def with_capacities(root: str) -> Settings:
    """Brokers that may carry 10 MB/s in each direction."""
    capacity = {"bytes_in_per_sec": 10_000_000, "bytes_out_per_sec": 10_000_000}
    return Settings.model_validate(
        {
            "storage": {"tables": root},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "planner": {"capacities": dict.fromkeys(BROKERS, capacity)},
        }
    )


def write_window(settings: Settings, end_ms: int, loads: Mapping[int, float | None]) -> None:
    """Brokers of `loads` have reported; None: without knowing their traffic."""
    audit = window_columns(settings.kafka.cluster_name, end_ms - WINDOW_MS, WINDOW_MS)
    rows = [
        {**audit, "broker": broker, "bytes_in_per_sec": load, "bytes_out_per_sec": load}
        for broker, load in loads.items()
    ]
    tables.append(settings.storage.tables, "broker_load", rows, transaction_id="windows", transaction_version=end_ms)


@pytest.mark.parametrize("newest", [{2: 7e6}, {1: None, 2: 7e6}, {}])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_broker_that_does_not_report_gets_no_more_than_before(
    tables_in_memory: str, newest: Mapping[int, float | None], restarted: bool
) -> None:
    """It may be too busy to answer its collector."""
    settings = with_capacities(tables_in_memory)
    write_window(settings, RATES_NOON_MS, dict.fromkeys(BROKERS, 7e6))
    rates = rates_of(settings)
    first = rates.initial(BROKERS, now_ms=RATES_NOON_MS)
    assert first == dict.fromkeys(BROKERS, tagged(2_400_000))
    rates.sent(first)
    if newest:
        write_window(settings, RATES_NOON_MS + WINDOW_MS, newest)
    if restarted:
        rates = rates_of(settings)
        assert rates.initial(BROKERS, now_ms=RATES_NOON_MS + WINDOW_MS + 10_000) == first
    else:
        assert rates.changed(BROKERS, pressed=False, now_ms=RATES_NOON_MS + WINDOW_MS + 10_000) is None


def test_rates_stay_while_the_pipeline_is_down(tables_in_memory: str) -> None:
    settings = with_capacities(tables_in_memory)
    write_window(settings, RATES_NOON_MS, {1: 7e6, 2: 1e6})
    rates = rates_of(settings)
    rates.sent(rates.initial(BROKERS, now_ms=RATES_NOON_MS))
    for look in range(1, 3 * HOUR_MS // ADAPT_INTERVAL_MS):
        assert rates.changed(BROKERS, pressed=False, now_ms=RATES_NOON_MS + look * ADAPT_INTERVAL_MS) is None
    # Less is always possible, and what the next window shows counts.
    now_ms = RATES_NOON_MS + 3 * HOUR_MS
    rates.sent(rates.changed(BROKERS, pressed=True, now_ms=now_ms) or {})
    write_window(settings, now_ms, {1: 1e6, 2: 1e6})
    assert rates.changed(BROKERS, pressed=False, now_ms=now_ms + ADAPT_INTERVAL_MS) == dict.fromkeys(
        (1, 2), tagged(4_500_000)
    )


def refused() -> list[int]:
    raise ClusterRequestFailed("PolicyViolationError")


def unreachable() -> list[int]:
    raise ClusterUnreachable("no broker answered")


def test_a_refusal_is_raised_until_there_were_too_many_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "CLEAR_TRIES_MAX", 3)
    tries = Clearing()
    for _ in range(2):
        with pytest.raises(ClusterRequestFailed):
            tries.remains(refused, lambda: (1, 2))
    assert tries.remains(lambda: [2], lambda: (1, 2)) == Remains((2,)), "the next refusal is the first of a row"
    for _ in range(2):
        with pytest.raises(ClusterRequestFailed):
            tries.remains(refused, lambda: (1, 2))
    with pytest.raises(ClusterUnreachable):
        tries.remains(unreachable, lambda: (1, 2))
    assert tries.remains(refused, lambda: (1, 2)) == Remains((1, 2), "PolicyViolationError")


LONG_IDS = tuple(2_000_000_000 + number for number in range(4))
"""Their ids are as long as Kafka's may be."""
IN_FLIGHT = 400


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


class Drained(Carried):
    """`count` partitions of one topic leave the first broker, all in one wave as an earlier version planned them."""

    client: Watched

    def __init__(self, tables: str, count: int) -> None:
        control = {
            "movements_in_flight_max": IN_FLIGHT,
            "movements_per_broker_max": IN_FLIGHT,
            "throttle_adaptive": False,
        }
        settings = Settings.model_validate({"storage": {"tables": tables}, "control": control})
        cluster = SimulatedCluster.of(dict.fromkeys(LONG_IDS))
        cluster.create_topic("t", dict.fromkeys(range(count), LONG_IDS[:3]), size_bytes=1_000)
        moves = (Movement("t", number, LONG_IDS[:3], (*LONG_IDS[1:3], LONG_IDS[3]), 1_000.0) for number in range(count))
        super().__init__(settings, cluster, Plan("c", tuple(moves), SKEW, SKEW), client=Watched(cluster, errors=ERRORS))
        self.client.requests = Counter()
        assert self.begin()

    def moved(self) -> int:
        return sum(LONG_IDS[0] not in row.replicas for row in self.cluster.contents.topics["t"].partitions.values())


@pytest.mark.long
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


@pytest.mark.long
def test_an_abort_ends_whatever_an_earlier_version_has_named(tables_in_memory: str) -> None:
    """It named all of the plan at once, as far as Kafka took it."""
    drained = Drained(tables_in_memory, 1_000)
    drained.tick()
    for setting, brokers in zip(LISTS, (LONG_IDS[:3], LONG_IDS[3:]), strict=True):
        entries = throttles.entries_text((number, broker) for number in range(1_000) for broker in brokers)
        drained.cluster.set_throttled_replicas("t", setting, entries[: VALUE_BYTES_MAX - 4].rpartition(",")[0] + ",7:7")
    drained.request_abort()
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
        drained.be_killed()
        assert drained.cluster.now_ms < TICKS_MAX * 1_000, drained.record.execution.last
    assert drained.record.execution.last_event is Event.DONE
    assert drained.moved() == 12
    assert drained.client.unnamed == 0
    assert drained.lists() == {}
