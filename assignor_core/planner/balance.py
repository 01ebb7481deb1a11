"""The search: which rounds of trials follow on each other, and which placement of theirs becomes the plan.

Rounds (`rounds`) follow each other in *ways*. Each way begins at the first placement or at the best placement so far,
and is for plans that the ways before left above their targets or dearer than they need be.

1. *Ramp*: the slope rises from round to round. At a low slope only what relieves much for its bytes is worth its price,
   so nothing is copied early that a better movement would make needless, and nothing has to be ranked. *Closing* rounds
   at the full slope follow until one gains next to nothing: what is not needed goes home.
2. *Guided*: the same with the prices of the dual (`dual`), if the plan costs more than these prove. Brokers with other
   proportions of disk and network than the rest then sort replicas as a linear program would, without rounding.
3. *Deep*: guided rounds with more trials, for plans above the target, or that guided rounds made much cheaper.
4. *Last*: only above the target, hotter rounds at ever lower prices from the cheapest placement so far, as if that were
   the first one. Counted from the first one on, one plan had 2,054 movements in place of 985 (2026-11-29: 69, new).
5. *Seated*: only above the target, heavy partitions alone, as if light ones carried nothing; then light ones around
   them; then all. Once more with more trials and the last rounds after them, and then the last rounds from the nearest
   placement, if it is still above.

With a budget, rounds at falling prices take the place of these ways (`frontier`). Where a policy leaves out brokers,
loads may stay above their targets that no allowed movement relieves; there the ramp is all, as hotter rounds would move
much for nothing.

In small clusters loads often come in equal units, as in a demo or a test, and exact evenness may be a movement away
from the band. Stopping short of it would puzzle whoever looks, so a last way makes up to eight movements more if that
makes every load exactly even, and none otherwise.

The best placement is that of the least distance above its targets, then of the least cost; one that does not reach
them may pay only so much more than the cheapest. It becomes a plan if it is better than the first one by more than
noise. So a second plan on the result is mostly empty; it may not be if loads stay above targets, or soft rules unmet.

Invariants: one model gives one plan. The result is never further above its targets than the first placement, and no
dearer. No rule is broken (`round_trials`), but by `repair`, which goes before and may crowd a rack to empty a broker.
"""

from collections.abc import Callable

import numpy as np

from assignor_core.planner.frontier import within_budgets
from assignor_core.planner.problem import Search
from assignor_core.planner.repair import repair
from assignor_core.planner.round_task import anchored, changed_of, part_of, state_of_rows, task_of
from assignor_core.planner.rounds import Case, RoundOutcome, Rounds
from assignor_core.planner.targets import targets_of
from assignor_core.planner.tuning import TUNING, Tuning

Found = list[RoundOutcome]
"""What the ways so far have reached, that of the ramp first."""
EVEN = 1e-7
"""Fair shares that differ by less are even: loads are rounded to a grid."""


def balance(search: Search, tuning: Tuning = TUNING) -> Case | None:
    """Keep hard rules, then bring loads below their targets for the least bytes; returns the case, for cheaper plans,
    or None if hard rules are all.

    Broker 1 leads both partitions that brokers 1 and 2 hold. One hand-over makes them even:

    >>> search = state_of((1, 2), (1, 2))
    >>> _ = balance(search)
    >>> sorted(search.placement.replicas[:, 0].tolist())
    [0, 1]
    """
    problem, placement, policy = search.problem, search.placement, search.problem.policy
    repair(search)
    if not len(placement.original) or not problem.arrays.alive.any():
        return None
    if policy.rules_only or policy.only_brokers:
        _choose_destinations(search, tuning)
    if policy.rules_only:
        return None
    case = _case_of(search, tuning)
    search.placement.take(_best(case).rows)
    if problem.misplaced(placement.replicas).any():
        # What had no room in the set of its topic may have some now.
        repair(search)
    return case


def _case_of(search: Search, tuning: Tuning) -> Case:
    targets = targets_of(search.problem, search.placement)
    return Case(search, task_of(search, targets, tuning), targets, tuning)


def _choose_destinations(search: Search, tuning: Tuning) -> None:
    """Other places and leaders for what hard rules have moved, where nothing else of the plan may make up for them.

    Repair places one replica after the other, so a plan that only empties brokers would end as uneven as that leaves
    it. Nothing more is copied, and no other partition is touched. What consumers read in their racks stays.
    """
    problem, placement = search.problem, search.placement
    case = _case_of(search, tuning)
    moved = changed_of(case.task, case.start.rows) & problem.movable
    if placement.in_racks is not None:
        moved &= ~placement.in_racks.is_bound
    if not moved.any():
        return
    totals = state_of_rows(case.task, case.start.rows).totals
    rounds = Rounds(case, case.task._replace(is_movable=moved, budget=totals), case.start.rows)
    best = rounds.run_all(tuning.ramp)
    if best.key < case.start.key:
        search.placement.take(best.rows)


def _best(case: Case) -> RoundOutcome:
    """The placement that the plan becomes: the first one where nothing is better by more than noise."""
    start, tuning, policy = case.start, case.tuning, case.search.problem.policy
    if not case.is_above(start) and start.cost <= tuning.worth:
        return _even(case, start)
    if policy.has_budget:
        best = within_budgets(case)
    else:
        found = [Rounds(case, case.task, start.rows).run_all(tuning.ramp)]
        is_narrow = bool(policy.only_brokers or policy.add or policy.excluded_brokers)
        for way in () if is_narrow else WAYS:
            found.append(way(case, found))
        best = case.best_of(found)
    return _even(case, best if case.is_worth_it(best) else start)


def _guided(case: Case, found: Found) -> RoundOutcome:
    """Rounds with the dual's prices, if the best costs more than these prove."""
    best = case.best_of(found)
    if not case.prices.prices.any():
        return best
    if not case.is_above(best) and best.cost <= case.tuning.enough * case.prices.bound:
        return best
    return Rounds(case, case.guided_task, case.start.rows).run_all(case.tuning.guided)


def _deep(case: Case, found: Found) -> RoundOutcome:
    """More trials, with the dual's prices where there are any, if the best is above its target or much cheaper than the
    ramp: there much depends on who holds what.
    """
    best, tuning = case.best_of(found), case.tuning
    if not case.is_above(best) and tuning.enough * best.cost >= found[0].cost:
        return best
    turns = tuning.guided if case.prices.prices.any() else tuning.ramp
    return Rounds(case, case.guided_task, case.start.rows, tuning.deep_trials).run_all(turns)


def _last(case: Case, found: Found) -> RoundOutcome:
    """Hotter rounds from the cheapest placement so far, if the best is above its target."""
    best, cheapest = case.best_of(found), min(found, key=lambda outcome: outcome.cost)
    return _hotter(case, cheapest) if case.is_above(best) else best


def _hotter(case: Case, begin: RoundOutcome) -> RoundOutcome:
    """Hotter rounds from `begin`. Copies are counted from there on, so what it has found is home; counted from the
    first placement on, hot rounds would lose it. Leaders and replicas cost nothing: their caps are soft.
    """
    trials, counts = case.tuning.deep_trials, case.search.problem.arrays.columns.counts
    task = anchored(case.task, begin.rows)._replace(weight=np.where(counts, 0.0, case.task.weight))
    rounds = Rounds(case, task, begin.rows, trials)
    reached = rounds.run_last(rounds.outcome())
    rounds = Rounds(case, case.task, reached.rows, trials)
    return rounds.recover(rounds.outcome())


def _seated(case: Case, found: Found, trials_times: int = 2) -> RoundOutcome:
    """Heavy partitions first, if the best is above its target."""
    best, heavy = case.best_of(found), np.flatnonzero(case.is_heavy)
    if not case.is_above(best) or not len(heavy):
        return best
    tuning, rows = case.tuning, case.start.rows.copy()
    alone = Rounds(case, part_of(case.task, heavy), rows[heavy], trials_times)
    rows[heavy] = alone.run_last(alone.run_all(tuning.ramp)).rows
    light = case.task._replace(is_movable=case.task.is_movable & ~case.is_heavy)
    around = Rounds(case, light, rows, trials_times).run_all(tuning.ramp)
    return Rounds(case, case.task, around.rows, trials_times).close(around)


def _seated_again(case: Case, found: Found) -> RoundOutcome:
    """Heavy partitions first, with more trials, and hotter rounds after them."""
    best = case.best_of(found)
    return _hotter(case, _seated(case, found, case.tuning.deep_trials)) if case.is_above(best) else best


def _last_again(case: Case, found: Found) -> RoundOutcome:
    """Hotter rounds from the nearest placement: a plan on this one's result would begin so."""
    best = case.best_of(found)
    return _hotter(case, best) if case.is_above(best) else best


WAYS: tuple[Callable[[Case, Found], RoundOutcome], ...] = (
    _guided, _deep, _last, _seated, _seated_again, _last_again,
)  # fmt: skip
"""What follows on the ramp, in order. Each returns what it has reached, or the best so far if that is good enough."""


def _even(case: Case, best: RoundOutcome) -> RoundOutcome:
    """The cheapest placement that makes every load exactly even, if it takes few movements more than `best`."""
    tuning, problem, task = case.tuning, case.search.problem, case.task
    counts = problem.arrays.columns.counts
    is_even = _unevenness(case, best) <= tuning.near
    is_small = tuning.replica_trials * task.original.size <= tuning.trials_min
    if problem.policy.has_budget or not is_small or is_even:
        return best
    line = np.where(counts, task.limit, np.minimum(problem.share, problem.ceiling))
    reached = Rounds(case, task._replace(limit=line, target=line), case.start.rows).run_all(tuning.ramp)
    more = int(changed_of(task, reached.rows).sum()) - int(changed_of(task, best.rows).sum())
    is_few = more <= tuning.even_movements and reached.led <= best.led
    return reached if is_few and _unevenness(case, reached) <= EVEN else best


def _unevenness(case: Case, outcome: RoundOutcome) -> float:
    """Fair shares by which the worst load of a broker in use is above its own, counts left out."""
    problem, loads = case.search.problem, outcome.loads
    at = np.ix_(problem.arrays.alive, ~problem.arrays.columns.counts)
    return float(((loads[at] - problem.share[at]) / problem.share[at]).max(initial=0.0))
