"""Relief of overloaded brokers, in one of two ways: one after the other (`search`), or where a linear program leads.

The first is what clusters of brokers of equal proportions need, and copies least there. The second is for brokers with
more disk for their network than others, and for plans that the first leaves above band and bound. It has three steps.
Whole replicas follow the linear program (`guided`). Annealing brings what is left below the lines, with what relieves
most for its bytes first, and evens what is below them (`anneal_by_price`). Where heavy partitions are in the way they
get other seats first. Relief of counts that are above their caps comes last.

Invariants: as for all phases, no hard rule is broken, and the journal leads back. Every loop is limited by number.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from assignor_core.planner.annealing import BETTER, BYTES_MORE, NOTICEABLE, anneal, anneal_by_price, may_anneal
from assignor_core.planner.attainable import attainable
from assignor_core.planner.bound_lines import above, lines_of
from assignor_core.planner.guided import guide, have_unequal_proportions, may_guide, put_in_order
from assignor_core.planner.kicks import kick
from assignor_core.planner.problem import Problem
from assignor_core.planner.repair import repair
from assignor_core.planner.search import Search
from assignor_core.planner.seating import is_within_capacities, make_room, seat_heavy
from assignor_core.planner.turns import apply_rows
from assignor_core.planner.wide_exchanges import exchange_widely

ROUNDS = 8
"""Most rounds of relief, kicks and repair: what moved may have changed what is attainable, and made room."""
IDLE = 0.98
"""A round that leaves so much of the violation is the last: those after it gain next to nothing."""
KICKED_FROM = 0.5
"""A way on is tried only where a round of relief leaves this part of the violation: while rounds get on, they go on."""
OTHER_WAY_AFTER, OTHER_WAY_EFFORT = 2, 0.25
"""Where so many rounds have used this part of the most candidates, the linear program is tried in place of what they
did: more of them take long, and gain little.
"""
OTHER_WAY_BYTES = 1.1
"""What it may copy more than these: what rounds would still copy is not known then."""
LINES_MAX = 3
"""Times that annealing is asked for lines anew, which may be lower once the placement is better."""
SEATINGS = 3
"""Times that heavy partitions get other seats."""
SEATED = 0.9
"""Other seats are kept if they leave this part of the distance to band and bound: the last try at random may mend a
tenth as well, and moves less.
"""


class Relief(NamedTuple):
    """What was done, and how to undo it step by step."""

    marks: list[int]
    """How long the journal was at the start and after each step."""
    is_annealed: bool


def relieve(search: Search, excess_max: float) -> Relief:
    """Relief of the overloaded: the way that is for this cluster first, then the other where it ends above band and
    bound. `excess_max` is what no broker may be above its limit, in fair shares.
    """
    mark = len(search.journal)
    limited = search.under(attainable(search.problem, search.placement))
    may_be_guided = may_guide(limited)
    if may_be_guided and have_unequal_proportions(search.problem):
        if above(search) <= NOTICEABLE:
            return _annealed(search, mark, excess_max) or Relief([mark, *_counts_relieved(search)], is_annealed=False)
        guide(limited)
        relief = _annealed(search, mark, excess_max) or _in_rounds_since(search, mark)
        return or_better(search, relief, lambda: Relief([mark, *_in_rounds(search)], is_annealed=False))
    if not may_be_guided or above(search) <= NOTICEABLE:
        return Relief([mark, *_in_rounds(search)], is_annealed=False)
    relief = Relief([mark], is_annealed=False)
    for number, steps in enumerate(_rounds(search), start=1):
        relief.marks.extend(steps)
        is_slow = search.effort.candidates > OTHER_WAY_EFFORT * search.effort.candidates_max
        if number == OTHER_WAY_AFTER and is_slow:
            guided = or_better(search, relief, lambda: _guided(search, limited, excess_max), OTHER_WAY_BYTES)
            if guided is not relief:
                return guided
    return or_better(search, relief, lambda: _guided_in_rounds(search, limited))


def or_better(
    search: Search, relief: Relief, way: Callable[[], Relief | None], bytes_more: float = BYTES_MORE
) -> Relief:
    """`relief`, or in its place what `way` does, if that brings the worst load nearer to band and bound and copies at
    most `bytes_more` times as much.

    Where there is nothing left to bring nearer, or the effort is spent, the other way is not tried.
    """
    mark, above_before, copied = relief.marks[0], above(search), search.spending.bytes_copied
    if above_before <= NOTICEABLE or search.effort.is_spent:
        return relief
    edits = [applied.edit for applied in search.journal[mark:]]
    search.undo_to(mark)
    other = way()
    is_nearer = other is not None and above(search) < above_before - BETTER
    if other is not None and is_nearer and search.spending.bytes_copied <= bytes_more * copied:
        return other
    search.undo_to(mark)
    for edit in edits:
        search.apply_edit(edit)
    return relief


def _guided(search: Search, limited: Search, excess_max: float) -> Relief | None:
    """What the linear program would move, and annealing for the rest; None where that does not end within band and
    bound.
    """
    mark = len(search.journal)
    guide(limited)
    return _annealed(search, mark, excess_max)


def _annealed(search: Search, mark: int, excess_max: float) -> Relief | None:
    """Annealing for what the linear program, led since `mark`, has left above band and bound. None, and nothing moves,
    where that is not brought within, not even with other seats for heavy partitions.
    """
    guided = len(search.journal)
    if not _anneal_by_price(search, mark, excess_max):
        is_seated = seat_heavy(search, lines_of(search)) and _anneal_by_price(search, mark, excess_max)
        if not is_seated or not is_within_capacities(search.problem, search.placement):
            search.undo_to(guided)
            return None
    return Relief([mark, *_counts_relieved(search)], is_annealed=True)


def _counts_relieved(search: Search) -> list[int]:
    """Relief of leaders and replicas that annealing has left above their soft caps, and of the last bit above a line.
    Returns how long the journal was before and after.
    """
    mark = len(search.journal)
    search.under(_within_lines(search)).relieve()
    return [mark, len(search.journal)]


def asked(search: Search) -> Problem:
    """What relief still asks for at its end: limits that can be met, or where annealing has weighed these against the
    bytes that they take, no more than it has brought.
    """
    if have_unequal_proportions(search.problem) and may_anneal(search) and above(search) <= NOTICEABLE:
        return _within_lines(search)
    return attainable(search.problem, search.placement)


def _within_lines(search: Search) -> Problem:
    """What is asked where loads are within band and bound: that counts come within their caps, and nobody's load rises
    above what can be met, or from above it at all.
    """
    problem, loads = search.problem, search.placement.loads
    limited, counts = attainable(problem, search.placement), problem.arrays.columns.counts
    most = np.minimum(np.maximum(limited.limit, loads), np.maximum(lines_of(search), problem.limit))
    goal = np.minimum(np.maximum(limited.goal, most - (limited.limit - limited.goal)), most)
    return replace(
        problem,
        goal=np.where(counts, limited.goal, goal),
        limit=np.where(counts, limited.limit, most),
        ceiling=np.where(counts, problem.ceiling, most),
    )


def _guided_in_rounds(search: Search, limited: Search) -> Relief:
    """What the linear program would move, and rounds of relief for the rest."""
    mark = len(search.journal)
    guide(limited)
    return _in_rounds_since(search, mark)


def _in_rounds_since(search: Search, mark: int) -> Relief:
    """Rounds of relief for what the linear program, led since `mark`, has left."""
    put_in_order(search, mark)
    return Relief([mark, *_in_rounds(search)], is_annealed=False)


def _anneal_by_price(search: Search, mark: int, excess_max: float) -> bool:
    """Anneal until all is within band and bound; whether that was possible, else nothing moves. What moved since `mark`
    is put in order.
    """
    before = len(search.journal)
    for _ in range(LINES_MAX):
        if not anneal_by_price(search, lines_of(search), excess_max):
            break
        if above(search) <= NOTICEABLE:
            rows = search.placement.replicas.copy()
            put_in_order(search, mark)
            apply_rows(search, rows)  # with what a hard rule had forbidden in its turn
            return True
    search.undo_to(before)
    return False


def seat(search: Search, excess_max: float) -> Relief:
    """Other seats for heavy partitions, as long as the worst load comes much nearer to band and bound; arguments as for
    `relieve`.
    """
    seated = Relief([], is_annealed=False)
    if search.problem.policy.has_budget:
        return seated
    distance, copied = above(search), search.spending.bytes_copied
    for _ in range(SEATINGS):
        mark = len(search.journal)
        if distance <= NOTICEABLE or not seat_heavy(search, lines_of(search)):
            break
        make_room(search)
        steps = [mark, len(search.journal), *_after_seats(search, mark, excess_max, copied)]
        nearer = above(search)
        is_sound = is_within_capacities(search.problem, search.placement)
        if not is_sound or nearer > SEATED * distance or search.spending.bytes_copied > BYTES_MORE * copied:
            search.undo_to(mark)
            break
        seated, distance = Relief([*seated.marks, *steps], is_annealed=True), nearer
    return seated


def _after_seats(search: Search, mark: int, excess_max: float, copied: float) -> list[int]:
    """Relief, where that comes nearer, and annealing; returns how long the journal was after each step."""
    seated, before = above(search), len(search.journal)
    if _anneal_by_price(search, mark, excess_max):
        return [len(search.journal)]
    steps = _in_rounds(search)
    if above(search) > seated:
        search.undo_to(before)
        steps = []
    if anneal(search, excess_max, copied):
        steps.append(len(search.journal))
    return steps


def _in_rounds(search: Search) -> list[int]:
    """All rounds of relief: how long the journal was after each of their steps."""
    return [mark for marks in _rounds(search) for mark in marks]


def _rounds(search: Search) -> Iterator[list[int]]:
    """Relief, exchanges and kicks, until nothing changes or a round gains next to nothing; of each round how long the
    journal was after each step.
    """
    exchanges_pay = True
    for number in range(ROUNDS):
        edits_before, marks = len(search.journal), list[int]()
        # At first heavy partitions are driven to brokers that can hold them.
        limits = partial(attainable, search.problem, search.placement, everywhere=number > 0)
        within = search.under(limits())
        violation = float(within.violation().sum())
        within.relieve()
        marks.append(len(search.journal))
        exchanges_pay = exchanges_pay and exchange_widely(within)
        marks.append(len(search.journal))
        if float(within.violation().sum()) > KICKED_FROM * violation:
            within = kick(within, limits)
        left = float(within.violation().sum())
        repair(search)
        marks.append(len(search.journal))
        is_last = number > 0 and (len(search.journal) == edits_before or left > IDLE * violation)
        yield marks
        if is_last:
            break
