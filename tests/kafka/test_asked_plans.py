"""Plans that a person asks for, on real brokers: a file of Kafka's own tool, and another replication factor.

Kafka's own tool has the last word on what was carried out.
"""

import json
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.settings import Settings
from tests.commands import run
from tests.control.windows import write_windows
from tests.java_programs import tool
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.kafka

RECORDS = 500
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture
def topic(admin: KafkaAdminClient, settings: Settings) -> str:
    """Two partitions on broker 1 alone, with records, and windows of the cluster that has them."""
    name = f"asked-{uuid.uuid4().hex[:8]}"
    admin.create_topics({name: {"assignments": {0: [1], 1: [1]}}})
    wait_until_known(admin, [name])
    produce(settings, name)
    end_ms = time.time_ns() // 1_000_000 // settings.pipeline.window_ms * settings.pipeline.window_ms
    write_windows(settings, Cluster(admin).describe(), end_ms=end_ms)
    return name


def produce(settings: Settings, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all")
    for number in range(RECORDS):
        producer.send(topic, b"x" * 1_000, partition=number % 2)
    producer.flush()
    producer.close()


def records_of(settings: Settings, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=settings.kafka.bootstrap_servers)
    partitions = [TopicPartition(topic, number) for number in (0, 1)]
    ends, starts = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
    consumer.close()
    return int(sum(ends.values()) - sum(starts.values()))


def placed(admin: KafkaAdminClient, topic: str) -> dict[int, tuple[int, ...]]:
    return {key[1]: row.replicas for key, row in Cluster(admin).describe().partitions.items() if key[0] == topic}


def reassignment(tmp_path: Path, topic: str, lists: dict[int, list[int]]) -> Path:
    """The file as people write it for Kafka's tool."""
    rows = [{"topic": topic, "partition": number, "replicas": brokers} for number, brokers in lists.items()]
    file = tmp_path / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    return file


def verified(settings: Settings, file: Path) -> str:
    """What Kafka's own tool says of a reassignment."""
    servers = ",".join(settings.kafka.bootstrap_servers)
    command = tool(
        REASSIGN,
        "--bootstrap-server",
        servers,
        "--reassignment-json-file",
        str(file),
        "--verify",
        "--preserve-throttles",
    )
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout


def test_a_file_of_kafkas_tool_is_shown_and_carried_out_like_any_plan(
    settings: Settings, admin: KafkaAdminClient, topic: str, tmp_path: Path
) -> None:
    file = reassignment(tmp_path, topic, {0: [2, 1], 1: [2]})
    shown = run(settings, tmp_path, "plan", "--reassignment", str(file))
    assert (shown.returncode, "asked for by reassignment.json" in shown.stdout) == (0, True), shown.stderr
    assert placed(admin, topic) == {0: (1,), 1: (1,)}, "a plan moves nothing"
    done = run(settings, tmp_path, "apply", str(file), "--yes")
    assert done.returncode == 0, done.stderr
    assert "2 movements" in done.stdout
    until("moved", lambda: placed(admin, topic) == {0: (2, 1), 1: (2,)})
    said = verified(settings, file)
    assert said.count("is completed") == 2, said
    assert Cluster(admin).throttled_replicas([topic]) == {}
    again = run(settings, tmp_path, "apply", str(file), "--yes")
    assert (again.returncode, "0 movements" in again.stdout) == (0, True), again.stderr
    assert records_of(settings, topic) == RECORDS


def test_a_replication_factor_goes_up_and_down(
    settings: Settings, admin: KafkaAdminClient, topic: str, tmp_path: Path
) -> None:
    for factor in (3, 2):
        made = run(settings, tmp_path, "plan", "--replication-factor", f"{topic[:-1]}.={factor}", "--json")
        plan = json.loads(made.stdout)
        assert {(row["topic"], len(row["new_replicas"])) for row in plan["movements"]} == {(topic, factor)}
        done = run(settings, tmp_path, "apply", plan["plan_id"], "--yes")
        assert done.returncode == 0, done.stderr
        assert {len(row) for row in placed(admin, topic).values()} == {factor}
        produce(settings, topic)
    live = Cluster(admin).describe()
    until("in sync", lambda: all(
        len(row.isr) == 2 for key, row in Cluster(admin).describe().partitions.items() if key[0] == topic
    ))  # fmt: skip
    assert {row.leader for key, row in live.partitions.items() if key[0] == topic} == {1}
    assert records_of(settings, topic) == 3 * RECORDS
    assert len({row["plan_id"] for row in tables.read(settings.storage.tables, "plan")}) == 2


def test_what_would_stop_producers_is_refused(settings: Settings, admin: KafkaAdminClient, tmp_path: Path) -> None:
    name = f"asked-{uuid.uuid4().hex[:8]}"
    admin.create_topics({name: {"assignments": {0: [1, 2]}, "configs": {"min.insync.replicas": "2"}}})
    wait_until_known(admin, [name])
    end_ms = time.time_ns() // 1_000_000 // settings.pipeline.window_ms * settings.pipeline.window_ms
    write_windows(settings, Cluster(admin).describe(), end_ms=end_ms)
    refused = run(settings, tmp_path, "plan", "--replication-factor", f"{name}=1")
    assert refused.returncode == 3
    assert (
        f"topic {name}: min.insync.replicas is 2, so with 1 replica nobody could write with acks=all" in refused.stderr
    )
    file = reassignment(tmp_path, name, {0: [2]})
    assert run(settings, tmp_path, "apply", str(file), "--yes").returncode == 3
    assert placed(admin, name) == {0: (1, 2)}


def test_the_live_cluster_is_written_as_a_model_without_names(
    settings: Settings, admin: KafkaAdminClient, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    written = run(settings, tmp_path, "plan", "--export", str(file), "--anonymous")
    assert (written.returncode, written.stdout) == (0, ""), written.stderr
    assert topic not in file.read_text()
    model = json.loads(file.read_text())
    sizes = [row["load"]["disk_bytes"] for row in model["partitions"] if row["load"] is not None]
    assert max(sizes) > RECORDS / 2 * 1_000
    planned = run(settings, tmp_path, "plan", "--model", str(file), "--json")
    assert planned.returncode == 0, planned.stderr
    assert not (Path(settings.storage.tables) / "plan").exists(), "nothing is kept"
