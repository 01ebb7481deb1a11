"""Who is in each consumer group now, how often it has rebalanced and how long the newest rebalance took.

Members stand in the newest sample of `group_lag`, rebalances in `group_event`; the core compares samples for them. Owns
the span that is counted: a total must be the same whoever reads it when, or a restart would seem rebalances.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.group.events import REBALANCING
from assignor_core.group.states import GroupState
from assignor_core.lag.history import Ints
from streaming.settings import Settings
from streaming.tables import Condition, TableReader, at_least, below, equal, of_cluster, one_of
from streaming.views.group_columns import listed
from streaming.views.group_picture import current_since
from streaming.views.json_values import LEFT_OUT_OF_STATUS
from streaming.views.spans import WEEK_MS, counted_since, of_span

if TYPE_CHECKING:
    from streaming.views.group_ranking import GroupReader

ALIVE = timedelta(days=3)
"""Time after which a group without members, in which nobody joined, left or committed, is abandoned."""
_EVENT = ("group_id", "window_start", "after_ms", "until_ms", "group_state", "rebalances")
STATE_UNKNOWN = "Unknown"
NO_MEMBERS = (GroupState.EMPTY.value, GroupState.DEAD.value)
TABLE, TIME = "group_lag", "window_start"
_STANDING = ("group_id", "group_state", "group_type", "group_members", "member_id", "last_event_time_ms")


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """One group. `members` at its newest sample: all, or where only partitions were seen those that own some; None
    where they are unknown.

    `rebalances_total`: those seen since `counted_since`, at least. `rebalance_ms`: from the last sample before the
    newest of them to the first after it, which is how long it took at most; None where none was seen.
    """

    group: str
    members: int | None
    rebalances_total: int
    rebalance_ms: int | None
    is_abandoned: bool = field(default=False, metadata=LEFT_OUT_OF_STATUS)
    """Whether the group has no members, and nobody joined, left or committed within the look-back of days."""


class MembershipReader:
    """Reads again and again; events are read only when there are new ones. Not for two threads."""

    def __init__(self, reader: TableReader, settings: Settings, groups: "GroupReader") -> None:
        self._reader = reader
        self._groups = groups
        self._settings = settings
        self._of_cluster = of_cluster(settings.kafka.cluster_name)
        self._read: tuple[int | None, datetime, datetime] | None = None
        self._seen: Mapping[str, tuple[int, int]] = {}
        self._lately: frozenset[str] = frozenset()
        """Groups whose members joined or left within `ALIVE`."""

    def read(self) -> tuple[GroupMembership, ...]:
        """Every group of the newest windows, most rebalances first."""
        newest = self._reader.newest_of_cluster(TABLE, TIME, self._settings.kafka.cluster_name)
        if newest is None:
            return ()
        retention_ms = self._settings.pipeline.retention_ms
        seen = self._rebalances(counted_since(newest, retention_ms=retention_ms, span_max_ms=WEEK_MS), newest - ALIVE)
        alive = self._groups.committing() | self._lately
        memberships = []
        for group, members in self._groups.members().items():
            rebalances, length_ms = seen.get(group, (0, None))
            is_abandoned = members == 0 and group not in alive
            memberships.append(GroupMembership(group, members, rebalances, length_ms, is_abandoned))
        return tuple(sorted(memberships, key=lambda row: (-row.rebalances_total, row.group)))

    def _rebalances(self, since: datetime, alive_since: datetime) -> Mapping[str, tuple[int, int]]:
        version = self._reader.version("group_event")
        # What was alive is searched by the hour: reading it again at each window would cost most.
        read = (version, since, alive_since.replace(minute=0, second=0, microsecond=0))
        if read != self._read:
            where = self._of_cluster & at_least("window_start", min(since, read[2]))
            events = self._reader.arrow("group_event", columns=_EVENT, where=where)
            starts = events["window_start"]
            self._seen = rebalances_by_group(events.filter(pc.greater_equal(starts, pa.scalar(since, starts.type))))
            recent = events.filter(pc.greater_equal(starts, pa.scalar(read[2], starts.type)))
            self._lately = frozenset(pc.unique(recent["group_id"]).to_pylist())
            self._read = read
        return self._seen


def rebalances_by_group(events: pa.Table) -> dict[str, tuple[int, int]]:
    """Rebalances, and how long the newest took in ms, by group; `events` are rows of `group_event` in any order.

    A rebalance that was still under way at a sample has an event there and one at the next sample: they are one in
    length.
    """
    if not events.num_rows:
        return {}
    events = events.sort_by([("group_id", "ascending"), ("window_start", "ascending")])
    after, until = events["after_ms"].to_numpy(), events["until_ms"].to_numpy()
    groups = events["group_id"].combine_chunks().dictionary_encode()
    number = groups.indices.to_numpy()
    unsettled = pc.fill_null(pc.is_in(events["group_state"], pa.array(REBALANCING)), False).to_numpy()
    goes_on = np.zeros(len(number), dtype=bool)
    goes_on[1:] = (number[1:] == number[:-1]) & unsettled[:-1] & (after[1:] == until[:-1])
    begun = np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(number))))
    last = np.flatnonzero(np.append(number[1:] != number[:-1], True))
    totals = np.bincount(number, weights=events["rebalances"].to_numpy())
    return {
        groups.dictionary[int(number[row])].as_py(): (int(totals[number[row]]), int(until[row] - after[begun[row]]))
        for row in last
    }


def read_rebalances(reader: TableReader, kafka_cluster: str, group_id: str, *, since_ms: int) -> int:
    """Rebalances of one group in windows that began at `since_ms` or later, as far as they were seen."""
    where = of_span(kafka_cluster, "window_start", since_ms) & equal("group_id", group_id)
    return sum(row["rebalances"] for row in reader.rows("group_event", columns=("rebalances",), where=where))


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """Membership of one group; None if unknown."""

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
    standings = standings_of(reader.encoded(TABLE, columns=_STANDING, where=own & at_least(TIME, newest)))
    # Member ids cost most by far: of older windows they are read of groups that the newest one lacks, as a rule none.
    older = own & at_least(TIME, current_since(newest, window_ms=window_ms)) & below(TIME, newest)
    lacking = [name for name in _names(reader, older) if name not in standings]
    if lacking:
        standings |= standings_of(reader.encoded(TABLE, columns=_STANDING, where=older & one_of("group_id", lacking)))
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
    """The groups of these rows, which have the columns that are read, texts as dictionaries, at their newest samples: a
    member that is gone may still stand in another partition's older one.
    """
    if not rows.num_rows:
        return {}
    groups = rows["group_id"].combine_chunks()
    group, at_ms = groups.indices.to_numpy(), rows["last_event_time_ms"].to_numpy()
    newest_ms = np.full(len(groups.dictionary), np.iinfo(np.int64).min)
    np.maximum.at(newest_ms, group, at_ms)
    # One sample has one time: of what a group had before, nothing counts.
    sample = np.flatnonzero(at_ms == newest_ms[group])
    group, rows = group[sample], rows.take(pa.array(sample))
    first = np.full(len(groups.dictionary), -1)
    first[group[::-1]] = np.arange(len(group))[::-1]
    owners = _owners(group, rows["member_id"].combine_chunks(), len(groups.dictionary))[first >= 0]
    shown = rows.take(pa.array(first[first >= 0]))
    columns = (listed(shown[name]) for name in ("group_id", "group_state", "group_type", "group_members"))
    return {
        name: GroupStanding(name, state, group_type, known_members(state, reported, owning))
        for name, state, group_type, reported, owning in zip(*columns, owners.tolist(), strict=True)
    }


def _owners(group: Ints, member_ids: pa.DictionaryArray, groups: int) -> Ints:
    """How many members of each group own something."""
    known = pc.is_valid(member_ids).to_numpy(zero_copy_only=False)
    member = pc.fill_null(member_ids.indices, 0).to_numpy()[known].astype(np.int64)
    pairs = pc.unique(pa.array(group[known].astype(np.int64) * max(1, len(member_ids.dictionary)) + member)).to_numpy()
    counts: Ints = np.bincount(pairs // max(1, len(member_ids.dictionary)), minlength=groups)
    return counts


def known_members(state: str | None, member_count: int | None, owners: int) -> int | None:
    """Members of a group of which so many own partitions; `member_count` is what its coordinator reported, if it did.

    None where nothing shows them: a group that is not empty has some, though none was seen.
    """
    if member_count is not None:
        return member_count
    if state in (None, STATE_UNKNOWN):
        return None
    return owners if owners or state in NO_MEMBERS else None
