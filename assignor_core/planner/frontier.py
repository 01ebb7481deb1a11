"""Cheaper plans: what the search could have stopped at, with most of the gain for far fewer bytes.

The search relieves the worst broker first, so what it has done by any moment is the beginning of a frontier of gain
over bytes. A point of it is an early state of the search and the hand-overs of leadership that help there, which copy
nothing. That is what a plan with so many bytes as its budget does, too: it begins likewise, and then makes what fits.

The beginnings of the finished plan are worse: most of its movements are combined of edits that belong to early and to
late states. Measured on 12 and 30 brokers: 80 % of the gain takes a third of the bytes, and half of them by beginnings.

Movements that spread crowded racks are in each of them: the way begins with these.

Of few replicas a plan with such a budget may find other movements than the way, as each decides much. There each
cheaper plan is made (`as_made`), and shown as it is.

Invariants: each point keeps hard rules, budgets and the worst broker; gain and bytes grow from point to point. The
number of points tried is limited, and each try leaves the placement as it was at its point of the way.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from assignor_core.load import NO_BROKER
from assignor_core.plan import CheaperPlan, Movement, Plan
from assignor_core.planner.effort import Effort
from assignor_core.planner.placement import Edit
from assignor_core.planner.search import Search

GAIN_SHARES = (0.5, 0.8, 0.95)
"""Parts of a plan's gain that cheaper plans are named for."""
TRIES = 2
"""Points tried for each of them; each try comes nearer to the fewest bytes."""
CANDIDATES_PER_REPLICA_MAX = 20
"""Most candidates that all tries together score, per replica of the cluster."""
CANDIDATES_MAX = 5_000_000
"""And no more than so many, a few seconds: of a million partitions the plan itself takes most of two minutes."""
FEW_REPLICAS = 24
"""With more replicas a plan with such a budget brings what the way brings: 0.001 less at most (466 cheaper plans)."""
MADE_MAX = 4
"""Times that a cheaper plan is made: one that copies less than its budget must be the same with that as its budget."""
ROUNDING = 1e-9


class Way(NamedTuple):
    """The edits that lead from the first placement to a plan."""

    edits: tuple[Edit, ...]
    must: int
    """So many of them, the first ones, only mend what breaks a hard rule: every plan makes them."""


def cheaper_plans(search: Search, way: Way, movements: Sequence[Movement], crowded: int = 0) -> tuple[CheaperPlan, ...]:
    """For each of `GAIN_SHARES` a plan that brings as much of the gain of `movements`, if one copies less.

    None of them leaves more than `crowded` partitions with racks that are not spread, as many as the plan leaves. Puts
    the placement back to where it was at first.

    Broker 1 leads 60 + 40 and broker 2 follows. To hand 40 over is all that even the leaders asks for:

    >>> search = Search(*state_of((1, 2), (1, 2), loads=(60.0, 40.0))[:2])
    >>> cheaper_plans(search, Way((Edit(1, 1, NO_BROKER),), 0), [])
    ()
    """
    gain, copied = _gain(movements), sum(movement.bytes_to_move for movement in movements)
    if gain <= 0 or copied <= 0 or len(way.edits) == way.must:
        return ()
    states = _Walk(search, way, crowded)
    points: dict[float, CheaperPlan] = {states.bytes_min: states.plan_at(states.bytes_min, gain)}
    for share in GAIN_SHARES:
        for _ in range(TRIES):
            below = max((at for at, plan in points.items() if plan.gain_share < share), default=None)
            if below is None or states.is_spent:
                break
            above = min((at for at, plan in points.items() if at > below), default=copied)
            reached = points[above].gain_share if above in points else 1.0
            # Gain per byte falls along the way, so a straight line between two points names bytes that suffice.
            part = (share - points[below].gain_share) / max(reached - points[below].gain_share, ROUNDING)
            at = below + min(1.0, part) * (above - below)
            if at in points:
                break
            points[at] = states.plan_at(at, gain)
    return _best_for_each_share(list(points.values()), copied)


def as_made(
    cheaper: Sequence[CheaperPlan], plan: Plan, propose_within: Callable[[float], Plan]
) -> tuple[CheaperPlan, ...]:
    """Each of `cheaper` with the movements and the gain of `propose_within`, which makes a plan of so many bytes.

    Left out is one that becomes another with each budget.
    """
    gain = _gain(plan.movements)
    made = []
    for row in cheaper:
        budget = row.bytes_to_move
        for _ in range(MADE_MAX):
            again = propose_within(budget)
            if again.bytes_to_move == budget:
                made.append(CheaperPlan(_gain(again.movements) / gain, len(again.movements), budget))
                break
            budget = again.bytes_to_move
    return _best_for_each_share(made, plan.bytes_to_move)


def _gain(movements: Sequence[Movement]) -> float:
    return sum(movement.gain for movement in movements)


def _best_for_each_share(points: Sequence[CheaperPlan], copied: float) -> tuple[CheaperPlan, ...]:
    """For each share the point that copies least, of those that copy less than the plan; each point once."""
    plans: list[CheaperPlan] = []
    for share in GAIN_SHARES:
        enough = [point for point in points if point.gain_share >= share and point.bytes_to_move < copied]
        plans += sorted(enough, key=lambda point: (point.bytes_to_move, -point.gain_share))[:1]
    return tuple(dict.fromkeys(plans))


class _Walk:
    """The states on a way, to be visited to and fro; mutable."""

    def __init__(self, search: Search, way: Way, crowded: int) -> None:
        for partition in search.placement.changed():
            search.restore(int(partition))
        problem, placement = search.problem, search.placement
        replicas = int((placement.original != NO_BROKER).sum())
        # Bytes are counted anew, as a plan with a budget counts them: what was added and taken away leaves a rounding.
        self._search = Search(
            problem, placement, effort=Effort(min(CANDIDATES_MAX, CANDIDATES_PER_REPLICA_MAX * replicas))
        )
        self._way = way.edits
        self._must = way.must
        self._crowded_max = crowded
        self._brokers = int(problem.share.any(axis=1).sum())
        self._cost = problem.total_cost(placement.loads)
        self._excess = problem.worst_excess(placement.loads)
        copied = []
        for number, edit in enumerate(way.edits):
            if number == way.must:
                self._excess = max(self._excess, problem.worst_excess(placement.loads))
            self._search.apply_edit(edit)
            copied.append(self._search.spending.bytes_copied)
        self._copied = list(accumulate(copied, max))
        """The most that was copied at any moment up to each edit: a budget must allow that."""

    @property
    def bytes_min(self) -> float:
        """Bytes that every plan copies."""
        return self._copied[self._must - 1] if self._must else 0.0

    @property
    def is_spent(self) -> bool:
        """Whether no more points may be tried."""
        return self._search.effort.is_spent

    def plan_at(self, bytes_max: float, gain: float) -> CheaperPlan:
        """The last state on the way that copies no more than `bytes_max`, with what leadership can add to it."""
        search = self._search
        place = max(self._must, bisect_right(self._copied, bytes_max))
        search.undo_to(place)
        for edit in self._way[len(search.journal) : place]:
            search.apply_edit(edit)
        leaders = replace(search.problem, policy=replace(search.problem.policy, leaders_only=True))
        search.under(leaders).relieve(self._brokers, retries=0)
        is_worse = search.problem.worst_excess(search.placement.loads) > self._excess + ROUNDING
        is_worse |= int(search.problem.crowded(search.placement).sum()) > self._crowded_max
        share = 0.0 if is_worse else (self._cost - search.problem.total_cost(search.placement.loads)) / gain
        plan = CheaperPlan(share, search.spending.movements, self._copied[place - 1] if place else 0.0)
        search.undo_to(place)
        return plan
