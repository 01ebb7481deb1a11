"""Sticky assignment where all members read the same topics: quotas, kept partitions, the rest dealt in order."""

import numpy as np

from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup, stable_order
from assignor_core.assignors.ownership import Ownership
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.racks import PartitionRacks
from assignor_core.assignors.sticky_racks import RackFill, StickyRacks


def assign_constrained(group: IndexedGroup, partition_racks: PartitionRacks, ownership: Ownership) -> tuple[Ints, Ints]:
    """Codes and the members beside them: first what is kept, then what is dealt.

    With P partitions and C members everybody gets P div C and P mod C members one more. An owner of more than its
    quota keeps the lowest (partition, topic).
    """
    members = len(group.members)
    quota, extra = divmod(group.index.partitions, members)
    racks = StickyRacks.of(group, partition_racks)
    kept, keepers, kept_counts, extra = _keep(group, racks, ownership, quota, extra)
    unassigned = np.ones(group.index.partitions, dtype=np.bool_)
    unassigned[kept] = False
    free = np.flatnonzero(unassigned)
    # Members at their quota wait for one more, those that were there from the start first.
    waiting = np.flatnonzero(kept_counts == quota) if extra else np.empty(0, np.int64)
    if racks is None:
        dealt_to = _deal(quota - kept_counts, waiting, len(free))
        return np.concatenate([kept, free]), np.concatenate([keepers, dealt_to])
    free = racks.scarce_first(free)
    fill = RackFill(racks, kept_counts, waiting.tolist(), quota, extra)
    matched, matched_to, rest = fill.deal(free)
    rest_to = _deal(quota - fill.counts, np.array(fill.waiting, dtype=np.int64), len(rest))
    return np.concatenate([kept, matched, rest]), np.concatenate([keepers, matched_to, rest_to])


def _keep(
    group: IndexedGroup, racks: StickyRacks | None, ownership: Ownership, quota: int, extra: int
) -> tuple[Ints, Ints, Ints, int]:
    """Kept codes, their members, kept partitions of every member, places above the quota that are left."""
    members = len(group.members)
    partitions = group.index.partition_of_every_code()
    owner = ownership.holder.copy()
    if racks is not None:
        racks.give_up_mismatched(owner)
    if not (owner != UNASSIGNED).any():
        none = np.empty(0, np.int64)
        return none, none, np.zeros(members, dtype=np.int64), extra
    by_partition = stable_order(partitions, int(partitions.max()) + 1)
    by_partition = by_partition[owner[by_partition] != UNASSIGNED]
    order = stable_order(owner[by_partition], members)
    codes = by_partition[order]
    owners = owner[codes]
    owned = np.bincount(owners, minlength=members)
    # Which owners of more than the quota get the places above it is free; the first by id do.
    over = np.flatnonzero(owned > quota)[:extra]
    limits = np.full(members, quota)
    limits[over] += 1
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(owned) - owned, owned)
    keeps = rank < limits[owners]
    return codes[keeps], owners[keeps], np.minimum(owned, limits), extra - len(over)


def _deal(missing: Ints, waiting: Ints, partitions: int) -> Ints:
    """Members for the next partitions: those under the quota in turn until they reach it, then those at it.

    `missing` is what each member lacks of its quota (0 or less: nothing).

    >>> _deal(np.array([1, 2, 0]), np.array([2]), 5).tolist()
    [0, 1, 1, 2, 0]
    """
    missing = np.maximum(missing, 0)
    below = np.flatnonzero(missing)
    dealt_to = np.repeat(below, missing[below])
    turns = np.arange(len(dealt_to)) - np.repeat(np.cumsum(missing[below]) - missing[below], missing[below])
    dealt_to = dealt_to[stable_order(turns, int(missing.max(initial=0)) + 1)]
    then = below[np.argsort(missing[below], kind="stable")]
    return np.concatenate([dealt_to, waiting, then])[:partitions]
