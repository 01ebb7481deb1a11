"""What topics are set to, whatever set it: the topic itself, or a default of its brokers."""

from collections.abc import Collection

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.cluster.answers import translated
from streaming.cluster.connection import ROLE
from streaming.errors import ClusterRequestFailed

MIN_IN_SYNC = "min.insync.replicas"
TOPICS_AT_ONCE = 1_000
"""Topics that one request asks about."""


def min_in_sync(admin: KafkaAdminClient, topics: Collection[str]) -> dict[str, int]:
    """`min.insync.replicas` by topic; a topic that is gone by now is left out.

    Raises ClusterUnreachable, and ClusterRequestFailed where the user may not read the settings of a topic.
    """
    names, found = sorted(topics), {}
    for first in range(0, len(names), TOPICS_AT_ONCE):
        some = names[first : first + TOPICS_AT_ONCE]
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, {MIN_IN_SYNC: ""}) for name in some]
        with translated(f"read {MIN_IN_SYNC} of topics", role=ROLE):
            shown = admin.describe_configs(asked, config_filter="all").get("topic", {})
        for name, values in shown.items():
            if MIN_IN_SYNC not in values:
                raise ClusterRequestFailed(f"the cluster does not show {MIN_IN_SYNC} of topic {name}")
            found[name] = int(values[MIN_IN_SYNC]["value"])
    return found
