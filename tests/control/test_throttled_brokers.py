"""Brokers that come back, or lose a rate of somebody else's, while a plan copies: they take the throttle, too."""

from typing import Any

from assignor_core.plan import Movement, Plan
from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE
from streaming.settings import Settings
from tests.control import test_movements_within_brokers as within
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.control.test_simulated_executions import MB, Carried
from tests.simulated_cluster import SimulatedCluster

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
    carried = Carried(settings, cluster, Plan("c", moves, SKEW, SKEW))
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
    carried = Carried(settings, cluster, plan)
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
    carried = within.Carried(own, cluster, in_windows_only=True)
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
