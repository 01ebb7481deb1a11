"""Hand-overs of leaderships that may relieve one broker: nothing is copied.

One look scores every pair of a leadership and a follower. After an edit only what the edit changed is scored anew, so
several hand-overs of a broker cost little more than one (`update`).
"""

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.candidates import Candidate, SearchState, best_of_matrix, flags_of, led_partitions
from assignor_core.planner.placement import Edit, Indices
from assignor_core.planner.problem import lowest

HANDOVERS = 256
"""Leaderships of a broker whose followers are scored exactly."""


class Handovers:
    """What `broker` may hand over, kept current by `update`; mutable.

    Brokers 1 and 2 hold both partitions, and broker 1 leads both:

    >>> state = state_of((1, 2), (1, 2))
    >>> candidate = Handovers(state, broker=0).best(gain_min=0.0)
    >>> candidate.edits[0] == Edit(partition=0, slot=1, target=NO_BROKER)  # the replica in slot 1 becomes leader
    True
    """

    def __init__(self, state: SearchState, broker: int) -> None:
        problem, placement = state.problem, state.placement
        self._state, self._broker = state, broker
        led = led_partitions(state, broker)
        here = placement.loads[broker]
        shed = placement.leaderships(led)
        covered = problem.coverage(here, shed, broker)
        best = lowest(-covered / state.spending.movement_price(led), HANDOVERS)
        best = best[problem.relief(here, shed[best], broker) > 0.0]
        self._led, self._shed = led[best], shed[best]
        self._price = state.spending.movement_price(self._led)
        followers = placement.replicas[self._led, 1:]
        state.effort.look(0)
        self._able = (followers != NO_BROKER) & problem.may_lead[followers]
        # Empty slots need some broker to index with; `_able` leaves them out of the result.
        self._targets = np.where(self._able, followers, broker)
        self._fits = np.zeros_like(self._able)
        self._burden = np.zeros(self._able.shape)
        self._score_pairs(*np.nonzero(self._able))

    def best(self, gain_min: float) -> Candidate | None:
        """The best one that gains more than `gain_min`."""
        problem, here = self._state.problem, self._state.placement.loads[self._broker]
        relief = problem.relief(here, self._shed, self._broker)[:, None]
        covered = problem.coverage(here, self._shed, self._broker)[:, None]
        gain = np.where(self._able & self._fits, relief - self._burden, -np.inf)
        score = np.where(gain > gain_min, covered - self._burden, -np.inf) / self._price[:, None]
        return best_of_matrix(
            gain, score, lambda row, slot: (Edit(int(self._led[row]), slot + 1, NO_BROKER),), gain_min
        )

    def update(self, edits: tuple[Edit, ...], brokers: set[int]) -> None:
        """Bring what `edits`, which changed the loads of `brokers`, have changed up to date."""
        for edit in edits:
            self._able[self._led == edit.partition] = False
        if self._state.problem.policy.movements_max is not None:
            self._able &= self._state.spending.may_touch(self._led)[:, None]
        is_changed = flags_of(brokers, len(self._state.placement.loads))
        self._score_pairs(*np.nonzero(self._able & is_changed[self._targets]))

    def _score_pairs(self, rows: Indices, slots: Indices) -> None:
        """Score these pairs of a leadership and a follower."""
        if not len(rows):
            return
        self._state.effort.score_anew(len(rows))
        problem, targets, shed = self._state.problem, self._targets[rows, slots], self._shed[rows]
        before = self._state.placement.loads[targets]
        self._fits[rows, slots] = problem.may_rise_by(before, shed, targets)
        self._burden[rows, slots] = problem.burden(before, shed, targets)
