"""Rows of control's tables for whoever asks by HTTP, the newest first, a bounded page at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.execution.events import EventRecord
from assignor_core.execution.life_cycle import Execution
from streaming.contract import AUDIT, DECISION, EXECUTION, PLAN, TABLES
from streaming.tables import (
    ALL_ROWS,
    Condition,
    TableReader,
    at_least,
    at_most,
    equal,
    of_cluster,
    one_of,
    to_ms,
    utc,
)
from streaming.views.executions import OF_MOVEMENTS, event_columns, folded
from streaming.views.spans import of_span

LEFT_OUT = frozenset({"plan_json", "state_json", "answer_json", *OF_MOVEMENTS})
"""Columns that are left out because they are large, or of use only to their writer."""

OF_THE_END = ("status", "state", "detail")
"""Columns of an act that are known once it has ended."""

Key = tuple[int, str]
"""Time of a row, ms, and its id: the place where a page ends."""


@dataclass(frozen=True, slots=True)
class Past:
    """Rows of a table that have a time and an id; `only` is a column and the value that they have in it."""

    table: str
    identity: str
    only: tuple[str, str | int] | None = None

    @property
    def where(self) -> Condition:
        """Filter of the rows. It is made only when read, because pyarrow imports pandas for a condition."""
        return ALL_ROWS if self.only is None else equal(*self.only)

    @property
    def time(self) -> str:
        """Name of the table's time column."""
        return TABLES[self.table].time_column

    def key(self, row: Mapping[str, Any]) -> Key:
        """Returns the key of a row as the table has it."""
        return to_ms(row[self.time]), str(row[self.identity])


DECISIONS = Past(DECISION.name, "decision_id")
PLANS = Past(PLAN.name, "plan_id")
ACTS = Past(AUDIT.name, "act_id", ("stage", "begun"))
EXECUTIONS = Past(EXECUTION.name, "execution_id", ("sequence", 0))


@dataclass(frozen=True, slots=True)
class Before:
    """Rows from `from_ms` (inclusive) to `until_ms` (exclusive) whose keys are below `key`; None is no limit."""

    from_ms: int | None = None
    until_ms: int | None = None
    key: Key | None = None


def read_past(
    reader: TableReader, past: Past, kafka_cluster: str, wanted: Before, *, rows_max: int, where: Condition = ALL_ROWS
) -> list[dict[str, Any]]:
    """Returns at most `rows_max` rows, the newest first. Raises TableUnavailable.

    Ids and times are read of all rows, the other columns of a page alone.
    """
    own = of_span(kafka_cluster, past.time, wanted.from_ms, wanted.until_ms) & past.where & where
    own &= ALL_ROWS if wanted.key is None else at_most(past.time, utc(wanted.key[0]))
    keys = reader.arrow(past.table, columns=(past.time, past.identity), where=own)
    keys = keys.sort_by([(past.time, "descending"), (past.identity, "descending")])
    if wanted.key is not None:
        keys = keys.filter(_is_below(keys, past, wanted.key))
    page = [past.key(row) for row in keys.slice(0, rows_max).to_pylist()]
    if not page:
        return []
    columns = [name for name in TABLES[past.table].column_names() if name not in LEFT_OUT]
    span = at_most(past.time, utc(page[0][0])) & at_least(past.time, utc(page[-1][0]))
    of_page = own & span & one_of(past.identity, {identity for _, identity in page})
    by_key = {past.key(row): row for row in reader.rows(past.table, columns=columns, where=of_page)}
    return [by_key[key] for key in dict.fromkeys(page)]


def _is_below(keys: pa.Table, past: Past, key: Key) -> pa.Array:
    time = pa.scalar(utc(key[0]), keys[past.time].type)
    same_time = pc.and_(pc.equal(keys[past.time], time), pc.less(keys[past.identity], key[1]))
    return pc.or_(pc.less(keys[past.time], time), same_time)


def read_row(reader: TableReader, past: Past, kafka_cluster: str, identity: str) -> dict[str, Any] | None:
    """The newest row with this id; None where there is none. Raises TableUnavailable."""
    rows = read_past(reader, past, kafka_cluster, Before(), rows_max=1, where=equal(past.identity, identity))
    return rows[0] if rows else None


def read_execution_of(reader: TableReader, kafka_cluster: str, execution_id: str) -> Execution | None:
    """The execution with this id; None where there is none. Raises TableUnavailable."""
    where = of_cluster(kafka_cluster) & equal("execution_id", execution_id)
    executions = folded(reader.rows(EXECUTION.name, where=where))
    return executions[0] if executions else None


def with_ends(reader: TableReader, kafka_cluster: str, begun: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Acts with what came of each, and when; of those that have not ended that is null. Raises TableUnavailable."""
    of_acts = one_of("act_id", {row["act_id"] for row in begun})
    columns = ("act_id", "stage", AUDIT.time_column, *OF_THE_END)
    where = of_cluster(kafka_cluster) & equal("stage", "ended") & of_acts
    ends = {
        row["act_id"]: {"ended_at": row.pop(AUDIT.time_column), **row}
        for row in reader.rows(AUDIT.name, columns=columns, where=where)
    }
    return [{**row, "ended_at": None, **ends.get(row["act_id"], {})} for row in begun]


def execution_figures(execution: Execution) -> dict[str, Any]:
    """What is shown of an execution: where it stands now, and when it was approved, started and ended."""
    return _event_figures(execution, execution.shown) | {
        "phase": execution.phase.value,
        "approved_ms": execution.approved_ms,
        "started_ms": execution.started_ms,
        "ended_ms": execution.ended_ms,
        "is_abort_requested": execution.abort_requested,
    }


def execution_events(execution: Execution, *, events_max: int) -> list[dict[str, Any]]:
    """Returns the newest events of the execution, the newest first."""
    newest = execution.history[::-1][:events_max]
    return [_event_figures(execution, record) for record in newest]


def _event_figures(execution: Execution, record: EventRecord) -> dict[str, Any]:
    columns = event_columns(execution, record)
    return figures({name: value for name, value in columns.items() if name not in LEFT_OUT})


def figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON's types: `decided_at` becomes `decided_ms`, `event_time` `event_ms`, `window_end` `window_end_ms`.

    A time that is null goes by the same name: it is known by its ending.
    """
    return {_named(name, value): to_ms(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _named(name: str, value: Any) -> str:
    is_time = isinstance(value, datetime) or name.endswith("_at") or name in ("window_start", "window_end")
    return f"{name.removesuffix('_at').removesuffix('_time')}_ms" if is_time else name
