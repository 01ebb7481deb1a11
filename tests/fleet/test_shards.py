"""Collectors that share a cluster write together what one alone would write: the same records, none of them twice."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.reports import RecordMaker
from streaming.collect.run import Collector
from streaming.collect.shards import Shard
from streaming.settings import Settings
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.tables_in_memory import in_memory

SIZE = FleetSize(brokers=5, partitions=60, groups=12, partitions_per_topic=10)
BYTE_RATE, CONSUMER_LAG = "rebalancer.byte-rate", "rebalancer.consumer-lag"
SECOND_MS = 1_000
LOOKS = 4

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def started() -> Iterator[FleetProcess]:
    with FleetProcess(partial(synthetic_fleet, SIZE, (BYTE_RATE, CONSUMER_LAG))) as fleet:
        yield fleet


@pytest.fixture
def fleet(started: FleetProcess) -> FleetProcess:
    started.run(Fleet.forget_requests)
    started.run(forget_records)
    return started


def forget_records(fleet: Fleet) -> None:
    for values in fleet.kept.values():
        values.clear()


def kept(fleet: Fleet, topic: str) -> list[bytes]:
    return fleet.kept[topic]


def settings_of(fleet: FleetProcess, shard: str = "1/1", *, jmx: bool = True) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "fleet", "bootstrap_servers": fleet.bootstrap_servers},
            "collect": {"jmx_endpoints": fleet.jmx_endpoints if jmx else {}, "shard": shard},
            "storage": {"tables": in_memory("fleet")},
        }
    )


class ShardOnPaper:
    """A collector that reads a fleet and keeps its records; its clock shows the brokers' time alone."""

    def __init__(self, settings: Settings) -> None:
        shard = Shard.of(settings.collect.shard)
        self._settings, self._shard = settings, shard
        self.admin = admin_client(settings.kafka)
        self._reads, self._groups = BrokerReads(self.admin), GroupSampler(shard)
        self._reports = RecordMaker(
            "fleet", settings.topics, interval_ms=SECOND_MS, window_ms=3 * SECOND_MS, shard=shard
        )
        self.records: Counter[tuple[str, bytes, bytes]] = Counter()

    def look(self, now_ms: int) -> None:
        seen = observe(
            self._reads, self._groups, self._settings.collect, now_ms=now_ms, monotonic=lambda: 0.0, shard=self._shard
        )
        for topic, records in self._reports.of(seen):
            self.records.update((topic, key, value) for key, value in records)
        self._reports.arrived()


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("jmx", [True, False], ids=["jmx", "without jmx"])
def test_shards_together_make_the_records_of_one_collector(fleet: FleetProcess, count: int, jmx: bool) -> None:
    texts = ["1/1", *(f"{number}/{count}" for number in range(1, count + 1))]
    whole, *shards = [ShardOnPaper(settings_of(fleet, text, jmx=jmx)) for text in texts]
    for number in range(LOOKS):
        for collector in (whole, *shards):
            collector.look(number * SECOND_MS)
        fleet.run(Fleet.advance, SECOND_MS)
    for collector in (whole, *shards):
        collector.admin.close()
    together = Counter[tuple[str, bytes, bytes]]()
    for shard in shards:
        together.update(shard.records)
        assert 0 < shard.records.total() < whole.records.total()
    assert together == whole.records
    assert max(together.values()) == 1
    rates = [json.loads(value) for topic, _, value in together if topic == BYTE_RATE]
    assert sum(row["bytes_out_per_sec"] or 0 for row in rates) > 0, "bytes read depend on groups of other shards"


def test_two_collectors_write_each_replica_broker_and_partition_of_a_group_once(fleet: FleetProcess) -> None:
    for shard in ("1/2", "2/2"):
        own = settings_of(fleet, shard)
        with Collector(own.kafka, own.topics, own.collect, own.storage.tables) as collector:
            collector.sample(now_ms=0)
            fleet.run(Fleet.advance, SECOND_MS)
            collector.sample(now_ms=SECOND_MS)
    rates = Counter(
        (row["broker"], row["topic"], row["partition"]) for row in map(json.loads, fleet.run(kept, BYTE_RATE))
    )
    partitions = SIZE.partitions + 2 * 4
    assert rates.total() == len(rates) == 3 * partitions + SIZE.brokers
    lags = Counter(
        (row["group"], row["topic"], row["partition"], row["event_time_ms"])
        for row in map(json.loads, fleet.run(kept, CONSUMER_LAG))
    )
    assert lags.total() == len(lags) == 2 * SIZE.group_partitions


def test_a_shard_asks_for_members_of_its_own_groups_and_counters_of_its_own_brokers(fleet: FleetProcess) -> None:
    settings = settings_of(fleet, "1/2")
    shard = Shard(1, 2)
    admin = admin_client(settings.kafka)
    seen = observe(BrokerReads(admin), GroupSampler(shard), settings.collect, now_ms=0, shard=shard)
    admin.close()
    assert seen.counters.keys() == {1, 3, 5}
    described = {name for name, view in seen.groups.items() if view.members is not None}
    assert described == {name for name in seen.groups if shard.takes_group(name)}
    assert len(seen.groups) == SIZE.groups, "what the others have committed is read"
