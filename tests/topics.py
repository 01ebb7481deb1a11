"""Topics of tests on brokers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import ConfigResourceType
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from assignor_core.live import LiveCluster, PartitionKey
from streaming.cluster.admin import Cluster
from tests import waiting

LEADERS_AGE_MAX_MS = 2_000


def wait_until_known(admin: KafkaAdminClient, topics: Iterable[str]) -> None:
    """Until every broker knows these topics, with a leader for each partition.

    Brokers hear of topics one after the other, and a request for a topic's settings, offsets or logs goes to any of
    them. `KafkaAdminClient.wait_for_topics` asks one broker, for 10 seconds.
    """
    wanted, problems = list(topics), list[str]()
    waiting.until(
        f"all brokers know {wanted}", lambda: _all_know(admin, wanted, problems), state=lambda: ", ".join(problems[-1:])
    )


def settled(cluster: Cluster, targets: Mapping[PartitionKey, tuple[int, ...]]) -> LiveCluster:
    """The cluster as soon as it shows these replicas, all in sync, and nothing that is being reassigned.

    Whoever asked for `targets` has to name them. The controller lists what is reassigned, another broker describes the
    replicas: that broker may show those of before, or those of before and after together, when the list is empty.
    """
    seen = list[LiveCluster]()

    def is_settled() -> bool:
        live = cluster.describe()
        seen[:] = [live]
        placed = all(live.partitions[key].replicas == row for key, row in targets.items())
        rows = live.partitions.values()
        return placed and not live.reassigning() and all(len(row.isr) == len(row.replicas) for row in rows)

    waiting.until("the replicas are placed and in sync", is_settled)
    return seen[0]


def producer_for_moves(bootstrap_servers: Sequence[str], *, acks: str) -> Producer:
    """Of records to partitions that are moved meanwhile: librdkafka may stay with a leader that has become a follower
    until it asks again, by default every five minutes.
    """
    return Producer(
        {
            "bootstrap.servers": ",".join(bootstrap_servers),
            "acks": acks,
            "topic.metadata.refresh.interval.ms": LEADERS_AGE_MAX_MS,
        }
    )


def set_settings(admin: KafkaAdminClient, *changes: Any) -> None:
    """Add to, or remove from, settings of topics or brokers (`ConfigResource`); every change must have been taken.

    The broker that takes the request says which settings it doesn't know. `KafkaAdminClient` would ask another one
    for the settings first, and it may not have heard of the topic.
    """
    answers = admin.alter_configs(list(changes), raise_on_unknown=False, incremental=True)
    refused = {name: answer for rows in answers.values() for name, answer in rows.items() if answer != "OK"}
    assert not refused, refused


def wait_until_set(admin: KafkaAdminClient, topic: str, setting: str, text: str) -> None:
    """Until every broker shows this value of the topic's setting: they hear of it one after the other."""

    def all_show() -> bool:
        try:
            brokers = [row["broker_id"] for row in admin.describe_cluster()["brokers"]]
            shown = {admin._manager.run(_topic_setting, admin, broker, topic, setting) for broker in brokers}
        except KafkaError:
            admin._manager.cluster.request_update()
            return False
        return shown == {text}

    waiting.until(f"all brokers show {setting}={text} of {topic}", all_show)


def _all_know(admin: KafkaAdminClient, topics: Sequence[str], problems: list[str]) -> bool:
    try:
        brokers = [row["broker_id"] for row in admin.describe_cluster()["brokers"]]
        lacking = [broker for broker in brokers if not _knows(admin, broker, topics)]
    except KafkaError as error:
        # A client that came first knows the brokers of then, and would ask for them again minutes later.
        admin._manager.cluster.request_update()
        problems.append(str(error))
        return False
    problems.append(f"not known to brokers {lacking} of {brokers}")
    return bool(brokers) and not lacking


def _knows(admin: KafkaAdminClient, broker: int, topics: Sequence[str]) -> bool:
    answer = admin._manager.run(_metadata, admin, broker, topics)
    known = {row.name for row in answer.topics if not row.error_code and row.partitions}
    return known >= set(topics) and all(_is_led(partition) for row in answer.topics for partition in row.partitions)


async def _metadata(admin: KafkaAdminClient, broker: int, topics: Sequence[str]) -> Any:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return await admin._manager.send(request, node_id=broker)


async def _topic_setting(admin: KafkaAdminClient, broker: int, topic: str, setting: str) -> str | None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=[setting]
    )
    answer = await admin._manager.send(DescribeConfigsRequest(resources=[resource]), node_id=broker)
    return next((row.value for result in answer.results for row in result.configs if row.name == setting), None)


def _is_led(partition: Any) -> bool:
    return not partition.error_code and partition.leader_id >= 0
