"""Whether a plan was approved before, for all ways by which a person approves one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assignor_core.execution.life_cycle import Execution
    from assignor_core.proposed_plan import KeptPlan


def executions_of(executions: "Sequence[Execution]", kept: "KeptPlan") -> "list[Execution]":
    """Those of this plan, in their order."""
    return [row for row in executions if row.plan_id == kept.plan.plan_id]


def approved_before(executions: "Sequence[Execution]", kept: "KeptPlan") -> "Execution | None":
    """The newest execution of this plan that is open, or has ended since the plan was made; None where there is none.

    `executions` are all, oldest first. A plan that was made anew since is new, though it may have the same id.
    """
    of_plan = reversed(executions_of(executions, kept))
    return next((row for row in of_plan if not row.ended or row.approved_ms >= kept.created_ms), None)
