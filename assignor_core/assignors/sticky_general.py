"""Sticky assignment where members read different topics: keep, fill the least loaded, then move while it evens out.

The decisions are Kafka's; what differs is their cost. A fill deals a topic's partitions at once, and a topic is gone
through only where one of its readers holds two more than another.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from assignor_core.assignors.contract import balance_score
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.movements import Movements
from assignor_core.assignors.ownership import Bools, Ownership
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.racks import PartitionRacks, Racks, matches
from assignor_core.assignors.sticky_racks import StickyRacks


def assign_general(group: IndexedGroup, partition_racks: PartitionRacks, ownership: Ownership) -> tuple[Ints, Ints]:
    """Codes in order and the members beside them.

    Kafka has every member give up what it can't read in its own rack, and deals that out again. Partitions may be
    exchanged so at each rebalance though the group gets no better by it, and in some groups for ever: those keep what
    they have. So each round of ours is either Kafka's or the last one, and the lead may change between both.
    """
    racks = StickyRacks.of(group, partition_racks)
    owner = _placed(group, racks, ownership, gives_up_mismatched=True)
    if racks is not None and _revokes(ownership, owner):
        staying = _placed(group, racks, ownership, gives_up_mismatched=False)
        if not _revokes(ownership, staying) and _cost(group, racks, staying) <= _cost(group, racks, owner):
            owner = staying
    return np.arange(len(owner)), owner


def _placed(group: IndexedGroup, racks: StickyRacks | None, ownership: Ownership, *, gives_up_mismatched: bool) -> Ints:
    """By code, its new member. Partitions go by (readers, topic, partition), members by (partitions, id).

    Partitions that are new are moved first, unless somebody has to give up a partition anyway.
    """
    owner = ownership.holder.copy()
    revoking = ownership.unread_claims
    if racks is not None and gives_up_mismatched:
        racks.give_up_mismatched(owner)
        revoking |= _revokes(ownership, owner)
    filling = _Filling(group, owner, np.bincount(owner[owner != UNASSIGNED], minlength=len(group.members)))
    new = owner == UNASSIGNED
    if racks is not None:
        filling.fill_matching(racks)
    filling.fill()
    moving = Moving(group, owner.copy(), filling.counts.copy(), ownership.earlier_holder)
    if new.any() and not revoking:
        moving.even_out(new)
    moved = moving.even_out(np.ones(len(owner), dtype=np.bool_))
    # Detours may have made it no better.
    if (
        moved
        and moving.detours
        and not new.all()
        and _unevenness(group, moving.counts) >= _unevenness(group, filling.counts)
    ):
        return owner
    return moving.owner


def _revokes(ownership: Ownership, owner: Ints) -> bool:
    """Whether a member loses a partition that it holds."""
    return bool(((ownership.holder != UNASSIGNED) & (ownership.holder != owner)).any())


def _unevenness(group: IndexedGroup, counts: Ints) -> int:
    """Balance score of the members that share a topic with another one: of the others nothing can move."""
    sharing = np.unique(np.concatenate([readers for readers in group.readers_by_topic if len(readers) > 1]))
    return balance_score(counts[sharing].tolist())


def _cost(group: IndexedGroup, racks: StickyRacks, owner: Ints) -> tuple[int, int]:
    """How uneven an assignment is, and how many partitions are read in another rack; in the order in which Kafka
    weighs them (KIP-881)."""
    counts = np.bincount(owner, minlength=len(group.members))
    return balance_score(counts.tolist()), racks.mismatched(owner)


def scarce_topics_first(group: IndexedGroup) -> list[int]:
    """Returns topic numbers sorted by (number of readers, topic)."""
    return sorted(range(len(group.index.topics)), key=lambda number: (len(group.readers_by_topic[number]), number))


def deal_to_least(counts: Ints, partitions: int) -> Ints:
    """Positions in `counts` that get the next partitions, if each goes to the lowest (count, position).

    >>> deal_to_least(np.array([2, 0, 1]), 5).tolist()
    [1, 1, 2, 0, 1]
    """
    level = _level_reached(counts, partitions)
    missing = np.maximum(level - counts, 0)
    positions = np.repeat(np.arange(len(counts)), missing)
    levels = np.arange(len(positions)) - np.repeat(np.cumsum(missing) - missing, missing) + counts[positions]
    full_turns = positions[np.argsort(levels, kind="stable")]
    at_level = np.flatnonzero(counts <= level)
    return np.concatenate([full_turns, at_level[: partitions - len(full_turns)]])


def _level_reached(counts: Ints, partitions: int) -> int:
    """Highest level that `partitions` can lift all lower counts to."""
    ordered = np.sort(counts)
    ranks = np.arange(1, len(ordered) + 1)
    needed = ordered * ranks - np.cumsum(ordered)
    lifted = int(np.searchsorted(needed, partitions, side="right"))
    return int((partitions + ordered[:lifted].sum()) // lifted)


@dataclass(slots=True)
class _Filling:
    """Gives free partitions to the least loaded reader; `owner` and `counts` are changed."""

    group: IndexedGroup
    owner: Ints
    counts: Ints

    def fill(self) -> None:
        """A topic at a time: its partitions follow each other in the order, and have the same readers."""
        for number in scarce_topics_first(self.group):
            start, end = self.group.index.starts[number : number + 2]
            free = start + np.flatnonzero(self.owner[start:end] == UNASSIGNED)
            readers = self.group.readers_by_topic[number]
            if len(free):
                takers = readers[deal_to_least(self.counts[readers], len(free))]
                self.owner[free] = takers
                self.counts += np.bincount(takers, minlength=len(self.counts))

    def fill_matching(self, racks: StickyRacks) -> None:
        """Deals partitions, in order, to readers of a partition's rack or without a rack."""
        free = np.flatnonzero(self.owner == UNASSIGNED)
        readers = np.array([len(readers) for readers in self.group.readers_by_topic])
        in_order = free[np.argsort(readers[self.group.index.topic_numbers(free)], kind="stable")]
        topics = self.group.index.topic_numbers(in_order)
        counts = self.counts.tolist()
        # One queue for all partitions of a topic with the same racks.
        queues: dict[tuple[int, Racks], list[tuple[int, int]]] = {}
        for code, topic in zip(in_order.tolist(), topics.tolist(), strict=True):
            key = topic, racks.partitions[code]
            if key not in queues:
                readers = self.group.readers_by_topic[topic].tolist()
                queues[key] = [(counts[reader], reader) for reader in readers if matches(racks.members[reader], key[1])]
                heapq.heapify(queues[key])
            taker = _least_loaded(queues[key], counts)
            if taker is not None:
                self.owner[code] = taker
                counts[taker] += 1
        self.counts[:] = counts


def _least_loaded(queue: list[tuple[int, int]], counts: list[int]) -> int | None:
    """The member of the lowest (count, member); entries are renewed where another queue has given more since."""
    while queue and queue[0][0] != counts[queue[0][1]]:
        heapq.heapreplace(queue, (counts[queue[0][1]], queue[0][1]))
    return queue[0][1] if queue else None


class Moving:
    """Moves partitions from members that hold two more than another reader; `owner` and `counts` are changed.

    Each move makes the sum of squared counts smaller, so the passes end. The exception is a detour: what returns (see
    `Movements`) may come from a third member. There are at most as many of these as partitions.
    """

    def __init__(self, group: IndexedGroup, owner: Ints, counts: Ints, earlier_holder: Ints) -> None:
        self.group, self.owner, self.counts, self.earlier_holder = group, owner, counts, earlier_holder
        self.detours = 0
        self._movements = Movements(group.index)

    def even_out(self, movable: Bools) -> bool:
        """Pass over the movable partitions until a pass moves nothing; whether one did."""
        topics = [n for n in scarce_topics_first(self.group) if len(self.group.readers_by_topic[n]) > 1]
        moved = False
        while sum(self._pass_topic(number, movable) for number in topics):
            moved = True
        return moved

    def _pass_topic(self, topic: int, movable: Bools) -> bool:
        start, end = self.group.index.starts[topic : topic + 2]
        moved, position = False, int(start)
        while position < end:
            moved_now, position = self._pass_on(topic, movable, position, int(end))
            moved |= moved_now
        return moved

    def _pass_on(self, topic: int, movable: Bools, position: int, end: int) -> tuple[bool, int]:
        """From the code `position` on, as long as nobody falls below the lowest count: whether a partition moved, and
        where to go on."""
        readers = self.group.readers_by_topic[topic]
        lowest = int(self.counts[readers].min())
        if self.counts[readers].max() <= lowest + 1:
            return False, end
        codes = position + np.flatnonzero(movable[position:end])
        if (self.earlier_holder[codes] == UNASSIGNED).all():
            # Takers are the lowest, so who is not above the lowest by two now can't come to be.
            codes = codes[self.counts[self.owner[codes]] > lowest + 1]
        queue = [(int(count), reader) for count, reader in zip(self.counts[readers], readers.tolist(), strict=True)]
        heapq.heapify(queue)
        moved = False
        for code, earlier in zip(codes.tolist(), self.earlier_holder[codes].tolist(), strict=True):
            giver = int(self.owner[code])
            taker = self._taker(code, giver, earlier, queue)
            if taker is not None:
                from_whom = self._move(topic, code, giver, taker)
                moved = True
                if self.counts[from_whom] < lowest:
                    return moved, code + 1
                heapq.heappush(queue, (int(self.counts[from_whom]), from_whom))
                heapq.heappush(queue, (int(self.counts[taker]), taker))
        return moved, end

    def _taker(self, code: int, giver: int, earlier: int, queue: list[tuple[int, int]]) -> int | None:
        above = self.counts[giver] - 1
        if earlier != UNASSIGNED and above > self.counts[earlier] and self._reads(earlier, code):
            return earlier
        while queue[0][0] != self.counts[queue[0][1]]:
            heapq.heappop(queue)
        return queue[0][1] if above > queue[0][0] else None

    def _reads(self, member: int, code: int) -> bool:
        topic = self.group.index.topic_numbers(np.array([code]))
        return bool(self.group.reads(np.array([member]), topic)[0])

    def _move(self, topic: int, code: int, giver: int, taker: int) -> int:
        """Move `code`, or what returns in its place, to the taker; returns who gave it."""
        returning = self._movements.returning(topic, code, giver, taker)
        from_whom = int(self.owner[returning])
        if from_whom != giver:
            self.detours += 1
            if self.detours > len(self.owner):
                returning, from_whom = code, giver
        self._movements.record(topic, returning, from_whom, taker)
        self.owner[returning] = taker
        self.counts[from_whom] -= 1
        self.counts[taker] += 1
        return from_whom
