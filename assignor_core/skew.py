"""How uneven a load is: the one definition that trigger, planner, metrics and alerts share.

Measured on utilisation (load per capacity) where capacities are given. Brokers that are not alive are left out by the
caller or by `measure_skew`: their share is zero. An all-zero load is even, and one that is next to nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from assignor_core.errors import InputError
from assignor_core.load import NEGLIGIBLE, ClusterArrays, Floats, Ints, broker_loads, cluster_arrays, shares
from assignor_core.model import ClusterState
from assignor_core.resources import PLANNED


@dataclass(frozen=True, slots=True)
class Skew:
    """Figures of one resource; 1 and 0 and all zeros are even."""

    max_over_mean: float
    """Highest utilisation over mean utilisation."""
    coefficient_of_variation: float
    """Standard deviation of utilisation over its mean, brokers weighted by capacity."""
    deviation: Mapping[int, float]
    """Broker id: utilisation over mean utilisation, less 1."""


def skew_of(values: Mapping[int, float], capacities: Mapping[int, float] | None = None) -> Skew:
    """Skew of `values` by broker id; `capacities` has the same brokers. Raises InputError on an empty mapping.

    >>> skew_of({1: 58.0, 2: 25.0, 3: 37.0}).max_over_mean
    1.45
    >>> skew_of({1: 20.0, 2: 10.0}, {1: 2.0, 2: 1.0}).max_over_mean  # twice the load on twice the broker is even
    1.0
    """
    return _skew(*_loads_and_shares(values, capacities))


def relative_loads(values: Mapping[int, float], capacities: Mapping[int, float] | None = None) -> dict[int, float]:
    """Utilisation over mean utilisation by broker id, ascending; arguments and errors are those of `skew_of`.

    >>> relative_loads({1: 30.0, 2: 10.0})
    {1: 1.5, 2: 0.5}
    """
    brokers, loads, share = _loads_and_shares(values, capacities)
    return dict(zip(brokers, _relative(loads, share).tolist(), strict=True))


def relative_bounds(
    least: Mapping[int, float], most: Mapping[int, float], capacities: Mapping[int, float] | None = None
) -> dict[int, tuple[float, float]]:
    """Utilisation over mean utilisation by broker id, at least and at most, where each load is in [least, most].

    A broker is lowest where it has its least load and all others have their most, and highest the other way round.
    Arguments and errors are those of `skew_of`; both mappings have the same brokers.

    >>> relative_bounds({1: 30.0, 2: 10.0}, {1: 30.0, 2: 20.0})
    {1: (1.2, 1.5), 2: (0.5, 0.8)}
    """
    brokers, low, share = _loads_and_shares(least, capacities)
    high = np.array([most[broker] for broker in brokers], dtype=np.float64)
    lowest, highest = _relative_to_others(low, high, share), _relative_to_others(high, low, share)
    return {row: (float(lowest[at]), float(highest[at])) for at, row in enumerate(brokers)}


def measure_skew(cluster: ClusterState) -> dict[str, Skew]:
    """Skew of each resource over the brokers that are alive; of several windows, the most uneven one."""
    return skew_of_arrays(cluster_arrays(cluster))


def skew_of_arrays(
    arrays: ClusterArrays, replicas: Ints | None = None, excluded: Collection[int] = ()
) -> dict[str, Skew]:
    """`measure_skew` for arrays, under another placement where `replicas` is given.

    Brokers `excluded` are left out with what they carry, unless no other one is alive.
    """
    loads, share = broker_loads(arrays, replicas), shares(arrays)
    counted = arrays.alive & ~np.isin(arrays.broker_ids, sorted(excluded))
    counted = counted if counted.any() else arrays.alive
    share = share / np.where(share[counted].sum(axis=0) > 0, share[counted].sum(axis=0), 1.0)
    brokers = [broker for broker, counts in zip(arrays.broker_ids, counted, strict=True) if counts]
    if not brokers:
        return {resource: Skew(1.0, 0.0, MappingProxyType({})) for resource in PLANNED}
    worst: dict[str, Skew] = {}
    for column, resource in enumerate(arrays.columns.resources):
        skew = _skew(brokers, loads[counted, column], share[counted, column])
        if resource not in worst or skew.max_over_mean > worst[resource].max_over_mean:
            worst[resource] = skew
    return worst


def _loads_and_shares(
    values: Mapping[int, float], capacities: Mapping[int, float] | None
) -> tuple[list[int], Floats, Floats]:
    """Broker ids, ascending, with the load of each and its share of all capacity."""
    if not values:
        raise InputError("skew: found no broker, at least one is needed")
    brokers = sorted(values)
    loads = np.array([values[broker] for broker in brokers], dtype=np.float64)
    if capacities is None:
        return brokers, loads, np.full(len(brokers), 1.0 / len(brokers))
    if missing := sorted(set(brokers) - capacities.keys()):
        raise InputError(f"skew: found no capacity of broker {missing[0]}, every broker or none must have one")
    weights = np.array([capacities[broker] for broker in brokers])
    if not (weights > 0).all():
        raise InputError("skew: found a capacity that is not above 0")
    return brokers, loads, weights / weights.sum()


def _relative(loads: Floats, share: Floats) -> Floats:
    """Utilisation over mean utilisation; `share` sums to 1 and has no zero."""
    total = loads.sum()
    return loads / (total * share) if total > NEGLIGIBLE else np.ones_like(loads)


def _relative_to_others(loads: Floats, others: Floats, share: Floats) -> Floats:
    """Utilisation over mean utilisation of each broker beside `others`, the loads that the other brokers have then."""
    totals = loads + np.maximum(0.0, others.sum() - others)
    return np.where(totals > NEGLIGIBLE, loads / np.maximum(totals, NEGLIGIBLE) / share, 1.0)


def _skew(brokers: list[int], loads: Floats, share: Floats) -> Skew:
    relative = _relative(loads, share)
    variation = float(np.sqrt((share * (relative - 1.0) ** 2).sum()))
    deviation = {broker: float(value) - 1.0 for broker, value in zip(brokers, relative, strict=True)}
    return Skew(float(relative.max()), variation, MappingProxyType(deviation))
