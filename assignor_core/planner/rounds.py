"""The search in rounds: which rounds of trials follow on each other, and which placement of theirs becomes the plan.

A *round* is a number of trials at one slope, width and price (`round_trials`). All rounds have one objective, and so
has the choice in the end. Rounds follow each other in *ways*; each way begins at the first placement or at the best
placement so far, and is for plans that the ways before left above their targets or dearer than they need be.

1. *Ramp*: the slope rises from round to round. At a low slope only what relieves much for its bytes is worth its price,
   so nothing is copied early that a better movement would make needless, and nothing has to be ranked. *Closing* rounds
   at the full slope follow until one gains next to nothing: what is not needed goes home.
2. *Guided*: the same with the prices of the dual (`dual`), if the plan costs more than these prove. Brokers with other
   proportions of disk and network than the rest then sort replicas as a linear program would, without rounding.
3. *Deep*: guided rounds with more trials, for plans above the target or much dearer than the dual proves.
4. *Last*: only above the target, hotter rounds from the best placement, at ever lower prices. Before the next way
   and not after it, three of ten harsh plans copied 6 to 14 % less, and one a fifth more.
5. *Seated*: only above the target, heavy partitions alone, as if light ones carried nothing; then light ones around
   them; then all. Once more with more trials, and with the last rounds after them, if it is still above.

With a budget, and where a policy leaves loads above their target that no allowed movement relieves, *priced* rounds
take the place of these ways: the price of copies and changes falls from a thousand to one, so what relieves the worst
broker most for its bytes comes first. A lower price counts only if what it copies more brings down as much.

The best placement is that of the least distance above its targets, then of the least cost. It becomes a plan if it is
better than the first one by more than noise. So a second plan on the result is empty.

Invariants: one model gives one plan. The result is never further above its targets than the first placement, and no
dearer. No rule is broken (`round_trials`), but by `repair`, which goes before and may crowd a rack to empty a broker.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from assignor_core.load import Floats, Ints
from assignor_core.planner.band_lines import above_lines
from assignor_core.planner.destinations import keep_rules
from assignor_core.planner.dual import RoundPrices, round_prices
from assignor_core.planner.finish import finish
from assignor_core.planner.frontier import Way
from assignor_core.planner.placement import Flags
from assignor_core.planner.round_task import RoundTask, part_of, state_of_rows, targets_of, task_of
from assignor_core.planner.round_trials import RoundStep, price_loads, run_round
from assignor_core.planner.search import Search
from assignor_core.planner.tuning import TUNING, Tuning, Turn
from assignor_core.planner.turns import COLUMNS, apply_rows

FULL_SLOPE, JUDGED_WIDTH = 40.0, 1e-6
"""Slope of the objective, and its width: a placement is judged by what is above the target alone."""


def balance_in_rounds(search: Search, tuning: Tuning = TUNING) -> Way:
    """Keep hard rules, then bring loads below their targets for the least bytes; returns the edits of hard rules.

    Broker 1 leads both partitions that brokers 1 and 2 hold. One hand-over makes them even:

    >>> state = state_of((1, 2), (1, 2))
    >>> _ = balance_in_rounds(Search(state.problem, state.placement))
    >>> sorted(state.placement.replicas[:, 0].tolist())
    [0, 1]
    """
    problem, placement = search.problem, search.placement
    keep_rules(search)
    must = tuple(applied.edit for applied in search.journal)
    if problem.policy.rules_only or not len(placement.original) or not problem.arrays.alive.any():
        return Way(must, len(must))
    targets = targets_of(problem, placement)
    apply_rows(search, _best_rows(Case(search, task_of(search, targets, tuning), targets, tuning)))
    finish(search)
    return Way(must, len(must))


class Outcome(NamedTuple):
    """A placement that rounds have reached, and what it is judged by."""

    above: float
    """Fair shares by which the worst load is above its target; what does not count is left out."""
    cost: float
    """The objective."""
    excess: float
    """Fair shares by which all brokers and loads together are above limits."""
    copied: float
    """Fair shares of disk."""
    rows: Ints
    """P x R."""

    @property
    def key(self) -> tuple[float, float]:
        """What the least of is the best."""
        return self.above, self.cost


class Case:
    """One search: its task, its judge, and the dual's prices once they are needed; mutable."""

    def __init__(self, search: Search, task: RoundTask, targets: Floats, tuning: Tuning) -> None:
        self.search = search
        self.task = task
        self.tuning = tuning
        self._targets = targets
        self._prices: RoundPrices | None = None
        self.start = Rounds(self, task, search.placement.replicas).outcome()

    def above(self, loads: Floats) -> float:
        """Fair shares above the targets, to the precision that counts."""
        return max(above_lines(self.search.problem, loads, self._targets), self.tuning.near)

    def is_above(self, outcome: Outcome) -> bool:
        return outcome.above > self.tuning.near

    def excess(self, loads: Floats) -> float:
        counts = self.search.problem.arrays.columns.counts
        over = np.maximum(loads - self.task.limit, 0.0) * self.task.inverse
        return float(over[:, ~counts].sum())

    @property
    def prices(self) -> RoundPrices:
        """The dual's prices, and what they prove."""
        if self._prices is None:
            self._prices = round_prices(self.search, self.task, self.tuning)
        return self._prices

    @property
    def guided_task(self) -> RoundTask:
        return self.task._replace(dual_price=self.prices.prices)

    @property
    def is_heavy(self) -> Flags:
        """P: the leader carries much of a fair share of some load."""
        return self.task.is_movable & (self.task.bulk >= self.tuning.heavy)


class Rounds:
    """Rounds from one placement on, each from where the one before ended; mutable.

    `trials_times`: each round has so many times the usual trials.
    """

    def __init__(self, case: Case, task: RoundTask, rows: Ints, trials_times: int = 1) -> None:
        tuning = case.tuning
        self.case = case
        self._task = task
        self.state = state_of_rows(task, rows)
        replicas = int((rows >= 0).sum())
        trials = np.clip(tuning.replica_trials * replicas, tuning.trials_min, max(tuning.trials_max, replicas))
        # With more columns than one window has each trial takes longer.
        self._trials = int(trials) * trials_times * COLUMNS // max(COLUMNS, task.limit.shape[1])
        self._is_long = trials_times > 1
        self._unit = float(task.copy_price.mean()) + tuning.change_price if len(task.copy_price) else 0.0

    def run(self, turn: Turn, change_part: float | None = None) -> Outcome:
        """One round; `change_part` is the part of the price of changed partitions, if it is another than of copies."""
        tuning = self.case.tuning
        step = RoundStep(
            slope=turn.slope,
            width=turn.width,
            even_slope=tuning.even_slope,
            square=turn.slope * turn.slope if turn.slope >= tuning.square_from else 0.0,
            copy_part=turn.price,
            change_price=tuning.change_price * (turn.price if change_part is None else change_part),
            threshold=turn.heat * self._unit,
            trials=self._trials,
            guided=turn.guided,
            idle_share=0.0 if self._is_long else tuning.idle_share,
            targets_tried=tuning.targets_tried,
            heavier_percent=tuning.heavier_percent,
        )
        price_loads(self._task, step, self.state)
        run_round(self._task, step, self.state)
        return self.outcome()

    def outcome(self) -> Outcome:
        """The placement as it is."""
        case, task, state = self.case, self._task, self.state
        even, change = case.tuning.even_slope, case.tuning.change_price
        judge = RoundStep(FULL_SLOPE, JUDGED_WIDTH, even, FULL_SLOPE * FULL_SLOPE, 1.0, change, 0.0, 0, 0.0, 0.0, 1, 0)
        price_loads(task, judge, state)
        copied = float((state.foreign * task.copy_price).sum())
        cost = float(state.cost.sum()) + copied + change * float(state.totals[0])
        return Outcome(case.above(state.loads), cost, case.excess(state.loads), copied, state.rows.copy())

    def run_all(self, turns: Iterable[Turn]) -> Outcome:
        """Rounds one after the other, then closing rounds until one gains next to nothing; the best of these."""
        for turn in turns:
            outcome = self.run(turn)
        return self.close(outcome)

    def close(self, best: Outcome) -> Outcome:
        """Closing rounds until one gains next to nothing; the best of `best` and of these."""
        tuning = self.case.tuning
        for turn in tuning.close:
            before = best.cost
            best = min(best, self.run(turn), key=lambda outcome: outcome.key)
            if best.cost > before * (1.0 - tuning.better):
                break
        return best

    def recover(self, best: Outcome) -> Outcome:
        """Rounds that take back what hot ones copied for nothing; the best of `best` and of these."""
        return min((best, *map(self.run, self.case.tuning.recover)), key=lambda outcome: outcome.key)

    def run_last(self, best: Outcome) -> Outcome:
        """Rounds for a worst load above its target, until it is there; the best of `best` and of these."""
        for turn in self.case.tuning.last:
            if not self.case.is_above(best):
                break
            best = min(best, self.run(turn), key=lambda outcome: outcome.key)
        return best


def _best_rows(case: Case) -> Ints:
    """The rows that the plan becomes: those of the first placement where nothing is better by more than noise."""
    start, tuning, policy = case.start, case.tuning, case.search.problem.policy
    if not case.is_above(start) and start.cost <= tuning.worth:
        return start.rows
    if policy.has_budget:
        best = _priced(case)
    else:
        best = _ramp(case, start)
        is_narrow = bool(policy.only_brokers or policy.add or policy.excluded_brokers)
        if is_narrow and case.is_above(best):
            best = _priced(case)
        else:
            for way in WAYS:
                best = min(best, way(case, best), key=lambda outcome: outcome.key)
    return best.rows if _is_worth_it(case, best) else start.rows


def _is_worth_it(case: Case, best: Outcome) -> bool:
    """Whether `best` is better than the first placement by more than noise, and by something for its bytes."""
    start, tuning = case.start, case.tuning
    gain = start.cost - best.cost
    if best.key >= start.key:
        return False
    if not case.is_above(start):
        return gain >= max(tuning.worth, tuning.worth_share * start.cost)
    if start.above - best.above > 2.0 * tuning.near or not case.is_above(best):
        return True
    return start.excess - best.excess >= tuning.worth_copied * (best.copied - start.copied) and gain > tuning.worth


def _ramp(case: Case, best: Outcome) -> Outcome:
    return Rounds(case, case.task, best.rows).run_all(case.tuning.ramp)


def _guided(case: Case, best: Outcome) -> Outcome:
    """Rounds with the dual's prices, if `best` costs more than these prove."""
    if not case.prices.prices.any():
        return best
    if not case.is_above(best) and best.cost <= case.tuning.enough * case.prices.bound:
        return best
    return Rounds(case, case.guided_task, case.start.rows).run_all(case.tuning.guided)


def _deep(case: Case, best: Outcome) -> Outcome:
    """More trials, with the dual's prices where there are any, if `best` is above its target or much dearer than these
    prove.
    """
    tuning = case.tuning
    if not case.is_above(best) and best.cost <= tuning.dear * case.prices.bound:
        return best
    turns = tuning.deep if case.prices.prices.any() else tuning.ramp
    return Rounds(case, case.guided_task, case.start.rows, tuning.deep_trials).run_all(turns)


def _seated(case: Case, best: Outcome, trials_times: int = 2) -> Outcome:
    """Heavy partitions first, if `best` is above its target."""
    heavy = np.flatnonzero(case.is_heavy)
    if not case.is_above(best) or not len(heavy):
        return best
    tuning, rows = case.tuning, case.start.rows.copy()
    alone = Rounds(case, part_of(case.task, heavy), rows[heavy], trials_times)
    rows[heavy] = alone.run_last(alone.run_all(tuning.ramp)).rows
    light = case.task._replace(is_movable=case.task.is_movable & ~case.is_heavy)
    around = Rounds(case, light, rows, trials_times).run_all(tuning.ramp)
    return Rounds(case, case.task, around.rows, trials_times).close(around)


def _last(case: Case, best: Outcome) -> Outcome:
    """Hotter rounds from `best`, if it is above its target."""
    if not case.is_above(best):
        return best
    rounds = Rounds(case, case.task, best.rows, case.tuning.deep_trials)
    reached = rounds.run_last(best)
    return Rounds(case, case.task, reached.rows, case.tuning.deep_trials).recover(reached)


def _seated_again(case: Case, best: Outcome) -> Outcome:
    """Heavy partitions first, with more trials, and hotter rounds after them."""
    if not case.is_above(best):
        return best
    return _last(case, _seated(case, best, case.tuning.deep_trials))


WAYS: tuple[Callable[[Case, Outcome], Outcome], ...] = (_guided, _deep, _last, _seated, _seated_again)
"""What follows on the ramp, in order; each returns the best that it was given, or what it has reached."""


def _priced(case: Case) -> Outcome:
    """Rounds at falling prices; a lower price counts only if what it copies more brings down as much."""
    tuning, policy, best = case.tuning, case.search.problem.policy, case.start
    scarce = tuning.change_scarcity if policy.movements_max is not None else 1.0
    rounds = Rounds(case, case.task, best.rows)
    closing = tuning.close[0]
    for price in tuning.prices:
        turn = Turn(FULL_SLOPE, closing.width, 0.1 * price, price=1.0 if policy.movements_max is not None else price)
        outcome = rounds.run(turn, scarce * price)
        brought_down = best.excess - outcome.excess
        if outcome.key < best.key and brought_down >= tuning.worth_copied * (outcome.copied - best.copied):
            best = outcome
    return best
