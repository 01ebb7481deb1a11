"""Small changes at random, some of them for the worse, for plans that are above band and bound.

The search takes only what improves, and kicks go one way from one stuck broker. What is left then are plans in which
several replicas of several brokers must change places at once. Turns of annealing (`turns`) can do that. They are for
two places of a plan:

- By price (`anneal_by_price`), where whole replicas have followed a linear program (`relief`). Each turn goes on from
  the one before, at half the price, until all is within band and bound. Further ones even what is above limits that
  can be met, as far as that is worth its bytes.
- As a last try (`anneal`). Each turn begins with the best placement so far. The first thresholds are low, since high
  ones move much that is not needed. Then prices are low, too.

Invariants: a last try leaves a plan within band or bound alone. Any other one is changed only if its worst load ends
nearer to the band, by price only if all end within it. In a last try what brokers are above their limits in all does
not grow, but where every load ends within band or bound; the more bytes it copies, the nearer it must come. The number
of trials has a limit of its own: a search that is spent may still be near its end.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.attainable import attainable
from assignor_core.planner.band_lines import above_lines
from assignor_core.planner.bound_lines import REPLICAS_MAX, lines_of
from assignor_core.planner.bounds import leaves_replicas_behind
from assignor_core.planner.draft import Task, task_of
from assignor_core.planner.problem import Problem
from assignor_core.planner.search import Search
from assignor_core.planner.turns import Step, Turns, apply_rows

TRIALS = 2_500_000
"""Trials of a turn, which take a quarter of a second."""
STEPS = (
    Step(0.001), Step(0.003), Step(0.01), Step(0.03),
    Step(0.003, 0.2, 0.2), Step(0.01, 0.2, 0.2), Step(0.03, 0.2, 0.2), Step(0.1, 0.2, 0.2),
)  # fmt: skip
"""Turns, one after the other."""
PRICE_THRESHOLD = 0.0003
PRICE_STEPS = (
    *(Step(PRICE_THRESHOLD, part, part) for part in (32.0, 16.0, 8.0, 4.0, 2.0, 1.0)),
    *(Step(PRICE_THRESHOLD, part) for part in (0.5, 0.2, 0.1)),  # else the last bit takes many small movements
    *(Step(PRICE_THRESHOLD, part, 2.0 * part) for part in (0.1, 0.03)),
)  # fmt: skip
"""Turns from where the linear program leads: what relieves most for its bytes comes first, and the last bit last."""
EVEN_PART = 0.025
"""What is above a broker's own limit, though below the line of all, costs this part of what is above the line: one fair
share less of it is worth one that is copied.
"""
EVEN_COUNTS = 10.0
"""Leaders and replicas cost so many times more then. Measured on four plans: with 3 some brokers keep a fifth too many,
with 30 up to 4 % more bytes are copied.
"""
EVEN_TURNS_MAX, EVEN_TURN_LEAVES = 6, 0.95
"""Most turns for it, and the part of it that the last one leaves: else a second plan would begin with another turn."""
HOPELESS = 0.15
"""Fair shares above the line after two turns from which no other helps: a heavy partition is in the way."""
TRIALS_PER_REPLICA = 40
PRICE_TRIALS = (200_000, 1_250_000)
"""Least and most trials of a turn by price."""
THRIFTY = Step(0.001)
"""One more turn, which takes back what the plan can do without."""
PARTITIONS_MIN = 50
"""With fewer partitions it is nearly always a heavy one that keeps a plan above its band, and no trial helps."""
NOTICEABLE = 5e-4
"""Fair shares above the line that are worth a try."""
BETTER = 1e-4
"""Fair shares by which the worst load must come nearer."""
NEARER = 0.95
"""All turns together must leave so much of the distance, else more movements are not worth it."""
BYTES_MORE = 1.25
"""A plan that comes within band or bound may copy so many times what it did before; one that comes half as near, half
as many more.
"""
BYTES_MORE_SPENT = 1.5
"""The same where the limit of the search's work has ended it: then it has not copied all that the band asks for."""


def may_anneal(search: Search) -> bool:
    """Whether annealing is for this plan: one without budgets, of a cluster neither too small nor too large."""
    problem, placement, policy = search.problem, search.placement, search.problem.policy
    if policy.leaders_only or policy.only_brokers or policy.add or policy.has_budget:
        return False
    replicas = int((placement.original != NO_BROKER).sum())
    if len(placement.original) < PARTITIONS_MIN or replicas > REPLICAS_MAX:
        return False
    return not leaves_replicas_behind(problem.arrays, placement)


def anneal(search: Search, excess_max: float, bytes_copied: float) -> bool:
    """Bring loads that are above band and bound nearer to them; whether anything was changed.

    `excess_max` is what no broker may be above its limit, in fair shares. `bytes_copied` is what the plan copies else.
    """
    # A plan that moves nothing stays so: what it may copy is a part of what it copies.
    if not search.spending.movements or not may_anneal(search):
        return False
    lines = lines_of(search)
    if above_lines(search.problem, search.placement.loads, lines) <= NOTICEABLE:
        return False
    rows = _annealed(search, lines, excess_max, bytes_copied)
    if rows is not None:
        apply_rows(search, rows)
    return rows is not None


def anneal_by_price(search: Search, lines: Floats, excess_max: float) -> bool:
    """Bring all loads below `lines` (B x C), with what relieves most for its bytes first; whether that was possible.
    Else nothing moves. `excess_max` is as for `anneal`.

    Prices fall from turn to turn: at a high one only what relieves much for little is worth it. So fewer bytes are
    copied than where all that relieves is worth it from the start. Once all loads are below, further turns even what
    is below the lines of all but above a broker's own limit.
    """
    if not may_anneal(search):
        return False
    task = task_of(search, lines)
    if not len(task.movable):
        return False
    replicas = int((search.placement.original != NO_BROKER).sum())
    trials = int(np.clip(TRIALS_PER_REPLICA * replicas, *PRICE_TRIALS))
    turns, part = Turns(task, trials), 1.0
    state = _state_of(search, search.placement.replicas, search.placement.loads, lines)
    for number, step in enumerate(PRICE_STEPS):
        if state.above <= NOTICEABLE or (number > 1 and state.above > HOPELESS):
            break
        draft = turns.turn(state.rows, state.loads, state.inflow, step)
        next_state = _state_of(search, draft.rows, draft.loads, lines)
        if number == 0 or next_state.above <= state.above:
            state, part = next_state, min(1.0, step.copy_part)
    if state.above > NOTICEABLE or not _is_possible(search, state, excess_max):
        return False
    apply_rows(search, _evened(search, task, lines, excess_max, state, part, trials).rows)
    return True


def _evened(
    search: Search, task: Task, lines: Floats, excess_max: float, state: "_State", part: float, trials: int
) -> "_State":
    """`state`, which is below `lines`, after turns at a `part` of the price for what is above limits that can be met;
    until they gain little, or one ends above the lines.
    """
    limited, counts = attainable(search.problem, search.placement), search.problem.arrays.columns.counts
    limits = np.maximum(limited.limit, task.limits)
    even = task._replace(
        weights=task.weights * np.where(counts, EVEN_COUNTS, 1.0),
        limit_part=np.array([EVEN_PART * part]),
        limits=np.where(counts, limits, np.minimum(limits, task.lines)),
        lines=np.where(counts, limits, task.lines),
    )
    turns, step = Turns(even, trials), Step(PRICE_THRESHOLD, part, part)
    for _ in range(EVEN_TURNS_MAX):
        draft, before = turns.turn(state.rows, state.loads, state.inflow, step), state
        evened = _state_of(search, draft.rows, draft.loads, lines)
        if evened.above > NOTICEABLE or not _is_possible(search, evened, excess_max):
            break
        state = evened
        if _violation(limited, state) > EVEN_TURN_LEAVES * _violation(limited, before):
            break
    return state


def _annealed(search: Search, lines: Floats, excess_max: float, bytes_copied: float) -> Ints | None:
    """The best rows of all turns (P x R); None where no turn comes nearer."""
    task = task_of(search, lines)
    if not len(task.movable):
        return None
    turns = Turns(task, TRIALS)
    best = first = _state_of(search, search.placement.replicas, search.placement.loads, lines)
    for step in STEPS:
        draft = turns.turn(best.rows, best.loads, best.inflow, step)
        state = _state_of(search, draft.rows, draft.loads, lines)
        if state.above < best.above - BETTER and _is_sound(search, first, state, excess_max, bytes_copied):
            best = state
        if best.above <= NOTICEABLE:
            break
    if best.above > NEARER * first.above:
        return None
    draft = turns.turn(best.rows, best.loads, best.inflow, THRIFTY)
    state = _state_of(search, draft.rows, draft.loads, lines)
    is_cheaper = state.inflow.sum() < best.inflow.sum() and state.above <= max(best.above, NOTICEABLE)
    return state.rows if is_cheaper and _is_sound(search, first, state, excess_max, bytes_copied) else best.rows


class _State(NamedTuple):
    """A placement, and what it is judged by."""

    rows: Ints
    """P x R."""
    loads: Floats
    """B x C."""
    above: float
    """Fair shares by which the worst load is above band and bound."""
    inflow: Floats
    """B bytes that are copied to each broker."""


def _state_of(search: Search, rows: Ints, loads: Floats, lines: Floats) -> _State:
    placement, inflow = search.placement, np.zeros(len(loads))
    for slot in range(rows.shape[1]):
        brokers = rows[:, slot]
        copied = (brokers != NO_BROKER) & ~(placement.original == brokers[:, None]).any(axis=1)
        np.add.at(inflow, brokers[copied], placement.disk_bytes[copied])
    return _State(rows, loads, above_lines(search.problem, loads, lines), inflow)


def _is_sound(search: Search, first: _State, state: _State, excess_max: float, bytes_copied: float) -> bool:
    """Whether `state` may take the place of `first`, which it is nearer than: nothing else is worse, for few bytes."""
    if not _is_possible(search, state, excess_max):
        return False
    is_within = state.above <= NOTICEABLE
    nearer = 1.0 if is_within else 1.0 - state.above / first.above
    more = BYTES_MORE_SPENT if search.effort.is_spent else BYTES_MORE
    if state.inflow.sum() > (1.0 + (more - 1.0) * nearer) * bytes_copied:
        return False
    return is_within or _violation(search.problem, state) <= _violation(search.problem, first)


def _violation(problem: Problem, state: _State) -> float:
    return float(problem.violation(state.loads).sum())


def _is_possible(search: Search, state: _State, excess_max: float) -> bool:
    """Whether disks have room for it, and no broker is above its limit by more than `excess_max`."""
    problem = search.problem
    has_room = (state.inflow <= problem.arrays.disk_room_bytes).all()
    return bool(has_room and problem.worst_excess(state.loads) <= excess_max)
