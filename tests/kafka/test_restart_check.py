"""`rebalancer restart-check` on brokers of its own: one is taken away and comes back."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.cluster.clients import admin_client
from streaming.cluster.topics import min_in_sync
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import KafkaSettings
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

SAFE, REFUSED, WRONG_USE = 0, 3, 2


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("restart"), 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings.model_validate({"bootstrap_servers": brokers.bootstrap_servers}))
    two_in_sync = {"min.insync.replicas": "2"}
    client.create_topics(
        {
            "safe": {"num_partitions": 3, "replication_factor": 3, "configs": two_in_sync},
            "alone": {"assignments": {0: [3]}},
        }
    )
    wait_until_known(client, ["safe", "alone"])
    yield client
    client.close()


def asked(brokers: EmbeddedCluster, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    servers = ",".join(brokers.bootstrap_servers)
    command = [sys.executable, "-m", "streaming", "restart-check", *arguments]
    return subprocess.run(
        [*command, "--set", f"kafka.bootstrap_servers={servers}", "--set", f"storage.tables={folder}"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_a_broker_is_safe_until_another_one_is_away_and_once_that_is_back(
    brokers: EmbeddedCluster, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    def is_safe(broker: int) -> bool:
        return asked(brokers, tmp_path, str(broker)).returncode == SAFE

    until("all replicas are in sync", lambda: is_safe(1))
    whole = asked(brokers, tmp_path, "1", "--json")
    check = json.loads(whole.stdout)
    assert (check["is_safe"], check["stops"], check["at_edge"]["count"]) == (True, [], 3)
    brokers.stop_broker(2)
    until("broker 1 may not go as well", lambda: not is_safe(1))
    refused = asked(brokers, tmp_path, "1")
    assert refused.returncode == REFUSED
    assert "3 partitions refusing writes with acks=all: too few replicas stay in sync" in refused.stderr
    away = asked(brokers, tmp_path, "2", "--json")
    assert away.returncode == REFUSED, "the next one has to wait until this one has caught up"
    assert json.loads(away.stdout)["is_alive"] is False
    answer: list[int] = []
    waiting = threading.Thread(target=lambda: answer.append(asked(brokers, tmp_path, "1", "--wait", "4m").returncode))
    waiting.start()
    brokers.start_broker(2)
    waiting.join()
    assert answer == [SAFE]


def test_what_lies_on_one_broker_alone_is_named(
    brokers: EmbeddedCluster, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    until("the rest is in sync", lambda: asked(brokers, tmp_path, "3", "--accept-single").returncode == SAFE)
    refused = asked(brokers, tmp_path, "3")
    assert refused.returncode == REFUSED
    assert "offline: no other replica at all (alone-0)" in refused.stdout
    assert "error: broker 3 should not be restarted now: 1 partition without a leader" in refused.stderr


def test_a_topic_that_is_gone_by_now_has_no_setting(admin: KafkaAdminClient) -> None:
    assert min_in_sync(admin, ["safe", "deleted-a-moment-ago"]) == {"safe": 2}


@pytest.mark.parametrize("arguments", [("9",), ("1", "--wait", "soon"), ("1", "--wait", "25h")])
def test_a_broker_that_is_not_there_or_no_duration_is_refused(
    brokers: EmbeddedCluster, admin: KafkaAdminClient, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    wrong = asked(brokers, tmp_path, *arguments)
    assert wrong.returncode == WRONG_USE
    assert arguments[-1].replace("9", "broker 9") in wrong.stderr
