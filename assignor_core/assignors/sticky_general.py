"""Sticky assignment where members read different topics: keep, fill the least loaded, then move while it evens out.

The decisions are Kafka's; what differs is their cost. A fill deals a topic's partitions at once, and a topic is gone
through only where one of its readers holds two more than another.
"""

import heapq
from dataclasses import dataclass, field

import numpy as np

from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.ownership import Ownership
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.racks import PartitionRacks, Racks, matches
from assignor_core.assignors.sticky_racks import StickyRacks


def assign_general(group: IndexedGroup, partition_racks: PartitionRacks, ownership: Ownership) -> tuple[Ints, Ints]:
    """Codes in order and the members beside them.

    Partitions go by (readers, topic, partition), members by (partitions, id). Partitions that are new are moved first,
    unless somebody has to give up a partition anyway.
    """
    racks = StickyRacks.of(group, partition_racks)
    owner = ownership.holder.copy()
    revoking = ownership.unread_claims
    if racks is not None:
        held = int((owner != UNASSIGNED).sum())
        racks.give_up_mismatched(owner)
        revoking |= held > int((owner != UNASSIGNED).sum())
    filling = _Filling(group, owner, np.bincount(owner[owner != UNASSIGNED], minlength=len(group.members)))
    new = owner == UNASSIGNED
    if racks is not None:
        filling.fill_matching(racks)
    filling.fill()
    moving = Moving(group, owner, filling.counts, ownership.holder, ownership.earlier_holder)
    if new.any() and not revoking:
        moving.even_out(new)
    moving.even_out(np.ones(len(owner), dtype=np.bool_))
    return np.arange(len(owner)), owner


def scarce_topics_first(group: IndexedGroup) -> list[int]:
    """Topic numbers by (readers, topic)."""
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
        """What a reader of its own rack, or without one, can take, in the order of the partitions."""
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


@dataclass(slots=True)
class Moving:
    """Moves partitions from members that hold two more than another reader; `owner` and `counts` are changed.

    `holder` and `earlier_holder` are those of the claims.
    Each move makes the sum of squared counts smaller, so the passes end.
    """

    group: IndexedGroup
    owner: Ints
    counts: Ints
    holder: Ints
    earlier_holder: Ints
    _away: dict[tuple[int, int, int], set[int]] = field(init=False)
    """(topic, owner, holder) -> codes."""

    def __post_init__(self) -> None:
        self._away = {}
        away = np.flatnonzero((self.holder != UNASSIGNED) & (self.holder != self.owner))
        topics = self.group.index.topic_numbers(away).tolist()
        for topic, code in zip(topics, away.tolist(), strict=True):
            self._away.setdefault((topic, int(self.owner[code]), int(self.holder[code])), set()).add(code)

    def even_out(self, movable: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Pass over the movable partitions until a pass moves nothing."""
        topics = [n for n in scarce_topics_first(self.group) if len(self.group.readers_by_topic[n]) > 1]
        while sum(self._pass_topic(number, movable) for number in topics):
            pass

    def _pass_topic(self, topic: int, movable: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bool:
        readers = self.group.readers_by_topic[topic]
        lowest = int(self.counts[readers].min())
        if self.counts[readers].max() <= lowest + 1:
            return False
        start, end = self.group.index.starts[topic : topic + 2]
        codes = start + np.flatnonzero(movable[start:end])
        # Who is not above the lowest by two now can't come to be while this topic is gone through.
        above = codes[self.counts[self.owner[codes]] > lowest + 1].tolist()
        if not above:
            return False
        queue = [(int(count), reader) for count, reader in zip(self.counts[readers], readers.tolist(), strict=True)]
        heapq.heapify(queue)
        moved = False
        for code, earlier in zip(above, self.earlier_holder[above].tolist(), strict=True):
            giver = int(self.owner[code])
            taker = self._taker(code, giver, earlier, queue)
            if taker is not None:
                self._move(self._homing(topic, code, giver, taker), topic, giver, taker)
                heapq.heappush(queue, (int(self.counts[giver]), giver))
                heapq.heappush(queue, (int(self.counts[taker]), taker))
                moved = True
        return moved

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

    def _homing(self, topic: int, code: int, giver: int, taker: int) -> int:
        """A partition of this topic that the taker owned goes home from the giver, instead of another going over.

        Kafka's class goes by moves of this rebalance alone: it sends "home" what the taker was dealt and never owned,
        and not what it owned and gave up for its rack. Two leaders of which one does so undo each other's rounds.
        """
        return min(self._away.get((topic, giver, taker), ()), default=code)

    def _move(self, code: int, topic: int, giver: int, taker: int) -> None:
        home = int(self.holder[code])
        self._away.get((topic, giver, home), set()).discard(code)
        if home not in (UNASSIGNED, taker):
            self._away.setdefault((topic, taker, home), set()).add(code)
        self.owner[code] = taker
        self.counts[giver] -= 1
        self.counts[taker] += 1
