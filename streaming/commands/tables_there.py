"""Whether there are tables to read, and of this cluster. Before the answer "nothing", which would else be no news."""

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming import tables
from streaming.contract import TABLES
from streaming.errors import TableUnavailable, UsageProblem
from streaming.settings import Settings

CLUSTER = "kafka_cluster"


def check_tables(settings: Settings) -> None:
    """Raises UsageProblem where no table is below storage.tables, or where all rows are of other clusters;
    TableUnavailable.

    Tables without any row pass: that is a set-up before its first window. Asked table by table until one row of this
    cluster is found, the small tables first; the other clusters' names are read for the message only.
    """
    root, cluster = settings.storage.tables, settings.kafka.cluster_name
    own = pc.field(CLUSTER) == cluster
    there = []
    for name in reversed([table.name for table in TABLES.values() if CLUSTER in table.column_names()]):
        delta = tables.open_table(root, name)
        if delta is not None:
            if _has_row(name, delta, own):
                return
            there.append(name)
    if not there:
        raise UsageProblem(f"no tables in {root} (for cluster {cluster!r}): is storage.tables right?")
    others: set[str] = set()
    for name in there:
        others |= set(tables.read_arrow(root, name, columns=[CLUSTER])[CLUSTER].unique().to_pylist())
    if others:
        listed = ", ".join(sorted(others))
        raise UsageProblem(
            f"the tables in {root} hold nothing of cluster {cluster!r}, only of {listed}: is kafka.cluster_name right?"
        )


def _has_row(name: str, delta: DeltaTable, where: pc.Expression) -> bool:
    """Without reading the table: the first row found is enough."""
    try:
        return bool(delta.to_pyarrow_dataset().head(1, columns=[CLUSTER], filter=where).num_rows)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise TableUnavailable(f"table {name} can't be read: {tables.first_line(error)}") from None
