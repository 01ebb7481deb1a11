"""Deployments of several clusters: clusters that come and go; skew in two of three while the third one is killed."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from confluent_kafka import Consumer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.prepare import SHORT_STORY
from streaming.runtime import processes
from streaming.settings import KafkaSettings
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]

STORY_DEADLINE_S = 900.0
RECORD = b"x" * 2_000
SAMPLE_INTERVAL_MS = 1_000
TOPIC, PARTITIONS, GROUP = "orders", 6, "readers"
SASL, PASSWORD = "SASL_PLAINTEXT", "of-the-test"
"""The listener of the cluster with a login, and the password of its only user."""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BY_PASSWORD = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_rebalancer="{PASSWORD}";',
}


def write_settings(
    home: Path, clusters: Mapping[str, Mapping[str, Any]], port: int, control: Mapping[str, object]
) -> Path:
    """The settings of a deployment of these clusters, which may be running."""
    settings: dict[str, Any] = {
        **SHORT_STORY,
        "storage": {"tables": str(home / "tables"), "checkpoints": str(home / "checkpoints")},
        "control": {**SHORT_STORY["control"], **control},
        "collect": {"sample_interval_ms": SAMPLE_INTERVAL_MS},
        "serve": {"port": port},
        "log": {"format": "json"},
        "clusters": clusters,
    }
    file, fresh = home / "rebalancer.yaml", home / "new.yaml"
    fresh.write_text(yaml.safe_dump(settings, sort_keys=False))
    os.replace(fresh, file)
    return file


def roles_of(process: subprocess.Popen[bytes]) -> dict[tuple[str, str], int]:
    """Process ids by role and cluster."""
    found = {}
    for child in psutil.Process(process.pid).children():
        words: list[str] = []
        with suppress(psutil.NoSuchProcess):  # nor one that has ended, and that its parent has not seen yet
            words = child.cmdline()
        if len(words) > 3:  # not between fork and exec
            found[words[3], words[-1] if "--cluster" in words else ""] = child.pid
    return found


def test_a_cluster_comes_and_one_goes_while_the_processes_of_the_third_run_on(tmp_path: Path) -> None:
    port, log_file = processes.free_port(), tmp_path / "run.log"
    with (
        EmbeddedCluster(tmp_path / "east", broker_count=1) as east,
        EmbeddedCluster(tmp_path / "west", broker_count=1) as west,
        EmbeddedCluster(tmp_path / "north", broker_count=1) as north,
    ):

        def write(**clusters: EmbeddedCluster) -> Path:
            reached = {name: {"kafka": {"bootstrap_servers": row.bootstrap_servers}} for name, row in clusters.items()}
            return write_settings(tmp_path, reached, port, {"mode": "observe"})

        settings = write(east=east, west=west)
        running = processes.start([sys.executable, "-m", "streaming", "run", "--config", str(settings)], log=log_file)

        def versions(name: str) -> int:
            root = str(tmp_path / "tables" / "clusters" / name)
            table = tables.open_table(root, "broker_load")
            return -1 if table is None else table.version()

        def wait_for(what: str, found: Any) -> None:
            def checked() -> Any:
                assert running.poll() is None, log_file.read_text()[-10_000:]
                return found()

            until(what, checked, STORY_DEADLINE_S, state=lambda: log_file.read_text()[-10_000:])

        def events(name: str) -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in log_file.read_text().splitlines() if line.endswith("}")]
            return [line for line in lines if line.get("event") == name]

        try:
            wait_for("east and west have windows", lambda: min(versions("east"), versions("west")) > 0)
            before = roles_of(running)

            write(east=east, west=west, north=north)
            running.send_signal(1)
            wait_for("north has windows", lambda: versions("north") > 0)
            assert roles_of(running) == before | {
                role: pid for role, pid in roles_of(running).items() if role[1] == "north"
            }

            (tmp_path / "rebalancer.yaml").write_text("clusters: {east: {")
            wait_for("the file is refused", lambda: events("settings_refused"))
            write(east=east, north=north)  # found without a signal
            wait_for("west is gone", lambda: not any(name == "west" for _, name in roles_of(running)))
            wait_for("its pipeline has ended", lambda: events("pipeline_stopped"))
            kept = {"east": versions("east"), "north": versions("north")}
            wait_for("the others' windows go on", lambda: all(versions(name) > kept[name] for name in kept))
            after = roles_of(running)
            untouched = {("collect", "east"), ("control", "east"), ("pipeline", ""), ("serve", "")}
            assert {role: after.get(role) for role in untouched} == {role: before[role] for role in untouched}
            assert versions("west") > 0, "its tables stay"
            assert {row["kafka_cluster"] for row in events("pipeline_stopped")} == {"west"}
            assert not events("role_ended")
            assert not events("cluster_failed")
        finally:
            running.terminate()
            assert running.wait(timeout=STORY_DEADLINE_S) == 0


@dataclass(frozen=True, slots=True)
class Deployed:
    """One of the clusters, and how the deployment reaches it."""

    brokers: EmbeddedCluster
    kafka: dict[str, Any]


def rows(home: Path, cluster: str, table: str) -> list[dict[str, Any]]:
    return tables.read(str(home / "tables" / "clusters" / cluster), table)


@contextmanager
def three_clusters(home: Path) -> Iterator[dict[str, Deployed]]:
    """The oldest release that is supported; one with a login; one broker of the newest release without either."""
    with ExitStack() as stack:
        old, secured, newest = (
            stack.enter_context(cluster)
            for cluster in (
                EmbeddedCluster(home / "old", broker_count=2, jars_of="broker-oldest"),
                EmbeddedCluster(home / "secured", broker_count=2, listeners=(SASL,), broker_settings=BY_PASSWORD),
                EmbeddedCluster(home / "newest", broker_count=1),
            )
        )
        login = {
            "bootstrap_servers": secured.addresses(SASL), "security_protocol": SASL, "sasl_mechanism": "PLAIN",
            "sasl_username": "rebalancer", "sasl_password": PASSWORD,
        }  # fmt: skip
        yield {
            "old": Deployed(old, {"bootstrap_servers": old.bootstrap_servers}),
            "secured": Deployed(secured, login),
            "newest": Deployed(newest, {"bootstrap_servers": newest.bootstrap_servers}),
        }


def make_topic(cluster: EmbeddedCluster, name: str, partitions: int) -> None:
    """All its partitions are on broker 1."""
    admin = admin_client(KafkaSettings(bootstrap_servers=cluster.bootstrap_servers))
    admin.create_topics({name: {"assignments": {number: [1] for number in range(partitions)}}})
    wait_until_known(admin, [name])
    admin.close()


@contextmanager
def load_on_one_broker(cluster: EmbeddedCluster) -> Iterator[Counter[int]]:
    """Traffic on partitions that all are on broker 1; broker 2 has none of it. Gives the records acknowledged so far,
    by partition.
    """
    make_topic(cluster, TOPIC, PARTITIONS)
    ending, acknowledged = threading.Event(), Counter[int]()

    def note(partition: int, _metadata: object) -> None:
        acknowledged[partition] += 1

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        while not ending.wait(0.05):
            for partition in range(PARTITIONS):
                producer.send(TOPIC, RECORD, partition=partition).add_callback(partial(note, partition))
        producer.flush(DEADLINE_S)
        producer.close()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield acknowledged
    finally:
        ending.set()
        thread.join()


@contextmanager
def group_of_the_newest_protocol(cluster: EmbeddedCluster) -> Iterator[None]:
    """A member of a KIP-848 group that has committed."""
    make_topic(cluster, "events", 1)
    server = ",".join(cluster.bootstrap_servers)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    producer.send("events", b"one").get(DEADLINE_S)
    producer.close()
    consumer = Consumer(
        {"bootstrap.servers": server, "group.id": GROUP, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["events"])
    until("the member reads", lambda: consumer.poll(1.0))
    consumer.commit(asynchronous=False)
    try:
        yield
    finally:
        consumer.close()


def record_counts(cluster: EmbeddedCluster) -> Counter[int]:
    """Records that can be read, by partition."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    consumer.close()
    return Counter({row.partition: ends[row] - begins[row] for row in partitions})


def phases(home: Path, cluster: str) -> set[str]:
    return {row["event"] for row in rows(home, cluster, "execution")}


@pytest.mark.long
@pytest.mark.story
def test_skew_in_two_clusters_is_fixed_while_the_third_one_is_killed(tmp_path: Path) -> None:
    port = processes.free_port()
    with three_clusters(tmp_path) as clusters:
        reached = {
            name: {"kafka": cluster.kafka, "collect": {"jmx_endpoints": cluster.brokers.jmx_endpoints}}
            for name, cluster in clusters.items()
        }
        # One control process for all clusters, a collect process for each.
        settings = write_settings(tmp_path, reached, port, {"own_process": False})
        command = [sys.executable, "-m", "streaming", "run", "--config", str(settings)]
        running = processes.start(command, log=tmp_path / "run.log")
        try:

            def alive_with(found: object) -> object:
                assert running.poll() is None, (tmp_path / "run.log").read_text()[-10_000:]
                return found

            def listed() -> dict[str, dict[str, Any]]:
                answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/clusters", timeout=DEADLINE_S)
                return {row["kafka_cluster"]: row for row in answer.json()["items"]}

            with group_of_the_newest_protocol(clusters["newest"].brokers):
                until(
                    "the group is known",
                    lambda: alive_with(GROUP in {row["group_id"] for row in rows(tmp_path, "newest", "group_lag")}),
                    STORY_DEADLINE_S,
                )
            for name in clusters:
                found = partial(rows, tmp_path, name, "decision")
                until(f"{name} has a decision", lambda found=found: alive_with(found()), STORY_DEADLINE_S)  # type: ignore[misc]
            before = roles_of(running)
            clusters["newest"].brokers.kill_broker(1)
            with (
                load_on_one_broker(clusters["old"].brokers) as of_old,
                load_on_one_broker(clusters["secured"].brokers) as of_secured,
            ):
                for name in ("old", "secured"):
                    done = partial(phases, tmp_path, name)
                    until(f"{name} is fixed", lambda done=done: alive_with("done" in done()), STORY_DEADLINE_S)  # type: ignore[misc]
                until("the third one is shown as stale", lambda: listed()["newest"]["is_stale"], STORY_DEADLINE_S)
            for name, acknowledged in (("old", of_old), ("secured", of_secured)):
                assert acknowledged
                assert acknowledged <= record_counts(clusters[name].brokers), f"{name} has lost records"
                moved = {row["topic"] for row in rows(tmp_path, name, "movement")}
                assert TOPIC in moved
            assert rows(tmp_path, "newest", "plan") == []
            for name in clusters:
                for table in ("broker_load", "decision", "lease"):
                    assert {row["kafka_cluster"] for row in rows(tmp_path, name, table)} == {name}
            own = {("collect", "old"), ("collect", "secured"), ("control", ""), ("pipeline", ""), ("serve", "")}
            after = roles_of(running)
            assert {role: after.get(role) for role in own} == {role: before[role] for role in own}
            assert before.keys() == own | {("collect", "newest")}
            rows_of_page = listed()
            assert rows_of_page.keys() == clusters.keys()
            assert {name for name, row in rows_of_page.items() if row["is_stale"]} == {"newest"}
            plan = rows(tmp_path, "old", "plan")[0]
            page = httpx.get(f"http://127.0.0.1:{port}/clusters/old/api/v1/plans", timeout=DEADLINE_S).json()
            assert plan["plan_id"] in [row["plan_id"] for row in page["items"]]
        finally:
            running.terminate()
            running.wait(timeout=DEADLINE_S)
