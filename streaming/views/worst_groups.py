"""Consumer groups in the order of their verdicts, from columns: whoever shows some needs no reason of all the others.

Owns that order; `streaming.views.groups` makes what is shown of a group.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from assignor_core.lag import LagStatus
from streaming.views.runs import Runs


class RankedGroup(NamedTuple):
    """One group, as its worst partition is."""

    group: str
    status: str
    lag_seconds_is_final: bool
    """False where older windows than those of the picture may show its lag to be older."""


def ranked_groups(partitions: pa.Table) -> list[RankedGroup]:
    """Worst first, then most lag, then by name. `partitions` are those of a `LagPicture`."""
    runs = Runs.of(partitions, "group_id")
    status = np.maximum.reduceat(partitions["status"].to_numpy(), runs.starts)
    lag = runs.sums(partitions["lag_records"])
    is_final = np.logical_and.reduceat(partitions["lag_seconds_is_final"].to_numpy(), runs.starts)
    order = np.lexsort((-lag, -status))  # groups that are equal stay in the order of their names
    labels = {int(verdict): verdict.label for verdict in LagStatus}
    names = pa.array(runs.first(partitions["group_id"])).take(pa.array(order)).to_pylist()
    return [
        RankedGroup(name, labels[number], final)
        for name, number, final in zip(names, status[order].tolist(), is_final[order].tolist(), strict=True)
    ]
