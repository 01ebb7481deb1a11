"""A last try for plans that end above band and bound: small changes at random, some of them for the worse.

The search takes only what improves, and kicks go one way from one stuck broker. What is left then are plans in which
several replicas of several brokers must change places at once. So this phase tries changes at random, as threshold
accepting does (Dueck and Scheuer, 1990): it takes what costs no more than a threshold, and lowers that to nothing. It
does so several times, from the best that it has seen, each time from a lower threshold.

The numbers come from a generator with a fixed start, and no clock or machine decides anything, so a model has one plan.

Invariants: a plan within band or bound is left alone. Any other one is changed only if its worst load ends nearer to
the band, what brokers are above their limits in all does not grow, and it copies hardly more. The size of the model
fixes the number of trials, and they count as candidates.
"""

from collections.abc import Callable, Mapping
from random import Random

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.band_lines import above_lines, band_lines
from assignor_core.planner.bounds import leaves_replicas_behind
from assignor_core.planner.draft import Change, Draft, Row
from assignor_core.planner.placement import Edit
from assignor_core.planner.search import Search

TRIALS = 60_000
"""Trials with as many columns of load as one window has; with more columns fewer, since each costs more."""
COLUMNS = 6
REPLICAS_MAX = 20_000
"""With more replicas so few trials find next to nothing."""
PARTITIONS_MIN = 50
"""With fewer partitions it is nearly always a heavy one that keeps a plan above its band, and no trial helps."""
THRESHOLDS = (0.2, 0.1, 0.04, 0.01)
"""What a change may cost at the start of each turn, in fair shares of disk."""
BYTES_MORE = 1.1
"""A plan that comes within band or bound may copy so many times what it did before."""
BYTES_MORE_ABOVE = 1.05
"""The same for one that only comes nearer."""
NOTICEABLE = 5e-4
"""Fair shares above the line that are worth a try."""
BETTER = 1e-4
"""Fair shares by which the worst load must come nearer."""
MOVES, EXCHANGES, HANDOVERS = 0.35, 0.25, 0.2
"""Parts of the trials that move a replica, exchange two, hand a leadership over; the others take a movement back."""
FROM_WORST = 0.5
"""Part of the exchanges that relieve the worst broker; the others begin anywhere."""
ROUNDING = 1e-9
REFRESHED = 2_000
"""After so many trials the changed partitions are looked up anew."""


def anneal(search: Search, bounds: Callable[[], Mapping[str, float]], excess_max: float) -> bool:
    """Bring loads that are above the band of their bound nearer to it; whether anything was changed.

    `excess_max` is what no broker may be above its limit, in fair shares.
    """
    problem, placement, policy = search.problem, search.placement, search.problem.policy
    if policy.leaders_only or policy.only_brokers or policy.add or policy.has_budget:
        return False
    replicas = int((placement.original != NO_BROKER).sum())
    if len(placement.original) < PARTITIONS_MIN or replicas > REPLICAS_MAX:
        return False
    # A plan that moves nothing stays so: what it may copy is a part of what it copies.
    if not search.spending.movements or search.effort.is_spent or leaves_replicas_behind(problem.arrays, placement):
        return False
    lines = band_lines(problem, bounds())
    if above_lines(problem, placement.loads, lines) <= NOTICEABLE:
        return False
    draft = Draft(search, lines)
    _anneal(draft, search)
    if not _is_better(search, draft, lines, excess_max):
        return False
    _apply(search, draft.rows)
    return True


def _anneal(draft: Draft, search: Search) -> None:
    """Take `draft` to the cheapest state that turns of falling thresholds lead to."""
    movable, in_racks = search.problem.may_balance, search.placement.in_racks
    if in_racks is not None:  # a draft knows the loads of roles alone
        movable = movable & ~in_racks.is_bound
    proposer = _Proposer(draft, np.flatnonzero(movable).tolist())
    trials = TRIALS * COLUMNS // max(COLUMNS, len(search.problem.weight)) // len(THRESHOLDS)
    best, rows = draft.cost, draft.rows.copy()
    for threshold in THRESHOLDS:
        for trial_number in range(trials):
            if trial_number % REFRESHED == 0:
                proposer.look_up_changed()
            changes = proposer.propose()
            if changes is None:
                continue
            trial = draft.trial(changes)
            left = 1.0 - trial_number / trials
            if trial.rise > threshold * left * left or not draft.is_within_capacity(trial):
                continue
            draft.accept(trial)
            if draft.cost < best - ROUNDING:
                best, rows = draft.cost, draft.rows.copy()
        draft.reset(rows)
    search.effort.score_anew(trials * len(THRESHOLDS))


class _Proposer:
    """Draws changes that keep all rules but capacity; mutable."""

    def __init__(self, draft: Draft, movable: list[int]) -> None:
        self._draft, self._movable, self._is_movable = draft, movable, frozenset(movable)
        self._takers = [broker for broker, may_take in enumerate(draft.may_take) if may_take]
        self._drawn = Random(1).random  # noqa: S311 - the same numbers each time are what it is for
        self._changed: list[int] = []

    def look_up_changed(self) -> None:
        """Note which partitions differ from what they were at first."""
        self._changed = [one for one in self._movable if self._draft.rows[one] != self._draft.original[one]]

    def propose(self) -> tuple[Change, ...] | None:
        """The next change to try; None where what was drawn breaks a rule."""
        if not self._movable or not self._takers:
            return None
        kind = self._drawn()
        if kind < MOVES:
            return self._move()
        if kind < MOVES + EXCHANGES:
            return self._exchange()
        return self._hand_over() if kind < MOVES + EXCHANGES + HANDOVERS else self._return()

    def _one_of(self, values: list[int]) -> int:
        return values[int(self._drawn() * len(values))]

    def _move(self) -> tuple[Change, ...] | None:
        partition = self._one_of(self._movable)
        source, target = self._one_of(self._draft.rows[partition]), self._one_of(self._takers)
        return self._moved(partition, source, target)

    def _exchange(self) -> tuple[Change, ...] | None:
        """A replica of the worst broker, or of any, for any other one of another broker."""
        draft = self._draft
        if self._drawn() < FROM_WORST:
            source = max(range(len(draft.costs)), key=draft.costs.__getitem__)
            partition = self._one_of(draft.held[source]) if draft.held[source] else NO_BROKER
        else:
            partition = self._one_of(self._movable)
            source = self._one_of(draft.rows[partition])
        target = self._one_of(self._takers)
        back = self._one_of(draft.held[target]) if draft.held[target] else NO_BROKER
        if partition == back or not {partition, back} <= self._is_movable:
            return None
        going, coming = self._moved(partition, source, target), self._moved(back, target, source)
        return going + coming if going and coming else None

    def _hand_over(self) -> tuple[Change, ...] | None:
        partition = self._one_of(self._movable)
        leader, *followers = row = self._draft.rows[partition]
        if not followers:
            return None
        taker = self._one_of(followers)
        if not self._draft.may_lead[taker] or not self._draft.may_give[leader]:
            return None
        return (Change(partition, [{leader: taker, taker: leader}.get(broker, broker) for broker in row]),)

    def _return(self) -> tuple[Change, ...] | None:
        """One replica back to where it was at first, or the leadership if all replicas are there."""
        partition = self._one_of(self._changed) if self._changed else NO_BROKER
        if partition == NO_BROKER:
            return None
        row, original = self._draft.rows[partition], self._draft.original[partition]
        away = [broker for broker in row if broker not in original]
        if away:
            source, home = self._one_of(away), self._one_of([broker for broker in original if broker not in row])
            return self._moved(partition, source, home)
        may_lead = row[0] == original[0] or (self._draft.may_lead[original[0]] and self._draft.may_give[row[0]])
        return (Change(partition, original),) if may_lead and row != original else None

    def _moved(self, partition: int, source: int, target: int) -> tuple[Change, ...] | None:
        if not self._draft.may_move(partition, source, target):
            return None
        return (Change(partition, [target if broker == source else broker for broker in self._draft.rows[partition]]),)


def _is_better(search: Search, draft: Draft, lines: Floats, excess_max: float) -> bool:
    """Whether `draft` is worth taking: its worst load is nearer, the whole no less even, for hardly more bytes."""
    problem, placement = search.problem, search.placement
    loads = np.array(draft.loads)
    above = above_lines(problem, loads, lines)
    if above > above_lines(problem, placement.loads, lines) - BETTER:
        return False
    if problem.worst_excess(loads) > excess_max or problem.violation(loads).sum() > search.violation().sum():
        return False
    inflow, sizes = np.zeros(len(loads)), placement.disk_bytes.tolist()
    for row, original, size in zip(draft.rows, draft.original, sizes, strict=True):
        for broker in row:
            if broker not in original:
                inflow[broker] += size
    has_room = bool((inflow <= problem.arrays.disk_room_bytes).all())
    times = BYTES_MORE_ABOVE if above > NOTICEABLE else BYTES_MORE
    return has_room and float(inflow.sum()) <= times * search.spending.bytes_copied


def _apply(search: Search, rows: list[Row]) -> None:
    """Give each partition the replicas and the leader of its row."""
    placement = search.placement
    for partition, row in enumerate(rows):
        original = [broker for broker in placement.original[partition].tolist() if broker != NO_BROKER]
        present = [broker for broker in placement.replicas[partition].tolist() if broker != NO_BROKER]
        if row[0] == present[0] and set(row) == set(present):
            continue
        if row[0] == original[0] and set(row) == set(original):
            search.restore(partition)
            continue
        arriving = [broker for broker in row if broker not in present]
        leaving = [slot for slot, broker in enumerate(present) if broker not in row]
        for slot, target in zip(leaving, arriving, strict=True):
            search.apply_edit(Edit(partition, slot, target))
        leader = placement.replicas[partition].tolist().index(row[0])
        if leader:
            search.apply_edit(Edit(partition, leader, NO_BROKER))
