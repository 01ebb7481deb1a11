"""Figures drawn from a replay: what is left of each broker's capacity, what moving can't help, and how many brokers the
present growth asks for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from assignor_core.load import ClusterArrays, cluster_arrays
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import problem_of
from assignor_core.replays.history import BYTES_IN_AT, BYTES_OUT_AT, RecordedHistory
from assignor_core.replays.placed_cluster import SHOWN, PlacedCluster, ReplayedHours
from assignor_core.resources import Resource

DAY_HOURS = 24
DAYS_AHEAD = (30, 90, 180, 365)
DAYS_MIN = 4
"""Fewer days show no growth."""
DAYS_MAX = 400
PER_DAY_MAX = 1e9
"""A load that rose from a byte to a gigabyte in a day; beyond that a month's growth is no number any more."""
BROKERS_MAX = 1_000_000
"""Stands for all that is more."""
QUANTILE_80 = 1.2816
"""80 % of a normal distribution lie within so many standard deviations."""
NO_CAPACITY = Capacity()


@dataclass(frozen=True, slots=True)
class Headroom:
    """What is left of one broker's capacity of one resource in its worst hour of the replay's last day."""

    broker: int
    resource: str
    load: float
    capacity: float

    @property
    def left_share(self) -> float:
        """Share of the capacity that is left; below 0 where the load is above it."""
        return 1.0 - self.load / self.capacity


@dataclass(frozen=True, slots=True)
class Growth:
    """Change of the load by day, as a ratio; `low` and `high` hold it with a likelihood of 80 %."""

    per_day: float
    low: float
    high: float
    days: int
    """Days that it rests on."""


@dataclass(frozen=True, slots=True)
class BrokersNeeded:
    """Brokers that a resource asks for so many days from now: at least, most likely, at most."""

    days_ahead: int
    resource: str
    low: int
    likely: int
    high: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The least that the most loaded broker carries under any placement, in the hour with most bytes in."""

    resource: str
    max_over_mean: float
    load: float


def headroom(
    replayed: ReplayedHours, capacities: Mapping[int, Capacity], disk_bytes: Mapping[int, int | None]
) -> tuple[Headroom, ...]:
    """Returns headroom by broker that is alive and resource, where the capacity is known; those with least left first.

    `disk_bytes` is the size of each broker's volumes, where `capacities` do not give another.
    """
    rows = []
    for resource in SHOWN:
        loads = replayed.broker_load[resource][-DAY_HOURS:]
        alive, worst = ~np.isnan(loads[-1]), np.nanmax(loads, axis=0, initial=0.0)
        for broker, load in zip(np.array(replayed.broker_ids)[alive].tolist(), worst[alive].tolist(), strict=True):
            capacity = _capacity(resource, broker, capacities, disk_bytes)
            if capacity:
                rows.append(Headroom(broker, resource.value, load, float(capacity)))
    return tuple(sorted(rows, key=lambda row: (row.left_share, row.resource, row.broker)))


def growth_of(totals: Sequence[float]) -> Growth | None:
    """Growth of daily totals, oldest first; None for fewer than `DAYS_MIN` days with a load.

    The median of the slopes between all pairs of days, of the logarithms of the loads. The range is that of the ranks
    of these slopes (P. K. Sen, Journal of the American Statistical Association 63, 1968). The rhythm of a week is part
    of the range: it is wide where there are few weeks.

    >>> growth = growth_of([100.0, 101.0, 102.01, 103.0301, 104.060401])
    >>> round(growth.per_day, 4), round(growth.low, 4), round(growth.high, 4)
    (1.01, 1.01, 1.01)
    """
    loads = np.array(totals[-DAYS_MAX:], dtype=np.float64)
    days = np.flatnonzero(loads > 0)
    count = len(days)
    if count < DAYS_MIN:
        return None
    logs = np.log(loads[days])
    one, other = np.triu_indices(count, 1)
    slopes = np.sort((logs[other] - logs[one]) / (days[other] - days[one]))
    half = QUANTILE_80 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18) / 2
    center = (len(slopes) - 1) / 2
    low, high = (int(np.clip(round(center + sign * half), 0, len(slopes) - 1)) for sign in (-1, 1))
    middle, least, most = (_per_day(float(slope)) for slope in (np.median(slopes), slopes[low], slopes[high]))
    return Growth(middle, least, most, count)


def _per_day(slope: float) -> float:
    return math.exp(min(slope, math.log(PER_DAY_MAX)))


def times_more(recorded: RecordedHistory, assumed: RecordedHistory, away: frozenset[int]) -> dict[Resource, float]:
    """How many times what it carries in the record a mean broker carries as assumed, before anything moves."""
    before, after = _carried(recorded), _carried(assumed, away)
    return {resource: after[resource] / load for resource, load in before.items() if load and after[resource]}


def _carried(history: RecordedHistory, away: frozenset[int] = frozenset()) -> dict[Resource, float]:
    """What the mean broker of those that are not away carries in the worst hour of the last day, by resource.

    Nothing is taken as lost with those that are away. Three brokers, of which two hold a partition of 6 MB/s and of
    120 MB, without consumers:

    >>> from assignor_core.replays.history import HistoryBroker
    >>> brokers = tuple(map(HistoryBroker, (1, 2, 3)))
    >>> rates = np.array([[[6e6, 0.0]]])
    >>> history = RecordedHistory("c", brokers, (("t", 0),), ((1, 2),), np.array([120e6]), (0,), rates)
    >>> {resource.value: load / 1e6 for resource, load in _carried(history).items()}
    {'bytes_in': 4.0, 'bytes_out': 2.0, 'disk': 80.0}
    """
    cluster = PlacedCluster(history, frozenset())
    hours = [cluster.loads(hour) for hour in range(len(history.hour_start_ms))[-DAY_HOURS:]]
    count = len(history.brokers) - len(away)
    return {resource: max(float(loads[resource].sum()) for loads in hours) / count for resource in SHOWN}


def brokers_needed(
    replayed: ReplayedHours,
    growth: Growth,
    capacities: Mapping[int, Capacity],
    disk_bytes: Mapping[int, int | None],
    more: Mapping[Resource, float] = MappingProxyType({}),
) -> tuple[BrokersNeeded, ...]:
    """Brokers by date and resource: as many as carry the worst hour of the last day, grown, evenly.

    A broker carries the mean capacity of those that are there; where one's capacity is unknown, what the mean broker
    carries in the record: `replayed` assumes `more` times of it. Disks are taken to grow as traffic does. After a steep
    rise no more than BROKERS_MAX are named.
    """
    rows = []
    for resource in SHOWN:
        loads = replayed.broker_load[resource][-DAY_HOURS:]
        alive = ~np.isnan(loads[-1])
        total = float(np.nansum(loads, axis=1).max())
        known = [_capacity(resource, broker, capacities, disk_bytes) for broker in np.array(replayed.broker_ids)[alive]]
        sized = [capacity for capacity in known if capacity]
        recorded = total / len(known) / more.get(resource, 1.0)
        each = sum(sized) / len(sized) if len(sized) == len(known) else recorded
        if total <= 0:
            continue
        for days in DAYS_AHEAD:
            low, likely, high = (
                _brokers(total / each, rate, days) for rate in (growth.low, growth.per_day, growth.high)
            )
            rows.append(BrokersNeeded(days, resource.value, low, likely, high))
    return tuple(rows)


def _brokers(now: float, per_day: float, days: int) -> int:
    with np.errstate(over="ignore"):  # what is no number any more is infinite
        then = now * np.float64(per_day) ** days
    return math.ceil(round(float(min(then, BROKERS_MAX)), 6))


def bounds(
    history: RecordedHistory,
    replayed: ReplayedHours,
    away: frozenset[int],
    capacities: Mapping[int, Capacity] = MappingProxyType({}),
) -> tuple[Bound, ...]:
    """What no placement is below on the brokers of the end; of the hour with most bytes in. By resource.

    Where all have `capacities`, max/mean is of what is used of them, as elsewhere; the load is in bytes all the same.
    """
    arrays, levels = _levels(history, replayed, away, capacities)
    in_bytes = _levels(history, replayed, away, {})[1] if capacities else levels
    followers = (arrays.replicas >= 0).sum(axis=1, keepdims=True) - 1
    totals = (arrays.leader_load + arrays.follower_load * followers).sum(axis=0)
    alive = max(1, int(arrays.alive.sum()))
    return tuple(
        Bound(
            resource.value, levels[resource], in_bytes[resource] * float(totals[arrays.columns.of(resource)[0]]) / alive
        )
        for resource in SHOWN
    )


def _levels(
    history: RecordedHistory, replayed: ReplayedHours, away: frozenset[int], capacities: Mapping[int, Capacity]
) -> tuple[ClusterArrays, Mapping[str, float]]:
    """The cluster at the end with the loads of the hour with most bytes in, and the least max/mean by resource."""
    hour = int(history.total_bytes_in.argmax())
    brokers = tuple(
        Broker(
            row.broker_id, row.rack, _state(row.broker_id, history, away), capacities.get(row.broker_id, NO_CAPACITY)
        )
        for row in history.brokers
    )
    rates, sizes = history.rates[hour].tolist(), history.size_bytes.tolist()
    partitions = tuple(
        Partition(*key, replicas, PartitionLoad(row[BYTES_IN_AT], row[BYTES_OUT_AT], size))
        for key, replicas, row, size in zip(history.partitions, replayed.final_replicas, rates, sizes, strict=True)
    )
    arrays = cluster_arrays(ClusterState(history.cluster_name, 0, brokers, partitions))
    placement = Placement(arrays)
    problem = problem_of(arrays, PlannerPolicy(), placement)
    # The replay may leave racks that are not spread: then they force nothing.
    crowded = bool(problem.crowded(placement.replicas).any())
    return arrays, lower_bounds(arrays, placement, problem.share, crowded=crowded)


def _capacity(
    resource: Resource, broker: int, capacities: Mapping[int, Capacity], disk_bytes: Mapping[int, int | None]
) -> float | None:
    given: float | None = getattr(capacities.get(broker, NO_CAPACITY), resource.capacity_key)
    return disk_bytes.get(broker) if given is None and resource is Resource.DISK else given


def _state(broker: int, history: RecordedHistory, away: frozenset[int]) -> BrokerState:
    if broker in away:
        return BrokerState.DEAD
    return BrokerState.DRAINING if broker in history.drained else BrokerState.ALIVE
