"""What moving can't help, in words: partitions heavier than a fair share, racks too small, brokers left above the band.

A plan that ends uneven must say why, or its reader looks for the fault in the planner. Heavy partitions and small racks
are causes by the same arguments as the bounds; what is left over after them is named with what the policy forbids.

Invariant: nothing is claimed that rests on a rule which the placement does not keep. The module changes nothing.
"""

from collections.abc import Mapping

import numpy as np

from assignor_core.live import partition_name
from assignor_core.load import Floats
from assignor_core.plan import TAKE_NONE
from assignor_core.planner.bounds import FOLLOWED, forced_share, leaves_replicas_behind
from assignor_core.planner.failover import failover_lines
from assignor_core.planner.obstacles import NAMED_MAX, broker_names, lost_racks, outside_of_sets
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import BrokerSet
from assignor_core.planner.problem import Problem
from assignor_core.planner.proportions import TOGETHER
from assignor_core.planner.read_levels import levels_alone
from assignor_core.planner.set_shares import members_of
from assignor_core.planner.targets import band_lines
from assignor_core.planner.topic_spread import unspread
from assignor_core.racks import some_without_rack
from assignor_core.resources import LOADS, Resource
from assignor_core.wording import counted, either, first_named

EVEN = 1e-6
"""An excess below this is rounding."""


def diagnose(problem: Problem, placement: Placement, bounds: Mapping[str, float]) -> tuple[str, ...]:
    """One line for each cause; none that takes for granted what `placement` could not keep.

    `bounds` are what no placement goes below, by resource.

    >>> state = state_of((1,), (2,), loads=(9.0, 1.0))
    >>> bounds = dict.fromkeys(state.problem.arrays.columns.resources, 1.8)
    >>> diagnose(state.problem, state.placement, bounds)[0]
    't-0 alone is 1.80 fair shares of leader bytes in: split it or change its key'
    """
    if not problem.arrays.alive.any() or not problem.arrays.partitions:
        return ()
    targets = band_lines(problem, bounds)
    lines = _left_over(problem, placement, targets)
    lines += [
        *_leaders_elsewhere(problem, placement),
        *_sets(problem, placement),
        *unspread(problem.spread, placement.replicas, problem.arrays.broker_ids),
        *failover_lines(problem, placement),
        *_full_disks(problem),
        *_lost_racks(problem, placement),
        *_without_rack(problem),
    ]
    if leaves_replicas_behind(problem.arrays, placement):
        return tuple(lines)
    is_crowded = bool(problem.crowded(placement.replicas).any())
    racks = [] if is_crowded else [*_small_racks(problem, placement), *_reads(problem, placement)]
    causes = (*_heavy_partitions(problem, placement), *racks, *_proportions(problem))
    return (*(causes or _at_bound(problem, placement, bounds, targets)), *lines)


def _proportions(problem: Problem) -> list[str]:
    """Returns a line if brokers have more disk than network for their part and that keeps both from being even."""
    columns = problem.arrays.columns
    network = max(TOGETHER, key=lambda resource: float(problem.level[:, columns.of(resource)].max()))
    forced = problem.level[:, columns.of(network)].max(axis=1)
    level = float(forced.max())
    if level <= 1 + EVEN:
        return []
    brokers = np.flatnonzero(forced >= level - EVEN)
    names = broker_names(problem, brokers)
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
    takes_part = problem.may_lead[placement.replicas[:, 0]]
    for column, resource in enumerate(problem.arrays.columns.resources):
        largest = problem.share[problem.may_lead, column].max(initial=0.0)
        if resource.is_count or largest <= 0:
            continue
        parts = np.where(takes_part, placement.leading[:, column] / largest, 0.0)
        for partition in np.flatnonzero(parts > 1 + problem.policy.band_of(resource)):
            part = (float(parts[partition]), resource.words)
            heaviest[int(partition)] = max(heaviest.get(int(partition), (0.0, "")), part)
    partitions = problem.arrays.partitions
    ranked = sorted(heaviest.items(), key=lambda item: (-item[1][0], item[0]))
    lines = [
        f"{partition_name(partitions[row].key)} alone is {part:.2f} fair shares of {word}: split it or change its key"
        for row, (part, word) in ranked[:NAMED_MAX]
    ]
    if len(ranked) > NAMED_MAX:
        more = counted(len(ranked) - NAMED_MAX, "more partition is", "more partitions are")
        lines.append(f"{more} alone heavier than a fair share and the band")
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
    names = first_named(np.unique(arrays.racks[brokers]).tolist(), NAMED_MAX, lambda rack: arrays.rack_names[rack])
    alone = float(levels_alone(arrays, placement, problem.share)[:, columns].max())
    loads = "bytes out" if alone >= level - EVEN else "both bytes out and leader bytes in"
    much = f"consumers of {names} read so much from the {len(brokers)} of {int(arrays.alive.sum())} brokers there"
    return [f"{much} that no placement has {loads} below {level:.3f} fair shares: add brokers there"]


def _at_bound(problem: Problem, placement: Placement, bounds: Mapping[str, float], targets: Floats) -> list[str]:
    """Loads of brokers that stay above the band because the bound is, where no other line gives the cause."""
    over, columns = _excess(problem, placement, problem.limit), problem.arrays.columns
    over = np.where(_excess(problem, placement, targets) > EVEN, 0.0, over)
    levels: dict[str, list[str]] = {}
    for resource in LOADS:
        if over[:, columns.of(resource)].max(initial=0.0) > EVEN:
            levels.setdefault(f"{bounds[resource]:.3f}", []).append(resource.words)
    why = "a replica can't be divided, and brokers have no equal number of them"
    return [f"no placement has {either(words)} below {level} fair shares: {why}" for level, words in levels.items()]


def _left_over(problem: Problem, placement: Placement, targets: Floats) -> list[str]:
    """Brokers still above their limit and the band of the bound, by resource."""
    over = np.where(_excess(problem, placement, targets) > EVEN, _excess(problem, placement, problem.limit), 0.0)
    lines = []
    for resource in LOADS:
        excess = over[:, problem.arrays.columns.of(resource)].max(axis=1, initial=0.0)
        brokers = np.flatnonzero(excess > EVEN)
        if len(brokers):
            worst = int(np.argmax(excess))
            broker = problem.arrays.broker_ids[worst]
            lines.append(
                f"{_stay(len(brokers))} above the band in {resource.words}, the worst is broker {broker}, "
                f"{excess[worst]:.3f} fair shares above its limit: {_cause(problem)}"
            )
    return lines


def _leaders_elsewhere(problem: Problem, placement: Placement) -> list[str]:
    """How many leaders are not in the rack that is wanted most for their topics."""
    lines = []
    for (topics, racks), (partitions, ranks) in zip(problem.policy.leader_racks, problem.leader_ranks, strict=True):
        leaders = placement.replicas[partitions, 0]
        away = int((ranks[leaders] > 0).sum())
        if away:
            named = first_named(sorted(topics), NAMED_MAX)
            of = f"{away} of {counted(len(leaders), 'leader', 'leaders')} of {named}"
            are, they = ("is", "it") if away == 1 else ("are", "they")
            lines.append(f"{of} {are} not in rack {racks[0]}, which {they} should be")
    return lines


def _sets(problem: Problem, placement: Placement) -> list[str]:
    """What is to be known of each set of brokers: names that mean nothing, what it forces, and what is left outside."""
    arrays, lines = problem.arrays, []
    racks = {name.removeprefix("rack ") for name in arrays.rack_names if name.startswith("rack ")}
    for one, outside in outside_of_sets(problem, placement):
        unknown = [f"broker {broker}" for broker in sorted(one.brokers - set(arrays.broker_ids))]
        unknown += [f"rack {rack}" for rack in sorted(one.racks - racks)]
        if unknown:
            named = first_named(unknown, NAMED_MAX)
            lines.append(f"the set of {one.named_topics} names {named}, which the cluster does not have")
        if outside:
            stay = counted(outside, "replica is", "replicas are")
            lines.append(f"{stay} outside {one.words}, the set of {one.named_topics}: this plan may not move that")
        lines += _forced_by_set(problem, one)
    return lines


def _forced_by_set(problem: Problem, one: BrokerSet) -> list[str]:
    """Returns a line if what lives in a set loads its brokers above the band of a fair share of the cluster."""
    members = np.flatnonzero(members_of(problem.arrays, one) & problem.may_lead)
    if problem.arrays.sets is None or not len(members):
        return []
    columns, levels = problem.arrays.columns, {}
    for resource in LOADS:
        at = np.ix_(members, columns.of(resource))
        # Another set may load some of its brokers more.
        levels[resource] = float((problem.share[at] / problem.even_share[at]).min(axis=0).max(initial=0.0))
    worst = max(levels, key=lambda resource: levels[resource])
    if levels[worst] <= 1.0 + problem.policy.band_of(worst):
        return []
    forced = f"no placement has {worst.words} below {levels[worst]:.3f} fair shares there"
    return [f"{one.named_topics} may only be on {one.words}, and {forced}: add brokers to the set"]


def _stay(brokers: int) -> str:
    return "1 broker stays" if brokers == 1 else f"{brokers} brokers stay"


def _full_disks(problem: Problem) -> list[str]:
    """Brokers that take nothing, whatever else speaks for it."""
    arrays = problem.arrays
    full = np.flatnonzero(arrays.alive & (arrays.disk_room_bytes <= 0))
    if not len(full):
        return []
    return [f"{TAKE_NONE}, as their disks have no room above the reserve: {broker_names(problem, full)}"]


def _lost_racks(problem: Problem, placement: Placement) -> list[str]:
    """What would keep the replicas of a rack there whose last broker leaves."""
    return [
        f"add a broker to {lost.rack} before it loses {lost.brokers}: "
        f"{counted(lost.partitions, 'partition then keeps', 'partitions then keep')} a replica there"
        for lost in lost_racks(problem, placement)
        if lost.is_named
    ]


def _without_rack(problem: Problem) -> list[str]:
    """Brokers without a rack beside brokers that have one; those that are dead show none."""
    arrays = problem.arrays
    names = [arrays.rack_names[rack] for rack in np.unique(arrays.racks[arrays.alive])]
    line = some_without_rack([name for name in names if not name.startswith("rack ")], len(names))
    return [] if line is None else [line]


def _cause(problem: Problem) -> str:
    policy = problem.policy
    if policy.leaders_only:
        return "only leadership may change"
    if policy.has_budget:
        return "the budget is spent or leaves no better movement"
    if policy.narrowed_by:
        return "; ".join(policy.narrowed_by)
    return "no movement found relieves it"


def _excess(problem: Problem, placement: Placement, most: Floats) -> Floats:
    """B x C fair shares above `most` (B x C)."""
    share = np.where(problem.share > 0, problem.share, 1.0)
    excess: Floats = np.where(problem.share > 0, placement.loads - most, 0.0) / share
    return excess
