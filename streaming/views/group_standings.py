"""Every consumer group at its newest sample: state, type and members, from columns, without an object for each row.

Owns which windows show it; knows neither lag nor rebalances.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.lag.history import Ints
from streaming.tables import Condition, TableReader, at_least, below, of_cluster, one_of
from streaming.views.group_lag import current_since
from streaming.views.group_looks import known_members
from streaming.views.runs import listed

TABLE, TIME = "group_lag", "window_start"
_COLUMNS = ("group_id", "group_state", "group_type", "group_members", "member_id", "last_event_time_ms")


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """One group; None where unknown."""

    group: str
    state: str | None
    group_type: str | None
    members: int | None
    """All members, or where only partitions were seen those that own some."""


def read_group_standings(reader: TableReader, kafka_cluster: str, *, window_ms: int) -> dict[str, GroupStanding]:
    """Groups of the newest windows by id; empty where no window is. Raises TableUnavailable."""
    newest = reader.newest_of_cluster(TABLE, TIME, kafka_cluster)
    if newest is None:
        return {}
    own = of_cluster(kafka_cluster)
    standings = standings_of(reader.encoded(TABLE, columns=_COLUMNS, where=own & at_least(TIME, newest)))
    # Member ids cost most by far: of older windows they are read of groups that the newest one lacks, as a rule none.
    older = own & at_least(TIME, current_since(newest, window_ms=window_ms)) & below(TIME, newest)
    lacking = [name for name in _names(reader, older) if name not in standings]
    if lacking:
        standings |= standings_of(reader.encoded(TABLE, columns=_COLUMNS, where=older & one_of("group_id", lacking)))
    return standings


def read_group_names(reader: TableReader, kafka_cluster: str, *, window_ms: int) -> list[str]:
    """Groups of the newest windows, by name; empty where no window is. Raises TableUnavailable."""
    newest = reader.newest_of_cluster(TABLE, TIME, kafka_cluster)
    if newest is None:
        return []
    since = current_since(newest, window_ms=window_ms)
    return sorted(_names(reader, of_cluster(kafka_cluster) & at_least(TIME, since)))


def _names(reader: TableReader, where: Condition) -> list[str]:
    rows = reader.encoded(TABLE, columns=("group_id",), where=where)
    names: list[str] = pc.unique(rows["group_id"]).to_pylist()
    return names


def standings_of(rows: pa.Table) -> dict[str, GroupStanding]:
    """The groups of these rows, which have the columns that are read, texts as dictionaries."""
    if not rows.num_rows:
        return {}
    groups = rows["group_id"].combine_chunks()
    group, at_ms = groups.indices.to_numpy(), rows["last_event_time_ms"].to_numpy()
    newest_ms = np.full(len(groups.dictionary), np.iinfo(np.int64).min)
    np.maximum.at(newest_ms, group, at_ms)
    # One sample has one time: of what a group had before, nothing counts.
    sample = np.flatnonzero(at_ms == newest_ms[group])
    group, rows = group[sample], rows.take(pa.array(sample))
    numbers, first = np.unique(group, return_index=True)
    owners = _owners(group, rows["member_id"].combine_chunks(), len(groups.dictionary))[numbers]
    shown = rows.take(pa.array(first))
    columns = (listed(shown[name]) for name in ("group_id", "group_state", "group_type", "group_members"))
    return {
        name: GroupStanding(name, state, group_type, known_members(state, reported, owning))
        for name, state, group_type, reported, owning in zip(*columns, owners.tolist(), strict=True)
    }


def _owners(group: Ints, member_ids: pa.DictionaryArray, groups: int) -> Ints:
    """How many members of each group own something."""
    known = pc.is_valid(member_ids).to_numpy(zero_copy_only=False)
    member = pc.fill_null(member_ids.indices, 0).to_numpy()[known].astype(np.int64)
    pairs = np.unique(group[known].astype(np.int64) * max(1, len(member_ids.dictionary)) + member)
    counts: Ints = np.bincount(pairs // max(1, len(member_ids.dictionary)), minlength=groups)
    return counts
