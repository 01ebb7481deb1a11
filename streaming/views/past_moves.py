"""What moved when and why: movements of plans that executions took up, of a topic, a partition or a broker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.execution.seen_movements import seen_movements
from streaming.contract import DECISION, EXECUTION, MOVEMENT, PLAN
from streaming.tables import ALL_ROWS, Condition, Row, TableReader, equal, of_cluster, one_of
from streaming.views.executions import folded
from streaming.views.movement_states import state_figures
from streaming.views.past_rows import EXECUTIONS, Before, execution_figures, figures, read_past, read_row

EXECUTIONS_LOOKED_AT = 200
"""Executions whose movements one answer looks through."""
EXECUTIONS_SHOWN = 25
"""Executions that one answer is of: each may have thousands of events, of which its state is made."""
MOVEMENTS_TOGETHER = 100_000
"""Movements of plans that are read at a time, unless one plan alone has more."""

OF_EXECUTION = (
    "execution_id", "plan_id", "phase", "approved_ms", "started_ms", "ended_ms", "movements_done", "movements_total",
)  # fmt: skip

Place = tuple[int, str, int]
"""When the execution was approved, ms; its id; the movement's sequence: the last one that was shown."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose movements; None is any. Those of a broker add, remove or reorder a replica on it."""

    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    @property
    def where(self) -> Condition:
        """What the table can be asked for."""
        topic = ALL_ROWS if self.topic is None else equal("topic", self.topic)
        return topic & (ALL_ROWS if self.partition is None else equal("partition", self.partition))


@dataclass(frozen=True, slots=True)
class PastMoves:
    """Movements, the newest execution first and within it in the plan's order."""

    rows: list[dict[str, Any]]
    looked_to: Place | None
    """Where the search ended before the oldest execution; None where nothing is left to look through."""


def read_past_moves(
    reader: TableReader, kafka_cluster: str, wanted: Wanted, before: Before, after: Place | None, *, rows_max: int
) -> PastMoves:
    """At most `rows_max` of them, of `EXECUTIONS_SHOWN` executions. Raises TableUnavailable.

    Each has its state: in an aborted execution some are made, and some are not.
    """
    found = _looked_through(reader, _firsts(reader, kafka_cluster, before, after), wanted, after, rows_max)
    return PastMoves(_completed(reader, kafka_cluster, found.rows), found.looked_to)


def _looked_through(
    reader: TableReader, firsts: Sequence[Row], wanted: Wanted, after: Place | None, rows_max: int
) -> PastMoves:
    """Movements as their rows have them, each with the id of its execution."""
    listed, last = firsts[:EXECUTIONS_LOOKED_AT], None
    found: list[dict[str, Any]] = []
    shown: set[str] = set()
    for first, movements in _with_movements(reader, listed, wanted):
        if movements.num_rows and (len(found) >= rows_max or len(shown) == EXECUTIONS_SHOWN):
            return PastMoves(found, last)
        approved_ms, execution_id = EXECUTIONS.key(first)
        if after is not None and after[1] == execution_id:
            movements = movements.filter(pc.greater(movements["sequence"], after[2]))
        rest = movements.slice(0, rows_max - len(found)).to_pylist()
        found += [{**row, "execution_id": execution_id} for row in rest]
        shown |= {execution_id} if rest else set()
        is_whole = len(rest) == movements.num_rows
        last = (approved_ms, execution_id, _ALL_OF_IT if is_whole else rest[-1]["sequence"])
        if not is_whole:
            return PastMoves(found, last)
    return PastMoves(found, last if len(firsts) > len(listed) else None)


_ALL_OF_IT = (1 << 31) - 1


def _firsts(reader: TableReader, kafka_cluster: str, before: Before, after: Place | None) -> list[Row]:
    """First events of executions, the newest first, from the one that the page before ended in."""
    if after is None:
        return list(read_past(reader, EXECUTIONS, kafka_cluster, before, rows_max=EXECUTIONS_LOOKED_AT + 1))
    older = Before(before.from_ms, before.until_ms, after[:2])
    rows = read_past(reader, EXECUTIONS, kafka_cluster, older, rows_max=EXECUTIONS_LOOKED_AT)
    begun = read_row(reader, EXECUTIONS, kafka_cluster, after[1]) if after[2] < _ALL_OF_IT else None
    return [*([] if begun is None else [begun]), *rows]


def _with_movements(reader: TableReader, firsts: Sequence[Row], wanted: Wanted) -> Iterator[tuple[Row, pa.Table]]:
    """Each execution with those of its movements that are wanted, in the plan's order."""
    for batch in _batches(firsts):
        where = one_of("plan_id", {row["plan_id"] for row in batch}) & wanted.where
        rows = _of_broker(reader.arrow(MOVEMENT.name, where=where), wanted.broker)
        for first in batch:
            yield first, _once(rows.filter(pc.equal(rows["plan_id"], first["plan_id"])))


def _once(rows: pa.Table) -> pa.Table:
    """Movements of one plan by sequence. One that was made again after its rows had expired has them once more."""
    rows = rows.sort_by("sequence")
    sequence = rows["sequence"].to_numpy()
    return rows.filter(pa.array(np.append(True, sequence[1:] != sequence[:-1]))) if rows.num_rows else rows


def _batches(firsts: Sequence[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    total = 0
    for row in firsts:
        count = row["movements_total"] or 0
        if batch and total + count > MOVEMENTS_TOGETHER:
            yield batch
            batch, total = [], 0
        batch.append(row)
        total += count
    if batch:
        yield batch


def _of_broker(rows: pa.Table, broker: int | None) -> pa.Table:
    """Movements after or before which the broker holds a replica, in another place than before."""
    if broker is None or not rows.num_rows:
        return rows
    return rows.filter(pa.array(_has(rows["old_replicas"], broker) | _has(rows["new_replicas"], broker)))


def _has(lists: pa.ChunkedArray, broker: int) -> np.ndarray:
    lists = lists.combine_chunks()
    place = pc.list_parent_indices(lists).to_numpy()[
        pc.equal(pc.list_flatten(lists), broker).to_numpy(zero_copy_only=False)
    ]
    found = np.zeros(len(lists), dtype=bool)
    found[place] = True
    return found


def _completed(reader: TableReader, kafka_cluster: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """With what became of the execution, and why there was such a plan; null where those rows have expired."""
    if not rows:
        return []
    own = of_cluster(kafka_cluster)
    ids = one_of("execution_id", {row["execution_id"] for row in rows})
    states = {one.execution_id: one for one in folded(reader.rows(EXECUTION.name, where=own & ids))}
    seen = {execution_id: seen_movements(one) for execution_id, one in states.items()}
    causes = _causes(reader, own, {row["plan_id"] for row in rows})
    listed = []
    for row in rows:
        state = execution_figures(states[row["execution_id"]])
        approval = states[row["execution_id"]].events[0].detail
        listed.append(
            {name: value for name, value in figures(row).items() if name != "created_ms"}
            | {name: state[name] for name in OF_EXECUTION}
            | {"approval": approval, "cause": causes.get(row["plan_id"])}
            | state_figures(seen[row["execution_id"]], row["sequence"])
        )
    return listed


def _causes(reader: TableReader, own: Condition, plan_ids: set[str]) -> dict[str, str]:
    """The decision that asked for each plan, in a sentence; nothing of plans that a person asked for."""
    asked = {
        row["plan_id"]: row["decision_id"]
        for row in reader.rows(PLAN.name, columns=("plan_id", "decision_id"), where=own & one_of("plan_id", plan_ids))
        if row["decision_id"] is not None
    }
    if not asked:
        return {}
    where = own & one_of("decision_id", set(asked.values()))
    details = {
        row["decision_id"]: row["detail"]
        for row in reader.rows(DECISION.name, columns=("decision_id", "detail"), where=where)
    }
    return {plan_id: details[decision_id] for plan_id, decision_id in asked.items() if decision_id in details}
