"""What few bytes buy: placements that rounds reach while the price of copies falls.

At a high price only what relieves the worst broker most for its bytes is worth it. So each placement on the way down is
the best that is known for what it copies, and the way is a frontier of gain over bytes. `cheaper_plans` names some of
it, and `within_budgets` goes as far as a budget allows: a plan with the bytes of a cheaper one as its budget is that
plan. What a budget leaves over after the last such placement is spent by rounds that may not exceed it.

Invariants: each placement of the frontier copies more and gains more than the one before, and is a plan by itself. No
round begins at a placement that breaks a budget. Nothing moves here.
"""

from collections.abc import Iterator
from math import fsum

import numpy as np

from assignor_core.load import Ints
from assignor_core.plan import CheaperPlan, Plan
from assignor_core.planner.round_task import RoundTask, changed_of, copies_of
from assignor_core.planner.rounds import FULL_SLOPE, Case, RoundOutcome, Rounds
from assignor_core.planner.tuning import Turn

GAIN_SHARES = (0.5, 0.8, 0.95)
"""Parts of a plan's gain that cheaper plans are named for."""


def cheaper_plans(case: Case, plan: Plan) -> tuple[CheaperPlan, ...]:
    """For each of `GAIN_SHARES` the plan of the frontier that brings as much of the gain of `plan`, if it copies less.

    `case` is the search that `plan` was made by.
    """
    gain, copied = sum(movement.gain for movement in plan.movements), plan.bytes_to_move
    if gain <= 0.0 or copied <= 0.0:
        return ()
    problem, placement = case.search.problem, case.search.placement
    before = problem.total_cost(placement.original_loads)
    rows: dict[float, CheaperPlan] = {}
    for outcome in frontier(case):
        share = (before - problem.total_cost(outcome.loads)) / gain
        movements, copies = int(changed_of(case.task, outcome.rows).sum()), copied_bytes(case.task, outcome.rows)
        # Of placements that copy the same bytes only the last one stays: the frontier gets better from one to the next.
        rows[copies] = CheaperPlan(share, movements, copies)
    cheaper: list[CheaperPlan] = []
    for share in GAIN_SHARES:
        cheaper += [row for row in rows.values() if row.gain_share >= share and row.bytes_to_move < copied][:1]
    return tuple(dict.fromkeys(cheaper))


def frontier(case: Case) -> Iterator[RoundOutcome]:
    """Placements that copy ever more and are ever better, whatever the budgets are; each is worth its movements."""
    problem, tuning = case.search.problem, case.tuning
    free = case.task._replace(room=problem.arrays.disk_room_bytes, budget=np.array([np.inf, np.inf]))
    rounds, best = Rounds(case, free, case.start.rows, tuning.frontier_trials), case.start
    for price in tuning.prices:
        outcome = rounds.run(_at(case, price))
        if outcome.key < best.key and outcome.paid > best.paid and case.is_worth_it(outcome):
            best = outcome
            yield outcome


def within_budgets(case: Case) -> RoundOutcome:
    """The best placement within the budgets of the policy."""
    policy, best = case.search.problem.policy, case.start
    if policy.bytes_max is None or policy.movements_max is not None or policy.inflow_max is not None:
        return _at_falling_prices(case, best)
    for outcome in frontier(case):
        if copied_bytes(case.task, outcome.rows) > policy.bytes_max:
            break
        best = outcome
    is_spent = copied_bytes(case.task, best.rows) == policy.bytes_max
    return best if is_spent else _at_falling_prices(case, best)


def _at_falling_prices(case: Case, best: RoundOutcome) -> RoundOutcome:
    """The best of `best` and of rounds from there; a lower price counts only if what it copies more brings down as
    much.
    """
    tuning, policy = case.tuning, case.search.problem.policy
    rounds = Rounds(case, case.task, best.rows)
    for price in tuning.prices:
        turn, change = _at(case, price), None
        if policy.movements_max is not None:
            # Changed partitions are what is scarce, and bytes are not.
            turn, change = turn._replace(price=1.0), tuning.change_scarcity * price
        outcome = rounds.run(turn, change)
        if outcome.key < best.key and case.brings_down(outcome, best, tuning.worth_copied):
            best = outcome
    return best


def _at(case: Case, price: float) -> Turn:
    """The round at this price of copies and changes."""
    return Turn(FULL_SLOPE, case.tuning.close[0].width, 0.1 * price, price=price)


def copied_bytes(task: RoundTask, rows: Ints) -> float:
    """Bytes that these rows (P x R) copy, as a plan counts them."""
    return fsum((copies_of(task, rows) * task.sizes).tolist())
