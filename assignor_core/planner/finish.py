"""The last step of small plans: if a few movements more make every load exactly even, make them.

Within the band nobody has to move; but where loads come in equal units, perfection may be one movement away. It is
tried on the side and kept only if it is reached.
"""

import numpy as np

from assignor_core.planner.candidates import Change, best_leader_change, best_move
from assignor_core.planner.search import Search

EVEN = 1e-7
"""Shares that differ by less are even: loads are rounded to a grid."""
WORTH = 1e-3
"""Nobody moves anything for less than this fraction of a fair share."""


def finish(search: Search) -> None:
    """Up to `finish_movements_max` movements that end exactly even in all loads; none if that can't be reached."""
    problem, placement = search.problem, search.placement
    counted = problem.arrays.columns.counts
    loads = placement.loads[problem.takes][:, ~counted] / problem.share[problem.takes][:, ~counted]
    if loads.max(initial=1.0) <= 1 + WORTH:
        return
    exact = search.with_limit(np.where(counted, problem.limit, np.minimum(problem.share, problem.ceiling)))
    allowed, mark = search.ledger.movements + problem.policy.finish_movements_max, len(search.journal)
    for _ in range(2 * problem.policy.finish_movements_max):
        violation = np.where(problem.gives, exact.problem.violation(placement.loads), 0.0)
        worst = int(np.argmax(violation))
        if violation[worst] <= EVEN**2:
            return
        change = _evening(exact, worst)
        if change is None:
            break
        exact.apply(change)
        if search.ledger.movements > allowed:
            break
    exact.undo_to(mark)


def _evening(search: Search, broker: int) -> Change | None:
    """The change that gains most, whatever its price: there are few."""
    finders = (best_leader_change,) if search.problem.policy.leaders_only else (best_leader_change, best_move)
    found = [finder(search.scene, broker, 0.0) for finder in finders]
    return max((change for change in found if change), key=lambda change: change.gain, default=None)
