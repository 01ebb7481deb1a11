"""Embedded brokers and a fleet that mirrors them give the product the same answers, and refuse with the same errors."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from assignor_core.live import PartitionKey
from streaming.cluster.admin import Cluster
from streaming.cluster.broker_reads import LATEST, BrokerReads
from streaming.cluster.clients import admin_client
from streaming.cluster.permissions import ROLES, missing_permissions
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.sample import ClusterSample, LogDirs
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from tests import waiting
from tests.collect.by_row import partition_table, partition_views, size_table, sizes_of
from tests.fleet.mirror import mirrored_fleet
from tests.fleet.process import FleetProcess
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

TOPICS = {"hot": {0: [1, 2], 1: [2, 3]}, "cold": {0: [3]}, "empty": {0: [1, 2, 3], 1: [3, 2, 1]}}
RECORDS = {("hot", 0): 7, ("hot", 1): 3, ("cold", 0): 2}
VALUE = b"x" * 500
INTERNAL = "__"
GROUP = "readers"
NOT_OURS = "no-such"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two clusters, with the product's client of it."""

    admin: Any
    settings: Settings

    def look(self) -> ClusterSample:
        """What the collector sees, without the topics that only brokers have."""
        seen = observe(BrokerReads(self.admin), GroupSampler(), self.settings.collect, now_ms=0)
        sizes = {key: size for key, size in sizes_of(seen.sizes).items() if not key[1][0].startswith(INTERNAL)}
        used = {broker: sum(size for key, size in sizes.items() if key[0] == broker) for broker in seen.racks}
        return replace(
            seen,
            partitions=partition_table(
                {key: row for key, row in partition_views(seen.partitions).items() if not key[0].startswith(INTERNAL)}
            ),
            sizes=size_table(sizes),
            log_dirs={broker: LogDirs(used[broker], row.usable_bytes) for broker, row in seen.log_dirs.items()},
            read_ms={},
        )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side, ClusterSample]]:
    """Brokers, a fleet that mirrors them, and what was seen of the brokers."""
    with EmbeddedCluster(tmp_path_factory.mktemp("kafka-mirrored")) as embedded:
        brokers = side(embedded.bootstrap_servers, embedded.jmx_endpoints)
        until_made(brokers.admin)
        write(embedded.bootstrap_servers)
        reader = until_read(embedded.bootstrap_servers)
        seen = waiting.until("the brokers stand still", partial(still, brokers))
        live = Cluster(brokers.admin).describe()
        with FleetProcess(partial(mirrored_fleet, seen, live)) as fleet:
            mirror = side(fleet.bootstrap_servers, fleet.jmx_endpoints)
            yield brokers, mirror, seen
            mirror.admin.close()
        brokers.admin.close()
        reader.close()


def side(bootstrap_servers: list[str], jmx_endpoints: Mapping[int, str]) -> Side:
    settings = Settings.model_validate(
        {"kafka": {"bootstrap_servers": bootstrap_servers}, "collect": {"jmx_endpoints": dict(jmx_endpoints)}}
    )
    return Side(admin_client(settings.kafka), settings)


def until_made(admin: Any) -> None:
    """A broker that has just started may still be fenced, and takes no replicas then."""

    def made() -> bool:
        with suppress(KafkaError):
            missing = TOPICS.keys() - set(admin.list_topics())
            admin.create_topics({name: {"assignments": TOPICS[name]} for name in sorted(missing)} or TOPICS)
        return TOPICS.keys() <= set(admin.list_topics())

    waiting.until("the topics are made", made)
    wait_until_known(admin, list(TOPICS))


def write(bootstrap_servers: list[str]) -> None:
    """Each record in a batch of its own, so that all of them take as many bytes."""
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", linger_ms=0)
    for (topic, number), count in RECORDS.items():
        for _ in range(count):
            producer.send(topic, VALUE, partition=number).get(timeout=DEADLINE_S)
    producer.close()


def until_read(bootstrap_servers: list[str]) -> KafkaConsumer:
    """A member that has read and committed all of one topic, and goes on to be one."""
    reader = KafkaConsumer(
        "hot", bootstrap_servers=bootstrap_servers, group_id=GROUP, auto_offset_reset="earliest",
        enable_auto_commit=False, session_timeout_ms=45_000,
    )  # fmt: skip
    wanted, read = sum(count for key, count in RECORDS.items() if key[0] == "hot"), 0
    deadline = time.monotonic() + DEADLINE_S
    while read < wanted:
        assert time.monotonic() < deadline, f"{read} of {wanted} records read"
        read += sum(map(len, reader.poll(timeout_ms=500).values()))
    reader.commit()
    return reader


def still(brokers: Side) -> ClusterSample | None:
    """A look that shows the group settled, if the next one shows the same."""
    first = brokers.look()
    group = first.groups.get(GROUP)
    is_settled = group is not None and len(group.owners) == len(group.committed) == len(TOPICS["hot"])
    return first if is_settled and shown(brokers.look()) == shown(first) else None


def shown(seen: ClusterSample) -> dict[str, Any]:
    """What an observation shows, row by row: tables of columns have no equality."""
    rows = {"partitions": partition_views(seen.partitions), "sizes": sizes_of(seen.sizes)}
    return {field.name: rows.get(field.name, getattr(seen, field.name)) for field in fields(seen)}


def test_the_collector_reads_the_same(sides: tuple[Side, Side, ClusterSample]) -> None:
    _, mirror, seen = sides
    look = mirror.look()
    assert shown(replace(look, addresses=seen.addresses)) == shown(seen)
    assert look.addresses.keys() == seen.addresses.keys()


def test_control_sees_the_same_cluster(sides: tuple[Side, Side, ClusterSample]) -> None:
    described = []
    for one in sides[:2]:
        live = Cluster(one.admin).describe()
        partitions = {key: row for key, row in live.partitions.items() if not key[0].startswith(INTERNAL)}
        ids = {name: row for name, row in live.topic_ids.items() if not name.startswith(INTERNAL)}
        described.append(replace(live, partitions=partitions, topic_ids=ids))
    assert described[0] == described[1]


def test_the_same_is_refused_with_the_same_errors(sides: tuple[Side, Side, ClusterSample]) -> None:
    brokers, mirror, _ = sides
    assert refusals(brokers.admin) == refusals(mirror.admin)


def refusals(admin: Any) -> dict[str, Any]:
    """Answers to what can't be had."""
    reads = BrokerReads(admin)
    offsets = reads.leader_offsets(1, {"hot": [0, 1], NOT_OURS: [0]}, LATEST)
    described = admin.describe_groups([NOT_OURS])[NOT_OURS]
    return {
        "offsets": sorted(
            zip(
                (offsets.topics[place] for place in offsets.topic),
                offsets.rows[["index", "error", "offset"]].tolist(),
                strict=True,
            )
        ),
        "offsets of a group": admin.list_group_offsets([NOT_OURS]),
        # Only one broker coordinates it, on either side some one.
        "offsets of a group, by broker": sorted(str(committed_by(reads, broker)) for broker in (1, 2, 3)),
        "members, by broker": sorted(map(str, (reads.describe_classic(row, [NOT_OURS, GROUP]) for row in (1, 2, 3)))),
        "group": {name: described[name] for name in ("error", "group_state", "members")},
        "operations of a missing group": described["authorized_operations"],
        "operations of a group": set(admin.describe_groups([GROUP])[GROUP]["authorized_operations"]),
        "topic": admin.describe_topics([NOT_OURS]),
        "topic by id": admin.describe_topics([uuid.UUID(int=7)]),
        "permissions": {
            role: missing_permissions(admin, role, input_topics=["hot"], observes_only=False) for role in ROLES
        },
        "operations of a topic": set(admin.describe_topics(["hot"])[0]["authorized_operations"]),
        "pages": pages(admin),
    }


def committed_by(reads: BrokerReads, broker: int) -> tuple[dict[str, dict[PartitionKey, int]], Mapping[str, str]]:
    """Offsets of the group as this broker knows them, and why others are not known."""
    offsets, errors = reads.committed_offsets(broker, [GROUP])
    return {group: dict(rows) for group, rows in offsets.items()}, errors


def pages(admin: Any) -> list[list[tuple[str, int]]]:
    """Partitions by page of DescribeTopicPartitions, two partitions each."""
    cursor, found = None, []
    while True:
        answer = admin.describe_topic_partitions(sorted(TOPICS), response_partition_limit=2, cursor=cursor)
        found.append(
            [(topic["name"], row["partition_index"]) for topic in answer["topics"] for row in topic["partitions"]]
        )
        cursor = answer["next_cursor"]
        if cursor is None:
            return found


def test_settings_have_the_same_names_and_kinds(sides: tuple[Side, Side, ClusterSample]) -> None:
    """Values of a broker differ, as an embedded one is set up to be small."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, "hot"), ConfigResource(ConfigResourceType.BROKER, "1")]
    described = [one.admin.describe_configs(resources, config_filter="all") for one in sides[:2]]
    for kind, name in (("topic", "hot"), ("broker", "1")):
        real, ours = (answer[kind][name] for answer in described)
        assert {key: (row["read_only"], row["config_type"]) for key, row in real.items()} == {
            key: (row["read_only"], row["config_type"]) for key, row in ours.items()
        }
