"""What a plan may change, from a cluster and a policy: the hard rules as arrays, and how a placement is judged.

Hard rules: no second replica of a partition on a broker, racks never worse, capacities, who may take, give or lead.
`repair` keeps them, and the search has them as walls (`round_task`). Room on disks counts with the budgets, since what
is copied uses it up.

What a plan gains is one figure, a sum over brokers and columns of the squared excess over the goal in fair
shares. Squared, because the worst broker decides how much a cluster can take; one sum, because a movement shifts all
loads at once and must be judged by all of them. As it is a sum over brokers, an edit is judged by the two it concerns.

Four lines for each broker and column: `share` is what is fair; above `limit` (share and band) a broker needs relief;
above `goal`, a little lower, a load counts in the gain; `ceiling` (capacity) is what it never exceeds.

Invariants: goal <= limit <= ceiling; brokers that must end empty have share 0 and no objective. Nothing here changes a
placement.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assignor_core.broker_sets import any_broker
from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, broker_loads, has_source, shares
from assignor_core.planner.bounds import forced_share
from assignor_core.planner.placement import Flags, Indices, Placement, on_grid
from assignor_core.planner.policy import COUNT_BAND, PlannerPolicy
from assignor_core.planner.proportions import levels_of_proportions
from assignor_core.planner.read_levels import levels_of_reads
from assignor_core.planner.set_shares import holders_possible, shares_within_sets, with_sets
from assignor_core.planner.topic_spread import SpreadTopics, spread_topics
from assignor_core.racks import least_spread
from assignor_core.resources import MEASURED, Resource

PULL = 1e-5
"""Weight of plain evenness beside the excess over the limit: it picks the emptier of two brokers within the band."""
COUNT_WEIGHT = 0.1
"""Weight of leaders and replicas, whose cap is soft, beside that of loads."""
FORCED_BAND = 1 / 6
"""Part of the band that brokers get on top of the load that small racks force on them: there every bit counts."""
EDGE = 1e-3
"""Fraction of the band kept clear, so that rounding never puts a broker just above it."""
SHARE_LEAST = 1e-9
"""Fair share of an excluded broker without load: the figures of a broker without a share would be divided by 0."""
SLACK = 0.05
"""Fraction of the band kept clear below the limit, from where on a load counts in what a plan gains."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Rules and aims, B brokers, P partitions, C columns; loads are fractions of the cluster's total."""

    arrays: ClusterArrays
    policy: PlannerPolicy
    has_source: Flags
    """P: a replica is in sync and on a broker that is not dead, so there is something to copy from."""
    movable: Flags
    """P: may be touched."""
    may_balance: Flags
    """P: may be moved for balance; what is movable beside these only keeps hard rules."""
    may_give: Flags
    """B: replicas and leadership may leave, for balance or to empty it."""
    may_take: Flags
    """B: may receive replicas; not without room on its disks, not even what is empty: sizes are from a look before."""
    may_lead: Flags
    """B: may become leader of what they hold."""
    share: Floats
    """B x C fair part of the whole, as the sets of brokers allow it; 0 for a broker that must end empty."""
    even_share: Floats
    """B x C fair part of the whole if each broker could hold everything; figures of a plan are in these."""
    goal: Floats
    """B x C load above which it counts in what a plan gains."""
    limit: Floats
    """B x C load that a broker should not exceed: above it, it is relieved."""
    ceiling: Floats
    """B x C load that a broker must not exceed: its capacity; infinite where none is given."""
    weight: Floats
    """C weights of the objective."""
    level: Floats
    """B x C what brokers of unequal proportions force, in fair shares (`proportions`); 1 where they force nothing."""
    read_level: Floats
    """B x C what consumers force that read in their racks, in fair shares (`read_levels`); 1 where nothing."""
    leader_ranks: tuple[tuple[Flags, Indices], ...]
    """For each entry of `leader_racks` its partitions (P) and, by broker (B), how many racks are wanted more."""
    spread: SpreadTopics
    """Topics that should be spread over brokers."""

    def worst_excess(self, loads: Floats) -> float:
        """How far the worst broker is above its limit in the worst load, in fair shares; counts are not looked at."""
        columns = ~self.arrays.columns.counts
        share = self.share[self.arrays.alive][:, columns]
        excess = loads[self.arrays.alive][:, columns] - self.limit[self.arrays.alive][:, columns]
        return float((np.maximum(excess, 0.0) / share).max(initial=0.0))

    @property
    def leaving(self) -> Indices:
        """Brokers that must end empty and may be touched."""
        return np.flatnonzero(~self.arrays.alive & self.may_give)

    def cost(self, loads: Floats, brokers: Indices | int) -> Floats:
        """Objective of `brokers` under `loads` (... x C): excess over the goal squared, and a pull to even."""
        share = self.share[brokers]
        excess = np.maximum(loads - self.goal[brokers], 0.0) / share
        away = loads / share - 1.0
        return weighted(excess * excess + PULL * away * away, self.weight)

    def total_cost(self, loads: Floats) -> float:
        """Objective of the whole cluster under `loads` (B x C): what the gains of a plan are measured by."""
        brokers = np.flatnonzero(self.share.any(axis=1))
        return float(self.cost(loads[brokers], brokers).sum())

    def new_holders_possible(self, placement: Placement, partitions: Indices) -> Indices:
        """N: brokers in use that hold a replica of each partition or may by the policy, however full they are."""
        sets = self.arrays.sets or any_broker(len(self.may_lead), len(self.movable))
        rows = sets.set_of[partitions]
        return holders_possible(self.arrays, self.policy, sets, placement.replicas[partitions], rows)

    def crowded(self, replicas: Ints) -> Flags:
        """P: `replicas` (P x R) are less evenly spread over racks than the alive brokers of the racks allow.

        >>> state = state_of((1, 2), (1, 3), racks="aab")
        >>> state.problem.crowded(state.placement.replicas).tolist()
        [True, False]

        With fewer brokers alive than replicas no spread is possible at all: that is no matter of racks.
        """
        replication, crowding = (replicas != NO_BROKER).sum(axis=1), self.crowding(replicas)
        crowded: Flags = np.zeros(len(replicas), dtype=np.bool_)
        sets = self.arrays.sets
        for number, members in enumerate((self.arrays.alive,) if sets is None else sets.members & self.arrays.alive):
            sizes = np.bincount(self.arrays.racks[members])
            least = np.array([least_spread(factor, sizes.tolist()) for factor in range(replicas.shape[1] + 1)])
            of_set = (crowding > least[replication]) & (replication <= sizes.sum())
            crowded |= of_set if sets is None else of_set & (sets.set_of == number)
        return crowded

    def misplaced(self, replicas: Ints) -> Flags:
        """P: a broker outside the partition's set holds one of `replicas` (P x R)."""
        sets = self.arrays.sets
        misplaced: Flags = np.zeros(len(replicas), dtype=np.bool_)
        if sets is not None:
            misplaced = np.any(sets.outside(replicas), axis=1)
        return misplaced

    def crowding(self, replicas: Ints) -> NDArray[np.int64]:
        """P: sum of squared replicas by rack. That is how many ordered pairs of replicas are in one rack, so counting
        pairs needs no column for each rack: without racks there are as many as brokers."""
        held, racks = replicas != NO_BROKER, self.arrays.racks[replicas]
        squares: NDArray[np.int64] = held.sum(axis=1)
        for slot in range(1, replicas.shape[1]):
            for other in range(slot):
                squares += 2 * (held[:, slot] & held[:, other] & (racks[:, slot] == racks[:, other]))
        return squares

    def rack_counts(self, replicas: Ints, source: int) -> NDArray[np.int64]:
        """N x racks: replicas of each partition in each rack, that on `source` left out."""
        rows = np.arange(len(replicas))
        counts = np.zeros((len(replicas), int(self.arrays.racks.max()) + 1), dtype=np.int64)
        for slot in range(replicas.shape[1]):
            counted = (replicas[:, slot] >= 0) & (replicas[:, slot] != source)
            counts[rows[counted], self.arrays.racks[replicas[counted, slot]]] += 1
        return counts


class Search(NamedTuple):
    """What one search works on."""

    problem: Problem
    placement: Placement
    """The best placement so far, which becomes the plan; mutable."""


def weighted(values: Floats, weight: Floats) -> Floats:
    """Sum over the last axis, times `weight`, column by column: a product of matrices rounds as the machine likes."""
    products = values * weight
    total: Floats = products[..., 0]
    for column in range(1, len(weight)):
        total = total + products[..., column]
    return total


def problem_of(arrays: ClusterArrays, policy: PlannerPolicy, placement: Placement) -> Problem:
    """The rules of `policy` on `arrays`; without any load counts are the load, and have the band of loads."""
    ids = np.array(arrays.broker_ids)
    is_idle = not placement.scale[~arrays.columns.counts].any()
    if is_idle and policy.count_band == COUNT_BAND:
        policy = replace(policy, count_band=policy.band)
    excluded = np.isin(ids, sorted(policy.excluded_brokers))
    may_lead = arrays.alive & ~excluded
    has_room = arrays.disk_room_bytes > 0
    may_take = may_lead & has_room & np.isin(ids, sorted(policy.add)) if policy.add else may_lead & has_room
    may_give = ~excluded
    if policy.only_brokers:
        may_give &= np.isin(ids, sorted(policy.only_brokers))
    sources = has_source(arrays)
    movable = _movable(arrays, policy) & sources
    arrays = with_sets(arrays, policy, movable)
    even_share = share = fair_shares(arrays, policy, placement)
    if arrays.sets is not None:
        share = shares_within_sets(arrays, placement, even_share, may_lead)
    ceiling = _ceiling(arrays, policy, placement)
    band = np.array([policy.band_of(resource) for resource in arrays.columns.resources])
    forced = forced_share(arrays, placement, share)
    level = levels_of_proportions(arrays, placement, share)
    attainable_level = np.maximum(level, _read_level_as_placed(arrays, placement, share))

    def within(part: float) -> Floats:
        """B x C load at this part of the band."""
        aim = np.maximum(share * attainable_level * (1.0 + band * part), forced * (1.0 + band * part * FORCED_BAND))
        return np.minimum(aim, ceiling)

    return Problem(
        arrays=arrays,
        policy=policy,
        has_source=sources,
        movable=movable,
        may_balance=movable & ~_pinned(arrays, policy),
        may_give=may_give,
        may_take=may_take,
        may_lead=may_lead,
        share=share,
        even_share=even_share,
        goal=within(1.0 - SLACK),
        limit=within(1.0 - EDGE),
        ceiling=ceiling,
        weight=np.where(arrays.columns.counts & (not is_idle), COUNT_WEIGHT, 1.0),
        level=level,
        read_level=levels_of_reads(arrays, placement, share),
        leader_ranks=tuple(_leader_ranks(arrays, policy)),
        spread=spread_topics(arrays, policy, may_lead),
    )


def in_sets(arrays: ClusterArrays, policy: PlannerPolicy) -> ClusterArrays:
    """`arrays` with the sets of brokers that `policy` has for partitions that it lets move."""
    return with_sets(arrays, policy, _movable(arrays, policy) & has_source(arrays)) if policy.broker_sets else arrays


def in_even_shares(problem: Problem, placement: Placement) -> Problem:
    """`problem` with the levels of fair shares that know no sets of brokers: for bounds in the figures of a plan."""
    arrays, share = problem.arrays, problem.even_share
    return replace(
        problem,
        share=share,
        level=levels_of_proportions(arrays, placement, share),
        read_level=levels_of_reads(arrays, placement, share),
    )


def _leader_ranks(arrays: ClusterArrays, policy: PlannerPolicy) -> Iterator[tuple[Flags, Indices]]:
    names = [arrays.rack_names[rack] for rack in arrays.racks]
    for topics, racks in policy.leader_racks:
        wanted = [f"rack {rack}" for rack in racks]
        ranks = [wanted.index(name) if name in wanted else len(wanted) for name in names]
        partitions = np.array([row.topic in topics for row in arrays.partitions], dtype=np.bool_)
        yield partitions, np.array(ranks, dtype=np.int64)


def fair_shares(arrays: ClusterArrays, policy: PlannerPolicy, placement: Placement) -> Floats:
    """B x C fair part of the whole of each broker, under the exclusions of `policy`.

    What dead brokers keep, as nothing is left to copy it from, counts in nobody's fair share.
    """
    excluded = np.isin(arrays.broker_ids, sorted(policy.excluded_brokers))
    return share_of_participants(shares(arrays), placement, excluded & arrays.alive, without_source(arrays))


def share_of_participants(
    share: Floats, placement: Placement, excluded: Flags, without_source: Floats | float = 0.0
) -> Floats:
    """B x C fair shares if the brokers `excluded` keep what they carry: all others divide the rest as `share` does.

    `without_source` is the part of the whole (C) that no broker can take.

    >>> placement = state_of((1,), (1,), (3,), (3,), brokers=3).placement
    >>> even = np.full_like(placement.loads, 1 / 3)
    >>> share_of_participants(even, placement, np.array([False, False, True]))[:, 0].tolist()
    [0.25, 0.25, 0.5]
    """
    if not excluded.any() and not np.any(without_source):
        return share
    own = np.maximum(placement.loads[excluded], SHARE_LEAST)
    others = share[~excluded].sum(axis=0)
    left = np.maximum(1.0 - placement.loads[excluded].sum(axis=0) - without_source, SHARE_LEAST)
    divided = np.where(others > 0, share * left / np.where(others > 0, others, 1.0), share)
    divided[excluded] = own
    return divided


def without_source(arrays: ClusterArrays) -> Floats:
    """C: part of the whole that dead brokers hold of partitions that nothing is left of elsewhere."""
    if not arrays.dead.any():
        return np.zeros(arrays.leader_load.shape[1])
    loads = broker_loads(arrays)
    whole = loads.sum(axis=0)
    stay = np.where(has_source(arrays)[:, None], NO_BROKER, arrays.replicas)
    kept: Floats = broker_loads(arrays, stay)[arrays.dead].sum(axis=0) / np.where(whole > 0, whole, 1.0)
    return kept


def _read_level_as_placed(arrays: ClusterArrays, placement: Placement, share: Floats) -> Floats:
    """B x C: as `levels_of_reads`; who must lead more than its part leads more partitions, too."""
    level, columns = levels_of_reads(arrays, placement, share, stay_where_they_are=True), arrays.columns
    level[:, columns.of(Resource.LEADERS)] = level[:, columns.of(Resource.LEADER_BYTES_IN)].max(axis=1, keepdims=True)
    return level


def _movable(arrays: ClusterArrays, policy: PlannerPolicy) -> Flags:
    only, excluded = policy.only_topics, policy.excluded_topics
    if not only and not excluded:
        return np.ones(len(arrays.partitions), dtype=np.bool_)
    topics = (partition.topic for partition in arrays.partitions)
    return np.array([(not only or topic in only) and topic not in excluded for topic in topics], dtype=np.bool_)


def _pinned(arrays: ClusterArrays, policy: PlannerPolicy) -> Flags:
    pinned = policy.pinned_partitions
    unknown = np.array([not row.is_load_known for row in arrays.partitions], dtype=np.bool_)
    if not pinned:
        return unknown
    return unknown | np.array([row.key in pinned for row in arrays.partitions], dtype=np.bool_)


def _ceiling(arrays: ClusterArrays, policy: PlannerPolicy, placement: Placement) -> Floats:
    """Capacity in fractions of the total; leadership has no capacity of its own, a load that nobody has no limit. Most
    replicas of a broker are its capacity of these.
    """
    ceiling = np.full((len(arrays.broker_ids), len(arrays.columns)), np.inf)
    for resource in MEASURED:
        usable = arrays.capacity_for(resource) * (1.0 - policy.headroom)
        for column in arrays.columns.of(resource):
            if placement.scale[column] > 0:
                ceiling[:, column] = np.where(np.isfinite(usable), on_grid(usable * placement.scale[column]), np.inf)
    if policy.replicas_max is not None:
        # Halfway to the next replica: a sum of fractions is a little off.
        columns = arrays.columns.of(Resource.REPLICAS)
        ceiling[:, columns] = (policy.replicas_max + 0.5) * placement.scale[columns]
    return ceiling
