"""What control does unasked in mode `apply`, on five real brokers of three racks, while a producer writes.

A fifth broker that is empty is filled, and racks that Kafka's own tool has crowded are spread. Windows are written by
the tests, on times of their own; placement and records are the brokers'.
"""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from assignor_core.live import LiveCluster
from assignor_core.racks import RackSpread
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.run import ControlLoop
from streaming.control.wiring import journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import KafkaSettings, Settings
from tests.control.windows import write_windows
from tests.java_programs import tool
from tests.kafka.writing import Writer
from tests.topics import settled, wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart, pytest.mark.long]

WINDOW_MS = 10_000
PARTITIONS = 16


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
            "trigger": {"placement_grace_ms": 20_000, "load_min_bytes_per_sec": 0},
            "control": {"mode": "apply"},
        }
    )


def carry_out(own: Settings, admin: KafkaAdminClient) -> tuple[dict[str, Any], LiveCluster]:
    """Control over windows until a plan is carried out; the decision, and the cluster after it."""
    cluster, journal = Cluster(admin), journal_of(own)
    now_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    write_windows(own, cluster.describe(), end_ms=now_ms)
    loop = ControlLoop(cluster, own, now_ms=now_ms)
    deadline = time.monotonic() + DEADLINE_S
    while not loop.tick(now_ms=now_ms):
        now_ms += WINDOW_MS
        write_windows(own, cluster.describe(), end_ms=now_ms, windows=1)
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
