"""Proven lower bounds: how even a placement can be at best, and what stands in the way of better.

Six arguments, and the highest wins. A replica can't be split, so some broker carries at least the heaviest one. Of n
equal brokers and the n + 1 heaviest replicas two share a broker, by pigeonhole; likewise where brokers are unequal, and
for any number of the heaviest (`level_of_heaviest`). And racks have to spread, so those with
few brokers carry more than their share (`forced_share`). On few brokers the heaviest partition leaves less room for the
others than these need (`level_beside_heaviest`). What consumers read in their racks stays there (`read_levels`). What
lives in a set of brokers loads these (`set_shares`). The bounds are cheap and not tight: a small gap proves that a plan
is good, a large one does not prove that a better one exists.

Invariants: each bound holds for every placement that keeps the hard rules, whatever the search does. Where a rule can't
be kept, what rests on it is not claimed: a bound too low is useless, one too high is a lie. The module moves nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, has_source
from assignor_core.planner.placement import Flags, Placement
from assignor_core.planner.proportions import least_that_suffices
from assignor_core.planner.rack_replicas import RackReplicas, replicas_by_rack
from assignor_core.planner.read_levels import levels_alone
from assignor_core.planner.set_shares import levels_of_sets
from assignor_core.resources import Resource

FOLLOWED = (Resource.BYTES_IN, Resource.DISK, Resource.REPLICAS)
"""Resources that every replica loads alike, leader or not."""
COPIED = (Resource.BYTES_IN, Resource.DISK)
"""Resources of `FOLLOWED` in which partitions differ."""
HEAVIEST_PER_BROKER = 32
"""Heaviest replicas that are looked at for each broker. Of n places for equal replicas one more weighs 1 / n,
which beyond 32 is less than the usual band."""
HEAVY = 0.25
"""A partition is heavy if one replica takes this part of what the largest broker should carry."""
BROKERS_MAX = 64
"""With more brokers one partition forces little on the others."""
STEPS = 80
"""Halvings of the interval of the level beside the heaviest, which reaches to 1 / the least share of a broker."""


def forced_share(arrays: ClusterArrays, placement: Placement, share: Floats) -> Floats:
    """B x C fraction of the whole that brokers carry at best, since the racks around them can't hold more.

    Spread evenly, each rack holds the same number of replicas of a partition or one more, however many brokers it has;
    fewer only where it has no more brokers. So the smallest racks together are left with a least load. Columns that
    follow leadership are not forced.

    Brokers 1 to 3 stand in racks a, b, b. Each rack must hold one of two replicas: broker 1 carries half, not a third.

    >>> state = state_of((1, 2), (1, 3), racks="abb")
    >>> arrays, share = state.problem.arrays, state.problem.share
    >>> forced_share(arrays, state.placement, share)[:, arrays.columns.of(Resource.DISK)].round(3).tolist()
    [[0.5], [0.333], [0.333]]
    """
    forced = np.zeros_like(share)
    if not arrays.alive.any() or not arrays.partitions:
        return forced
    spread = replicas_by_rack(arrays)
    can_move = has_source(arrays)
    parts = [(arrays.alive, np.ones(len(spread.sets), dtype=np.bool_))]
    if arrays.sets is not None:
        # The racks of a set's brokers hold what lives in the set.
        rows = np.unique(spread.sets[spread.sets > 0])
        parts += [(arrays.alive & arrays.sets.members[row], spread.sets == row) for row in rows]
    for column in arrays.columns.of(*FOLLOWED):
        loads = spread.sums(np.where(can_move, placement.following[:, column], 0.0))
        for brokers, kinds in parts:
            _raise_in_racks(forced[:, column], arrays, spread, loads * kinds, share[:, column], brokers)
    return forced


def _raise_in_racks(
    forced: Floats, arrays: ClusterArrays, spread: RackReplicas, loads: Floats, share: Floats, brokers: Flags
) -> None:
    """Raise what is `forced` (B) on `brokers` (B) to what their racks must hold of `loads` (F, of one replica)."""
    at = np.flatnonzero(np.isin(spread.racks, arrays.racks[brokers]))
    capacity = np.array([share[brokers & (arrays.racks == rack)].sum() for rack in spread.racks[at]])
    order = np.argsort(capacity, kind="stable")
    fewest = np.cumsum(spread.lowest[:, at[order]], axis=1)
    most = np.cumsum(spread.highest[:, at[order]], axis=1)
    for count in range(1, len(at) + 1):
        # By kind, the least that these `count` racks hold: their own minimum, or what the others leave.
        left = spread.factors - (most[:, -1] - most[:, count - 1])
        held = np.maximum(fewest[:, count - 1], left)
        level = float((loads * held).sum()) / capacity[order[:count]].sum()
        inside = brokers & np.isin(arrays.racks, spread.racks[at[order[:count]]])
        forced[inside] = np.maximum(forced[inside], level * share[inside])


def lower_bounds(arrays: ClusterArrays, placement: Placement, share: Floats, *, crowded: bool) -> dict[str, float]:
    """Resource: the least max over mean that any placement can have; of several windows, the highest.

    `crowded`: `placement` leaves racks that are not spread, or replicas outside their set of brokers. Then neither
    forces anything.
    """
    bounds: dict[str, float] = {}
    is_left_over = leaves_replicas_behind(arrays, placement)
    forced, sets = np.zeros_like(share), np.ones_like(share)
    if not is_left_over and not crowded:
        sets = levels_of_sets(arrays, placement, share, arrays.alive)
        forced = np.maximum(forced_share(arrays, placement, share), share * levels_alone(arrays, placement, share))
    for column, resource in enumerate(arrays.columns.resources):
        heaviest = 1.0 if is_left_over else _heaviest(arrays, placement, share, column)
        bound = max(1.0, heaviest, _from_racks(forced, share, column), float(sets[:, column].max(initial=1.0)))
        if resource in COPIED and not is_left_over and not crowded:
            bound = max(bound, level_beside_heaviest(arrays, placement, share, column))
        bounds[resource] = max(bound, bounds.get(resource, 1.0))
    return bounds


def leaves_replicas_behind(arrays: ClusterArrays, placement: Placement) -> bool:
    """Whether `placement` leaves replicas on brokers that must end empty.

    What they carry is in nobody's share, and the heaviest replica may be among it, so no bound can be claimed.
    """
    return any(len(placement.held_by(int(broker))) for broker in np.flatnonzero(~arrays.alive))


def _heaviest(arrays: ClusterArrays, placement: Placement, share: Floats, column: int) -> float:
    """What places for the heaviest replicas force, and that two of the n+1 heaviest share one of n brokers."""
    largest = share[:, column].max(initial=0.0)
    if largest <= 0 or len(arrays.partitions) == 0:
        return 1.0
    loads = _replica_loads(arrays, placement, column)
    given = share[share[:, column] > 0, column]
    bound = level_of_heaviest(loads, given)
    if len(loads) > len(given):
        top = -np.partition(-loads, len(given))[: len(given) + 1]
        bound = max(bound, float(np.sort(top)[:2].sum() / largest))
    return bound


def level_of_heaviest(loads: Floats, share: Floats) -> float:
    """The least level at which brokers with `share` (B) have places for the heaviest of `loads` (of replicas).

    At a level a broker holds only so many replicas of at least some load. Of the k heaviest each has at least the load
    of the last one, so the level is where there are k places for replicas of that load; the highest over k counts.

    Four replicas of a quarter each; broker 1 should carry half, and the others a quarter. All find a place at level 1.
    Of five replicas of a fifth one has to be the third on broker 1, or the second on another:

    >>> share = np.array([0.5, 0.25, 0.25])
    >>> [round(level_of_heaviest(np.full(count, 1 / count), share), 6) for count in (4, 5)]
    [1.0, 1.2]
    """
    count = min(len(loads), HEAVIEST_PER_BROKER * len(share))
    heaviest = -np.sort(np.partition(-loads, count - 1)[:count])
    # With so many places in all, each of the `count` heaviest has one: rounding down loses less than one a broker.
    places = np.floor((count + len(share)) / share.sum() * share).astype(np.int64)
    number = np.arange(places.sum()) - np.repeat(np.cumsum(places) - places, places) + 1
    levels = np.sort(number / np.repeat(share, places))[:count]
    return float((heaviest * levels).max(initial=0.0))


def _replica_loads(arrays: ClusterArrays, placement: Placement, column: int) -> NDArray[np.float64]:
    """One figure for each replica that loads this column; leadership's columns have one a partition."""
    followers = (arrays.replicas != NO_BROKER).sum(axis=1) - 1
    following = np.repeat(placement.following[:, column], np.maximum(followers, 0))
    return np.concatenate((placement.leading[:, column], following))


def _from_racks(forced: Floats, share: Floats, column: int) -> float:
    given = share[:, column] > 0
    return float((forced[given, column] / share[given, column]).max(initial=1.0))


def level_beside_heaviest(arrays: ClusterArrays, placement: Placement, share: Floats, column: int) -> float:
    """The least max over mean of a load that comes with every replica, beside the partition that is heaviest in it.

    On few brokers one partition may take most of what several of them can carry. What is left must fit on the others;
    but these hold at most one replica of each partition, and their racks at most their part of it. So the brokers of
    the heavy partition may have to carry more than its replica, and what is least follows from where it lies at best.
    Whole replicas and the choice of each rack's brokers are relaxed, which makes the level lower.

    Four brokers without racks, and two partitions on two of them each. Partition 0 is 8 of 10 parts: a broker with it
    carries 4 tenths of the load, 1.6 fair shares, and the other two take all of partition 1.

    >>> state = state_of((1, 2), (1, 2), loads=(8.0, 2.0), brokers=4)
    >>> disk = int(state.placement.arrays.columns.of(Resource.DISK)[0])
    >>> round(level_beside_heaviest(state.placement.arrays, state.placement, state.problem.share, disk), 6)
    1.6
    """
    loads = placement.following[:, column]
    largest = float(share[:, column].max(initial=0.0))
    count = int(arrays.alive.sum())
    if not len(loads) or not 0 < count <= BROKERS_MAX or loads.max() < HEAVY * largest:
        return 1.0
    case = _heaviest_beside(arrays, loads, share[:, column])
    highest = max(1.0, 1.0 / float(share[arrays.alive, column].min()))
    return least_that_suffices(case.fits, highest=highest, steps=STEPS) if case.fits(highest) else 1.0


class _Heaviest(NamedTuple):
    """The heaviest partition, and all others together; K racks."""

    shares: list[Floats]
    """By rack, the shares of its brokers."""
    load: float
    """Load of one replica of the heaviest partition."""
    lowest: Ints
    """K fewest replicas of the heaviest partition in each rack."""
    highest: Ints
    """K most replicas of the heaviest partition in each rack."""
    replicas: int
    others_once: float
    """One replica of each other partition: the most that a broker holds of them."""
    others_most: Floats
    """K most of their loads in each rack."""
    others: float
    """Load of all replicas of the other partitions."""

    def fits(self, level: float) -> bool:
        """Whether brokers at `level` have room for all, wherever the heaviest lies."""
        if int(self.lowest.sum()) > self.replicas:
            return False
        fewest, differences = [], []
        for rack, share in enumerate(self.shares):
            room = np.minimum(level * share, self.others_once)
            beside = np.where(level * share >= self.load, np.minimum(level * share - self.load, room), -np.inf)
            lost = np.concatenate(([0.0], np.cumsum(np.sort(room - beside))))
            low, high = (
                min(float(self.others_most[rack]), float(room.sum() - lost[int(count[rack])]))
                for count in (self.lowest, self.highest)
            )
            fewest.append(low)
            if self.highest[rack] > self.lowest[rack]:
                differences.append(low - high)
        more = self.replicas - int(self.lowest.sum())
        if not np.isfinite(fewest).all() or more > len(differences):
            return False
        return sum(fewest) - sum(sorted(differences)[:more]) >= self.others


def _heaviest_beside(arrays: ClusterArrays, loads: Floats, share: Floats) -> _Heaviest:
    """The heaviest partition by `loads` (P, of one replica), on brokers with `share` (B)."""
    spread = replicas_by_rack(arrays)
    heaviest = int(np.argmax(loads))
    others = loads.copy()
    others[heaviest] = 0.0
    by_factor = spread.sums(others)
    at = spread.factor_of[heaviest]
    return _Heaviest(
        shares=[share[arrays.alive & (arrays.racks == rack)] for rack in spread.racks],
        load=float(loads[heaviest]),
        lowest=spread.lowest[at],
        highest=spread.highest[at],
        replicas=min(int(spread.factors[at]), int(arrays.alive.sum())),
        others_once=float(others.sum()),
        others_most=(by_factor[:, None] * spread.highest).sum(axis=0),
        others=float((by_factor * spread.factors).sum()),
    )
