"""What topics are set to, whatever set it: the topic itself, or a default of its brokers."""

from collections.abc import Collection

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.cluster.answers import translated
from streaming.cluster.connection import ROLE

MIN_IN_SYNC = "min.insync.replicas"
TOPICS_AT_ONCE = 1_000
"""Topics that one request asks about."""


def topic_setting(admin: KafkaAdminClient, setting: str, topics: Collection[str]) -> dict[str, str]:
    """The value of `setting` by topic; a topic that is gone shows none and is left out.

    Raises ClusterUnreachable, and ClusterRequestFailed where the user may not read the settings of a topic.
    """
    names, found = sorted(topics), dict[str, str]()
    for first in range(0, len(names), TOPICS_AT_ONCE):
        some = names[first : first + TOPICS_AT_ONCE]
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, {setting: ""}) for name in some]
        with translated(f"read {setting} of topics", role=ROLE):
            shown = admin.describe_configs(asked, config_filter="all").get("topic", {})
        found |= {name: str(values[setting]["value"]) for name, values in shown.items() if setting in values}
    return found


def min_in_sync(admin: KafkaAdminClient, topics: Collection[str]) -> dict[str, int]:
    """`min.insync.replicas` by topic. Topics that are gone, and errors, are as in `topic_setting`."""
    return {name: int(value) for name, value in topic_setting(admin, MIN_IN_SYNC, topics).items()}
