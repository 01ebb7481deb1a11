"""What the successive reports of a query show that the newest alone does not: a new process, and a batch that hangs.

Every row shows what its process has done so far, and every process writes rows of the same kind, at the same pace,
whether its batches end or not. So rows are compared with those before them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming.views.stored_json import stored_object

Row = Mapping[str, Any]
TIME = "finished_at"


@dataclass(frozen=True, slots=True)
class QueryReports:
    """The newest row of one query, and what follows from those before it."""

    row: Row
    changed_at: datetime
    """Time of the first row with the content of the newest."""
    first_batch: int
    """Batch that the process began with: number of those that were done before it."""
    _begun_with: int

    def followed_by(self, row: Row) -> "QueryReports":
        """The same once `row` has come; one that is not newer changes nothing."""
        if row[TIME] <= self.row[TIME]:
            return self
        begun_with = _begun_with(row)
        return QueryReports(
            row,
            self.changed_at if _content(row) == _content(self.row) else row[TIME],
            # Totals may lack a batch that has just ended, in one row: the next is right again, and lower.
            min(self._begun_with, begun_with),
            begun_with,
        )


def first_report(row: Row) -> QueryReports:
    """The reports after the oldest row known alone."""
    return QueryReports(row, row[TIME], _begun_with(row), _begun_with(row))


def _begun_with(row: Row) -> int:
    """Batches done in all less those that this process has done."""
    ran = "addBatch" in (stored_object(row["phases_json"]) or {})  # an idle query names the batch that comes next
    return int(row["batch_id"]) + ran - int(row["batches_total"])


def _content(row: Row) -> dict[str, Any]:
    # While a batch is under way nothing is reported, and the row repeats what was reported last. An idle query
    # reports every 10 s, each time with how many ms it took to look for records.
    return {name: value for name, value in row.items() if name != TIME}
