"""Moves of replicas that may relieve one broker.

One look scores every pair of a shortlisted replica and a target. After an edit only the targets that the edit changed
are scored anew, so several moves of a broker cost little more than one (`update`).
"""

import numpy as np

from assignor_core.planner.candidates import (
    Candidate,
    SearchState,
    best_of_matrix,
    flags_of,
    shortlist,
    target_brokers,
)
from assignor_core.planner.placement import Edit
from assignor_core.planner.promising import promising_moves, promising_pairs

SHORTLIST = 32
"""Replicas of a broker whose targets are scored exactly."""
SHORTLIST_WIDE = 8 * SHORTLIST
"""The same where none of those fits anywhere."""


class ReplicaMoves:
    """Moves of the best `shortlisted` replicas of `broker`, kept current by `update`; mutable.

    Broker 1 holds two of three partitions, broker 3 none:

    >>> ReplicaMoves(state_of((1,), (1,), (2,), brokers=3), broker=0).best(gain_min=0.0).edits
    (Edit(partition=0, slot=0, target=2),)
    """

    def __init__(
        self,
        state: SearchState,
        broker: int,
        shortlisted: int = SHORTLIST,
        gain_min: float | None = None,
        *,
        with_a_place: bool = False,
    ) -> None:
        """With `gain_min` only those that may gain more: `best` is not asked for less then. `with_a_place`: replicas
        that nothing may take do not count among the shortlisted.

        After an `update` none of the others gains more than before: the broker has less to be relieved of, and targets
        have no less.
        """
        problem, placement, spending = state.problem, state.placement, state.spending
        self._state, self._broker = state, broker
        targets = target_brokers(state)
        replicas, relief = shortlist(state, broker, shortlisted, targets if with_a_place else None)
        state.effort.look(len(placement.held_by(broker)) + len(replicas.partitions) * len(targets))
        standing = problem.standing(placement.loads[targets], targets)
        if gain_min is not None:
            rows = promising_moves(relief, standing, gain_min)
            replicas, relief = replicas.take(rows), relief[rows]
        burden = standing.burden(replicas.loads[:, None])
        if gain_min is not None:
            rows, at = promising_pairs(relief, burden, gain_min)
            replicas, targets, burden = replicas.take(rows), targets[at], burden[rows[:, None], at]
        self._replicas, self._targets, self._burden = replicas, targets, burden
        if not burden.size:
            return
        partitions, _, loads = replicas
        self._copied = spending.copied_bytes(partitions, broker, targets)
        self._price = spending.price(partitions, self._copied)
        self._allowed = problem.allowed_targets(placement, partitions, broker, targets)
        self._room = problem.with_room(placement, loads, targets)

    def best(self, gain_min: float) -> Candidate | None:
        """The best one that gains more than `gain_min`."""
        (partitions, slots, loads), targets = self._replicas, self._targets
        if not self._burden.size:
            return None
        problem, here = self._state.problem, self._state.placement.loads[self._broker]
        allowed = self._allowed & self._room
        allowed &= self._state.spending.affordable(partitions, targets, self._copied)
        relief = problem.relief(here, loads, self._broker)[:, None]
        covered = problem.coverage(here, loads, self._broker)[:, None]
        gain = np.where(allowed, relief - self._burden, -np.inf)
        score = np.where(gain > gain_min, covered - self._burden, -np.inf) / self._price
        return best_of_matrix(
            gain, score, lambda row, at: (Edit(int(partitions[row]), int(slots[row]), int(targets[at])),), gain_min
        )

    def update(self, edits: tuple[Edit, ...], brokers: set[int]) -> None:
        """Bring what `edits`, which changed the loads of `brokers`, have changed up to date."""
        if not self._burden.size:
            return
        problem, placement, loads = self._state.problem, self._state.placement, self._replicas.loads
        for edit in edits:
            self._allowed[self._replicas.partitions == edit.partition] = False
        at = np.flatnonzero(flags_of(brokers, len(placement.loads))[self._targets])
        if not len(at):
            return
        changed = self._targets[at]
        self._state.effort.score_anew(len(loads) * len(at))
        self._burden[:, at] = problem.burden(placement.loads[changed], loads[:, None], changed)
        self._room[:, at] = problem.with_room(placement, loads, changed)
