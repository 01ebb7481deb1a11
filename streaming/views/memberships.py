"""Who is in each consumer group now, how often it has rebalanced and how long the newest rebalance took.

Members stand in the newest sample of `group_lag`, rebalances in `group_event`; the core compares samples for them. Owns
the span that is counted: a total must be the same whoever reads it when, or a restart would look like rebalances.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.group.events import REBALANCING
from streaming import tables
from streaming.settings import Settings
from streaming.tables import TableReader, at_least, equal, of_cluster
from streaming.views.as_json import LEFT_OUT_OF_STATUS
from streaming.views.groups import GroupReader
from streaming.views.totals import WEEK_MS, counted_since

ALIVE = timedelta(days=3)
"""A group without members in which nobody came, went or committed for so long is abandoned."""
"""States of a group that is not settled."""

_EVENT = ("group_id", "window_start", "after_ms", "until_ms", "group_state", "rebalances")


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
    """No members, and none that came or went, and no commit within the look-back of days."""


class MembershipReader:
    """Reads again and again; events are read only when there are new ones. Not for two threads."""

    def __init__(self, reader: TableReader, settings: Settings, groups: GroupReader) -> None:
        self._reader = reader
        self._groups = groups
        self._settings = settings
        self._of_cluster = of_cluster(settings.kafka.cluster_name)
        self._read: tuple[int | None, datetime, datetime] | None = None
        self._seen: Mapping[str, tuple[int, int]] = {}
        self._lately: frozenset[str] = frozenset()
        """Groups whose members came or went within `ALIVE`."""

    def read(self) -> tuple[GroupMembership, ...]:
        """Every group of the newest windows, most rebalances first."""
        newest = self._reader.newest_of_cluster("group_lag", "window_start", self._settings.kafka.cluster_name)
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
        # What was alive is looked for by the hour: reading it again at each window would cost most.
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

    A rebalance that was still going on at a look has an event there and one at the next look: they are one in length.
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
    where = of_cluster(kafka_cluster) & equal("group_id", group_id) & at_least("window_start", tables.utc(since_ms))
    return sum(row["rebalances"] for row in reader.rows("group_event", columns=("rebalances",), where=where))
