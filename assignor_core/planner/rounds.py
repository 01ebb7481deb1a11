"""Rounds of trials from a placement on, and what the placements that they reach are judged by.

A *round* is a number of trials at one slope, width and price (`round_trials`). All rounds of a search have one
objective, and so has the choice in the end: the best placement is that of the least distance above its targets, then
of the least cost. Which rounds follow on each other is decided in `balance` and `frontier`.

Nothing moves here: a `RoundOutcome` has rows of its own.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from assignor_core.load import Floats, Ints
from assignor_core.planner.dual import RoundPrices, round_prices
from assignor_core.planner.failover_trials import price_failovers
from assignor_core.planner.placement import Flags
from assignor_core.planner.problem import Search
from assignor_core.planner.round_task import RoundState, RoundTask, state_of_rows
from assignor_core.planner.round_trials import RoundStep, price_loads, run_round
from assignor_core.planner.targets import above_lines
from assignor_core.planner.tuning import Tuning, Turn

COLUMNS = 6
"""Columns of load that one window has."""
ROUNDING = 1e-3
"""Bytes that a sum of sizes may be off."""
FULL_SLOPE, JUDGED_WIDTH = 40.0, 1e-6
"""Slope of the objective, and its width: a placement is judged by what is above the target alone."""


class RoundOutcome(NamedTuple):
    """A placement that rounds have reached, and what it is judged by."""

    above: float
    """Fair shares by which the worst load is above its target; what does not count is left out. Infinite for a
    placement that breaks a rule.
    """
    cost: float
    """The objective."""
    excess: float
    """Fair shares by which all brokers and loads together are above limits."""
    paid: float
    """The price of copies and of changed partitions, in fair shares of disk; a part of the cost."""
    led: float
    """The price of leaderships in racks that are wanted less, of topics that should be spread, and of failover headroom
    that lacks; a part of the cost.
    """
    rows: Ints
    """P x R."""
    loads: Floats
    """B x C."""

    @property
    def key(self) -> tuple[float, float]:
        """What the least of is the best."""
        return self.above, self.cost


def price_of_spread(task: RoundTask, state: RoundState) -> float:
    """What replicas and leaders cost beyond the even division of their topics, and leaders that brokers lack."""
    over = np.maximum(state.topic_replicas - task.replicas_most, 0.0).sum()
    over += np.maximum(state.topic_leaders - task.leaders_most, 0.0).sum()
    lacking = np.maximum(task.leaders_least - state.topic_leaders, 0.0).sum()
    return float(over * task.spread_prices[0] + lacking * task.spread_prices[1])


class Case:
    """One search: its task, its judge, and the dual's prices once they are needed; mutable."""

    def __init__(self, search: Search, task: RoundTask, targets: Floats, tuning: Tuning) -> None:
        self.search = search
        self.task = task
        self.tuning = tuning
        self._targets = targets
        self._prices: RoundPrices | None = None
        self._most = np.maximum(task.most, search.placement.loads)
        self.start = Rounds(self, task, search.placement.replicas).outcome()

    def above(self, loads: Floats) -> float:
        """Fair shares above the targets, to the precision that counts."""
        return max(above_lines(self.search.problem, loads, self._targets), self.tuning.near)

    def is_above(self, outcome: RoundOutcome) -> bool:
        return outcome.above > self.tuning.near

    def keeps_walls(self, state: RoundState) -> bool:
        """Whether no broker has more than it may have. Trials never break that, but rounds of some partitions alone may
        leave no room for the others.
        """
        return bool((state.loads <= self._most).all() and (state.inflow <= self.task.room + ROUNDING).all())

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

    def best_of(self, outcomes: Sequence[RoundOutcome]) -> RoundOutcome:
        """The nearest to its targets, then the cheapest. What does not reach its targets may have paid only so much
        more than the one of the least cost: the last bit is not worth half of the disk.
        """
        most = self.tuning.nearer_paid * min(outcomes, key=lambda outcome: outcome.cost).paid
        affordable = [outcome for outcome in outcomes if outcome.paid <= most or not self.is_above(outcome)]
        return min(affordable, key=lambda outcome: outcome.key)

    def brings_down(self, other: RoundOutcome, best: RoundOutcome, times: float) -> bool:
        """Whether `other` has less above limits, and leaders in racks that are wanted more, than `best`, by so many
        times what is paid more for it.
        """
        return best.excess + best.led - other.excess - other.led >= times * (other.paid - best.paid)

    def is_worth_it(self, best: RoundOutcome) -> bool:
        """Whether `best` is better than the first placement by more than noise, and by something for its bytes."""
        start, tuning = self.start, self.tuning
        gain = start.cost - best.cost
        if best.key >= start.key:
            return False
        if not self.is_above(start):
            is_wanted = min(gain, start.led - best.led) >= tuning.worth
            return is_wanted or gain >= max(tuning.worth, tuning.worth_share * start.cost)
        if start.above - best.above > 2.0 * tuning.near or not self.is_above(best):
            return True
        return self.brings_down(best, start, tuning.worth_copied) and gain > tuning.worth

    @property
    def is_heavy(self) -> Flags:
        """P: the leader carries much of a fair share of some load."""
        return self.task.is_movable & (self.task.bulk >= self.tuning.heavy)


class Rounds:
    """Rounds from one placement on, each from where the one before ended; mutable.

    `trials_times`: each round has so many times the usual trials.
    """

    def __init__(self, case: Case, task: RoundTask, rows: Ints, trials_times: float = 1.0) -> None:
        tuning = case.tuning
        self.case = case
        self.task = task
        self.state = state_of_rows(task, rows)
        if len(task.zones):
            price_failovers(task, self.state)
        replicas = int((rows >= 0).sum())
        # A small cluster has few pairs of replicas: a round need not try each of them more than `replica_trials` times.
        least = min(tuning.trials_min, tuning.replica_trials * max(replicas, len(task.racks)) ** 2)
        trials = np.clip(tuning.replica_trials * replicas, least, max(tuning.trials_max, replicas))
        # With more columns than one window has, each trial takes longer.
        self._trials = int(trials * trials_times) * COLUMNS // max(COLUMNS, task.limit.shape[1])
        self._is_long = trials_times > 1
        self._unit = float(task.copy_price.mean()) + tuning.change_price if len(task.copy_price) else 0.0

    def run(self, turn: Turn, change_part: float | None = None) -> RoundOutcome:
        """One round; `change_part` is the part of the price of changed partitions, if it is another than of copies."""
        tuning = self.case.tuning
        # For whole numbers numba would compile all code again.
        slope, width, heat, guided, price = (float(figure) for figure in turn)
        step = RoundStep(
            slope=slope,
            width=width,
            even_slope=tuning.even_slope,
            square=slope * slope if slope >= tuning.square_from else 0.0,
            copy_part=price,
            change_price=tuning.change_price * (price if change_part is None else change_part),
            threshold=heat * self._unit,
            trials=self._trials,
            guided=guided,
            idle_share=0.0 if self._is_long else tuning.idle_share,
            targets_tried=tuning.targets_tried,
            heavier_percent=tuning.heavier_percent,
        )
        price_loads(self.task, step, self.state)
        run_round(self.task, step, self.state)
        return self.outcome()

    def outcome(self) -> RoundOutcome:
        """The placement as it is."""
        case, task, state = self.case, self.task, self.state
        even, change = case.tuning.even_slope, case.tuning.change_price
        judge = RoundStep(FULL_SLOPE, JUDGED_WIDTH, even, FULL_SLOPE * FULL_SLOPE, 1.0, change, 0.0, 0, 0.0, 0.0, 1, 0)
        price_loads(task, judge, state)
        copied = float((state.foreign * task.copy_price).sum())
        paid = copied + change * float(state.totals[0])
        has_wish = len(task.lead_price) > 1
        led = float(task.lead_price[task.lead_group, state.rows[:, 0]].sum()) if has_wish else 0.0
        if len(task.replicas_most) > 1:
            led += price_of_spread(task, state)
        led += float(task.failover_price[0] * state.failover.sum())
        cost = float(state.cost.sum()) + paid + led
        above = case.above(state.loads) if case.keeps_walls(state) else np.inf
        return RoundOutcome(above, cost, case.excess(state.loads), paid, led, state.rows.copy(), state.loads.copy())

    def run_all(self, turns: Iterable[Turn]) -> RoundOutcome:
        """Rounds one after the other, then closing rounds until one gains next to nothing; the best of these."""
        for turn in turns:
            outcome = self.run(turn)
        return self.close(outcome)

    def close(self, best: RoundOutcome) -> RoundOutcome:
        """Closing rounds until one gains next to nothing; the best of `best` and of these."""
        tuning = self.case.tuning
        for turn in tuning.close:
            before = best.cost
            best = min(best, self.run(turn), key=lambda outcome: outcome.key)
            if best.cost > before * (1.0 - tuning.better):
                break
        return best

    def recover(self, best: RoundOutcome) -> RoundOutcome:
        """Rounds that take back what hot ones copied for nothing; the best of `best` and of these."""
        return min((best, *map(self.run, self.case.tuning.recover)), key=lambda outcome: outcome.key)

    def run_last(self, best: RoundOutcome) -> RoundOutcome:
        """Rounds for a worst load above its target, until it is there; the best of `best` and of these."""
        for turn in self.case.tuning.last:
            if not self.case.is_above(best):
                break
            best = min(best, self.run(turn), key=lambda outcome: outcome.key)
        return best
