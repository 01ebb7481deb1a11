"""Whether the brokers and topics that answer are those that are meant, by Kafka's own ids.

An address may lead to another cluster (a changed DNS entry, a cluster built again), and a topic may be deleted and made
again under the same name. Ids that are not known, those of earlier versions' rows for example, match everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from assignor_core.live import LiveCluster
from assignor_core.plan import Plan


def another_cluster(kafka_cluster_id: str | None, live: LiveCluster) -> str | None:
    """In words, that the brokers are not those of the cluster with this id; None if they are, or it isn't known."""
    if kafka_cluster_id in (None, live.cluster_id):
        return None
    return f"the brokers are Kafka cluster {live.cluster_id}, the plan is for Kafka cluster {kafka_cluster_id}"


def cluster_mismatch(expected: str | None, actual: str) -> str | None:
    """In words, that the brokers' cluster id is not the one expected; None if it is, or nothing is expected.

    >>> cluster_mismatch("a", "b")
    'the brokers are Kafka cluster b, expected is Kafka cluster a'
    """
    if expected in (None, actual):
        return None
    return f"the brokers are Kafka cluster {actual}, expected is Kafka cluster {expected}"


def topics_made_again(topic_ids: Mapping[str, str], live: LiveCluster) -> tuple[str, ...]:
    """Topics that have another id than in `topic_ids`: deleted, and made again under the same name.

    >>> topics_made_again({"t": "a", "u": "b"}, LiveCluster("c", {}, {}, {"t": "a", "u": "d"}))
    ('u',)
    """
    return tuple(
        sorted(topic for topic, topic_id in topic_ids.items() if live.topic_ids.get(topic, topic_id) != topic_id)
    )


def without_topics(live: LiveCluster, topics: Iterable[str]) -> LiveCluster:
    """The cluster as if these topics weren't there."""
    hidden = frozenset(topics)
    if not hidden:
        return live
    shown = {key: partition for key, partition in live.partitions.items() if key[0] not in hidden}
    listed = {key: row for key, row in live.listed.items() if key[0] not in hidden}
    return replace(live, partitions=shown, listed=listed)


def without_made_again(plan: Plan, topic_ids: Mapping[str, str], live: LiveCluster) -> Plan:
    """The plan without movements within brokers of topics that have another id than in `topic_ids`: their replicas only
    bear the approved names.
    """
    strangers = topics_made_again(topic_ids, live)
    if not strangers:
        return plan
    return replace(plan, log_dir_movements=tuple(row for row in plan.log_dir_movements if row.topic not in strangers))
