"""A way on where the search is stuck: overload another broker on purpose and see whether that one can be relieved.

A heavy leadership may fit nowhere as things are, yet fit once its taker has handed something on. Each try is undone
unless the whole gets better; the number of tries is fixed beforehand.
"""

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.candidates import Change, Scene, emptiest, shortlist
from assignor_core.planner.search import NOTICEABLE, Search

BROKERS_MAX = 16
"""Stuck brokers that are tried, most violated first."""
TRIES = 6
"""Changes tried for each of them."""
CONSIDERED = 48
"""Replicas of a stuck broker from which they are chosen."""
REPLIES_MAX = 48
"""Changes that may follow to make room; the forced one itself must stay."""
SUBSTANTIAL = 0.5
"""A forced change takes away at least this part of what is wrong with the broker."""
BETTER = 0.9
"""A try is kept if it leaves less than this part of the violation."""


def kick(search: Search) -> None:
    """Go through the stuck brokers once."""
    violation = _violation(search)
    for broker in np.argsort(-violation, kind="stable")[:BROKERS_MAX]:
        if violation[broker] > NOTICEABLE:
            _free(search, int(broker))


def _free(search: Search, broker: int) -> None:
    before = float(_violation(search).sum())
    for change in _forced_changes(search.scene, broker, leaders_only=search.problem.policy.leaders_only):
        mark = len(search.journal)
        search.apply(change)
        search.pinning(change.steps[0][0]).relieve(changes_max=REPLIES_MAX, exchanges=False)
        if float(_violation(search).sum()) < BETTER * before:
            return
        search.undo_to(mark)


def _violation(search: Search) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.where(search.problem.gives, search.problem.violation(search.placement.loads), 0.0)


def _forced_changes(scene: Scene, broker: int, *, leaders_only: bool) -> list[Change]:
    """Changes that relieve `broker`, by what they leave wrong elsewhere; nothing has to be gained."""
    least = SUBSTANTIAL * float(scene.problem.violation(scene.placement.loads)[broker])
    found = _leader_changes(scene, broker, least) + ([] if leaders_only else _moves(scene, broker, least))
    return sorted(found, key=lambda change: (-change.gain, change.steps))[:TRIES]


def _leader_changes(scene: Scene, broker: int, least: float) -> list[Change]:
    problem, placement = scene.problem, scene.placement
    held = placement.held_by(broker)
    led = held[(placement.replicas[held, 0] == broker) & problem.movable[held] & scene.ledger.may_touch(held)]
    here, found = placement.loads[broker], []
    change = placement.leading[led] - placement.following[led]
    relief = problem.cost(here, broker) - problem.cost(here - change, broker)
    for index in np.argsort(-relief, kind="stable")[: 2 * TRIES]:
        for slot in range(1, placement.replicas.shape[1]):
            target = int(placement.replicas[led[index], slot])
            if target == NO_BROKER or not problem.takes_leaders[target] or relief[index] < least:
                continue
            there = placement.loads[target]
            if (there + change[index] > problem.ceiling[target]).any():
                continue
            burden = problem.cost(there + change[index], target) - problem.cost(there, target)
            gain = float(relief[index] - burden)
            found.append(Change(((int(led[index]), slot, NO_BROKER),), gain, gain))
    return found


def _moves(scene: Scene, broker: int, least: float) -> list[Change]:
    problem, placement, ledger = scene.problem, scene.placement, scene.ledger
    chosen, slots, loads, relief = shortlist(scene, broker, CONSIDERED)
    targets = emptiest(scene)
    there = placement.loads[targets]
    burden = problem.cost(there[None] + loads[:, None], targets) - problem.cost(there, targets)
    allowed = problem.targets(placement, chosen, broker, loads)[:, targets]
    allowed &= ledger.affordable(chosen, targets, ledger.copies(chosen, broker, targets))
    gain = np.where(allowed & (relief >= least)[:, None], relief[:, None] - burden, -np.inf)
    found = []
    for row in range(len(chosen)):
        column = int(np.argmax(gain[row])) if len(targets) else 0
        if len(targets) and gain[row, column] > -np.inf:
            step = (int(chosen[row]), int(slots[row]), int(targets[column]))
            found.append(Change((step,), float(gain[row, column]), float(gain[row, column])))
    return found
