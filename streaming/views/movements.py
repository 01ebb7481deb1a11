"""Rows of `movement`: those of a plan, where each stands in an execution, and what moved when and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.seen_movements import MovementState, SeenMovements, seen_movements
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import HASH_PART, Movement, Plan, replicas_hash
from streaming.contract import DECISION, EXECUTION, MOVEMENT, PLAN
from streaming.tables import ALL_ROWS, Condition, Row, TableReader, at_least, at_most, equal, of_cluster, one_of, utc
from streaming.views.executions import folded
from streaming.views.past_rows import EXECUTIONS, Before, execution_figures, figures, read_past, read_row

WITHIN_BROKER = "log_dir"
"""The kind of a movement within one broker."""
WAVES_MAX = 500
BROKERS_MAX = 1_000
_COLUMNS = ("sequence", "old_replicas", "new_replicas", "kind", "bytes_to_move", "wave")
EXECUTIONS_AT_A_TIME = 200
"""Most executions whose movements one answer searches."""
EXECUTIONS_SHOWN = 25
"""Executions that one answer is of: each may have thousands of events, of which its state is made."""
MOVEMENTS_TOGETHER = 100_000
"""Movements of plans that are read at a time, unless one plan alone has more."""
OF_EXECUTION = (
    "execution_id", "plan_id", "phase", "approved_ms", "started_ms", "ended_ms", "movements_done", "movements_total",
)  # fmt: skip
Place = tuple[int, str, int]
"""When the execution was approved, ms; its id; the movement's sequence: the last one that was shown."""


def movement_rows(plan: Plan, *, now_ms: int) -> list[dict[str, Any]]:
    """One row for each movement, in the plan's order."""
    rows = [_row(row, row.kind, row.old_replicas, row.new_replicas) | {"wave": row.wave} for row in plan.movements] + [
        _row(row, WITHIN_BROKER, (row.broker,), (row.broker,))
        | {"old_log_dir": row.old_log_dir, "new_log_dir": row.new_log_dir}
        for row in plan.log_dir_movements
    ]
    common = {"plan_id": plan.plan_id, "created_at": utc(now_ms)}
    return [{**common, "sequence": sequence, **row} for sequence, row in enumerate(rows)]


def _row(row: Movement | LogDirMovement, kind: str, old: Sequence[int], new: Sequence[int]) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "kind": kind,
        "old_replicas": list(old),
        "new_replicas": list(new),
        "bytes_to_move": round(row.bytes_to_move),
        "reason": row.reason,
        "old_log_dir": None,
        "new_log_dir": None,
        "wave": 0,
    }


def plan_of_movements(reader: TableReader, kafka_cluster: str, plan_id: str) -> Plan | None:
    """The movements of a plan from the table `movement`, all in one wave; raises TableUnavailable.

    Enough to clear up where the plan's own row is gone. None if the rows are gone too, or if they are not the replica
    lists that `plan_id` ends with the hash of. The plan has another id: what else its id covers is not known.
    """
    rows = sorted(reader.rows(MOVEMENT.name, where=equal("plan_id", plan_id)), key=itemgetter("sequence"))
    between = tuple(_between(row) for row in rows if row["kind"] != WITHIN_BROKER)
    within = tuple(_within(row) for row in rows if row["kind"] == WITHIN_BROKER)
    # a plan file may name no cluster
    plans = (Plan(name, between, log_dir_movements=within) for name in (kafka_cluster, ""))
    return next((plan for plan in plans if replicas_hash(plan)[-HASH_PART:] == plan_id[-HASH_PART:]), None)


def _between(row: Row) -> Movement:
    replicas = (tuple(row["old_replicas"]), tuple(row["new_replicas"]))
    return Movement(row["topic"], row["partition"], *replicas, row["bytes_to_move"])


def _within(row: Row) -> LogDirMovement:
    (broker,) = row["old_replicas"]
    paths = (row["old_log_dir"], row["new_log_dir"])
    return LogDirMovement(broker, row["topic"], row["partition"], *paths, row["bytes_to_move"], row["reason"])


def state_figures(seen: SeenMovements, sequence: int) -> dict[str, Any]:
    """Columns added to a movement: its state, and when control first saw it done."""
    return {"state": seen.state(sequence).value, "made_ms": seen.made_ms.get(sequence)}


def read_states(
    reader: TableReader,
    execution: Execution,
    *,
    topic_part: str,
    state: str | None,
    after: int,
    rows_max: int,
) -> tuple[list[dict[str, Any]], int]:
    """Movements in the plan's order behind the sequence `after`, each with its state; how many there are in all.

    Only those of topics whose names have `topic_part` in them, and in this `state`. Raises TableUnavailable.
    """
    of_plan, seen = equal("plan_id", execution.plan_id), seen_movements(execution)
    keys = reader.arrow(MOVEMENT.name, columns=("sequence", "topic"), where=of_plan)
    keys = keys.filter(pc.match_substring(keys["topic"], topic_part, ignore_case=True))
    # A plan that was made again after its rows had expired has them once more.
    sequences = np.unique(keys["sequence"].to_numpy())
    if state is not None:
        wanted = np.array([seen.state(int(sequence)) == state for sequence in sequences], dtype=bool)
        sequences = sequences[wanted]
    chosen = _read_chosen(reader, of_plan, sequences[sequences > after][:rows_max].tolist())
    return [{**row, **state_figures(seen, row["sequence"])} for row in chosen], len(sequences)


def read_progress(reader: TableReader, execution: Execution) -> dict[str, Any]:
    """How far each wave and each receiving broker is; empty where the movements have expired. Raises TableUnavailable.

    Bytes are those of movements that are made, not what of the others has been copied so far.
    """
    rows = reader.arrow(MOVEMENT.name, columns=_COLUMNS, where=equal("plan_id", execution.plan_id))
    _, firsts = np.unique(rows["sequence"].to_numpy(), return_index=True)
    rows = rows.take(pa.array(firsts))
    seen = seen_movements(execution)
    states = [seen.state(sequence) for sequence in rows["sequence"].to_pylist()]
    made, under_way = (
        np.array([row is state for row in states], dtype=bool)
        for state in (MovementState.MADE, MovementState.UNDER_WAY)
    )
    counts = {str(state): states.count(state) for state in MovementState}
    waves, brokers = _waves(rows, made, under_way), _brokers(rows, made, under_way)
    return {
        "states": {name: count for name, count in counts.items() if count},
        "waves": waves[:WAVES_MAX],
        "waves_left_out": max(0, len(waves) - WAVES_MAX),
        "receivers": sorted(brokers[:BROKERS_MAX], key=lambda row: int(row["broker"])),
        "receivers_left_out": max(0, len(brokers) - BROKERS_MAX),
    }


def _waves(rows: pa.Table, made: np.ndarray, under_way: np.ndarray) -> list[dict[str, Any]]:
    """Returns the figures of each wave by number; none if an earlier version has written the rows."""
    if not rows.num_rows or rows["wave"].null_count:
        return []
    return _grouped("wave", rows["wave"].to_numpy(), rows["bytes_to_move"].to_numpy(), made, under_way)


def _brokers(rows: pa.Table, made: np.ndarray, under_way: np.ndarray) -> list[dict[str, Any]]:
    """Returns the figures of each broker that receives replicas; the brokers that receive most come first."""
    receivers = [
        new if kind == WITHIN_BROKER else [broker for broker in new if broker not in old]
        for old, new, kind in zip(
            *(rows[name].to_pylist() for name in ("old_replicas", "new_replicas", "kind")), strict=True
        )
    ]
    counts = np.array([len(row) for row in receivers], dtype=np.int64)
    place = np.repeat(np.arange(len(receivers)), counts)
    ids = np.array([broker for row in receivers for broker in row], dtype=np.int64)
    each = rows["bytes_to_move"].to_numpy()[place] / counts[place]
    grouped = _grouped("broker", ids, each, made[place], under_way[place])
    return sorted(grouped, key=lambda row: (-row["bytes_to_move"], row["broker"]))


def _grouped(
    name: str, keys: np.ndarray, sizes: np.ndarray, made: np.ndarray, under_way: np.ndarray
) -> list[dict[str, Any]]:
    """Movements and bytes by key, ascending."""
    found, place = np.unique(keys, return_inverse=True)

    def sums(weights: np.ndarray) -> list[int]:
        return [round(value) for value in np.bincount(place, weights=weights, minlength=len(found)).tolist()]

    columns = {
        name: found.tolist(),
        "movements": sums(np.ones(len(keys))),
        "made": sums(made),
        "under_way": sums(under_way),
        "bytes_to_move": sums(sizes),
        "bytes_made": sums(sizes * made),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def read_movements(reader: TableReader, plan_id: str, *, after: int, rows_max: int) -> list[dict[str, Any]]:
    """Movements of a plan whose sequence is above `after`, in its order. Raises TableUnavailable."""
    where = equal("plan_id", plan_id) & at_least("sequence", after + 1) & at_most("sequence", after + rows_max)
    rows = reader.rows(MOVEMENT.name, where=where)
    # A plan that was made again after its rows had expired has them once more.
    return [row for _, row in sorted({row["sequence"]: row for row in rows}.items())]


def read_chosen_movements(
    reader: TableReader,
    plan_id: str,
    *,
    topic_part: str,
    is_by_bytes: bool,
    after: tuple[int, int] | None,
    rows_max: int,
) -> tuple[list[dict[str, Any]], int]:
    """Movements of topics whose names have `topic_part` in them, in any case, and how many there are in all.

    In the plan's order, or the largest first; `after` is (bytes, sequence) of the last one before. At most 1,000 or so
    are read whole. Raises TableUnavailable.
    """
    of_plan = equal("plan_id", plan_id)
    keys = reader.arrow(MOVEMENT.name, columns=("sequence", "topic", "bytes_to_move"), where=of_plan)
    keys = keys.filter(pc.match_substring(keys["topic"], topic_part, ignore_case=True))
    # A plan that was made again after its rows had expired has them once more.
    keys = keys.group_by(["sequence", "bytes_to_move"]).aggregate([])
    order = [("bytes_to_move", "descending")] if is_by_bytes else []
    rows = keys.sort_by([*order, ("sequence", "ascending")]).to_pylist()
    if after is not None:
        rows = [row for row in rows if _comes_after(row, after, is_by_bytes=is_by_bytes)]
    return _read_chosen(reader, of_plan, [row["sequence"] for row in rows[:rows_max]]), keys.num_rows


def _read_chosen(reader: TableReader, of_plan: Condition, sequences: Sequence[int]) -> list[dict[str, Any]]:
    """Movements of a plan, which are there, in this order."""
    if not sequences:
        return []
    rows = reader.rows(MOVEMENT.name, where=of_plan & one_of("sequence", sequences))
    by_sequence = {row["sequence"]: row for row in rows}
    return [by_sequence[sequence] for sequence in sequences]


def _comes_after(row: Mapping[str, Any], after: tuple[int, int], *, is_by_bytes: bool) -> bool:
    own, other = (row["bytes_to_move"], row["sequence"]), after
    return (-own[0], own[1]) > (-other[0], other[1]) if is_by_bytes else own[1] > other[1]


@dataclass(frozen=True, slots=True)
class MovementFilter:
    """Filter of movements; None: any. Movements of a broker add, remove or reorder a replica on the broker."""

    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    @property
    def where(self) -> Condition:
        """Condition on the columns of the table; the broker is filtered after the read."""
        topic = ALL_ROWS if self.topic is None else equal("topic", self.topic)
        return topic & (ALL_ROWS if self.partition is None else equal("partition", self.partition))


@dataclass(frozen=True, slots=True)
class PastMoves:
    """Movements, the newest execution first and within it in the plan's order."""

    rows: list[dict[str, Any]]
    searched_to: Place | None
    """Place where the search ended before the oldest execution; None if nothing is left to search."""


def read_past_moves(
    reader: TableReader,
    kafka_cluster: str,
    wanted: MovementFilter,
    before: Before,
    after: Place | None,
    *,
    rows_max: int,
) -> PastMoves:
    """Returns at most `rows_max` past movements, of `EXECUTIONS_SHOWN` executions. Raises TableUnavailable.

    Each has its state: in an aborted execution some are made, and some are not.
    """
    found = _searched(reader, _firsts(reader, kafka_cluster, before, after), wanted, after, rows_max)
    return PastMoves(_completed(reader, kafka_cluster, found.rows), found.searched_to)


def _searched(
    reader: TableReader, firsts: Sequence[Row], wanted: MovementFilter, after: Place | None, rows_max: int
) -> PastMoves:
    """Movements as their rows have them, each with the id of its execution."""
    listed, last = firsts[:EXECUTIONS_AT_A_TIME], None
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
        return list(read_past(reader, EXECUTIONS, kafka_cluster, before, rows_max=EXECUTIONS_AT_A_TIME + 1))
    older = Before(before.from_ms, before.until_ms, after[:2])
    rows = read_past(reader, EXECUTIONS, kafka_cluster, older, rows_max=EXECUTIONS_AT_A_TIME)
    begun = read_row(reader, EXECUTIONS, kafka_cluster, after[1]) if after[2] < _ALL_OF_IT else None
    return [*([] if begun is None else [begun]), *rows]


def _with_movements(
    reader: TableReader, firsts: Sequence[Row], wanted: MovementFilter
) -> Iterator[tuple[Row, pa.Table]]:
    """Yields each execution with those of its movements that are wanted, in the plan's order."""
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
    """The rows with what became of the execution, and why there was such a plan; null where those rows expired."""
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
