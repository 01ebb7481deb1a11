"""Whether there are tables to read, and of this cluster. Before the answer "nothing", which would else be no news."""

from streaming.contract import TABLES
from streaming.errors import UsageProblem
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.tables.places import full_place

CLUSTER = "kafka_cluster"


def check_tables(settings: Settings) -> None:
    """Raises UsageProblem where no table is below storage.tables, or where all rows are of other clusters;
    TableUnavailable.

    Tables without any row pass: that is a set-up before its first window. Asked table by table until one has a row of
    this cluster, by the logs' statistics as a rule; the other clusters' names are read for the message only.
    """
    root, cluster = settings.storage.tables, settings.kafka.cluster_name
    reader, there = TableReader(root), []
    for table in reversed([table for table in TABLES.values() if CLUSTER in table.column_names()]):
        if reader.version(table.name) is None:
            continue
        if reader.newest_of_cluster(table.name, table.time_column, cluster) is not None:
            return
        there.append(table.name)
    if not there:
        raise UsageProblem(
            f"no tables in {full_place(root)} (for cluster {cluster!r}): is storage.tables right? "
            "`rebalancer run` makes them with its first window"
        )
    others: set[str] = set()
    for name in there:
        others |= set(reader.arrow(name, columns=[CLUSTER])[CLUSTER].unique().to_pylist())
    if others:
        listed = ", ".join(sorted(others))
        raise UsageProblem(
            f"the tables in {root} hold nothing of cluster {cluster!r}, only of {listed}: is kafka.cluster_name right?"
        )
