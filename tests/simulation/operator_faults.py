"""An operator who cancels moves of an execution with Kafka's own tool, each time that control asks for them again.

Drawn apart, so that the rest of a story is what it would be without this fault.
"""

from random import Random

from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.control.obstacles import CANCELS_MAX
from streaming.control.wiring import journal_of
from tests.simulation.monitor import Monitor
from tests.simulation.world import Actor, World

LOOK_MS = 500
"""How often the operator lists reassignments."""
CANCELS = (1, 2, 6, 6)
"""So often the operator cancels a move, at most."""


class OperatorFaults:
    """Those of one story."""

    def __init__(self, seed: int, world: World, monitor: Monitor, others: Actor, faults_ms: int) -> None:
        self._random = Random(f"operator of {seed}")
        self._world, self._monitor, self._others, self._faults_ms = world, monitor, others, faults_ms

    def plan_for(self, plan: Plan) -> None:
        """Let the operator cancel the longest move of a plan that has just been approved; in three of ten stories."""
        copies = [row for row in plan.movements if row.kind == "replica"]
        if copies and self._random.random() < 0.3:
            longest = max(copies, key=lambda row: row.bytes_to_move)
            self._watch(longest, self._random.choice(CANCELS))

    def abort_paused(self) -> None:
        """Where control waits for a person, the operator ends the execution."""
        for execution in self._monitor.executions():
            waits = execution.paused and max(execution.cancels.values(), default=0) >= CANCELS_MAX
            if waits and not execution.abort_requested:
                journal_of(self._world.settings).request_abort(execution, "a person", now_ms=self._world.now_ms)

    def _watch(self, movement: Movement, left: int) -> None:
        self._world.plan(LOOK_MS, self._others, lambda: self._look(movement, left))

    def _look(self, movement: Movement, left: int) -> None:
        if self._world.cluster.now_ms >= self._faults_ms:
            return
        cancelled = self._is_ours(movement.key) and self._cancel(movement.key)
        if left > cancelled:
            self._watch(movement, left - cancelled)

    def _is_ours(self, key: PartitionKey) -> bool:
        row = self._world.cluster.placement.partition(key)
        return row is not None and row.reassigning and self._monitor.is_ours(key)

    def _cancel(self, key: PartitionKey) -> bool:
        """Whether Kafka took it: not where no old replica is in sync."""
        self._world.cluster.reassign({key: None})
        self._monitor.look(self._others)
        row = self._world.cluster.placement.partition(key)
        if row is None or row.reassigning:
            return False
        self._monitor.operator_cancelled(key)
        self._world.note("others", f"an operator cancels {key[0]}-{key[1]}")
        self._world.faults["an operator cancels a move of the plan"] += 1
        return True
