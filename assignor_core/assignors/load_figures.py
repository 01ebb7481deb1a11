"""How even an assignment by load is, and what it moved, beside what no assignment can beat. Judges; assigns nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assignor_core.assignors.contract import GroupAssignment, GroupSpec, TopicPartition
from assignor_core.assignors.fair_shares import Floats, effective_weights, fair_shares
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.ownership import settle_claims

EVEN = 1.05
"""Factor of its fair share up to which a member counts as even."""


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Weights as the strategy counts them, see `LEAST_WEIGHT_OF_MEAN`.

    Ratios per fair share, which is the weight of all that a member reads with those that read the same, also over
    others, in proportion to capacity. Members that read nothing are left out; without any all is 0.
    """

    heaviest_before: float
    """Most that a member owned when it joined, per its fair share."""
    heaviest_after: float
    bound: float
    """No assignment is below this: what the heaviest partition takes of the largest share, 1 at least."""
    moved_weight: float
    """Weight of what leaves a live member, withheld or given to another."""
    r_score: float
    """`moved_weight` in fair shares of the mean member: how many members' worth of load stops and continues elsewhere.
    """
    moved_weight_least: float
    """Weight that had to leave members: what they owned above `EVEN`, a partition that exceeds that alone excepted."""


def load_figures(spec: GroupSpec, result: GroupAssignment) -> LoadFigures:
    """Figures of one rebalance.

    >>> from assignor_core.assignors import MemberSpec, assign
    >>> members = {"a": MemberSpec(["t"], [("t", 0), ("t", 1)], 1), "b": MemberSpec(["t"], [("t", 2)], 1)}
    >>> spec = GroupSpec({"t": 3}, members, partition_weights={"t": [4.0, 2.0, 2.0]})
    >>> figures = load_figures(spec, assign("load-aware", spec))
    >>> figures.heaviest_before, figures.heaviest_after, figures.moved_weight
    (1.5, 1.0, 2.0)
    """
    group = IndexedGroup.of(spec)
    weights = effective_weights(spec, group)
    if not len(weights):
        return LoadFigures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    fair = fair_shares(group, weights)
    shares = fair.of_member
    ownership = settle_claims(group)
    before = ownership.holder
    after = np.full(len(weights), UNASSIGNED)
    for number, member_id in enumerate(group.member_ids):
        after[_codes(group, result.assignment[member_id])] = number
    left = (before != UNASSIGNED) & (after != before)
    return LoadFigures(
        heaviest_before=float(np.max(fair.used(_loads(before, weights, len(shares))))),
        heaviest_after=float(np.max(fair.used(_loads(after, weights, len(shares))))),
        bound=max(1.0, float(np.max(weights / fair.highest(shares)[fair.circle_of_code]))),
        moved_weight=float(weights[left].sum()),
        r_score=float(weights[left].sum() / shares[shares > 0].mean()),
        moved_weight_least=_least(before, weights, shares),
    )


def _codes(group: IndexedGroup, partitions: Sequence[TopicPartition]) -> list[int]:
    index = group.index
    return [int(index.starts[index.number_of[topic]]) + partition for topic, partition in partitions]


def _loads(owner: np.ndarray[tuple[int], np.dtype[np.int64]], weights: Floats, members: int) -> Floats:
    held = owner != UNASSIGNED
    return np.bincount(owner[held], weights=weights[held], minlength=members).astype(np.float64)


def _least(before: np.ndarray[tuple[int], np.dtype[np.int64]], weights: Floats, shares: Floats) -> float:
    held = before != UNASSIGNED
    heaviest = np.zeros(len(shares))
    np.maximum.at(heaviest, before[held], weights[held])
    return float(np.maximum(_loads(before, weights, len(shares)) - np.maximum(EVEN * shares, heaviest), 0.0).sum())
