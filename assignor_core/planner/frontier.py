"""Cheaper plans: what the search could have stopped at, with most of the gain for far fewer bytes.

The search relieves the worst broker first, so what it has done by any moment is the beginning of a frontier of gain
over bytes. A point of it is an early state of the search and the hand-overs of leadership that help there, which copy
nothing. That is what a plan with so many bytes as its budget does, too: it begins likewise, and then makes what fits.

The beginnings of the finished plan are worse: most of its movements are combined of edits that belong to early and to
late states. Measured on 12 and 30 brokers: 80 % of the gain takes a third of the bytes, and half of them by beginnings.

Invariants: each point keeps hard rules, budgets and the worst broker; gain and bytes grow from point to point. The
number of points tried is limited, and each try leaves the placement as it was at its point of the way.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.plan import CheaperPlan, Movement
from assignor_core.planner.effort import Effort
from assignor_core.planner.placement import Edit, Indices
from assignor_core.planner.search import Search

GAIN_SHARES = (0.5, 0.8, 0.95)
"""Parts of a plan's gain that cheaper plans are named for."""
TRIES = 2
"""Points tried for each of them; each try comes nearer to the fewest bytes."""
CANDIDATES_PER_REPLICA_MAX = 20
"""Most candidates that all tries together score, per replica of the cluster."""
ROUNDING = 1e-9


def cheaper_plans(search: Search, way: Sequence[Edit], movements: Sequence[Movement]) -> tuple[CheaperPlan, ...]:
    """For each of `GAIN_SHARES` a plan that brings as much of the gain of `movements`, if one copies less.

    `way` are the edits that led from the first placement to the plan. Puts the placement back to where it was at first.

    Broker 1 leads 60 + 40 and broker 2 follows. To hand 40 over is all that even the leaders asks for:

    >>> search = Search(*state_of((1, 2), (1, 2), loads=(60.0, 40.0))[:2])
    >>> cheaper_plans(search, [Edit(1, 1, NO_BROKER)], [])
    ()
    """
    gain, copied = (sum(getattr(one, name) for one in movements) for name in ("gain", "bytes_to_move"))
    if gain <= 0 or copied <= 0:
        return ()
    states = _Way(search, way)
    points: dict[float, CheaperPlan] = {0.0: states.plan_at(0.0, gain)}
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


def _best_for_each_share(points: list[CheaperPlan], copied: float) -> tuple[CheaperPlan, ...]:
    """For each share the point that copies least, of those that copy less than the plan; each point once."""
    plans: list[CheaperPlan] = []
    for share in GAIN_SHARES:
        enough = [point for point in points if point.gain_share >= share and point.bytes_to_move < copied]
        plans += sorted(enough, key=lambda point: (point.bytes_to_move, -point.gain_share))[:1]
    return tuple(dict.fromkeys(plans))


class _Way:
    """The edits of a search, to be walked to and fro; mutable."""

    def __init__(self, search: Search, way: Sequence[Edit]) -> None:
        for partition in search.placement.changed():
            search.restore(int(partition))
        problem, placement = search.problem, search.placement
        replicas = int((placement.original != NO_BROKER).sum())
        # Bytes are counted anew, as a plan with a budget counts them: what was added and taken away leaves a rounding.
        self._search = Search(problem, placement, effort=Effort(CANDIDATES_PER_REPLICA_MAX * replicas))
        self._way = way
        self._brokers: Indices = np.flatnonzero(problem.share.any(axis=1))
        self._cost = self._cost_now()
        self._excess = problem.worst_excess(placement.loads)
        copied = []
        for edit in way:
            self._search.apply_edit(edit)
            copied.append(self._search.spending.bytes_copied)
        self._copied = list(accumulate(copied, max))
        """The most that was copied at any moment up to each edit: a budget must allow that."""

    @property
    def is_spent(self) -> bool:
        """Whether no more points may be tried."""
        return self._search.effort.is_spent

    def plan_at(self, bytes_max: float, gain: float) -> CheaperPlan:
        """The last state on the way that copies no more than `bytes_max`, with what leadership can add to it."""
        search = self._search
        place = bisect_right(self._copied, bytes_max)
        search.undo_to(place)
        for edit in self._way[len(search.journal) : place]:
            search.apply_edit(edit)
        leaders = replace(search.problem, policy=replace(search.problem.policy, leaders_only=True))
        search.under(leaders).relieve(len(self._brokers), retries=0)
        is_worse = search.problem.worst_excess(search.placement.loads) > self._excess + ROUNDING
        share = 0.0 if is_worse else (self._cost - self._cost_now()) / gain
        plan = CheaperPlan(share, search.spending.movements, self._copied[place - 1] if place else 0.0)
        search.undo_to(place)
        return plan

    def _cost_now(self) -> float:
        """Objective of the whole cluster."""
        return float(self._search.problem.cost(self._search.placement.loads[self._brokers], self._brokers).sum())
