"""Sticky by load instead of by count (not in Kafka): members get even weight for their capacity, little weight moves.

A member keeps what it owns up to a limit just above the fair share and gives up as little weight as brings it there;
free partitions go, the heaviest first, to the least utilised reader; then the most utilised member sheds by single
moves and swaps. Where that ends hardly more even than keeping all, all is kept, or a group that subscriptions keep from
being even would move for ever. With equal weights and capacities this is the sticky assignment.
"""

import heapq
from dataclasses import dataclass, replace

import numpy as np

from assignor_core.assignors.contract import GroupAssignment, GroupSpec
from assignor_core.assignors.cooperative import withheld, withhold
from assignor_core.assignors.fair_shares import FairShares, Floats, effective_weights, fair_shares
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.ownership import Bools, Ownership, settle_claims
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.sticky import place_sticky

TOLERANCE = 0.045
"""How far above the fair share a member may stay rather than move partitions: the more, the less moves."""

STEPS_PER_MEMBER_MAX = 20


def assign_load_aware(spec: GroupSpec) -> GroupAssignment:
    """Returns the load-aware assignment: even weight per capacity, eager.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> weights = {"t": [9.0, 3.0, 3.0, 3.0]}
    >>> spec = GroupSpec({"t": 4}, {"c-1": MemberSpec(["t"]), "c-2": MemberSpec(["t"])}, partition_weights=weights)
    >>> {member: list(owned) for member, owned in assign_load_aware(spec).assignment.items()}
    {'c-1': [('t', 0)], 'c-2': [('t', 1), ('t', 2), ('t', 3)]}
    """
    group = IndexedGroup.of(spec)
    codes, owners = _place(spec, group, settle_claims(group), cooperative=False)
    return GroupAssignment(group.lists_of(codes, owners))


def assign_cooperative_load_aware(spec: GroupSpec) -> GroupAssignment:
    """Returns the cooperative load-aware assignment: partitions that change hands are withheld until revoked."""
    group = IndexedGroup.of(spec)
    ownership = settle_claims(group)
    return withhold(group, ownership, *_place(spec, group, ownership, cooperative=True))


def loads_differ(spec: GroupSpec) -> bool:
    """Whether partitions differ in weight or members in capacity; if not, this is the sticky assignment.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> members = {"c-1": MemberSpec(["t"]), "c-2": MemberSpec(["t"])}
    >>> [loads_differ(GroupSpec({"t": 2}, members, partition_weights={"t": [3.0, last]})) for last in (3.0, 4.0)]
    [False, True]
    """
    group = IndexedGroup.of(spec)
    return _differ(group, effective_weights(spec, group))


def _differ(group: IndexedGroup, weights: Floats) -> bool:
    capacities = np.array([member.capacity for member in group.members])
    return len(weights) > 0 and bool(np.ptp(weights) > 0 or np.ptp(capacities) > 0)


def _place(spec: GroupSpec, group: IndexedGroup, ownership: Ownership, *, cooperative: bool) -> tuple[Ints, Ints]:
    weights = effective_weights(spec, group)
    if not _differ(group, weights):
        return place_sticky(spec, group, ownership)
    owned = ownership.holder
    fair = fair_shares(group, weights)
    best = _Balance(group, weights, fair, owned.copy())
    best.rebalance(fitting=True)
    if not best.even().all():
        # What is given up should fit where it lands; where a share is few partitions, that may leave no way to even.
        other = _Balance(group, weights, fair, owned.copy())
        other.rebalance(fitting=False)
        best.take_over(other, other.peaks() < best.peaks())
    stay = _Balance(group, weights, fair, owned.copy())
    stay.deal_out()
    ends = [plan.after_next_round(ownership) if cooperative else plan for plan in (best, stay)]
    best.take_over(stay, ~ends[0].worth_moving_from(ends[1]))
    return np.arange(len(owned)), best.owner


@dataclass(slots=True)
class _Balance:
    """`owner` is changed. Even, peaks and strains have one value for each circle."""

    group: IndexedGroup
    weights: Floats
    fair: FairShares
    owner: Ints

    def rebalance(self, *, fitting: bool) -> None:
        """Let go what is too much, deal it out, and even out what is left."""
        self.release_excess(fitting=fitting)
        self.fill()
        self.shed(np.ones(len(self.owner), dtype=np.bool_))

    def deal_out(self) -> None:
        """Give away what is free, as evenly as that alone allows."""
        free = self.owner == UNASSIGNED
        self.fill()
        self.shed(free)

    def take_over(self, other: "_Balance", circles: Bools) -> None:
        """Have the owners of `other` in these circles."""
        self.owner = np.where(circles[self.fair.circle_of_code], other.owner, self.owner)

    def limits(self) -> Floats:
        return self.fair.of_member * (1 + TOLERANCE)

    def loads(self) -> Floats:
        held = self.owner != UNASSIGNED
        summed = np.bincount(self.owner[held], weights=self.weights[held], minlength=len(self.group.members))
        return summed.astype(np.float64)

    def peaks(self) -> Floats:
        """Highest load of a member per fair share."""
        return self.fair.highest(self.fair.used(self.loads()))

    def strains(self) -> Floats:
        """Highest load per fair share, without members that hold one partition alone and so have nothing to give."""
        counts = np.bincount(self.owner[self.owner != UNASSIGNED], minlength=len(self.group.members))
        return self.fair.highest(np.where(counts > 1, self.fair.used(self.loads()), 0.0))

    def even(self) -> Bools:
        """Whether nobody is above the limit, but by one partition alone."""
        return self.strains() <= 1 + TOLERANCE

    def after_next_round(self, ownership: Ownership) -> "_Balance":
        """Returns the balance after the next cooperative round, which deals out the partitions withheld now."""
        reached = replace(self, owner=np.where(withheld(ownership, self.owner), UNASSIGNED, self.owner))
        reached.deal_out()
        return reached

    def worth_moving_from(self, stay: "_Balance") -> Bools:
        """Whether this balance is clearly more even than `stay`: at its peak, or below a peak that is no higher.

        Each round that moves anything makes this smaller for the next one, so they come to an end.
        """
        peaks, strains, peaks_now = self.peaks(), self.strains(), stay.peaks()
        milder = ~stay.even() & (self.even() | (strains * (1 + TOLERANCE) < stay.strains()))
        return (peaks * (1 + TOLERANCE) < peaks_now) | ((peaks <= peaks_now) & milder)

    def release_excess(self, *, fitting: bool) -> None:
        """Members above their limit give up partitions: those that match the excess best, heaviest first; if `fitting`,
        only such as another has room for, as others would push out what is there."""
        limits = self.limits()
        excess = self.loads() - limits
        rooms, largest = self.fair.highest(np.maximum(-excess, 0.0)), self.fair.highest(limits)
        for member in np.flatnonzero(excess > 0).tolist():
            held = np.flatnonzero(self.owner == member)
            heaviest_first = held[np.argsort(-self.weights[held], kind="stable")]
            circle = self.fair.circle_of_member[member]
            if self.weights[heaviest_first[0]] >= largest[circle]:
                # It fills any member: it stays, alone.
                self.owner[heaviest_first[1:]] = UNASSIGNED
            else:
                room = float(rooms[circle]) if fitting else np.inf
                self.owner[self._matching(heaviest_first, float(excess[member]), room)] = UNASSIGNED

    def _matching(self, heaviest_first: Ints, excess: float, room: float) -> list[int]:
        released = []
        for code in heaviest_first.tolist():
            if self.weights[code] <= min(excess, room):
                released.append(code)
                excess -= float(self.weights[code])
        if excess > 0:
            gone = set(released)
            left = [code for code in reversed(heaviest_first.tolist()) if code not in gone]
            covering = next((code for code in left if self.weights[code] >= excess), None)
            # The last one is worth moving only if it leaves its member with something.
            released += [covering] if covering is not None and len(left) > 1 else []
        return released

    def fill(self) -> None:
        """Free partitions, the heaviest first, to the reader that is least utilised."""
        loads = self.loads()
        counts = np.bincount(self.owner[self.owner != UNASSIGNED], minlength=len(loads)).tolist()
        load, fair = loads.tolist(), self.fair.of_member.tolist()
        free = np.flatnonzero(self.owner == UNASSIGNED)
        topics = self.group.index.topic_numbers(free)
        # One queue for all topics that the same members read.
        queues: dict[bytes, list[tuple[float, int, int]]] = {}
        queue_of = {topic: self._queue(topic, queues, load, counts) for topic in set(topics.tolist())}
        for place in np.argsort(-self.weights[free], kind="stable").tolist():
            code = int(free[place])
            queue = queue_of[int(topics[place])]
            # Another queue may have given this member more since; its entry is renewed when it comes up.
            while queue[0][1] != counts[queue[0][2]]:
                member = queue[0][2]
                heapq.heapreplace(queue, (load[member] / fair[member], counts[member], member))
            member = queue[0][2]
            self.owner[code] = member
            load[member] += float(self.weights[code])
            counts[member] += 1
            heapq.heapreplace(queue, (load[member] / fair[member], counts[member], member))

    def _queue(
        self, topic: int, queues: dict[bytes, list[tuple[float, int, int]]], load: list[float], counts: list[int]
    ) -> list[tuple[float, int, int]]:
        """The heap of a topic's readers as (load per fair share, partitions, member)."""
        readers = self.group.readers_by_topic[topic]
        key = readers.tobytes()
        if key not in queues:
            fair = self.fair.of_member[readers].tolist()
            members = zip(readers.tolist(), fair, strict=True)
            queues[key] = [(load[member] / share, counts[member], member) for member, share in members]
            heapq.heapify(queues[key])
        return queues[key]

    def shed(self, movable: Bools) -> None:
        """The most utilised member gives to, or swaps with, the least utilised that reads the same; while it helps."""
        loads = self.loads()
        stuck = np.zeros(len(loads), dtype=np.bool_)
        for _ in range(STEPS_PER_MEMBER_MAX * len(loads)):
            utilisation = self.fair.used(loads)
            giver = int(np.argmax(np.where(stuck, 0.0, utilisation)))
            if stuck[giver] or utilisation[giver] <= 1 + TOLERANCE:
                return
            if not self._shed_one(giver, utilisation, loads, movable):
                stuck |= self.fair.circle_of_member == self.fair.circle_of_member[giver]

    def _shed_one(self, giver: int, utilisation: Floats, loads: Floats, movable: Bools) -> bool:
        held = np.flatnonzero((self.owner == giver) & movable)
        circle = np.flatnonzero(self.fair.circle_of_member == self.fair.circle_of_member[giver])
        for taker in circle[np.argsort(utilisation[circle], kind="stable")[:8]].tolist():
            readable = held[self.group.reads(np.full(len(held), taker), self.group.index.topic_numbers(held))]
            if taker == giver or not len(readable):
                continue
            theirs, ours = float(self.fair.of_member[taker]), float(self.fair.of_member[giver])
            wanted = (loads[giver] * theirs - loads[taker] * ours) / (ours + theirs)
            back = np.flatnonzero((self.owner == taker) & movable)
            back = back[self.group.reads(np.full(len(back), giver), self.group.index.topic_numbers(back))]
            gives, takes, difference = self._best_exchange(readable, back, float(wanted))
            if 1e-9 * ours < difference and abs(wanted - difference) < wanted * 0.999:
                self.owner[gives] = taker
                if takes is not None:
                    self.owner[takes] = giver
                loads[giver] -= difference
                loads[taker] += difference
                return True
        return False

    def _best_exchange(self, readable: Ints, back: Ints, wanted: float) -> tuple[int, int | None, float]:
        """What the giver hands over of `readable` and what of `back` it gets (or nothing), nearest to moving `wanted`
        weight."""
        moves = np.abs(self.weights[readable] - wanted)
        best = int(np.argmin(moves))
        chosen: tuple[int, int | None, float] = (int(readable[best]), None, float(self.weights[readable[best]]))
        if not len(back) or moves[best] < wanted * 0.1:
            return chosen
        back = back[np.argsort(self.weights[back], kind="stable")]
        place = np.searchsorted(self.weights[back], self.weights[readable] - wanted).clip(0, len(back) - 1)
        differences = self.weights[readable] - self.weights[back[place]]
        swap = int(np.argmin(np.abs(differences - wanted)))
        if abs(differences[swap] - wanted) < moves[best]:
            chosen = (int(readable[swap]), int(back[place[swap]]), float(differences[swap]))
        return chosen
