"""Clients and leases for the cluster that is meant, and for no other that answers behind the same address.

`admin` is an admin client of kafka-python, which only the room `cluster` imports.
"""

from typing import Any

from streaming.cluster.admin import Cluster, PartlyShownCluster
from streaming.cluster.answers import kafka_cluster_id
from streaming.cluster.clients import reaching
from streaming.control.lease import Lease
from streaming.settings import Settings
from streaming.views.identity import check_cluster_id


def cluster_of(admin: Any, settings: Settings, *, logs: bool = False) -> PartlyShownCluster:
    """The cluster to read and plan on; raises AnotherCluster now, and at each later snapshot, where another one
    answers. What the user may not see of it is unknown; a role `logs` that, a command doesn't.
    """
    return PartlyShownCluster(admin, kafka_cluster_id=_checked_id(admin, settings), logs=logs)


def lease_of(admin: Any, settings: Settings) -> Lease:
    """The lease on the cluster that answers, not taken yet; raises AnotherCluster, ClusterUnreachable."""
    return Lease(
        settings.storage.tables,
        settings.kafka.cluster_name,
        settings.control.lease_ms,
        kafka_cluster_id=_checked_id(admin, settings),
        takes_over_cluster=settings.kafka.cluster_id is not None,
    )


def leased_cluster(admin: Any, lease: Lease) -> Cluster:
    """The cluster that may be changed while the lease holds."""
    return Cluster(admin, lease.check, kafka_cluster_id=lease.kafka_cluster_id)


def _checked_id(admin: Any, settings: Settings) -> str:
    with reaching(settings.kafka):
        actual = kafka_cluster_id(admin)
    return check_cluster_id(settings.kafka, settings.storage.tables, actual)
