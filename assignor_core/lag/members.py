"""How many members a group needs for what is written to its partitions, and what each number costs to get to.

Bin packing: members are bins that read so many records a second at most; each number of members is assigned by the
load-aware assignor, so what is advised is what a group that uses it would get. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assignor_core.assignors import GroupSpec, MemberSpec, assign
from assignor_core.errors import InputError

FILL_MAX = 0.8
"""A member is full at this share of what it can read: the rest is for catching up."""
ROUNDING = 1e-9
"""What fits but for this part of it fits: sums of rates are off in their last bits."""
OPTIONS_MAX = 4
MEMBERS_MAX = 512
"""Largest number of members that is packed; for more members the lower bound is the answer."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MembersOption:
    """An option: a number of members, with its price and its effect."""

    members: int
    heaviest_ratio: float
    """What the fullest member gets per what it can read; above 1 it falls behind."""
    r_score: float
    """Rate of the partitions that leave a live member on the way there, per what one member can read."""


@dataclass(frozen=True, slots=True)
class MembersAdvice:
    """The least number of members with none above `FILL_MAX`, None if there is none, and options from it on."""

    needed: int | None
    bound: int
    """Lower bound on the number of members of any packing."""
    heaviest_partition_ratio: float
    """The heaviest partition per what a member can read: above `FILL_MAX` no number of members helps."""
    options: tuple[MembersOption, ...]


def advise_members(
    rates: Mapping[TopicPartition, float],
    owners: Mapping[TopicPartition, str],
    capacity_per_sec: float,
    *,
    options_max: int = OPTIONS_MAX,
) -> MembersAdvice:
    """Advice for a group: records written per second and owning member by partition, records that a member can read.
    With `options_max` 0 nothing is packed, so only the bound and the heaviest partition are known.

    >>> rates = {("t", p): 100.0 for p in range(6)}
    >>> advice = advise_members(rates, {("t", p): f"m{p % 2}" for p in range(6)}, capacity_per_sec=250.0)
    >>> advice.needed, advice.bound, [(one.members, one.heaviest_ratio, one.r_score) for one in advice.options]
    (3, 3, [(3, 0.8, 0.8), (4, 0.8, 0.8), (5, 0.8, 1.2), (6, 0.4, 1.6)])
    """
    if not capacity_per_sec > 0:
        raise InputError(f"capacity of a member must be above 0 records/s, found {capacity_per_sec}")
    heaviest = max(rates.values(), default=0.0) / capacity_per_sec
    bound = max(1, math.ceil(sum(rates.values()) / (FILL_MAX * capacity_per_sec) * (1 - ROUNDING)))
    most = min(len(rates), MEMBERS_MAX) if options_max else 0
    options: list[MembersOption] = []
    for count in range(bound, most + 1):
        option = _option(rates, owners, capacity_per_sec, count)
        if options or option.heaviest_ratio <= FILL_MAX * (1 + ROUNDING):
            options.append(option)
        if len(options) == options_max or heaviest > FILL_MAX * (1 + ROUNDING):
            break
    return MembersAdvice(options[0].members if options else None, bound, heaviest, tuple(options))


def _option(
    rates: Mapping[TopicPartition, float], owners: Mapping[TopicPartition, str], capacity_per_sec: float, count: int
) -> MembersOption:
    counts: dict[str, int] = {}
    for topic, partition in rates:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    weights = {topic: [rates.get((topic, p), 0.0) for p in range(counts[topic])] for topic in sorted(counts)}
    spec = GroupSpec(counts, _members(sorted(counts), owners, count), partition_weights=weights)
    result = assign("load-aware", spec)
    # Not from `load_figures`: there an idle partition weighs a little, so that idle ones are dealt evenly, too.
    loads = [sum(rates.get(tp, 0.0) for tp in owned) for owned in result.assignment.values()]
    left = sum(
        rates.get(tp, 0.0)
        for member, own in spec.members.items()
        for tp in set(own.owned_partitions).difference(result.assignment[member])
    )
    return MembersOption(count, max(loads) / capacity_per_sec, left / capacity_per_sec)


def _members(topics: Sequence[str], owners: Mapping[TopicPartition, str], count: int) -> dict[str, MemberSpec]:
    """The first `count` members: existing members with their partitions, and then new members without partitions."""
    owned: dict[str, list[TopicPartition]] = {}
    for tp, member in sorted(owners.items()):
        owned.setdefault(member, []).append(tp)
    names = sorted(owned)[:count]
    fresh = (f"new-{number}" for number in range(1, count - len(names) + 1))
    return {name: MemberSpec(topics, owned.get(name, ()), 1) for name in (*names, *fresh)}
