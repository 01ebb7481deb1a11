"""Which Kafka cluster is meant: by `kafka.cluster_id`, else by the row of its lease, which keeps Kafka's own id.

Control, the collector and the commands ask here before they look at a cluster, or write anything of it.
"""

from streaming import tables
from streaming.contract import LEASE
from streaming.errors import AnotherCluster
from streaming.settings import Settings


def expected_cluster_id(settings: Settings) -> str | None:
    """Kafka's own id of the cluster that is meant; None where neither settings nor tables know one.

    Raises TableUnavailable.
    """
    return settings.kafka.cluster_id or known_cluster_id(settings)


def known_cluster_id(settings: Settings) -> str | None:
    """The id that the tables keep; None of a cluster that no control of this version has held the lease of."""
    row = _lease_row(settings)
    return None if row is None else row.get("kafka_cluster_id")


def known_lease_id(settings: Settings) -> str | None:
    """The id of the tables' lease on the cluster; None where no control of this version has held it."""
    row = _lease_row(settings)
    return None if row is None else row.get("lease_id")


def check_cluster_id(settings: Settings, actual: str) -> str:
    """`actual`, the id of the cluster that answers; raises AnotherCluster if it isn't the one that is meant."""
    expected = expected_cluster_id(settings)
    if expected not in (None, actual):
        raise AnotherCluster(mismatch_text(settings, expected, actual))
    return actual


def mismatch_text(settings: Settings, expected: str | None, actual: str) -> str:
    """Names both ids, where each comes from, and what to do."""
    servers, name = ", ".join(settings.kafka.bootstrap_servers), settings.kafka.cluster_name
    answering = f"the brokers at {servers} are Kafka cluster {actual}"
    if settings.kafka.cluster_id:
        return f"{answering}, kafka.cluster_id is {expected}: is kafka.bootstrap_servers right?"
    return (
        f"{answering}, the tables in {settings.storage.tables} know {name!r} as Kafka cluster {expected}: is "
        f"kafka.bootstrap_servers right? If the cluster was built anew, set kafka.cluster_id to {actual}"
    )


def _lease_row(settings: Settings) -> tables.Row | None:
    where = tables.of_cluster(settings.kafka.cluster_name)
    return tables.newest(tables.read(settings.storage.tables, LEASE.name, where=where), "sequence")
