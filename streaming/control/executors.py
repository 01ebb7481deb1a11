"""The executor that fits a plan: one for movements between brokers, one for movements within them, and one that ends
an execution of which no movement is known.
"""

from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from streaming.control.executor import Executor
from streaming.control.log_dir_moves import LookWithin
from streaming.control.looks import Look
from streaming.control.records import ExecutionRecord


class Executors:
    """Behaves as the executor of the plan's kind: see there for each method."""

    def __init__(self, between: Executor[Look], within: Executor[LookWithin], unknown: Executor[Look]) -> None:
        self._between = between
        self._within = within
        self._unknown = unknown

    def begin(self, record: ExecutionRecord, approved: KeptPlan, *, now_ms: int) -> bool:
        """Check the approved plan against the live cluster and start it; False where it was refused."""
        return self._of(approved.plan).begin(record, approved, now_ms=now_ms)

    def resume(self, kept: KeptPlan | None = None, *, give_up: str | None = None) -> None:
        """Prepares for another execution, which `tick` then carries out. Without its plan its kind is not known yet."""
        self._between.resume(kept, give_up=give_up)
        self._within.resume(kept, give_up=give_up)
        self._unknown.resume(kept, give_up=give_up)

    def tick(self, record: ExecutionRecord, plan: Plan, *, now_ms: int) -> bool:
        """Take the one next step; True once the execution has ended and nothing of it is left on the cluster."""
        return self._of(plan).tick(record, plan, now_ms=now_ms)

    def _of(self, plan: Plan) -> Executor[Look] | Executor[LookWithin]:
        if plan.within_brokers:
            return self._within
        return self._between if plan.movements else self._unknown
