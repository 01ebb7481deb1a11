"""Topics that live on a set of brokers: who may hold what, and what loads that forces on the brokers of the sets.

What has to be on some brokers is more or less than their fair share of the whole. So fair shares are those of the most
even loads that the sets allow. The brokers that sets load most, for what they should carry, come first: their topics
make them full, so nothing else should be there. What is left is divided among the other brokers in turn (the densest
group first, as in balanced flows of bipartite graphs). The first level is a bound for every placement that keeps the
sets.

Partitions whose set has fewer brokers than they have replicas stay where they are, and force nothing. Nothing moves
here.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from assignor_core.broker_sets import SetArrays
from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Flags, Indices, Placement, on_grid
from assignor_core.planner.policy import BrokerSet, PlannerPolicy
from assignor_core.resources import Resource

TOGETHER_MAX = 8
"""With more different sets than this, each is looked at alone and all of them together."""
SHARE_LEAST = 0.25
"""Part of its share of the whole that a broker keeps as its fair share, however little the sets leave for it: what is
so little need not be even.
"""
NOTICEABLE = 1e-6
"""A level so little above another one is the same."""


def with_sets(arrays: ClusterArrays, policy: PlannerPolicy, movable: Flags) -> ClusterArrays:
    """Returns `arrays` with the sets of `policy`; only `movable` partitions (P) have one.

    >>> state = state_of((1, 2), (1, 3), brokers=3)
    >>> policy = PlannerPolicy(broker_sets=(BrokerSet(frozenset({"t"}), brokers=frozenset({1, 3})),))
    >>> sets = with_sets(state.problem.arrays, policy, np.array([True, True])).sets
    >>> sets.members[sets.set_of].tolist(), sets.outside(state.placement.replicas).tolist()
    ([[True, False, True], [True, False, True]], [[False, True], [False, False]])
    """
    if policy.leaders_only or not any(one.topics for one in policy.broker_sets):
        return arrays
    members = [np.ones(len(arrays.broker_ids), dtype=np.bool_)]
    row_of: dict[str, int] = {}
    for one in policy.broker_sets:
        row_of |= dict.fromkeys(one.topics - row_of.keys(), len(members))
        members.append(members_of(arrays, one))
    set_of = np.array([row_of.get(row.topic, 0) for row in arrays.partitions], dtype=np.int64)
    sets = SetArrays(np.stack(members), np.where(movable, set_of, 0), np.zeros(len(set_of), dtype=np.bool_))
    holders = holders_possible(arrays, policy, sets, arrays.replicas, sets.set_of)
    return replace(arrays, sets=replace(sets, is_short=holders < (arrays.replicas != NO_BROKER).sum(axis=1)))


def members_of(arrays: ClusterArrays, one: BrokerSet) -> Flags:
    """B: the brokers of a set."""
    racks = [name.removeprefix("rack ") if name.startswith("rack ") else None for name in arrays.rack_names]
    pairs = zip(arrays.broker_ids, arrays.racks, strict=True)
    return np.array([one.admits(broker, racks[rack]) for broker, rack in pairs], dtype=np.bool_)


def holders_possible(
    arrays: ClusterArrays, policy: PlannerPolicy, sets: SetArrays, replicas: Ints, rows: Indices
) -> Indices:
    """N: brokers in use that hold one of `replicas` (N x R) of each partition or may by the policy, however full they
    are; `rows` (N) are the sets of the partitions.
    """
    ids = np.array(arrays.broker_ids)
    may = arrays.alive & ~np.isin(ids, sorted(policy.excluded_brokers))
    if policy.add:
        may &= np.isin(ids, sorted(policy.add))
    held = (replicas != NO_BROKER) & (arrays.alive & ~may)[replicas] & sets.members[rows[:, None], replicas]
    count: Indices = (sets.members & may).sum(axis=1)[rows] + held.sum(axis=1)
    return count


def shares_within_sets(arrays: ClusterArrays, placement: Placement, share: Floats, taking: Flags) -> Floats:
    """B x C fair shares of the most even loads that the sets allow, from those without sets (`share`). Brokers that are
    not `taking` (B) keep what they carry.

    Half of all has to be on broker 1. Broker 2 and broker 3 divide the other half:

    >>> state = state_of((1,), (2,), brokers=3)
    >>> members, some = np.array([[True] * 3, [True, False, False]]), np.array([1, 0])
    >>> sets = SetArrays(members, some, np.zeros(2, dtype=bool))
    >>> arrays, taking = replace(state.problem.arrays, sets=sets), np.ones(3, dtype=bool)
    >>> shares_within_sets(arrays, state.placement, state.problem.share, taking)[:, 0].round(3).tolist()
    [0.5, 0.25, 0.25]
    """
    levels = levels_of_sets(arrays, placement, share, taking)
    return np.where(taking[:, None], share * np.maximum(levels, SHARE_LEAST), share)


def levels_of_sets(arrays: ClusterArrays, placement: Placement, share: Floats, taking: Flags) -> Floats:
    """B x C loads, in fair shares (`share`), of the most even division of all loads that the sets allow. The highest of
    each column bounds every placement that keeps the sets; 1 where no set forces anything.
    """
    levels = np.ones_like(share)
    if arrays.sets is None or not taking.any():
        return levels
    confined = _confined(arrays, arrays.sets, placement, taking)
    # Brokers that are in the same sets are one.
    kinds, kind_of = np.unique(arrays.sets.members[1:][:, taking], axis=1, return_inverse=True)
    unions, of_kind = _unions(kinds), kind_of.reshape(-1)
    # Rounded to the grid, all loads together are a little more or less than 1.
    whole = placement.loads.sum(axis=0)
    confined = confined / np.where(whole > 0, whole, 1.0)
    for column in range(share.shape[1]):
        given = on_grid(share[taking, column])
        room = on_grid(np.bincount(of_kind, weights=given, minlength=kinds.shape[1]).astype(np.float64))
        levels[taking, column] = _levels(kinds, unions, confined[:, column], room)[of_kind]
    return levels


def _confined(arrays: ClusterArrays, sets: SetArrays, placement: Placement, taking: Flags) -> Floats:
    """K-1 x C load of what lives in each set, but for what brokers carry that are in use and not `taking`."""
    kept, held = sets.kept_set, ~arrays.alive | taking
    confined = np.zeros((len(sets.members), placement.loads.shape[1]))
    for slot in range(placement.replicas.shape[1]):
        brokers = placement.replicas[:, slot]
        rows = np.flatnonzero((kept > 0) & (brokers != NO_BROKER) & held[brokers])
        carried = placement.following if slot else placement.leading
        for column in range(confined.shape[1]):
            confined[:, column] += np.bincount(kept[rows], weights=carried[rows, column], minlength=len(confined))
    if placement.in_racks is not None and held.all():
        # What followers serve to their racks is not in the load of the leader.
        reads = placement.in_racks.reads
        for window, column in enumerate(arrays.columns.of(Resource.BYTES_OUT)):
            of_reads = kept[reads.partitions[reads.rows]]
            confined[:, column] += np.bincount(of_reads, weights=reads.rates[:, window], minlength=len(confined))
    confined[0] = 0.0
    return confined[1:]


def _unions(kinds: Flags) -> Flags:
    """U x Q groups of kinds of brokers (Q) that sets fill together; `kinds` (S x Q) are those of each set."""
    different = np.unique(kinds, axis=0)
    counts = range(1, len(different) + 1) if len(different) <= TOGETHER_MAX else (1, len(different))
    groups = [
        different[list(some)].any(axis=0) for count in counts for some in combinations(range(len(different)), count)
    ]
    return np.unique(np.array(groups, dtype=np.bool_), axis=0)


def _levels(kinds: Flags, unions: Flags, confined: Floats, room: Floats) -> Floats:
    """Q levels of the kinds of brokers: `confined` (S) is in the sets, `room` (Q) what brokers of a kind should carry,
    which is all that there is.

    >>> kinds = np.array([[True, False]])
    >>> _levels(kinds, kinds, np.array([0.5]), np.array([0.25, 0.75])).round(3).tolist()
    [2.0, 0.667]
    """
    level, left, rest = np.ones(len(room)), np.ones(len(room), dtype=np.bool_), float(room.sum())
    waiting, even = np.ones(len(confined), dtype=np.bool_), 1.0
    for _ in range(len(confined)):
        inside = unions & left
        capacity = np.where(inside, room, 0.0).sum(axis=1)
        is_within = waiting & ~(kinds & left & ~inside[:, None, :]).any(axis=2)
        density = np.where(capacity > 0, (is_within * confined).sum(axis=1), 0.0) / np.where(
            capacity > 0, capacity, 1.0
        )
        densest = int(np.argmax(density))
        if density[densest] <= even * (1.0 + NOTICEABLE):
            break
        level[inside[densest]] = density[densest]
        rest -= float(confined[is_within[densest]].sum())
        waiting &= ~is_within[densest]
        left &= ~inside[densest]
        remaining = float(room[left].sum())
        if remaining <= 0.0:
            return level
        even = max(rest, 0.0) / remaining
    level[left] = even
    return level
