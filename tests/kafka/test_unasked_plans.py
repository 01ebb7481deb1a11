"""What control does unasked in mode `apply`, on five real brokers of three racks, while a producer writes.

A fifth broker that is empty is filled, racks that Kafka's own tool has crowded are spread, preferred leaders are
elected, and topics of the day and of the night are even in every hour. Windows are written by the tests, on times of
their own; placement, bytes and records are the brokers'.
"""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from assignor_core.disks import replica_sizes
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.racks import RackSpread
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.planning import propose_live
from streaming.control.run import ControlLoop
from streaming.control.wiring import journal_of, window_tables_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import HOUR_MS, KafkaSettings, Settings
from tests.control.windows import write_hours_before, write_windows
from tests.java_programs import tool
from tests.kafka.writing import Writer
from tests.topics import settled, wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart, pytest.mark.long]

WINDOW_MS = 10_000
PARTITIONS = 16
HOURLY_PARTITIONS = 32
BUSY = 40
"""Times the records of the calm topic: at 10 it is a tenth of the load, and a plan on the windows moved enough of it
by chance to even the other half of the day too.
"""
SMALL_VALUE = b"x" * 100
ARCHIVED = [b"x" * 100_000] * 50
"""Of each partition of a topic without traffic: nearly all that lies on disks, so these stay even by themselves."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("five"), broker_count=5, racks=("a", "b", "c")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
    yield client
    client.close()


@pytest.fixture(scope="module")
def topic(brokers: EmbeddedCluster, admin: KafkaAdminClient) -> Iterator[str]:
    """Two replicas of each partition in two racks, on brokers 1 to 4; a producer writes all the time."""
    rows = [[1, 2], [2, 1], [3, 4], [4, 3]]
    admin.create_topics({"t": {"assignments": {number: rows[number % 4] for number in range(PARTITIONS)}}})
    wait_until_known(admin, ["t"])
    with Writer(brokers.bootstrap_servers, "t", PARTITIONS) as writer:
        yield "t"
    assert writer.acknowledged.total() > 0
    assert writer.lost() == {}


@pytest.fixture
def own(brokers: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "five", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "trigger": {"placement_grace_ms": 20_000, "leaders_grace_ms": 20_000, "load_min_bytes_per_sec": 0},
            "control": {"mode": "apply"},
        }
    )


def window_ms_of_now() -> int:
    """Start of the window that is open."""
    return time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS


def carry_out(
    own: Settings,
    admin: KafkaAdminClient,
    rates: Mapping[PartitionKey, float] | None = None,
    *,
    now_ms: int | None = None,
) -> tuple[dict[str, Any], LiveCluster]:
    """Control over windows with these rates until a plan is carried out; the decision, and the cluster after it."""
    cluster, journal = Cluster(admin), journal_of(own)
    now_ms = now_ms or window_ms_of_now()
    write_windows(own, cluster.describe(), end_ms=now_ms, rates=rates)
    loop = ControlLoop(cluster, own, now_ms=now_ms)
    deadline = time.monotonic() + DEADLINE_S
    while not loop.tick(now_ms=now_ms):
        now_ms += WINDOW_MS
        write_windows(own, cluster.describe(), end_ms=now_ms, windows=1, rates=rates)
        assert time.monotonic() < deadline, journal.last_decision()
    decision = journal.last_decision()
    assert decision is not None
    while not (journal.executions(now_ms=now_ms)[-1]).ended:
        assert time.monotonic() < deadline, journal.executions(now_ms=now_ms)[-1].last
        time.sleep(0.2)
        now_ms += 200
        loop.tick(now_ms=now_ms)
    execution = journal.executions(now_ms=now_ms)[-1]
    assert execution.last_event == "done", execution.last
    until("each broker knows that no throttle is left", lambda: cluster.throttle_rates() == {}, DEADLINE_S)
    movements = journal.plan(execution.plan_id).plan.movements
    return dict(decision), settled(cluster, {row.key: row.new_replicas for row in movements})


def held_decision(
    own: Settings, admin: KafkaAdminClient, rates: Mapping[PartitionKey, float], *, now_ms: int, windows: int
) -> dict[str, Any]:
    """The last decision of control over so many windows with these rates, in which no plan is carried out."""
    cluster = Cluster(admin)
    loop = ControlLoop(cluster, own, now_ms=now_ms)
    for end_ms in range(now_ms, now_ms + windows * WINDOW_MS, WINDOW_MS):
        write_windows(own, cluster.describe(), end_ms=end_ms, windows=1, rates=rates)
        assert not loop.tick(now_ms=end_ms)
    return dict(journal_of(own).last_decision() or {})


def test_a_fifth_broker_that_is_empty_is_filled(own: Settings, admin: KafkaAdminClient, topic: str) -> None:
    before = Cluster(admin).describe()
    assert not any(5 in row.replicas for row in before.partitions.values())
    decision, after = carry_out(own, admin)
    assert (decision["verdict"], decision["reason"]) == ("plan", "empty_broker")
    held = Counter(broker for key, row in after.partitions.items() if key[0] == topic for broker in row.replicas)
    # Of 6.4 replicas: loads are measured, and decide whether a sixth one is worth its copy.
    assert held[5] >= 5, held
    spread = RackSpread(after.broker_racks, after.broker_racks)
    assert not any(spread.is_crowded(row.replicas) for row in after.partitions.values())


def test_racks_that_kafkas_own_tool_has_crowded_are_spread(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    cluster = Cluster(admin)
    crowded = {(topic, 0): (1, 4), (topic, 1): (2, 5), (topic, 2): (4, 1)}
    wanted = [{"topic": key[0], "partition": key[1], "replicas": list(row)} for key, row in crowded.items()]
    file = tmp_path / "crowded.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    command = tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "--bootstrap-server", ",".join(brokers.bootstrap_servers), "--reassignment-json-file", str(file), "--execute",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert "Successfully started" in done.stdout, done
    before = settled(cluster, crowded)
    decision, after = carry_out(own, admin)
    assert (decision["verdict"], decision["reason"]) == ("plan", "crowded_racks")
    changed = {key for key, row in after.partitions.items() if row.replicas != before.partitions[key].replicas}
    assert changed == crowded.keys()
    spread = RackSpread(after.broker_racks, after.broker_racks)
    assert not any(spread.is_crowded(row.replicas) for row in after.partitions.values())


def test_preferred_leaders_are_elected(own: Settings, admin: KafkaAdminClient, topic: str) -> None:
    cluster = Cluster(admin)
    row = cluster.describe().partitions[topic, 5]
    cluster.reassign({(topic, 5): (row.replicas[1], row.replicas[0])})  # the order changes, the leader does not
    until(
        "the order has changed", lambda: cluster.describe().partitions[topic, 5].replicas[1] == row.leader, DEADLINE_S
    )
    decision, after = carry_out(own, admin)
    assert (decision["verdict"], decision["reason"]) == ("plan", "unpreferred_leaders")
    assert after.partitions[topic, 5].leader == row.replicas[1]
    assert after.partitions[topic, 5].replicas == (row.replicas[1], row.replicas[0])


def test_topics_of_the_day_and_of_the_night_are_even_in_every_hour(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, topic: str
) -> None:
    """What each partition really gains on disk by day and by night is its load in windows and hours."""
    placed = {"day": (1, 1, 1, 2, 2, 3, 4, 5), "night": (3, 3, 4, 4, 4, 5, 1, 2)}
    for name, row in {**placed, "archive": (1, 2, 3, 4, 5)}.items():
        assignments = {number: [row[number % len(row)]] for number in range(HOURLY_PARTITIONS // 8 * len(row))}
        admin.create_topics({name: {"assignments": assignments}})
    wait_until_known(admin, [*placed, "archive"])
    _send(brokers, ((("archive", number), ARCHIVED) for number in range(20)))
    settings = own.model_copy(update={"planner": own.planner.model_copy(update={"excluded_topics": f"^(__|{topic}$)"})})
    by_day, by_night = (_written(brokers, admin, busy) for busy in placed)
    now_ms = time.time_ns() // 1_000_000
    write_hours_before(settings, now_ms, {before: by_day if before < 13 else by_night for before in range(1, 25)})
    cluster = Cluster(admin)
    live = cluster.describe()
    quiet = dict.fromkeys(live.partitions, 0.0)
    write_windows(settings, live, end_ms=now_ms // WINDOW_MS * WINDOW_MS - WINDOW_MS, rates=quiet | by_day)
    alone = settings.planner.model_copy(update={"days": 0})
    tables_of_windows = window_tables_of(settings)
    on_windows = propose_live(cluster, live, tables_of_windows, alone, now_ms=now_ms)
    moved = {row.key: row.new_replicas[0] for row in on_windows.plan.movements}
    leaders = {key: row.leader for key, row in live.partitions.items()}
    assert _max_over_mean(by_day, leaders | moved) <= 1.05
    assert _max_over_mean(by_night, leaders | moved) >= 1.2

    decision, after = carry_out(settings, admin, quiet | by_day)
    assert (decision["verdict"], decision["reason"]) == ("plan", "skewed")
    leaders = {key: row.leader for key, row in after.partitions.items()}
    for busy in placed:
        assert _max_over_mean(_written(brokers, admin, busy), leaders) <= 1.05


def _written(brokers: EmbeddedCluster, admin: KafkaAdminClient, busy: str) -> dict[PartitionKey, float]:
    """Bytes that each partition gains while topic `busy` takes `BUSY` times what the other takes."""
    cluster = Cluster(admin)
    before = _sizes(cluster)
    _send(
        brokers,
        (
            ((name, number), [SMALL_VALUE] * ((40 + number) * (BUSY if name == busy else 1)))
            for name in ("day", "night")
            for number in range(HOURLY_PARTITIONS)
        ),
    )
    return {key: float(size - before.get(key, 0)) for key, size in _sizes(cluster).items()}


def _send(brokers: EmbeddedCluster, values: Iterable[tuple[PartitionKey, Sequence[bytes]]]) -> None:
    """Whole batches, so that the same records take the same bytes again."""
    producer = KafkaProducer(
        bootstrap_servers=brokers.bootstrap_servers, acks="all", batch_size=200_000, linger_ms=1_000
    )
    for key, row in values:
        for value in row:
            producer.send(key[0], value, partition=key[1])
    producer.flush()
    producer.close()


def _sizes(cluster: Cluster) -> dict[PartitionKey, int]:
    """Log size of each partition of both topics, whose replicas are alone."""
    return {key: size for (_, key), size in replica_sizes(cluster.log_dirs()).items() if key[0] in ("day", "night")}


def _max_over_mean(rates: Mapping[PartitionKey, float], leaders: Mapping[PartitionKey, int]) -> float:
    loads = dict.fromkeys((1, 2, 3, 4, 5), 0.0)
    for key, rate in rates.items():
        loads[leaders[key]] += rate
    return max(loads.values()) / (sum(loads.values()) / len(loads))


def test_what_is_more_than_a_days_budget_is_copied_on_the_next_day(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster
) -> None:
    """Eight of twelve partitions of a megabyte are on broker 1; the budget is three of them and a half."""
    placed = (1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5)
    admin.create_topics({"budget": {"assignments": {number: [broker] for number, broker in enumerate(placed)}}})
    wait_until_known(admin, ["budget"])
    keys = [("budget", number) for number in range(len(placed))]
    _send(brokers, ((key, [b"x" * 100_000] * 10) for key in keys))
    sections = own.model_dump(mode="json")
    sections["planner"]["excluded_topics"] = "^(?!budget$)"
    sections["control"]["bytes_per_day_max"] = 3_500_000
    sections["trigger"]["cooldown_ms"] = 10 * WINDOW_MS
    settings = Settings.model_validate(sections)
    cluster = Cluster(admin)
    rates = dict.fromkeys(cluster.describe().partitions, 0.0) | dict.fromkeys(keys, 1e6)

    def held_by_first(live: LiveCluster) -> int:
        return sum(live.partitions[key].leader == 1 for key in keys)

    now_ms = window_ms_of_now()
    decision, after = carry_out(settings, admin, rates, now_ms=now_ms)
    assert (decision["verdict"], held_by_first(after)) == ("plan", 5)
    held = held_decision(settings, admin, rates, now_ms=now_ms + HOUR_MS, windows=20)
    assert held["reason"] == "day_budget", held
    assert held_by_first(cluster.describe()) == 5
    decision, after = carry_out(settings, admin, rates, now_ms=now_ms + 25 * HOUR_MS)
    assert decision["verdict"] == "plan"
    assert held_by_first(after) in (2, 3)
