"""`rebalancer check` on real brokers: input topics whose records bear the time that producers claim."""

import json
import uuid
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.cluster.clients import admin_client
from streaming.cluster.topics import create_input_topics, stamped_by_producers
from streaming.errors import ClusterRequestFailed
from streaming.settings import Settings
from tests.commands import run
from tests.topics import set_settings, wait_until_known

pytestmark = pytest.mark.kafka

NAME = "broker's time"


@pytest.fixture
def own(settings: Settings, tmp_path: Path) -> Settings:
    mark = uuid.uuid4().hex[:8]
    return Settings.model_validate(
        {
            "kafka": settings.model_dump()["kafka"],
            "topics": {
                "byte_rate": f"rate-{mark}", "consumer_lag": f"lag-{mark}", "foreign": {f"agents-{mark}": "otlp-json"},
            },
            "storage": {"tables": str(tmp_path / "tables")},
        }
    )  # fmt: skip


def check(settings: Settings, folder: Path) -> dict[str, dict[str, object]]:
    answer = run(settings, folder, "check", "--json")
    return {row["name"]: row for row in json.loads(answer.stdout)}


def test_a_topic_stamped_by_producers_is_named_with_the_command_that_mends_it(own: Settings, tmp_path: Path) -> None:
    admin = admin_client(own.kafka)
    try:
        create_input_topics(admin, own.topics)
        (foreign,) = own.topics.foreign
        admin.create_topics({foreign: {"num_partitions": 1, "replication_factor": 1}})
        wait_until_known(admin, [own.topics.byte_rate, own.topics.consumer_lag, foreign])
        ours = (own.topics.byte_rate, own.topics.consumer_lag)
        assert stamped_by_producers(admin, ours) == (), "the topics that we make"
        row = check(own, tmp_path)[NAME]
        servers = ",".join(own.kafka.bootstrap_servers)
        command = (
            f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics --entity-name {foreign} "
            "--add-config message.timestamp.type=LogAppendTime"
        )
        assert not row["passed"]
        assert row["detail"] == f"producers stamp the records of {foreign}; to fix it: {command}"
        change = {"message.timestamp.type": ("SET", "LogAppendTime")}
        set_settings(admin, ConfigResource(ConfigResourceType.TOPIC, foreign, change))
        assert check(own, tmp_path)[NAME]["passed"]
        with pytest.raises(ClusterRequestFailed, match=r"does not show message\.timestamp\.type of topic none-such"):
            stamped_by_producers(admin, ["none-such"])
    finally:
        admin.close()
