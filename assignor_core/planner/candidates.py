"""What may relieve one broker: candidates, the replicas and targets worth scoring, and what decides between them.

A `Candidate` is tried; what is left of all candidates in the end becomes a plan's movements. Three modules propose
candidates, and never apply them: `handovers`, `moves` and `exchanges`.

How they work. They score pairs of a replica and a target as one matrix. Only the two brokers concerned change, so the
gain of a pair is the relief of the source less the burden of the target; nothing is evaluated as a whole. The score
that picks the winner is another figure: the part of the excess that the candidate covers, less the burden, per price.

Why two figures. The objective is convex, so by gain a small replica pays more per byte than a large one, until only
large ones are left and fit nowhere. Coverage is linear up to the excess. With the gain as score a plan has twice the
movements and ends less even (docs/planner.md, "How it searches").

Invariants: a candidate keeps every hard rule and every budget, and gains more than the caller asks for. Equal scores
are decided by position, which follows from ids, so the same input gives the same candidate.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.effort import Effort
from assignor_core.planner.placement import Edit, Flags, Indices, Placement
from assignor_core.planner.problem import Problem, lowest
from assignor_core.planner.spending import Spending

TARGETS_MAX = 128
"""Brokers that are scored as targets; of more, the emptiest of each rack."""
TARGETS_PER_RACK_MIN = 4
"""With very many racks, so many brokers of each are scored all the same."""


class Candidate(NamedTuple):
    """Edits that are tried together, in order: one, or two for an exchange."""

    edits: tuple[Edit, ...]
    gain: float
    """By how much they lower the objective."""
    score: float
    """What decides between candidates: higher is better."""


class Replicas(NamedTuple):
    """N replicas on one broker."""

    partitions: Indices
    slots: Indices
    """Place in the replica list of its partition; 0 leads."""
    loads: Floats
    """N x C that each puts on the broker."""

    def take(self, rows: Indices) -> "Replicas":
        """The replicas of these rows."""
        return Replicas(self.partitions[rows], self.slots[rows], self.loads.take(rows, axis=0))


@dataclass(slots=True)
class SinceEdit:
    """What was worked out since the last edit, for the next look: one that fails is followed by wider ones; mutable."""

    edits: int = -1
    """Of the placement, when it was."""
    targets: Indices | None = None
    broker: int = NO_BROKER
    replicas: Replicas | None = None
    """What may move of `broker`."""

    def at(self, placement: Placement) -> "SinceEdit":
        """Itself, without what an edit has changed since."""
        if self.edits != placement.edits:
            self.edits, self.targets, self.replicas = placement.edits, None, None
        return self


class SearchState(NamedTuple):
    """What candidates are judged by: the rules, the placement as it is, what has been spent, and what was tried."""

    problem: Problem
    placement: Placement
    spending: Spending
    effort: Effort
    since_edit: SinceEdit


def best_by_score(candidates: Iterable[Candidate | None]) -> Candidate | None:
    """The candidate of the highest score, the first of equals; None if there is none."""
    return max((candidate for candidate in candidates if candidate), key=lambda one: one.score, default=None)


def flags_of(brokers: Iterable[int], count: int) -> Flags:
    """`count` flags, set for `brokers`: what `np.isin` answers, for a tenth of the time."""
    flags = np.zeros(count, dtype=np.bool_)
    flags[list(brokers)] = True
    return flags


def led_partitions(state: SearchState, broker: int) -> Indices:
    """Partitions that `broker` leads and that may be moved for balance."""
    held, in_racks = state.placement.held_by(broker), state.placement.in_racks
    if in_racks is not None:
        held = held[~in_racks.share_racks[held]]
    leads = state.placement.replicas[held, 0] == broker
    led: Indices = held[leads & state.problem.may_balance[held] & state.spending.may_touch(held)]
    return led


def movable_replicas(state: SearchState, broker: int) -> Replicas:
    """Replicas on `broker` that the policy lets move for balance."""
    lately = state.since_edit.at(state.placement)
    if lately.replicas is not None and lately.broker == broker:
        return lately.replicas
    held = state.placement.held_by(broker)
    held = held[state.problem.may_balance[held]]
    slots = state.placement.slots_of(held, broker)
    lately.broker, lately.replicas = broker, Replicas(held, slots, state.placement.loads_at(held, slots))
    return lately.replicas


def shortlist(state: SearchState, broker: int, count: int, targets: Indices | None = None) -> tuple[Replicas, Floats]:
    """The replicas of `broker` that cover most of its excess for their price, and the N reliefs they give; with
    `targets` only those that one of these may take.

    About `count` of them: ties at the edge stay in, or the order in which replicas are held would decide. Scoring every
    replica against every target would be most of the work of a plan, and nearly all of it for pairs that never win.
    """
    problem, placement, spending = state.problem, state.placement, state.spending
    replicas = movable_replicas(state, broker)
    here = placement.loads[broker]
    relief = problem.relief(here, replicas.loads, broker)
    if len(replicas.partitions) <= count:
        return replicas, relief
    # Only a replica that was here at first has to be copied anew: one that is on its way already goes on for nothing.
    is_home = (placement.original[replicas.partitions] == broker).any(axis=1)
    price = spending.in_fair_shares(placement.disk_bytes[replicas.partitions]) * is_home
    price = price + spending.movement_price(replicas.partitions)
    covered = np.where(relief > 0, problem.coverage(here, replicas.loads, broker), -np.inf)
    worth = covered / price
    best = lowest(-worth, count) if targets is None else _with_a_place(state, broker, replicas, worth, count, targets)
    return replicas.take(best), relief[best]


def _with_a_place(
    state: SearchState, broker: int, replicas: Replicas, worth: Floats, count: int, targets: Indices
) -> Indices:
    """The `count` that are worth most of those which a target may take that has less than its goal of all that `broker`
    has too much of, ascending.

    The heaviest partitions move first. Once each of them lies on all brokers that have room, the replicas that it still
    has elsewhere would fill every shortlist, and hide those that can go.
    """
    problem, loads_of = state.problem, state.placement.loads
    excess = loads_of[broker] > problem.goal[broker]
    below = targets[(loads_of[targets] < problem.goal[targets])[:, excess].all(axis=1)]
    targets = below if len(below) else targets
    # By partition where worth is equal: the order in which replicas are held must not decide.
    order = np.lexsort((replicas.partitions, -worth))[: int((worth > 0).sum())]
    found: list[Indices] = []
    for begin in range(0, len(order), count):
        some = np.sort(order[begin : begin + count])
        partitions, _, loads = replicas.take(some)
        allowed = problem.allowed_targets(state.placement, partitions, broker, targets)
        allowed &= problem.with_room(state.placement, loads, targets)
        state.effort.score_anew(allowed.size)
        found.append(some[allowed.any(axis=1)])
        if sum(map(len, found)) >= count:
            break
    return np.sort(np.concatenate(found)) if found else np.arange(0)


def target_brokers(state: SearchState) -> Indices:
    """Brokers worth scoring as targets: all that may take replicas, or those of each rack that have most room.

    Each rack keeps its emptiest: racks are hard rules, and the emptiest of the cluster may all stand in one rack.
    """
    lately = state.since_edit.at(state.placement)
    if lately.targets is None:
        lately.targets = _target_brokers(state)
    return lately.targets


def _target_brokers(state: SearchState) -> Indices:
    problem, loads = state.problem, state.placement.loads
    takers = np.flatnonzero(problem.may_take)
    if len(takers) <= TARGETS_MAX:
        return takers
    # Signed: what is nearest to its limit counts, not the largest, or replica counts would hide who has room for load.
    nearest = ((loads[takers] - problem.goal[takers]) / problem.share[takers]).max(axis=1)
    fullness = problem.violation(loads)[takers] + nearest
    order = takers[np.lexsort((takers, fullness))]
    racks = problem.arrays.racks[order]
    rank = _rank_within(racks)
    chosen: Indices = np.sort(order[rank < max(TARGETS_PER_RACK_MIN, TARGETS_MAX // (int(racks.max()) + 1))])
    return chosen


def _rank_within(groups: Ints) -> Indices:
    """N: how many of the same group come before each.

    >>> _rank_within(np.array([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    by_group = np.argsort(groups, kind="stable")
    place = np.empty(len(groups), dtype=np.int64)
    place[by_group] = np.arange(len(groups))
    rank: Indices = place - np.searchsorted(groups[by_group], groups)
    return rank


def best_of_matrix(
    gain: Floats, score: Floats, edits: Callable[[int, int], tuple[Edit, ...]], gain_min: float
) -> Candidate | None:
    """The candidate of the highest score, the first of equals, if it gains more than `gain_min`."""
    if gain.size == 0:
        return None
    row, column = divmod(int(np.argmax(score)), gain.shape[1])
    if not gain[row, column] > gain_min:
        return None
    return Candidate(edits(row, column), float(gain[row, column]), float(score[row, column]))
