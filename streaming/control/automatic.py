"""Plans that mode `apply` carries out without asking anybody: from the decision to the approval.

These are two rows of two tables. Control may be killed between them, or the store may refuse the second. So what was
decided is approved at a later tick, or by the next control.
"""

from dataclasses import dataclass

import structlog

from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.execution.caution import bad_plans_in_a_row
from assignor_core.proposed_plan import ProposedPlan
from streaming import tables
from streaming.control.journal import Journal
from streaming.settings import ControlSettings

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Due:
    """A plan that was decided on, and is not approved as far as is known."""

    plan_id: str
    decided_ms: int


class AutomaticPlans:
    """Plans that one control approves by itself; in other modes than `apply` there are none."""

    def __init__(self, journal: Journal, control: ControlSettings) -> None:
        self._journal = journal
        self._applies = control.mode == "apply"
        self._bad_plans_max = control.bad_plans_max
        self._due = self._left_over() if self._applies else None

    @property
    def are_due(self) -> bool:
        """Whether a plan is to be approved before anything else is decided."""
        return self._due is not None

    def decided(self, proposed: ProposedPlan | None, *, now_ms: int) -> None:
        """A decision has come to this plan, or to none."""
        if proposed is not None and self._applies:
            self._due = _Due(proposed.plan.plan_id, now_ms)

    def approve(self, *, now_ms: int) -> bool:
        """Approve what is due, or refuse it; whether an execution waits for its turn now. Raises TableUnavailable."""
        due = self._due
        if due is None:
            return False
        approved = not self._is_begun(due, now_ms) and self._approve(due, now_ms)
        self._due = None
        return approved

    def _approve(self, due: _Due, now_ms: int) -> bool:
        plan = self._journal.readable_plan(due.plan_id)
        if plan is None:
            reason = "the tables have no such plan, or one that can't be read"
            log.warning("decided_plan_dropped", plan_id=due.plan_id[:12], reason=reason)
            return False
        distrust = self._distrust(now_ms)
        if distrust is not None:
            self._journal.refuse(plan, distrust, now_ms=now_ms)
            log.error("automatic_mode_stopped", plan_id=due.plan_id[:12], reason=distrust)
            return False
        self._journal.approve(plan, "mode apply", now_ms=now_ms, in_windows_only=True)
        return True

    def _is_begun(self, due: _Due, now_ms: int) -> bool:
        """Whether an approval is there after all: its answer may have been lost, or a person was quicker."""
        rows = self._journal.executions(now_ms=now_ms)
        return any(row.plan_id == due.plan_id and row.events[0].at_ms >= due.decided_ms for row in rows)

    def _left_over(self) -> _Due | None:
        """The plan of the newest decision, if it was to be carried out at once."""
        row = self._journal.last_decision()
        if row is None or row["plan_id"] is None or row["mode"] != "apply" or row["verdict"] != Verdict.PLAN:
            return None
        if row["reason"] == Reason.MAINTENANCE_WINDOW:
            return None
        return _Due(row["plan_id"], tables.to_ms(row["decided_at"]))

    def _distrust(self, now_ms: int) -> str | None:
        """Why plans are no longer carried out without a person, or None. A plan that delivers restores the trust."""
        bad = bad_plans_in_a_row(self._journal.outcomes(now_ms=now_ms))
        if bad < self._bad_plans_max:
            return None
        plans, they = ("plan", "it") if bad == 1 else (f"{bad} plans", "they")
        return (
            f"the last {plans} brought less than half of what {they} promised: automatic mode waits until a plan "
            "that a person applied delivers"
        )
