"""Which Kafka cluster is meant: by `kafka.cluster_id`, else by the row of its lease, which keeps Kafka's own id. Before
there is one, by the newest plan: whoever made it has read the right cluster.

Control, the collector and the commands ask here before they read a cluster, or write anything of it.
"""

from streaming.contract import LEASE
from streaming.errors import AnotherCluster
from streaming.settings import KafkaSettings
from streaming.tables import Row, TableReader, newest, of_cluster
from streaming.views.plans import planned_cluster_id


def expected_cluster_id(kafka: KafkaSettings, root: str) -> str | None:
    """Kafka's own id of the cluster that is meant; None where neither settings nor tables know one.

    Raises TableUnavailable.
    """
    return kafka.cluster_id or known_cluster_id(TableReader(root), kafka.cluster_name)


def known_cluster_id(reader: TableReader, kafka_cluster: str) -> str | None:
    """The id that the tables keep; None where no control of this version held the lease or made a plan."""
    row = _lease_row(reader, kafka_cluster) or {}
    return row.get("kafka_cluster_id") or planned_cluster_id(reader, kafka_cluster)


def known_holder(reader: TableReader, kafka_cluster: str) -> tuple[str | None, str | None]:
    """Ids of the tables' lease on the cluster and of its newest holder; None where no control of this version was."""
    row = _lease_row(reader, kafka_cluster) or {}
    return row.get("lease_id"), row.get("holder_id")


def check_cluster_id(kafka: KafkaSettings, root: str, actual: str) -> str:
    """`actual`, the id of the cluster that answers; raises AnotherCluster if it isn't the one that is meant.

    `root` is where the tables lie that know an id.
    """
    expected = expected_cluster_id(kafka, root)
    if expected not in (None, actual):
        raise AnotherCluster(_mismatch_text(kafka, root, expected, actual))
    return actual


def _mismatch_text(kafka: KafkaSettings, root: str, expected: str | None, actual: str) -> str:
    """Names both ids, where each comes from, and what to do."""
    servers = ", ".join(kafka.bootstrap_servers)
    answering = f"the brokers at {servers} are Kafka cluster {actual}"
    if kafka.cluster_id:
        return f"{answering}, kafka.cluster_id is {expected}: is kafka.bootstrap_servers right?"
    return (
        f"{answering}, the tables in {root} know {kafka.cluster_name!r} as Kafka cluster {expected}: is "
        f"kafka.bootstrap_servers right? If the cluster was built again, set kafka.cluster_id to {actual}"
    )


def _lease_row(reader: TableReader, kafka_cluster: str) -> Row | None:
    return newest(reader.rows(LEASE.name, where=of_cluster(kafka_cluster)), "sequence")
