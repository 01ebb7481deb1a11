"""Rows of `decision`: evaluations of the trigger, for control's start and for all who show them."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from streaming.contract import DECISION
from streaming.tables import Row, TableReader, of_cluster


def newest_decision(reader: TableReader, kafka_cluster: str, *, columns: Sequence[str] | None = None) -> Row | None:
    """The newest evaluation, by default with all its columns; None where there was none. Raises TableUnavailable."""
    return reader.newest_row(DECISION.name, "decided_at", columns=columns, where=of_cluster(kafka_cluster))


def read_decisions(reader: TableReader, kafka_cluster: str, *, columns: Sequence[str]) -> list[dict[str, Any]]:
    """All evaluations, `decided_at` among the columns, oldest first. Raises TableUnavailable."""
    rows = reader.rows(DECISION.name, columns=columns, where=of_cluster(kafka_cluster))
    return sorted(rows, key=itemgetter("decided_at"))
