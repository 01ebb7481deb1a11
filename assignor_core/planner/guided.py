"""A way to begin: what a linear program would move, with whole replicas.

Brokers with more disk for their network than others should hold other replicas than these. To sort replicas one by
one, always the worst broker first, takes thousands of exchanges, and many replicas are copied that need not be. So here
the shadow prices of all loads are worked out first (`relaxation`). They say which replicas a plan without whole numbers
would move, and whole replicas follow it as near as they can, the heaviest first. The search then finishes.

Where brokers are of equal proportions the search does better, mostly. There this is for plans that end above.

Invariants: no hard rule is broken. Where a budget limits the plan it is not for use (`may_guide`), since what pays most
must come first there; nor where the cluster is too large, or no broker is above its limit.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Edit, Flags, Indices
from assignor_core.planner.problem import Problem
from assignor_core.planner.relaxation import MOVED_PRICE, PART_GRID, STEPS, Parts, Relaxation, relaxation_of
from assignor_core.planner.search import NOTICEABLE, Search
from assignor_core.planner.turns import edits_towards
from assignor_core.resources import Resource

PAIRS_MAX = 30_000_000
"""Pairs of a replica and a broker: measured 231 MiB of the whole process and 3.4 processor seconds for 19,600,000."""
REPLICAS_MIN, REPLICAS_MAX = 200, 100_000
"""With fewer replicas whole ones can't follow the parts. Of more each could move, and is placed by itself."""
PASSES = 500
"""Edits are put in order by so many looks at those that are left."""
UNEQUAL = 0.05
"""Brokers are of unequal proportions if their share of the disk for that of the network differs by more."""
COUNTED = 50
"""So many steps over a pair take as long as one candidate of the search. Measured on 15,000,000 to 20,000,000 pairs."""
EXCESS_PRICE = 20.0
"""What a squared fair share above a goal costs while whole replicas are placed, in fair shares of disk."""


def may_guide(search: Search) -> bool:
    """Whether `search` may begin so: without budgets, on a cluster of a size that can be, with brokers to relieve."""
    problem, policy, placement = search.problem, search.problem.policy, search.placement
    if policy.leaders_only or placement.in_racks is not None or policy.has_budget:
        return False
    replicas = int((placement.replicas != NO_BROKER).sum())
    pairs = replicas * int(problem.may_take.sum())
    if not REPLICAS_MIN <= replicas <= REPLICAS_MAX or pairs > PAIRS_MAX:
        return False
    return float(search.violation().sum()) > NOTICEABLE


def have_unequal_proportions(problem: Problem) -> bool:
    """Whether some brokers have more disk for their network than others.

    >>> have_unequal_proportions(state_of((1,), (2,)).problem)
    False
    """
    columns = problem.arrays.columns
    disk, network = (columns.of(resource)[0] for resource in (Resource.DISK, Resource.BYTES_IN))
    share = problem.share[problem.arrays.alive]
    if not len(share) or not (share[:, (disk, network)] > 0).all():
        return False
    ratio = share[:, disk] / share[:, network]
    return bool(ratio.max() > (1.0 + UNEQUAL) * ratio.min())


def guide(search: Search) -> None:
    """Move what the linear program would move, as far as whole replicas can.

    Of four partitions on broker 1 two go to broker 2:

    >>> state = state_of((1,), (1,), (1,), (1,))
    >>> guide(Search(state.problem, state.placement))
    >>> sorted(state.placement.replicas[:, 0].tolist())
    [0, 0, 1, 1]
    """
    relaxed = relaxation_of(search)
    search.effort.look(STEPS * len(relaxed.partitions) * len(relaxed.targets) // COUNTED)
    prices, blur = relaxed.shadow_prices()
    moving = relaxed.that_may_move(prices, blur)
    whole = _Whole(search, moving, prices, moving.parts(prices, blur))
    whole.place_replicas()
    whole.hand_over()


def put_in_order(search: Search, mark: int) -> None:
    """Apply what has changed since `mark` in another order, what gains most for its price first: then the beginning of
    the way is a cheaper plan (`frontier`). What went there and back is left out.

    An edit waits for those of its partition before it. What a hard rule forbids in its turn is tried once more when all
    others are applied, and else left out.
    """
    problem, placement = search.problem, search.placement
    rows = placement.replicas.copy()
    search.undo_to(mark)
    edits = edits_towards(placement, rows)
    if not edits:
        return
    shifts = _shifts(search, edits)
    is_left, left_over = np.ones(len(shifts.edits), dtype=np.bool_), []
    while is_left.any():
        some = np.flatnonzero(is_left & ((shifts.before < 0) | ~is_left[shifts.before]))
        sources, targets, loads = shifts.sources[some], shifts.targets[some], shifts.loads[some]
        gain = -problem.burden(placement.loads[sources], -loads, sources)
        gain -= problem.burden(placement.loads[targets], loads, targets)
        for best in some[np.lexsort((some, -gain / shifts.prices[some]))][: 1 + len(is_left) // PASSES].tolist():
            is_left[best] = False
            if _is_possible(search, shifts, best):
                search.apply_edit(shifts.edits[best])
            else:
                left_over.append(best)
    for number in left_over:
        if _is_possible(search, shifts, number):
            search.apply_edit(shifts.edits[number])


class _Shifts(NamedTuple):
    """N edits, and what they do."""

    edits: list[Edit]
    sources: Indices
    """N brokers that give."""
    targets: Indices
    """N brokers that take."""
    loads: Floats
    """N x C."""
    prices: Floats
    """N."""
    before: Indices
    """N edit of the same partition before each; -1 if there is none."""


def _shifts(search: Search, edits: list[Edit]) -> _Shifts:
    """What `edits`, one after the other, would do. Nothing moves."""
    placement = search.placement
    brokers, before, rows, last = [], [], dict[int, list[int]](), dict[int, int]()
    for number, (partition, slot, target) in enumerate(edits):
        row = rows.setdefault(partition, placement.replicas[partition].tolist())
        if target == NO_BROKER:
            row[0], row[slot] = row[slot], row[0]
            brokers.append((row[slot], row[0]))
        else:
            brokers.append((row[slot], target))
            row[slot] = target
        before.append(last.get(partition, -1))
        last[partition] = number
    partitions, slots, targets = np.array(edits, dtype=np.int64).T
    is_handover = targets == NO_BROKER
    loads = np.where(is_handover[:, None], placement.leaderships(partitions), placement.loads_at(partitions, slots))
    copied = np.where(is_handover, 0.0, placement.disk_bytes[partitions])
    sources, takers = np.array(brokers, dtype=np.int64).T
    prices = search.spending.in_fair_shares(copied) + MOVED_PRICE
    return _Shifts(edits, sources, takers, loads, prices, np.array(before, dtype=np.int64))


def _is_possible(search: Search, shifts: _Shifts, number: int) -> bool:
    """Whether no hard rule forbids it as things are; an edit of the same partition may have been left out."""
    (partition, slot, target), source = shifts.edits[number], int(shifts.sources[number])
    replicas = search.placement.replicas[partition]
    if target != NO_BROKER:
        return int(replicas[slot]) == source and bool(_able(search, partition, source, np.array([target]))[0])
    taker = int(shifts.targets[number])
    if (int(replicas[0]), int(replicas[slot])) != (source, taker):
        return False
    return bool(search.problem.may_rise_by(search.placement.loads[taker], shifts.loads[number], taker))


def _able(search: Search, partition: int, source: int, targets: Indices) -> Flags:
    """T: whether each of `targets` may take the replica on `source` by all hard rules, as things are."""
    one, placement, problem = np.array([partition]), search.placement, search.problem
    carried = placement.loads_at(one, placement.slots_of(one, source))
    able = problem.allowed_targets(placement, one, source, targets) & problem.with_room(placement, carried, targets)
    able &= search.spending.affordable(one, targets, search.spending.copied_bytes(one, source, targets))
    first: Flags = able[0]
    return first


class _Whole:
    """Whole replicas in place of parts, one after the other; mutable.

    `_loads` begins with the parts. Each replica in turn takes its parts out, and is put where it costs least.
    """

    def __init__(self, search: Search, relaxed: Relaxation, prices: Floats, parts: Parts) -> None:
        self._search, self._relaxed, self._parts = search, relaxed, parts
        self._loads = relaxed.loads_with(parts)
        self._prices = prices / relaxed.sizes

    def place_replicas(self) -> None:
        """Each replica of which a part moves, the heaviest first, since the lighter ones can fill what is left."""
        rows, size = self._parts.movers, self._relaxed.loads.max(axis=1, initial=0.0)
        for index in np.lexsort((rows, -size[rows])):
            self._place(int(rows[index]), self._parts.moved[index])

    def _place(self, row: int, moved: Floats) -> None:
        relaxed, search = self._relaxed, self._search
        partition, source, load = int(relaxed.partitions[row]), int(relaxed.sources[row]), relaxed.loads[row]
        self._loads[relaxed.targets] -= moved[:, None] * load
        self._loads[source] -= (1.0 - moved.sum()) * load
        at = np.flatnonzero(moved)
        able = _able(search, partition, source, relaxed.targets[at])
        if not able.all():
            # Another replica of the partition was here first: whatever is cheapest now.
            at = np.flatnonzero(relaxed.targets != source)
            able = _able(search, partition, source, relaxed.targets[at])
        brokers = np.concatenate(([source], relaxed.targets[at[able]]))
        cost = self._cost(brokers, load)
        cost[1:] += relaxed.prices[row]
        target = int(brokers[np.argmin(cost)])
        self._loads[target] += load
        if target != source:
            slot = int(search.placement.slots_of(np.array([partition]), source)[0])
            search.apply_edit(Edit(partition, slot, target))

    def hand_over(self) -> None:
        """Each leadership of which a part is handed over, the heaviest first."""
        relaxed, handed = self._relaxed, self._parts.handed
        rows = np.flatnonzero(handed.any(axis=1))
        size = relaxed.leaderships.max(axis=1, initial=0.0)
        for row in rows[np.lexsort((rows, -size[rows]))]:
            self._hand(int(row), handed[row])

    def _hand(self, row: int, handed: Floats) -> None:
        relaxed, search = self._relaxed, self._search
        partition, load, holders = int(relaxed.led[row]), relaxed.leaderships[row], relaxed.holders[row]
        for slot in np.flatnonzero(handed):
            self._loads[holders[slot]] -= handed[slot] * load
            self._loads[holders[0]] += handed[slot] * load
        replicas = search.placement.replicas[partition]
        slots = np.flatnonzero((replicas != NO_BROKER) & search.problem.may_lead[replicas])
        brokers = replicas[slots]
        self._loads[replicas[0]] -= load
        cost = self._cost(brokers, load) + np.where(slots > 0, MOVED_PRICE, 0.0)
        best = int(np.argmin(cost))
        change = search.placement.leaderships(np.array([partition]))[0]
        target = int(brokers[best])
        if slots[best] > 0 and search.problem.may_rise_by(search.placement.loads[target], change, target):
            search.apply_edit(Edit(partition, int(slots[best]), NO_BROKER))
        else:
            target = int(replicas[0])
        self._loads[target] += load

    def _cost(self, brokers: Indices, load: Floats) -> Floats:
        """N: what it costs if each of `brokers` takes `load`."""
        relaxed, here = self._relaxed, self._loads[brokers]
        goals, sizes = relaxed.goals[brokers], relaxed.sizes[brokers]
        before, after = (np.maximum((loads - goals) / sizes, 0.0) ** 2 for loads in (here, here + load))
        cost: Floats = EXCESS_PRICE * (after - before).sum(axis=1) + (self._prices[brokers] * load).sum(axis=1)
        return np.rint(cost * PART_GRID * PART_GRID) / (PART_GRID * PART_GRID)
