"""What moving can't mend, in words: partitions heavier than a fair share, racks too small, brokers left above the band.

A plan that ends uneven must say why, or its reader looks for the fault in the planner. Heavy partitions and small racks
are causes by the same arguments as the bounds; what is left over after them is named with what the policy forbids.

Invariant: nothing is claimed that rests on a rule which the placement does not keep. The module changes nothing.
"""

import numpy as np

from assignor_core.load import Floats
from assignor_core.plan import SEARCH_ENDED, TAKE_NONE
from assignor_core.planner.bounds import FOLLOWED, forced_share, leaves_replicas_behind
from assignor_core.planner.effort import Effort
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.proportions import TOGETHER
from assignor_core.planner.read_levels import levels_alone
from assignor_core.resources import LOADS, Resource
from assignor_core.wording import first_named

EVEN = 1e-6
"""An excess below this is rounding."""
HEAVY_MAX = 5
"""Heavy partitions named, heaviest first."""
FULL_MAX = 5
"""Brokers without room named."""


def diagnose(problem: Problem, placement: Placement, effort: Effort) -> tuple[str, ...]:
    """One line for each cause; none that takes for granted what `placement` could not keep.

    >>> state = state_of((1,), (2,), loads=(9.0, 1.0))
    >>> diagnose(state.problem, state.placement, state.effort)[0]
    't-0 alone is 1.80 fair shares of leader bytes in: split it or change its key'
    """
    if not problem.arrays.alive.any() or not problem.arrays.partitions:
        return ()
    lines = [*_search_ended(effort), *_left_over(problem, placement, effort)]
    lines += _full_disks(problem)
    if leaves_replicas_behind(problem.arrays, placement):
        return tuple(lines)
    racks = [] if problem.crowded(placement).any() else [*_small_racks(problem, placement), *_reads(problem, placement)]
    return (*_heavy_partitions(problem, placement), *racks, *_proportions(problem), *lines)


def _proportions(problem: Problem) -> list[str]:
    """That brokers have more disk than network for their part, where that keeps both from being even."""
    columns = problem.arrays.columns
    network = max(TOGETHER, key=lambda resource: float(problem.level[:, columns.of(resource)].max()))
    forced = problem.level[:, columns.of(network)].max(axis=1)
    level = float(forced.max())
    if level <= 1 + EVEN:
        return []
    brokers = np.flatnonzero(forced >= level - EVEN)
    names = first_named(brokers.tolist(), FULL_MAX, lambda broker: str(problem.arrays.broker_ids[broker]))
    disk_part, network_part = (
        float(problem.share[brokers][:, columns.of(resource)[0]].sum()) for resource in (Resource.DISK, network)
    )
    who = f"broker {names} has" if len(brokers) == 1 else f"{len(brokers)} brokers ({names}) have"
    have = f"{who} {disk_part:.0%} of the disk and {network_part:.0%} of the network"
    least = f"no placement has both {network.words} and disk below {level:.3f} fair shares"
    return [f"{have}: {least}; add disk to the others, or network to these"]


def _heavy_partitions(problem: Problem, placement: Placement) -> list[str]:
    """Partitions that alone put a broker above the band."""
    heaviest: dict[int, tuple[float, str]] = {}
    for column, resource in enumerate(problem.arrays.columns.resources):
        largest = problem.share[:, column].max()
        if resource.is_count or largest <= 0:
            continue
        parts = placement.leading[:, column] / largest
        for partition in np.flatnonzero(parts > 1 + problem.policy.band_of(resource)):
            part = (float(parts[partition]), resource.words)
            heaviest[int(partition)] = max(heaviest.get(int(partition), (0.0, "")), part)
    ranked = sorted(heaviest.items(), key=lambda item: (-item[1][0], item[0]))
    lines = [
        f"{_name(problem, partition)} alone is {part:.2f} fair shares of {word}: split it or change its key"
        for partition, (part, word) in ranked[:HEAVY_MAX]
    ]
    if len(ranked) > HEAVY_MAX:
        lines.append(f"{len(ranked) - HEAVY_MAX} more partitions are alone heavier than a fair share and the band")
    return lines


def _small_racks(problem: Problem, placement: Placement) -> list[str]:
    """Racks whose brokers must carry more than a fair share, since each rack holds its part of every partition."""
    arrays = problem.arrays
    forced = forced_share(arrays, placement, problem.share)
    followed = arrays.columns.of(*(resource for resource in FOLLOWED if not resource.is_count))
    lines = []
    for rack in np.unique(arrays.racks[arrays.alive]):
        members = np.flatnonzero(arrays.alive & (arrays.racks == rack))
        part = float((forced[members][:, followed] / problem.share[members][:, followed]).max(initial=0.0))
        if part > 1 + EVEN:
            name = arrays.rack_names[rack]
            lines.append(
                f"{name} has {len(members)} of {int(arrays.alive.sum())} brokers, but replicas spread over racks put "
                f"{part:.3f} fair shares on each of them: add brokers to it"
            )
    return lines


def _reads(problem: Problem, placement: Placement) -> list[str]:
    """Racks whose consumers read so much from their brokers that bytes out or leaders can't be even."""
    arrays = problem.arrays
    columns = arrays.columns.of(Resource.BYTES_OUT)
    together = problem.read_level[:, columns].max(axis=1)
    level = float(together.max())
    if level <= 1 + EVEN:
        return []
    brokers = np.flatnonzero(together >= level - EVEN)
    names = first_named(np.unique(arrays.racks[brokers]).tolist(), FULL_MAX, lambda rack: arrays.rack_names[rack])
    alone = float(levels_alone(arrays, placement, problem.share)[:, columns].max())
    loads = "bytes out" if alone >= level - EVEN else "both bytes out and leader bytes in"
    much = f"consumers of {names} read so much from the {len(brokers)} of {int(arrays.alive.sum())} brokers there"
    return [f"{much} that no placement has {loads} below {level:.3f} fair shares: add brokers there"]


def _search_ended(effort: Effort) -> list[str]:
    """That the search has not tried all, if it has not."""
    if not effort.is_spent:
        return []
    size = f"after {effort.candidates:,} candidates, the most for a cluster of this size"
    return [f"{SEARCH_ENDED} {size}: what it has not tried may relieve the brokers that stay above the band"]


def _left_over(problem: Problem, placement: Placement, effort: Effort) -> list[str]:
    """Brokers still above their limit, by resource."""
    over = _excess(problem, placement)
    lines = []
    for resource in LOADS:
        excess = over[:, problem.arrays.columns.of(resource)].max(axis=1, initial=0.0)
        brokers = np.flatnonzero(excess > EVEN)
        if len(brokers):
            worst = int(np.argmax(excess))
            broker = problem.arrays.broker_ids[worst]
            lines.append(
                f"{_stay(len(brokers))} above the band in {resource.words}, the worst is broker {broker}, "
                f"{excess[worst]:.3f} fair shares above its limit: {_cause(problem, effort)}"
            )
    return lines


def _stay(brokers: int) -> str:
    return "1 broker stays" if brokers == 1 else f"{brokers} brokers stay"


def _full_disks(problem: Problem) -> list[str]:
    """Brokers that take nothing, whatever else speaks for it."""
    arrays = problem.arrays
    full = np.flatnonzero(arrays.alive & (arrays.disk_room_bytes <= 0))
    if not len(full):
        return []
    names = first_named(full.tolist(), FULL_MAX, lambda broker: str(arrays.broker_ids[broker]))
    return [f"{TAKE_NONE}, as their disks have no room above the reserve: {names}"]


def _cause(problem: Problem, effort: Effort) -> str:
    policy = problem.policy
    if policy.leaders_only:
        return "only leadership may change"
    if policy.has_budget:
        return "the budget is spent or leaves no better movement"
    if policy.is_narrowed:
        return "the policy keeps the rest from moving"
    return "the search ended before" if effort.is_spent else "no movement found relieves it"


def _excess(problem: Problem, placement: Placement) -> Floats:
    share = np.where(problem.share > 0, problem.share, 1.0)
    excess: Floats = np.where(problem.share > 0, placement.loads - problem.limit, 0.0) / share
    return excess


def _name(problem: Problem, partition: int) -> str:
    named = problem.arrays.partitions[partition]
    return f"{named.topic}-{named.partition}"
