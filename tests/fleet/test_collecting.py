"""The product's collector on a fleet: it reads and writes all there is, and a broker that misbehaves costs its part."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from assignor_core.live import PartitionKey
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.run import Collector
from streaming.collect.sample import ClusterSample
from streaming.settings import Settings
from tests.collect.by_row import partition_views, sizes_of
from tests.fleet import process
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.fleet.wire import UNSERVED
from tests.tables_in_memory import in_memory

pytestmark = pytest.mark.long

SIZE = FleetSize(brokers=3, partitions=30, groups=6, partitions_per_topic=10)
INPUT_PARTITIONS = 2 * 4
BYTE_RATE = "rebalancer.byte-rate"
SECOND_MS = 1_000


@pytest.fixture(scope="module")
def started() -> Iterator[FleetProcess]:
    with FleetProcess(partial(synthetic_fleet, SIZE, (BYTE_RATE,))) as fleet:
        yield fleet


@pytest.fixture
def fleet(started: FleetProcess) -> Iterator[FleetProcess]:
    """The fleet of this module; afterwards all its brokers are well."""
    started.run(Fleet.forget_requests)
    yield started
    for broker in started.ports:
        started.run(process.resume_broker, broker)
        started.run(process.slow_broker_down, broker, 0.0)
    started.run(process.refuse_requests, 0.0)


def settings_of(fleet: FleetProcess, timeout_ms: int = 30_000) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {
                "cluster_name": "fleet",
                "bootstrap_servers": fleet.bootstrap_servers,
                "request_timeout_ms": timeout_ms,
            },
            "collect": {"jmx_endpoints": fleet.jmx_endpoints},
            "storage": {"tables": in_memory("fleet")},
        }
    )


def look(fleet: FleetProcess, timeout_ms: int = 30_000) -> ClusterSample:
    settings = settings_of(fleet, timeout_ms)
    admin = admin_client(settings.kafka)
    try:
        return observe(BrokerReads(admin), GroupSampler(), settings.collect, now_ms=0)
    finally:
        admin.close()


def requests(fleet: Fleet) -> Counter[str]:
    return fleet.requests


def produced(fleet: Fleet) -> Counter[PartitionKey]:
    return fleet.produced


def kept(fleet: Fleet, topic: str) -> list[bytes]:
    return fleet.kept[topic]


def ends(fleet: Fleet) -> dict[PartitionKey, int]:
    return {key: fleet.offsets(key[0], row)[1] for key, row in fleet.contents.partitions()}


def test_a_look_reads_every_partition_replica_disk_counter_and_group(fleet: FleetProcess) -> None:
    seen = look(fleet)
    assert seen.racks == {1: "rack-1", 2: "rack-2", 3: "rack-0"}
    assert len(seen.partitions) == SIZE.partitions + INPUT_PARTITIONS
    assert len(sizes_of(seen.sizes)) == 3 * len(seen.partitions)
    assert {key: row.log_end_offset for key, row in partition_views(seen.partitions).items()} == fleet.run(ends)
    assert seen.log_dirs.keys() == seen.counters.keys() == {1, 2, 3}
    assert sum(row.totals["bytes_in"] for row in seen.counters.values()) == sum(
        size
        for (broker, key), size in sizes_of(seen.sizes).items()
        if partition_views(seen.partitions)[key].leader == broker
    )
    assert len(seen.groups) == SIZE.groups
    assert all(len(group.committed) == len(group.owners) == 10 for group in seen.groups.values())
    assert {group.generation_id for group in seen.groups.values()} == {4}
    assert fleet.run(requests)[UNSERVED] == 0


def test_the_collector_writes_a_record_for_each_replica_broker_and_partition_of_a_group(fleet: FleetProcess) -> None:
    settings = settings_of(fleet)
    with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
        assert collector.sample(now_ms=0) == SIZE.group_partitions
        fleet.run(Fleet.forget_requests)
        fleet.run(Fleet.advance, 10 * SECOND_MS)
        replicas = 3 * (SIZE.partitions + INPUT_PARTITIONS)
        assert collector.sample(now_ms=10 * SECOND_MS) == replicas + SIZE.brokers + SIZE.group_partitions
        # Log ends and first local offsets: of logs that are not tiered these are the log starts, which nobody asks for.
        # Groups stand behind their logs, and this cluster does not show whether it has transactions: so brokers are
        # asked for last stable offsets, too.
        assert fleet.run(requests)["ListOffsets"] == 3 * SIZE.brokers
    counted = fleet.run(produced)
    written = Counter({topic: 0 for topic, _ in counted})
    for (topic, _), count in counted.items():
        written[topic] += count
    assert written == {BYTE_RATE: replicas + SIZE.brokers, "rebalancer.consumer-lag": SIZE.group_partitions}
    records = [json.loads(value) for value in fleet.run(kept, BYTE_RATE)]
    assert len(records) == written[BYTE_RATE]
    assert {row["broker"] for row in records if row["topic"] is None} == {1, 2, 3}


def test_replicas_and_groups_that_stand_still_are_reported_less_often(fleet: FleetProcess) -> None:
    settings = settings_of(fleet)
    root, idle_replicas = settings.storage.tables, 3 * SIZE.partitions
    others = 3 * INPUT_PARTITIONS + SIZE.brokers
    with Collector(settings.kafka, settings.topics, settings.collect, root, window_ms=60 * SECOND_MS) as collector:
        written = [collector.sample(now_ms=number * 10 * SECOND_MS) for number in range(8)]
    # Rates from the second look on. The input topics are written to, unless no record of a look went to one of theirs.
    assert written[0] == SIZE.group_partitions
    assert written[1] == idle_replicas + others
    assert all(count <= others for count in written[2:5]), "held back"
    assert written[5] >= idle_replicas + SIZE.group_partitions, "the last look of the window"
    assert SIZE.group_partitions <= written[6] <= others + SIZE.group_partitions, "the first look of the next"
    assert written[7] <= others


def test_growth_of_logs_and_counters_is_what_producers_write(fleet: FleetProcess) -> None:
    before = look(fleet)
    fleet.run(Fleet.advance, 5 * SECOND_MS)
    after = look(fleet)
    grown = {key: sizes_of(after.sizes)[key] - size for key, size in sizes_of(before.sizes).items()}
    assert min(grown[row] for row in grown if row[1][0].startswith("orders")) > 0
    for broker in (1, 2, 3):
        led = sum(
            size
            for (holder, key), size in grown.items()
            if holder == broker == partition_views(after.partitions)[key].leader
        )
        assert after.counters[broker].totals["bytes_in"] - before.counters[broker].totals["bytes_in"] == led


@pytest.fixture(scope="module")
def few_groups() -> Iterator[FleetProcess]:
    """Broker 1 is the only one that clients begin with, 2 coordinates a group, 3 does neither."""
    with FleetProcess(partial(synthetic_fleet, FleetSize(3, 30, 2, partitions_per_topic=10))) as fleet:
        yield fleet


@pytest.mark.parametrize("frozen", [1, 2, 3], ids=["bootstrap", "coordinator", "neither"])
def test_each_look_at_a_cluster_with_a_frozen_broker_has_what_the_others_know(
    few_groups: FleetProcess, frozen: int
) -> None:
    kafka = {"bootstrap_servers": [f"127.0.0.1:{few_groups.ports[1]}"], "request_timeout_ms": 4_000}
    endpoints = {"jmx_endpoints": few_groups.jmx_endpoints}
    settings = Settings.model_validate({"kafka": kafka, "collect": endpoints})
    admin = admin_client(settings.kafka)
    reads, sampler = BrokerReads(admin), GroupSampler()
    well = {1, 2, 3} - {frozen}
    few_groups.run(process.freeze_broker, frozen)
    try:
        for number in range(3):
            seen = observe(reads, sampler, settings.collect, now_ms=number)
            assert seen.racks.keys() == {1, 2, 3}
            assert seen.log_dirs.keys() == seen.counters.keys() == well
            assert {row.leader for row in partition_views(seen.partitions).values() if row.log_end_offset is None} == {
                frozen
            }
            assert seen.groups.keys() == {f"group-{broker - 1:06}" for broker in well & {1, 2}}
    finally:
        few_groups.run(process.resume_broker, frozen)
        admin.close()


def test_the_collector_writes_what_it_can_while_a_broker_is_frozen(fleet: FleetProcess) -> None:
    settings = settings_of(fleet, timeout_ms=4_000)
    with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
        whole = collector.sample(now_ms=0)
        fleet.run(process.freeze_broker, 3)
        # Two thirds of the groups are read, and most of their records go to partitions of brokers that are well.
        assert 0 < collector.sample(now_ms=SECOND_MS) < whole + 3 * (SIZE.partitions + INPUT_PARTITIONS)
        assert collector.sample(now_ms=2 * SECOND_MS) > 0
        fleet.run(process.resume_broker, 3)


@pytest.mark.parametrize("frozen", [1, 2, 3])
def test_the_first_contact_to_a_cluster_with_a_frozen_broker_takes_one_limit_at_most(
    fleet: FleetProcess, frozen: int
) -> None:
    settings = settings_of(fleet, timeout_ms=60_000)
    fleet.run(process.freeze_broker, frozen)
    began_s = time.monotonic()
    with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables):
        assert time.monotonic() - began_s < 60


def test_a_slow_broker_is_waited_for(fleet: FleetProcess) -> None:
    fleet.run(process.slow_broker_down, 2, 0.05)
    seen = look(fleet)
    assert seen.log_dirs.keys() == seen.counters.keys() == {1, 2, 3}
    assert len(seen.groups) == SIZE.groups


def test_refused_requests_leave_gaps_that_nothing_else_has(fleet: FleetProcess) -> None:
    whole = look(fleet)
    fleet.run(process.refuse_requests, 1.0)
    settings = settings_of(fleet)
    with pytest.raises(Exception, match="ClusterAuthorizationFailed"):
        admin_client(settings.kafka)
    fleet.run(process.refuse_requests, 0.0)
    assert partition_views(look(fleet).partitions).keys() == partition_views(whole.partitions).keys()


def test_the_process_ends_with_its_owner_and_raises_its_errors_there() -> None:
    with FleetProcess(partial(synthetic_fleet, FleetSize(1, 1, 0, replication_factor=1))) as fleet:
        process_id = fleet.process_id
        with pytest.raises(KeyError):
            fleet.run(kept, "no-such-topic")
    assert not process.is_running(process_id)
