"""Topics of tests on brokers."""

from collections.abc import Iterable, Sequence
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.metadata import MetadataRequest

from tests import waiting


def wait_until_known(admin: KafkaAdminClient, topics: Iterable[str]) -> None:
    """Until every broker knows these topics, with a leader for each partition.

    Brokers hear of topics one after the other, and a request for a topic's settings, offsets or logs goes to any of
    them. `KafkaAdminClient.wait_for_topics` asks one broker, for 10 seconds.
    """
    missing = list(topics)
    waiting.until(f"all brokers know {missing}", lambda: _all_know(admin, missing))


def set_settings(admin: KafkaAdminClient, *changes: Any) -> None:
    """Add to, or remove from, settings of topics or brokers (`ConfigResource`); every change must have been taken.

    The broker that takes the request says which settings it doesn't know. `KafkaAdminClient` would ask another one
    for the settings first, and it may not have heard of the topic.
    """
    answers = admin.alter_configs(list(changes), raise_on_unknown=False, incremental=True)
    refused = {name: answer for rows in answers.values() for name, answer in rows.items() if answer != "OK"}
    assert not refused, refused


def _all_know(admin: KafkaAdminClient, topics: Sequence[str]) -> bool:
    try:
        brokers = [row["broker_id"] for row in admin.describe_cluster()["brokers"]]
        return bool(brokers) and all(_knows(admin, broker, topics) for broker in brokers)
    except KafkaError:
        return False


def _knows(admin: KafkaAdminClient, broker: int, topics: Sequence[str]) -> bool:
    answer = admin._manager.run(_metadata, admin, broker, topics)
    known = {
        row.name for row in answer.topics if not row.error_code and row.partitions and all(map(_is_led, row.partitions))
    }
    return known >= set(topics)


async def _metadata(admin: KafkaAdminClient, broker: int, topics: Sequence[str]) -> Any:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return await admin._manager.send(request, node_id=broker)


def _is_led(partition: Any) -> bool:
    return not partition.error_code and partition.leader_id >= 0
