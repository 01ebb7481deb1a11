"""Where each movement of an execution stands, by wave and by broker: the plan's movements beside the journal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.seen_movements import MovementState, SeenMovements, seen_movements
from streaming.contract import MOVEMENT
from streaming.tables import Row, TableReader, equal, one_of

WAVES_MAX = 500
BROKERS_MAX = 1_000
_COLUMNS = ("sequence", "old_replicas", "new_replicas", "kind", "bytes_to_move", "wave")


def state_figures(seen: SeenMovements, sequence: int) -> dict[str, Any]:
    """What is added to a movement: its state, and when it was first seen made."""
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
    chosen = sequences[sequences > after][:rows_max].tolist()
    if not chosen:
        return [], len(sequences)
    read = reader.rows(MOVEMENT.name, where=of_plan & one_of("sequence", chosen))
    by_sequence: Mapping[int, Row] = {row["sequence"]: row for row in read}
    rows = [{**by_sequence[sequence], **state_figures(seen, sequence)} for sequence in chosen]
    return rows, len(sequences)


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
    """By number; none where an earlier version has written the rows."""
    if not rows.num_rows or rows["wave"].null_count:
        return []
    return _grouped("wave", rows["wave"].to_numpy(), rows["bytes_to_move"].to_numpy(), made, under_way)


def _brokers(rows: pa.Table, made: np.ndarray, under_way: np.ndarray) -> list[dict[str, Any]]:
    """Those that receive most come first."""
    receivers = [
        new if kind == "log_dir" else [broker for broker in new if broker not in old]
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
