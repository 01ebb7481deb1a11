"""Sticky by load instead of by count (not in Kafka): members get even weight for their capacity, little weight moves.

A member keeps what it owns up to a limit just above the fair share and gives up as little weight as brings it there;
free partitions go, the heaviest first, to the least utilised reader; then the most utilised member sheds by single
moves and swaps. With equal weights and capacities this is the sticky assignment.
"""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assignor_core.assignors.contract import GroupAssignment, GroupSpec
from assignor_core.assignors.cooperative import withhold
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.ownership import Ownership, settle_claims
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.sticky import place_sticky

Floats = npt.NDArray[np.float64]

TOLERANCE = 0.045
"""How far above the fair share a member may stay rather than move partitions: the more, the less moves."""

LEAST_WEIGHT_OF_MEAN = 0.001
"""No partition is free: each counts at least this part of the mean, so that silent ones are spread too."""

STEPS_PER_MEMBER_MAX = 20


def assign_load_aware(spec: GroupSpec) -> GroupAssignment:
    """Even weight per capacity, eager.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> weights = {"t": [9.0, 3.0, 3.0, 3.0]}
    >>> spec = GroupSpec({"t": 4}, {"c-1": MemberSpec(["t"]), "c-2": MemberSpec(["t"])}, partition_weights=weights)
    >>> {member: list(owned) for member, owned in assign_load_aware(spec).assignment.items()}
    {'c-1': [('t', 0)], 'c-2': [('t', 1), ('t', 2), ('t', 3)]}
    """
    group = IndexedGroup.of(spec)
    codes, owners = _place(spec, group, settle_claims(group))
    return GroupAssignment(group.lists_of(codes, owners))


def assign_cooperative_load_aware(spec: GroupSpec) -> GroupAssignment:
    """The same, cooperative: what changes hands is withheld until its owner has revoked it."""
    group = IndexedGroup.of(spec)
    ownership = settle_claims(group)
    return withhold(group, ownership, *_place(spec, group, ownership))


def effective_weights(spec: GroupSpec, group: IndexedGroup) -> Floats:
    """Weight of every code: a missing one counts as the mean of those known, all missing as 1 each."""
    weights = group.weights(spec.partition_weights)
    known = weights[~np.isnan(weights)]
    mean = float(known.mean()) if len(known) and known.any() else 1.0
    return np.maximum(np.where(np.isnan(weights), mean, weights), mean * LEAST_WEIGHT_OF_MEAN)


def _place(spec: GroupSpec, group: IndexedGroup, ownership: Ownership) -> tuple[Ints, Ints]:
    weights = effective_weights(spec, group)
    capacities = np.array([member.capacity for member in group.members])
    if len(weights) == 0 or (np.ptp(weights) == 0 and np.ptp(capacities) == 0):
        return place_sticky(spec, group, ownership)
    owned = np.where(ownership.keepable, ownership.holder, UNASSIGNED)
    share = float(weights.sum() / capacities.sum())
    tried = []
    # What is given up should fit where it lands; where a share is few partitions, that may leave no way to even ones.
    for fitting in (True, False):
        balance = _Balance(group, weights, capacities, owned.copy(), share)
        balance.release_excess(fitting=fitting)
        balance.fill()
        balance.shed()
        tried.append(balance)
        if balance.even():
            break
    best = min(tried, key=lambda balance: float(np.max(balance.loads() / capacities)))
    return np.arange(len(owned)), best.owner


@dataclass(slots=True)
class _Balance:
    """`owner` is changed; `share` is the fair weight per unit of capacity."""

    group: IndexedGroup
    weights: Floats
    capacities: Floats
    owner: Ints
    share: float

    def limits(self) -> Floats:
        return self.share * (1 + TOLERANCE) * self.capacities

    def loads(self) -> Floats:
        held = self.owner != UNASSIGNED
        summed = np.bincount(self.owner[held], weights=self.weights[held], minlength=len(self.capacities))
        return summed.astype(np.float64)

    def even(self) -> bool:
        """Whether nobody is above the limit, but by one partition alone."""
        counts = np.bincount(self.owner[self.owner != UNASSIGNED], minlength=len(self.capacities))
        return bool(np.all((self.loads() <= self.limits()) | (counts <= 1)))

    def release_excess(self, *, fitting: bool) -> None:
        """Members above their limit give up partitions: those that match the excess best, heaviest first; if `fitting`,
        only such as another has room for, as others would push out what is there."""
        limits = self.limits()
        excess = self.loads() - limits
        room = float(np.max(-excess)) if fitting else np.inf
        for member in np.flatnonzero(excess > 0).tolist():
            held = np.flatnonzero(self.owner == member)
            heaviest_first = held[np.argsort(-self.weights[held], kind="stable")]
            if self.weights[heaviest_first[0]] >= limits.max():
                # It fills any member: it stays, alone.
                self.owner[heaviest_first[1:]] = UNASSIGNED
            else:
                self.owner[self._matching(heaviest_first, float(excess[member]), room)] = UNASSIGNED

    def _matching(self, heaviest_first: Ints, excess: float, room: float) -> list[int]:
        released = []
        for code in heaviest_first.tolist():
            if self.weights[code] <= min(excess, room):
                released.append(code)
                excess -= float(self.weights[code])
        if excess > 0:
            left = [code for code in reversed(heaviest_first.tolist()) if code not in set(released)]
            covering = next((code for code in left if self.weights[code] >= excess), None)
            # The last one is worth moving only if it leaves its member with something.
            released += [covering] if covering is not None and len(left) > 1 else []
        return released

    def fill(self) -> None:
        """Free partitions, the heaviest first, to the reader that is least utilised."""
        loads = self.loads()
        counts = np.bincount(self.owner[self.owner != UNASSIGNED], minlength=len(loads)).tolist()
        load, capacity = loads.tolist(), self.capacities.tolist()
        free = np.flatnonzero(self.owner == UNASSIGNED)
        topics = self.group.index.topic_numbers(free)
        queues: dict[tuple[int, ...], list[tuple[float, int, int]]] = {}
        readers = {topic: tuple(self.group.readers_by_topic[topic].tolist()) for topic in set(topics.tolist())}
        for place in np.argsort(-self.weights[free], kind="stable").tolist():
            code = int(free[place])
            key = readers[int(topics[place])]
            queue = queues.get(key)
            if queue is None:
                queue = queues[key] = [(load[m] / capacity[m], counts[m], m) for m in key]
                heapq.heapify(queue)
            # Another queue may have given this member more since; its entry is renewed when it comes up.
            while queue[0][1] != counts[queue[0][2]]:
                member = queue[0][2]
                heapq.heapreplace(queue, (load[member] / capacity[member], counts[member], member))
            member = queue[0][2]
            self.owner[code] = member
            load[member] += float(self.weights[code])
            counts[member] += 1
            heapq.heapreplace(queue, (load[member] / capacity[member], counts[member], member))

    def shed(self) -> None:
        """The most utilised member gives to, or swaps with, the least utilised that reads the same; while it helps."""
        loads = self.loads()
        for _ in range(STEPS_PER_MEMBER_MAX * len(self.capacities)):
            utilisation = loads / self.capacities
            giver = int(np.argmax(utilisation))
            if utilisation[giver] <= self.share * (1 + TOLERANCE) or not self._shed_one(giver, utilisation, loads):
                return

    def _shed_one(self, giver: int, utilisation: Floats, loads: Floats) -> bool:
        held = np.flatnonzero(self.owner == giver)
        for taker in np.argsort(utilisation, kind="stable")[:8].tolist():
            readable = held[self.group.reads(np.full(len(held), taker), self.group.index.topic_numbers(held))]
            if taker == giver or not len(readable):
                continue
            both = self.capacities[giver] + self.capacities[taker]
            wanted = (loads[giver] * self.capacities[taker] - loads[taker] * self.capacities[giver]) / both
            gives, takes, difference = self._best_exchange(readable, giver, taker, float(wanted))
            if 1e-9 * self.share < difference and abs(wanted - difference) < wanted * 0.999:
                self.owner[gives] = taker
                if takes is not None:
                    self.owner[takes] = giver
                loads[giver] -= difference
                loads[taker] += difference
                return True
        return False

    def _best_exchange(self, readable: Ints, giver: int, taker: int, wanted: float) -> tuple[int, int | None, float]:
        """What the giver hands over and what it gets back (or nothing), nearest to moving `wanted` weight."""
        moves = np.abs(self.weights[readable] - wanted)
        best = int(np.argmin(moves))
        chosen: tuple[int, int | None, float] = (int(readable[best]), None, float(self.weights[readable[best]]))
        theirs = np.flatnonzero(self.owner == taker)
        theirs = theirs[self.group.reads(np.full(len(theirs), giver), self.group.index.topic_numbers(theirs))]
        if not len(theirs) or moves[best] < wanted * 0.1:
            return chosen
        theirs = theirs[np.argsort(self.weights[theirs], kind="stable")]
        place = np.searchsorted(self.weights[theirs], self.weights[readable] - wanted).clip(0, len(theirs) - 1)
        differences = self.weights[readable] - self.weights[theirs[place]]
        swap = int(np.argmin(np.abs(differences - wanted)))
        if abs(differences[swap] - wanted) < moves[best]:
            chosen = (int(readable[swap]), int(theirs[place[swap]]), float(differences[swap]))
        return chosen
