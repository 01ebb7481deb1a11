"""Names the hard rules that a placement does not keep, and for each what stands in the way.

A reader must be able to act on each line: add a broker, lower a replication factor, add disk to a broker that is named.
So replicas that stay where they must not are grouped by their reason, and a reason is only given where the arrays prove
it. The module changes nothing.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.live import partition_name
from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.plan import RACKS_LOST
from assignor_core.planner.placement import Flags, Indices, Placement
from assignor_core.planner.policy import BrokerSet
from assignor_core.planner.problem import Problem, without_source
from assignor_core.planner.set_shares import members_of
from assignor_core.resources import LOADS, Resource
from assignor_core.wording import bytes_text, counted, first_named

ROUNDING = 1e-9
NAMED_MAX = 5
"""Partitions, racks or brokers named in one line."""


def unmet_rules(problem: Problem, placement: Placement) -> tuple[str, ...]:
    """Hard rules that `placement` does not keep, and what stands in the way: one line each.

    A sound placement has none:

    >>> search = state_of((1, 2), (1, 2))
    >>> problem, placement = search.problem, search.placement
    >>> unmet_rules(problem, placement)
    ()
    """
    arrays = problem.arrays
    lines = []
    for broker in np.flatnonzero(~arrays.alive):
        state = "dead" if arrays.dead[broker] else "draining"
        for why, left in _reasons(problem, placement, placement.held_by(int(broker))):
            keeps = f"is {state} and keeps {counted(len(left), 'replica', 'replicas')}"
            lines.append(f"broker {arrays.broker_ids[broker]} {keeps}: {why}; left out: {_named(problem, left)}")
    lines += [*_outside_sets(problem, placement), *_crowded(problem, placement), *_above_capacity(problem, placement)]
    if lines:
        lines += [*_shortages(problem, placement), *_disk_shortage(problem, placement)]
    return (*lines, *_racks_lost(problem, placement))


def _reasons(problem: Problem, placement: Placement, left: Indices) -> list[tuple[str, Indices]]:
    """Partitions of `left`, which a broker that must end empty keeps, by what keeps them there."""
    reasons: dict[tuple[str, int], list[int]] = {}
    policy, sets = problem.policy, problem.arrays.sets
    remaining = problem.new_holders_possible(placement, left)
    for partition, brokers in zip(left.tolist(), remaining.tolist(), strict=True):
        holders = placement.replicas[partition][placement.replicas[partition] != NO_BROKER]
        factor = len(holders)
        number = 0 if sets is None else int(sets.set_of[partition])
        if not problem.has_source[partition]:
            where = "on a broker that is alive" if problem.arrays.dead[holders].all() else "in sync"
            why = f"no replica is {where}, so there is nothing to copy from"
        elif policy.leaders_only:
            why = "the policy allows leadership changes only"
        elif not problem.movable[partition]:
            why = "the policy excludes their topics"
        elif brokers < factor:
            more = "one" if factor - brokers == 1 else str(factor - brokers)
            needs = f"replication factor {factor} needs {counted(factor, 'broker', 'brokers')}"
            why = f"{needs}, {counted(brokers, 'remains', 'remain')}: add {more}, or lower the factor first"
            if number:
                can = f"{brokers} of its set ({policy.broker_sets[number - 1].words}) can hold it"
                why = f"{needs}, {can}: add {more} to the set, or lower the factor first"
        else:
            why = ""
        reasons.setdefault((why, number), []).append(partition)
    named = [(why, number, np.array(partitions)) for (why, number), partitions in reasons.items()]
    return [(why or _no_room(problem, placement, some, number), some) for why, number, some in named]


def _no_room(problem: Problem, placement: Placement, left: Indices, number: int) -> str:
    """What leaves no place for the partitions `left`, all of one set, for which no rule of their own stands in the
    way.
    """
    return (
        _full_by_count(problem, placement, number)
        or _set_full(problem, placement, left, number)
        or _disks_full(problem, placement, left)
        or _why(problem)
    )


def _members(problem: Problem, number: int) -> Flags:
    """B: brokers of set `number`; all where that is 0."""
    sets = problem.arrays.sets
    return np.ones_like(problem.may_take) if sets is None else sets.members[number]


def _set_full(problem: Problem, placement: Placement, left: Indices, number: int) -> str | None:
    """Returns in words that the disks of a set have no room for the partitions `left`; None if they have, or if there
    is no set.
    """
    members = _members(problem, number) & problem.may_take
    room = np.maximum(_room(problem, placement), 0.0)[members]
    sizes = placement.disk_bytes[left]
    if not number or not len(room) or (room.sum() >= sizes.sum() and room.max() >= sizes.max()):
        return None
    needs = f"they hold {bytes_text(float(sizes.sum()))}"
    has = f"{problem.policy.broker_sets[number - 1].words} have room for {bytes_text(float(room.sum()))}"
    return f"{needs}, {has}: add brokers to the set, or disk to these"


def _outside_sets(problem: Problem, placement: Placement) -> list[str]:
    """Replicas that should have gone to the brokers of their set, and what keeps them elsewhere; a line for each cause
    and set.
    """
    sets = problem.arrays.sets
    if sets is None:
        return []
    outside = sets.outside(placement.replicas) & (problem.arrays.alive & problem.may_give)[placement.replicas]
    lines = []
    for why, left in _reasons(problem, placement, np.flatnonzero(outside.any(axis=1))):
        one, count = problem.policy.broker_sets[int(sets.set_of[left[0]]) - 1], int(outside[left].sum())
        stay = counted(count, "replica stays", "replicas stay")
        lines.append(
            f"{stay} outside {one.words}, the set of {one.named_topics}: {why}; left out: {_named(problem, left)}"
        )
    return lines


def outside_of_sets(problem: Problem, placement: Placement) -> list[tuple[BrokerSet, int]]:
    """Sets of the policy that hold topics, and for each how many replicas are elsewhere that the plan may not move."""
    arrays, replicas, policy = problem.arrays, placement.replicas, problem.policy
    # Replicas that it may move and that stay are problems.
    may_stay = ~(problem.movable[:, None] & problem.may_give[replicas] & (not policy.leaders_only))
    may_stay &= (replicas != NO_BROKER) & arrays.alive[replicas]
    left, found = np.array([row.topic for row in arrays.partitions]), []
    for one in policy.broker_sets:
        of_set = np.isin(left, sorted(one.topics))
        if of_set.any():
            found.append((one, int((may_stay & ~members_of(arrays, one)[replicas])[of_set].sum())))
            left[of_set] = ""
    return found


def _full_by_count(problem: Problem, placement: Placement, number: int) -> str | None:
    """Returns in words that `replicas_max` leaves no broker of a set room for one more replica; None if some broker has
    room.
    """
    most, columns = problem.policy.replicas_max, problem.arrays.columns.of(Resource.REPLICAS)
    may_take = problem.may_take & _members(problem, number)
    if most is None or not may_take.any():
        return None
    left = (problem.ceiling - placement.loads)[may_take][:, columns] / placement.scale[columns]
    if (left >= 1.0).any():
        return None
    return f"no broker may have more than {counted(most, 'replica', 'replicas')}: add brokers, or raise that"


def _named(problem: Problem, partitions: Indices) -> str:
    """Partitions by name, those with the fewest replicas in sync first; the first few of many."""
    arrays = problem.arrays
    order = partitions[np.lexsort((partitions, arrays.in_sync[partitions]))]
    ordered = [arrays.partitions[row] for row in order]
    return first_named(ordered, NAMED_MAX, lambda row: partition_name(row.key))


def _disks_full(problem: Problem, placement: Placement, left: Indices) -> str | None:
    """Whether not even the smallest of the partitions `left` fits on any disk, in words; None if one does."""
    if not _has_ceiling(problem):
        return None
    room = problem.arrays.disk_room_bytes - placement.inflow()
    most, least = float(room[problem.may_lead].max(initial=0.0)), float(placement.disk_bytes[left].min())
    if 0 < most >= least:
        return None
    return f"the smallest holds {least:,.0f} bytes, no broker's disks have room for more than {max(0.0, most):,.0f}"


def broker_names(problem: Problem, brokers: Indices) -> str:
    """The first of these brokers by id, and how many more there are."""
    return first_named([problem.arrays.broker_ids[broker] for broker in brokers.tolist()], NAMED_MAX)


def _has_ceiling(problem: Problem) -> bool:
    """Whether room on disks bounds what some broker that is alive may take."""
    return bool(np.isfinite(problem.arrays.disk_room_bytes[problem.may_lead]).any())


def _disk_shortage(problem: Problem, placement: Placement) -> list[str]:
    """What no movement can fix: replicas that must leave, and could, hold more than all disks have room for."""
    if not _has_ceiling(problem) or problem.policy.leaders_only:
        return []
    room = float(np.maximum(problem.arrays.disk_room_bytes - placement.inflow(), 0.0)[problem.may_lead].sum())
    needed = 0.0
    for broker in np.flatnonzero(~problem.arrays.alive):
        held = placement.held_by(int(broker))
        factors = (placement.replicas[held] != NO_BROKER).sum(axis=1)
        has_brokers = problem.new_holders_possible(placement, held) >= factors
        could_leave = held[problem.has_source[held] & problem.movable[held] & has_brokers]
        needed += float(placement.disk_bytes[could_leave].sum())
    if needed <= room:
        return []
    line = f"what is left out holds {needed:,.0f} bytes, all disks together have room for {room:,.0f} more"
    return [f"{line}: moving can't help, add brokers or disks"]


def _shortages(problem: Problem, placement: Placement) -> list[str]:
    """What no placement can fix: more load than capacity, of the whole cluster or of one partition. Partitions that
    nothing is left of but on dead brokers need no capacity.
    """
    arrays = problem.arrays
    if not arrays.alive.any():
        return []
    lines, carried = [], placement.loads.sum(axis=0) - without_source(arrays)
    for resource in LOADS:
        columns, word = arrays.columns.of(resource), resource.words
        if not columns.size or not np.isfinite(problem.ceiling[arrays.alive][:, columns]).all():
            continue  # not planned on, or without a limit
        # Not the ceilings of the search: on its grid a capacity far below the whole load is 0.
        usable = arrays.capacity_for(resource)[arrays.alive, None] * (1.0 - problem.policy.headroom)
        ceiling = usable * placement.scale[columns]
        needed = float((carried[columns] / ceiling.sum(axis=0)).max())
        if needed > 1 + ROUNDING:
            lines.append(f"{word} needs {needed:.2f} x what all alive brokers can carry: add brokers")
        parts = np.where(problem.has_source, (placement.leading[:, columns] / ceiling.max(axis=0)).max(axis=1), 0.0)
        heaviest = int(np.argmax(parts))
        if parts[heaviest] > 1 + ROUNDING:
            name = partition_name(arrays.partitions[heaviest].key)
            lines.append(
                f"{name} alone needs {parts[heaviest]:.2f} x what the largest broker carries in {word}: split it"
            )
    return lines


def _crowded(problem: Problem, placement: Placement) -> list[str]:
    """Partitions whose racks could be spread better, and which racks have no room for them."""
    crowded = np.flatnonzero(problem.crowded(placement.replicas))
    if not len(crowded):
        return []
    why = "; ".join(_full_racks(problem, placement, crowded)) or _why(problem)
    have = counted(
        len(crowded),
        "partition has more replicas in one rack than it needs",
        "partitions have more replicas in one rack than they need",
    )
    return [f"{have}: {why}"]


def _full_racks(problem: Problem, placement: Placement, crowded: Indices) -> list[str]:
    """Racks that hold fewest replicas of the `crowded` partitions, and by how many bytes their brokers lack room."""
    arrays = problem.arrays
    room = np.where(problem.may_lead, np.maximum(_room(problem, placement), 0.0), 0.0)
    racks = np.unique(arrays.racks[problem.may_lead])
    counts = problem.rack_counts(placement.replicas[crowded], NO_BROKER)[:, racks]
    if arrays.sets is not None:
        able = arrays.sets.members[arrays.sets.set_of[crowded]] & problem.may_lead
        has_rack = np.stack([able[:, arrays.racks == rack].any(axis=1) for rack in racks], axis=1)
        counts = np.where(has_rack, counts, placement.replicas.shape[1] + 1)
    emptiest = racks[np.argmin(counts, axis=1)] if len(racks) else racks
    lines = []
    for rack in np.unique(emptiest):
        members = np.flatnonzero(problem.may_lead & (arrays.racks == rack))
        sizes = placement.disk_bytes[crowded[emptiest == rack]]
        lacking = float(sizes.sum() - room[members].sum())
        if lacking <= 0 and room[members].max() >= sizes.min():
            continue
        has = first_named(
            members.tolist(),
            NAMED_MAX,
            lambda broker: f"broker {arrays.broker_ids[broker]} has room for {bytes_text(float(room[broker]))}",
        )
        size, where = bytes_text(float(sizes.sum())), arrays.rack_names[rack]
        needs = f"{counted(len(sizes), 'of them needs', 'of them need')} {size} in {where}"
        lines.append(f"{needs}, {has}" + (f": it lacks {bytes_text(lacking)}" if lacking > 0 else ""))
    return lines


def _room(problem: Problem, placement: Placement) -> Floats:
    """B bytes that may still be copied to each broker: by room on its disks and by its capacity of disk."""
    room = problem.arrays.disk_room_bytes - placement.inflow()
    for column in problem.arrays.columns.of(Resource.DISK):
        if placement.scale[column] > 0:
            free = (problem.ceiling[:, column] - placement.loads[:, column]) / placement.scale[column]
            room = np.minimum(room, free)
    return room


def _above_capacity(problem: Problem, placement: Placement) -> list[str]:
    """Brokers that carry more than they can, a line for each load; and those with too many replicas."""
    columns, lines = problem.arrays.columns, []
    over = (placement.loads > problem.ceiling * (1 + ROUNDING)) & problem.arrays.alive[:, None]
    for resource in (*LOADS, Resource.REPLICAS):
        brokers = np.flatnonzero(over[:, columns.of(resource)].any(axis=1))
        if not len(brokers):
            continue
        are = counted(len(brokers), "broker is above its capacity of", "brokers are above their capacity of")
        line = f"{are} {resource.words}"
        if resource is Resource.REPLICAS:
            most = counted(problem.policy.replicas_max or 0, "replica", "replicas")
            line = f"{counted(len(brokers), 'broker has', 'brokers have')} more than {most}"
        lines.append(f"{line} (first: {broker_names(problem, brokers)}): {_why(problem)}")
    return lines


class LostRack(NamedTuple):
    """A rack of which the plan leaves no broker in use, and what that costs."""

    rack: str
    brokers: str
    partitions: int
    """Partitions that had a replica there, and have fewer racks now."""

    @property
    def is_named(self) -> bool:
        """Whether it is a rack of the cluster, not a broker without one, which counts as a rack of its own."""
        return self.rack != self.brokers

    @property
    def where(self) -> str:
        """Returns in words where the replicas were."""
        if self.is_named:
            return f"in {self.rack}, which only {self.brokers} had"
        return f"on {self.brokers}, which has no rack"


def lost_racks(problem: Problem, placement: Placement) -> list[LostRack]:
    """Racks without a broker in use that partitions of `placement` have left for racks which they used already."""
    arrays = problem.arrays
    lost = []
    for rack in np.setdiff1d(np.unique(arrays.racks), np.unique(arrays.racks[arrays.alive])):
        members = np.flatnonzero(arrays.racks == rack)
        left = _in_rack(problem, placement.original, rack) & ~_in_rack(problem, placement.replicas, rack)
        left &= _racks_used(problem, placement.replicas) < _racks_used(problem, placement.original)
        if left.any():
            names = first_named(members.tolist(), NAMED_MAX, lambda one: f"broker {arrays.broker_ids[one]}")
            lost.append(LostRack(arrays.rack_names[rack], names, int(left.sum())))
    return lost


def _racks_lost(problem: Problem, placement: Placement) -> list[str]:
    return [
        f"{RACKS_LOST}: {counted(lost.partitions, 'partition loses its', 'partitions lose their')} replica "
        f"{lost.where}, and "
        f"{'has' if lost.partitions == 1 else 'have'} one more in another rack"
        for lost in lost_racks(problem, placement)
    ]


def _in_rack(problem: Problem, replicas: Ints, rack: int) -> Flags:
    there: Flags = ((replicas != NO_BROKER) & (problem.arrays.racks[replicas] == rack)).any(axis=1)
    return there


def _racks_used(problem: Problem, replicas: Ints) -> Indices:
    """N: racks that hold a replica of each row of `replicas` (N x R)."""
    racks = np.sort(np.where(replicas != NO_BROKER, problem.arrays.racks[replicas], NO_BROKER), axis=1)
    new = np.diff(racks, axis=1, prepend=NO_BROKER) != 0
    used: Indices = new.sum(axis=1)
    return used


def _why(problem: Problem) -> str:
    policy = problem.policy
    if policy.leaders_only:
        return "the policy allows leadership changes only"
    if not problem.may_take.any():
        return "no broker may take replicas"
    if _has_ceiling(problem):
        return "budgets, room on disks, capacity, racks or too few alive brokers leave no place for them"
    if policy.has_budget:
        return "the budget does not suffice"
    if policy.narrowed_by:
        return f"{'; '.join(policy.narrowed_by)}, or capacity and racks leave no place"
    return "capacity, racks or too few alive brokers leave no place for them"
