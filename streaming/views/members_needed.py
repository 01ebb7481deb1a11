"""How many members consumer groups need, for whoever scales them.

What a member can read shows while its group is behind. It is remembered for a day, so the need of a group that keeps up
is known, too: whoever added members learns when fewer are enough. The memory is that of one process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from assignor_core.intervals import is_due
from assignor_core.lag.diagnosis import GroupReading, diagnose
from assignor_core.lag.members import MembersAdvice
from streaming.views.group_columns import Runs, rows_listed
from streaming.views.group_picture import LagPicture
from streaming.views.group_ranking import GroupVerdict
from streaming.views.one_group import Row, advice_for, capacity_of, most_read, readings_of

GROUPS_MAX = 200
"""Most groups of which the need is worked out at a time; the worst come first."""
PARTITIONS_MAX = 5_000
"""Most partitions of these groups, together: to pack so many takes about a second."""
PACKED_MAX = 500
"""If a group has more partitions, only the bound is known: to pack so many takes seconds."""
READ_INTERVAL_MS = 60_000
"""Needs are worked out again after this, by the times of samples, ms: rates are those of half an hour."""
REMEMBERED_MS = 86_400_000
"""How long it is remembered what a member of a group can read, ms."""
BEHIND = frozenset({"warn", "stop", "stall"})
"""Verdicts of groups some of whose members may be behind."""


class MembersNeeded:
    """Works out needs, and remembers what members can read. Not for two threads."""

    def __init__(self) -> None:
        self._capacities: dict[str, tuple[float, int]] = {}
        """Records per second that one member can read, and when a group that was behind showed it, ms."""
        self._needs: Mapping[str, MembersAdvice] = {}
        self._read_ms: int | None = None

    def of(self, picture: LagPicture, groups: Sequence[GroupVerdict]) -> Mapping[str, MembersAdvice]:
        """The needs of the picture's groups, as far as they are known; `groups` come worst first."""
        now_ms, names = picture.newest_event_ms, {row.group for row in groups}
        self._capacities = {
            name: (capacity, at_ms)
            for name, (capacity, at_ms) in self._capacities.items()
            if name in names and now_ms - at_ms <= REMEMBERED_MS
        }
        if self._read_ms is None or is_due(self._read_ms, READ_INTERVAL_MS, now_ms):
            self._read_ms = now_ms
            partitions = _partitions_of(picture, self._chosen(groups))
            needs = ((name, self._need(name, rows, now_ms)) for name, rows in partitions)
            self._needs = {name: need for name, need in needs if need is not None}
        return {name: need for name, need in self._needs.items() if name in names}

    def _chosen(self, groups: Sequence[GroupVerdict]) -> Iterator[GroupVerdict]:
        """Groups of which a need may be known, within the bounds."""
        partitions = 0
        known = (row for row in groups if row.status in BEHIND or row.group in self._capacities)
        for group in islice(known, GROUPS_MAX):
            if partitions + group.partitions <= PARTITIONS_MAX:
                partitions += group.partitions
                yield group

    def _need(self, group: str, rows: Sequence[Row], now_ms: int) -> MembersAdvice | None:
        """The need of a group with these partitions; None where no number of members helps, or nothing is known."""
        rebalancing_seconds = max(row["rebalancing_ms"] or 0.0 for row in rows) / 1000
        reading = GroupReading(group, readings_of(rows, {}), rebalancing_seconds=rebalancing_seconds)
        capacity_per_sec = capacity_of(rows, diagnose(reading))
        if capacity_per_sec is not None:
            self._capacities[group] = (capacity_per_sec, now_ms)
        elif reading.lagging or group not in self._capacities:
            return None
        known_per_sec, at_ms = self._capacities[group]
        capacity_per_sec = max(known_per_sec, most_read(rows))
        self._capacities[group] = (capacity_per_sec, at_ms)
        return advice_for(rows, capacity_per_sec, options_max=1 if len(rows) <= PACKED_MAX else 0)


def _partitions_of(picture: LagPicture, groups: Iterable[GroupVerdict]) -> Iterable[tuple[str, Sequence[Row]]]:
    """These groups of the picture, each with its partitions and their figures."""
    runs = Runs.of(picture.partitions, "group_id")
    names = runs.first(picture.partitions["group_id"])
    spans = {
        name: (start, count)
        for name, start, count in zip(names, runs.starts.tolist(), runs.counts.tolist(), strict=True)
    }
    for group in groups:
        start, count = spans[group.group]
        yield group.group, rows_listed(picture.with_figures(np.arange(start, start + count)))
