"""Racks in the sticky assignment (KIP-881): who matches what, and the rack-aware first round of dealing."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.racks import PartitionRacks, Racks, matches, member_racks, racks_matter, topic_racks


@dataclass(frozen=True, slots=True)
class StickyRacks:
    """Racks of every member and of every code, of a group in which they matter."""

    members: list[str | None]
    partitions: list[Racks]

    @classmethod
    def of(cls, group: IndexedGroup, partition_racks: PartitionRacks) -> "StickyRacks | None":
        """Returns the racks of a group; None where racks don't matter, judged over all topics."""
        members = member_racks(group)
        if not any(members) or not partition_racks:
            return None
        topics = range(len(group.index.topics))
        partitions = [racks for number in topics for racks in topic_racks(group, partition_racks, number)]
        return cls(members, partitions) if racks_matter(members, partitions) else None

    def give_up_mismatched(self, owner: Ints) -> None:
        """Remove from `owner` the partitions that a member can't read in its own rack."""
        owner[self._mismatched(owner)] = UNASSIGNED

    def mismatched(self, owner: Ints) -> int:
        """How many partitions have an owner that can't read them in its own rack."""
        return len(self._mismatched(owner))

    def _mismatched(self, owner: Ints) -> list[int]:
        owned = np.flatnonzero(owner != UNASSIGNED).tolist()
        return [code for code in owned if not matches(self.members[owner[code]], self.partitions[code])]

    def scarce_first(self, codes: Ints) -> Ints:
        """Sorts codes stably by the number of members in the partition's racks."""
        members_in = Counter(rack for rack in self.members if rack is not None)
        scarcity = [sum(members_in[rack] for rack in self.partitions[code]) for code in codes.tolist()]
        return codes[np.argsort(scarcity, kind="stable")]


class RackFill:
    """Deals partitions to members of their racks: round the members under the quota, then to members at it.

    A member without a rack is passed over here; it gets its part of what is left. After `deal`, `counts` and `waiting`
    (members at the quota that may take one more) say where the plain dealing goes on.
    """

    def __init__(self, racks: StickyRacks, counts: Ints, waiting: list[int], quota: int, extra: int) -> None:
        self.counts = counts.copy()
        self.waiting = waiting
        self._racks = racks
        self._quota = quota
        self._extra = extra
        self._below = np.flatnonzero(counts < quota).tolist()
        self._next = 0
        # How many members of each rack are among both, so that nobody looks through all of them in vain.
        self._racks_below = Counter(racks.members[member] for member in self._below)
        self._racks_waiting = Counter(racks.members[member] for member in waiting)

    def deal(self, codes: Ints) -> tuple[Ints, Ints, Ints]:
        """Codes that found a member, those members, and the codes that are left, each in order."""
        takers = [self._taker(self._racks.partitions[code]) for code in codes.tolist()]
        dealt_to = np.array([UNASSIGNED if taker is None else taker for taker in takers], dtype=np.int64)
        is_dealt = dealt_to != UNASSIGNED
        return codes[is_dealt], dealt_to[is_dealt], codes[~is_dealt]

    def _taker(self, racks: Racks) -> int | None:
        if any(self._racks_below[rack] for rack in racks):
            return self._take_below(self._position(self._below, racks, self._next))
        if any(self._racks_waiting[rack] for rack in racks):
            return self._take_waiting(self._position(self.waiting, racks, 0))
        return None

    def _position(self, members: list[int], racks: Racks, first: int) -> int:
        positions = (position % len(members) for position in range(first, first + len(members)))
        return next(position for position in positions if self._racks.members[members[position]] in racks)

    def _take_below(self, position: int) -> int:
        member = self._below[position]
        self.counts[member] += 1
        if self.counts[member] == self._quota:
            del self._below[position]
            self._racks_below[self._racks.members[member]] -= 1
            if self._extra:
                self.waiting.append(member)
                self._racks_waiting[self._racks.members[member]] += 1
        else:
            position += 1
        self._next = position % len(self._below) if self._below else 0
        return member

    def _take_waiting(self, position: int) -> int:
        member = self.waiting.pop(position)
        self._racks_waiting[self._racks.members[member]] -= 1
        self.counts[member] += 1
        self._extra -= 1
        if not self._extra:
            self.waiting.clear()
            self._racks_waiting.clear()
        return member
