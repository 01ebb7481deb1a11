"""Rows of `decision`: evaluations of the trigger, for control's start and for all who show them."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from streaming.contract import DECISION
from streaming.tables import Row, TableReader, of_cluster
from streaming.views.stored_json import stored_rows

Traced = Mapping[str, Any]
"""One need that a decision looked at: need, is_found, text, passed, held_by, why; see `deciding.trace`."""


def newest_decision(reader: TableReader, kafka_cluster: str, *, columns: Sequence[str] | None = None) -> Row | None:
    """The newest evaluation, by default with all its columns; None where there was none. Raises TableUnavailable."""
    return reader.newest_row(DECISION.name, "decided_at", columns=columns, where=of_cluster(kafka_cluster))


def read_decisions(reader: TableReader, kafka_cluster: str, *, columns: Sequence[str]) -> list[dict[str, Any]]:
    """All evaluations, `decided_at` among the columns, oldest first. Raises TableUnavailable."""
    rows = reader.rows(DECISION.name, columns=columns, where=of_cluster(kafka_cluster))
    return sorted(rows, key=itemgetter("decided_at"))


def trace_of(text: str | None) -> list[dict[str, Any]]:
    """Needs of a decision's column `trace`, the most urgent first; empty where it has none, or none that can be read.

    >>> trace_of('[{"need": "skewed", "is_found": true, "text": "hot", "passed": ["low load"], "held_by": null}, 7]')
    [{'need': 'skewed', 'is_found': True, 'text': 'hot', 'passed': ['low load'], 'held_by': None, 'why': ''}]
    """
    return [
        {
            "need": str(row.get("need", "")),
            "is_found": row.get("is_found") is True,
            "text": str(row.get("text", "")),
            "passed": [str(name) for name in _list(row.get("passed"))],
            "held_by": None if row.get("held_by") is None else str(row["held_by"]),
            "why": str(row.get("why", "")),
        }
        for row in stored_rows(text)
    ]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def trace_lines(trace: Sequence[Traced]) -> list[str]:
    """What a decision looked at, one line for each need.

    >>> row = {"need": "skewed", "is_found": True, "text": "hot", "passed": ["low load"], "held_by": "cooldown"}
    >>> trace_lines([{**row, "why": "for 8 s more"}, {**row, "held_by": None, "why": ""}])
    ['skewed: hot; passed: low load; held by cooldown: for 8 s more', 'skewed: hot; passed: low load; makes the plan']
    >>> trace_lines([{"need": "broker_failed", "is_found": False, "why": ""}])
    ['broker failed: no need']
    """
    return [_line(row) for row in trace]


def _line(row: Traced) -> str:
    name, why = row["need"].replace("_", " "), row["why"]
    if not row["is_found"]:
        return f"{name}: no need" + (f": {why}" if why else "")
    passed = f"; passed: {', '.join(row['passed'])}" if row["passed"] else ""
    held = f"held by {row['held_by']}: {why}" if row["held_by"] else "makes the plan"
    return f"{name}: {row['text']}{passed}; {held}"
