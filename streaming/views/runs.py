"""Sums and extremes over rows that follow each other and share a key: milliseconds for what takes a table's own groups
seconds, and no object for each row.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.lag import LagStatus
from assignor_core.lag.history import Floats, Ints
from streaming.tables import as_floats, as_whole


def listed(values: pa.ChunkedArray) -> list[Any]:
    """The values. Texts of a dictionary are written out first: one by one each would cost ten times as much."""
    is_encoded = pa.types.is_dictionary(values.type)
    values_listed: list[Any] = (values.cast(values.type.value_type) if is_encoded else values).to_pylist()
    return values_listed


def rows_listed(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts, for some thousands of them."""
    names, columns = rows.column_names, [listed(column) for column in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows of a picture that follow each other and share a key: what there is of each, in the order of the rows."""

    starts: Ints
    rows: int

    @classmethod
    def of(cls, rows: pa.Table, *key: str) -> "Runs":
        differs = np.zeros(rows.num_rows, dtype=bool)
        differs[:1] = True
        for name in key:
            codes = rows[name].combine_chunks().dictionary_encode().indices.to_numpy()
            differs[1:] |= codes[1:] != codes[:-1]
        return cls(np.flatnonzero(differs), rows.num_rows)

    @property
    def counts(self) -> Ints:
        return np.diff(np.append(self.starts, self.rows))

    def first(self, values: pa.ChunkedArray) -> list[Any]:
        """The value of the first row."""
        return listed(values.take(pa.array(self.starts)))

    def totals(self, values: pa.ChunkedArray) -> list[int | None]:
        """Sums of whole numbers where they are known; None where all are unknown."""
        sums = self.sums(values).tolist()
        known = np.logical_or.reduceat(pc.is_valid(values).to_numpy(), self.starts).tolist()
        return [int(total) if is_known else None for total, is_known in zip(sums, known, strict=True)]

    def sums(self, values: pa.ChunkedArray) -> Floats:
        """Sums of whole numbers, exact up to 2^53; what is unknown adds nothing."""
        # Some offsets may add up to more than 64 bits hold.
        sums: Floats = np.add.reduceat(as_floats(pc.fill_null(values, 0)).to_numpy(), self.starts)
        return sums

    def highest(self, values: pa.ChunkedArray) -> list[Any]:
        """Greatest value known; None where all are unknown."""
        highest = pa.array(np.fmax.reduceat(as_floats(values).to_numpy(), self.starts), from_pandas=True)
        listed: list[Any] = (as_whole(highest) if pa.types.is_integer(values.type) else highest).to_pylist()
        return listed

    def spread(self, values: Ints) -> Ints:
        """A value of each run for each of its rows."""
        return np.repeat(values, self.counts)

    def statuses(self, status: Ints) -> list[dict[str, int]]:
        """Rows by verdict, worst first; verdicts that none has are left out."""
        numbers = np.repeat(np.arange(len(self.starts)), self.counts) * len(LagStatus) + status
        table = np.bincount(numbers, minlength=len(self.starts) * len(LagStatus)).reshape(-1, len(LagStatus))
        worst_first = [(int(verdict), verdict.label) for verdict in reversed(LagStatus)]
        return [{label: row[number] for number, label in worst_first if row[number]} for row in table.tolist()]
