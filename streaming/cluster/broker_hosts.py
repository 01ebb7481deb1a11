"""Hosts of brokers, and the broker that leads the metadata quorum, as the cluster shows them."""

from contextlib import suppress

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.cluster.admin import ROLE
from streaming.cluster.answers import translated


def broker_hosts(admin: KafkaAdminClient) -> dict[int, str]:
    """Advertised host by broker that is alive; raises ClusterUnreachable, ClusterRequestFailed."""
    with translated("describe the cluster", role=ROLE):
        return {row["broker_id"]: row["host"] for row in admin.describe_cluster()["brokers"]}


def quorum_leader(admin: KafkaAdminClient) -> int | None:
    """Id of the node that leads the metadata quorum (KRaft), which is a broker's id where brokers are controllers, too.

    None if the cluster does not show it. The controller in the description of a KRaft cluster is any broker.
    """
    with suppress(KafkaError, OSError):
        for topic in admin.describe_metadata_quorum()["topics"]:
            for partition in topic["partitions"]:
                return int(partition["leader_id"])
    return None
