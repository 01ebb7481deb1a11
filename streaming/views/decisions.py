"""Rows of `decision`: the newest evaluation of the trigger, for control's start and for all who show it."""

from collections.abc import Sequence

from streaming.contract import DECISION
from streaming.tables import Row, TableReader, of_cluster


def newest_decision(reader: TableReader, kafka_cluster: str, *, columns: Sequence[str] | None = None) -> Row | None:
    """The newest evaluation, by default with all its columns; None where there was none. Raises TableUnavailable."""
    return reader.newest_row(DECISION.name, "decided_at", columns=columns, where=of_cluster(kafka_cluster))
