"""Destinations and leaders of what a hard rule moves, where nothing else of a plan may move to make up for them.

Repair places one replica after the other and looks at one replica at a time: a replica that leads goes on leading at
its new broker, and the first to come fill what the last would need. A plan that only empties brokers, or only spreads
racks, would end as uneven as that leaves it. So each moved partition is placed again, the heaviest first: its new
replicas may go to any other broker that repair could have chosen, and any of its replicas may lead. The best of all
these choices is taken if it lowers the objective, until a pass over all moved partitions gains next to nothing.

Invariants: no other partition is touched, nothing more is copied, no rack is more crowded than repair leaves it, and no
broker's worst load ends further above its limit. What consumers read in their racks stays where repair puts it.
"""

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.placement import Edit, Flags, Indices, on_grid
from assignor_core.planner.problem import weighted
from assignor_core.planner.repair import repair
from assignor_core.planner.search import Search

PASSES_MAX = 8
"""Passes over all moved partitions."""
CHANGED_MIN = 0.01
"""A pass that changes no more than this share of them is the last."""
GAIN_MIN = 1e-5
"""Squared fair shares that another choice must gain: a broker that is 0.01 above its limit would gain ten times that.
The pull to evenness within the limits gains less, and no leader changes for it.
"""
ROUNDING = 1e-9


def keep_rules(search: Search) -> None:
    """Empty brokers and spread racks; where nothing else of the plan may move, place again what that has moved."""
    repair(search)
    if search.problem.policy.rules_only or search.problem.policy.only_brokers:
        choose_destinations(search)


def choose_destinations(search: Search) -> None:
    """Place again what repair has moved, where that lowers the objective and copies nothing more.

    Broker 3 leads all partitions, and two of its replicas have moved to broker 4, where both would lead. Now broker 2,
    which follows, leads one of them (brokers are counted from 0):

    >>> state = state_of((3, 2), (3, 2), (3, 1), (3, 1), brokers=4)
    >>> search = Search(state.problem, state.placement)
    >>> for partition in (0, 1):
    ...     _ = search.apply_edit(Edit(partition, 0, 3))
    >>> choose_destinations(search)
    >>> sorted(state.placement.replicas[:2, 0].tolist())
    [1, 3]
    """
    problem, placement = search.problem, search.placement
    moved = placement.changed()
    if placement.in_racks is not None:
        moved = moved[~placement.in_racks.is_bound[moved]]
    weight = weighted(placement.leading[moved], problem.weight)
    order = moved[np.lexsort((moved, -weight))].tolist()
    mark, excess = len(search.journal), problem.worst_excess(placement.loads)
    for _ in range(PASSES_MAX):
        changed = sum(_place_again(search, partition) for partition in order)
        if changed <= CHANGED_MIN * len(order):
            break
    if problem.worst_excess(placement.loads) > excess + ROUNDING:
        search.undo_to(mark)


def _place_again(search: Search, partition: int) -> bool:
    """Whether another broker for a new replica of `partition`, or another leader, lowers the objective; applies it."""
    original, row = search.placement.original[partition], search.placement.replicas[partition]
    new = [slot for slot, broker in enumerate(row.tolist()) if broker != NO_BROKER and broker not in original]
    return sum(_choose(search, partition, slot) for slot in new) > 0


def _choose(search: Search, partition: int, slot: int) -> bool:
    """Whether another broker for the replica in `slot`, or another leader, lowers the objective; applies the best."""
    problem, placement = search.problem, search.placement
    row, one = placement.replicas[partition], np.array([partition])
    source, leader = int(row[slot]), int(row[0])
    stays = np.isin(np.arange(len(problem.share)), row[row != NO_BROKER])
    stays[source] = False
    targets = _targets(search, one, source)
    brokers = np.flatnonzero((stays | targets) & problem.share.any(axis=1))
    leading, following = placement.leading[partition], placement.following[partition]
    without = placement.loads[brokers].copy()
    without[np.isin(brokers, row)] -= following
    without[brokers == leader] -= leading - following
    follows = problem.cost(without + following, brokers) - problem.cost(without, brokers)
    leads = problem.cost(without + leading, brokers) - problem.cost(without + following, brokers)
    may_lead = problem.may_lead[brokers] & problem.may_rise_by(without, leading, brokers)
    may_lead = (may_lead & problem.may_lead[leader]) | (brokers == leader)
    leads = np.where(may_lead, leads + GAIN_MIN * (brokers != leader), np.inf)  # who leads keeps leading for nothing
    # A follower that stays may lead with any target. A leader that can't leave a broker out of use keeps leading.
    best_stays = float(leads[stays[brokers]].min(initial=np.inf if leader in brokers else 0.0))
    total = np.where(targets[brokers], follows + np.minimum(leads, best_stays), np.inf)
    at_source = brokers == source
    now = float(follows[at_source].sum() + leads[brokers == leader].sum())
    at = int(np.argmin(on_grid(total)))
    if not now - total[at] > GAIN_MIN:
        return False
    target = int(brokers[at])
    if target != source:
        search.apply_edit(Edit(partition, slot, target))
    new_leader = leader
    if leads[at] < best_stays:
        new_leader = target
    elif leader in brokers:
        new_leader = int(brokers[np.argmin(np.where(stays[brokers], leads, np.inf))])
    place = int(np.argmax(placement.replicas[partition] == new_leader))
    if place:
        search.apply_edit(Edit(partition, place, NO_BROKER))
    return True


def _targets(search: Search, one: Indices, source: int) -> Flags:
    """B: brokers that may hold the replica on `source` of the partition `one`, `source` among them."""
    problem, placement = search.problem, search.placement
    everyone = np.arange(len(problem.share))
    allowed: Flags = problem.allowed_targets(placement, one, source, everyone)[0]
    allowed &= problem.with_room(placement, placement.following[one], everyone)[0]
    allowed &= search.spending.affordable(one, everyone, search.spending.copied_bytes(one, source, everyone))[0]
    allowed[source] = True
    return allowed
