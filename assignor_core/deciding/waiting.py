"""A plan that waits for its maintenance window: whether it is due, waits on, or must no longer wait.

Nothing else shows that a waiting plan has become wrong, since the replicas that it moves lie where they lay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assignor_core.deciding.gates import day_budget, hours_are_open, obstacle, too_many
from assignor_core.deciding.needs import NeedContext
from assignor_core.deciding.policy import Mode
from assignor_core.deciding.reasons import Evaluation, Reason, Verdict
from assignor_core.deciding.state import TriggerState, WaitingPlan, after_plan
from assignor_core.deciding.trace import WAITING_PLAN, Traced
from assignor_core.maintenance import MaintenanceWindow, next_opening, open_window
from assignor_core.proposed_plan import KeptPlan


@dataclass(frozen=True, slots=True)
class DroppedPlan:
    """A plan that no longer waits for its maintenance window, and why."""

    plan_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Due:
    """Result of the check of a waiting plan."""

    state: TriggerState
    carried_out: tuple[KeptPlan, Evaluation] | None = None
    """The plan that is carried out now, and why."""
    dropped: tuple[DroppedPlan, ...] = ()
    waits_on: tuple[Reason, str] | None = None
    """Why the plan still waits although its maintenance window is open."""
    traced: tuple[Traced, ...] = ()
    """Entries in the decision's trace; none if no plan waited."""

    def instead_of(self, held: Evaluation) -> Evaluation:
        """The row of a decision without a plan: that a plan waits on comes first."""
        if self.waits_on is None or held.reason is Reason.UNHEALTHY:
            return held
        reason, why = self.waits_on
        waiting = "" if self.state.waiting is None else self.state.waiting.plan_id[:12]
        return replace(held, reason=reason, detail=f"plan {waiting} waits: {why}; {held.detail}")


def due(context: NeedContext) -> Due:
    """What becomes of the plan that waited: it is due if its hours have come and it still fits the cluster."""
    waiting = context.state.waiting
    if waiting is None:
        return Due(context.state)
    found = _due(waiting, context)
    held_by, why = None, ""
    if found.dropped:
        held_by, why = "dropped", found.dropped[0].reason
    elif found.carried_out is None:
        held_by, why = "waits", _why(found, waiting, context)
    text = f"plan {waiting.plan_id[:12]}, made before"
    return replace(found, traced=(Traced(WAITING_PLAN, is_found=True, text=text, held_by=held_by, why=why),))


def _why(found: Due, waiting: WaitingPlan, context: NeedContext) -> str:
    """Why the waiting plan is not carried out now."""
    if found.waits_on is not None:
        return found.waits_on[1]
    if not hours_are_open(context):
        return next_opening(context.policy.maintenance, context.now_ms)
    if context.around.reassigning_count:
        return "partitions are being reassigned"
    outage = too_many(context) if waiting.failed else None
    return outage or f"mode is {context.policy.mode}"


def _due(waiting: WaitingPlan, context: NeedContext) -> Due:
    state = context.state
    harmful = _harmful(waiting, context)
    if harmful is not None:
        return Due(replace(state, waiting=None), dropped=(harmful,))
    if not hours_are_open(context) or context.around.reassigning_count:
        return Due(state)
    if waiting.failed and too_many(context) is not None:
        return Due(state)
    idle = replace(state, waiting=None)
    if context.policy.mode is not Mode.APPLY:
        return Due(idle)
    waits_on = _waits_on(waiting, context)
    if waits_on is not None:
        return Due(state, waits_on=waits_on)
    kept = context.evidence.kept_plan(waiting.plan_id)
    misfits = ("is unknown",) if kept is None else kept.misfits(context.observation.live)
    if kept is None or misfits:
        return Due(idle, dropped=(DroppedPlan(waiting.plan_id, "; ".join(misfits[:5])),))
    detail = due_in_words(kept, context.policy.maintenance, context.now_ms)
    after = after_plan(context.trigger, idle, context.now_ms)
    if waiting.reason:
        return Due(after, (kept, Evaluation(Verdict.PLAN, Reason(waiting.reason), detail, None, None)))
    resource = state.breached_resource
    ratio = context.observation.skews[-1].max_over_mean(resource) if resource else None
    reason = Reason.BROKER_FAILED if waiting.failed else Reason.SKEWED
    return Due(after, (kept, Evaluation(Verdict.PLAN, reason, detail, resource, ratio)))


def _harmful(waiting: WaitingPlan, context: NeedContext) -> DroppedPlan | None:
    """The plan that waits, if it would do harm now; None else.

    One that replaces failed brokers would empty a sound broker once one of them is back. If others are still away, the
    trigger plans for those again. One that adds replicas to a broker that is drained would fill that broker again.
    """
    drained = context.observation.drained
    back = sorted(set(waiting.failed).difference(context.around.missing_brokers))
    if back:
        return DroppedPlan(waiting.plan_id, f"broker {back[0]} is no longer missing")
    kept = context.evidence.kept_plan(waiting.plan_id) if drained else None
    movements = () if kept is None else kept.plan.movements
    added = {broker for row in movements for broker in set(row.new_replicas) - set(row.old_replicas)}
    filled = sorted(added & drained)
    return DroppedPlan(waiting.plan_id, f"would go to broker {filled[0]}, which is drained") if filled else None


def _waits_on(waiting: WaitingPlan, context: NeedContext) -> tuple[Reason, str] | None:
    """Why the waiting plan would have to wait for long, or copies more than is left of the day's budget."""
    relieves = bool(waiting.failed)
    problem = obstacle(context.state, context.observation.live, context.now_ms, relieves=relieves)
    if problem is not None:
        return Reason.UNHEALTHY, problem
    budget = None if relieves else day_budget(context.policy, context.evidence)
    kept = None if budget is None else context.evidence.kept_plan(waiting.plan_id)
    is_over = budget is not None and kept is not None and kept.plan.bytes_to_move > budget.left_bytes
    return (Reason.DAY_BUDGET, budget.in_words()) if budget is not None and is_over else None


def due_in_words(kept: KeptPlan, maintenance: Sequence[MaintenanceWindow], now_ms: int) -> str:
    """Why a plan that waited is carried out now, and how old it is."""
    opened = open_window(maintenance, now_ms)
    hours = f"maintenance window {opened.text} is open" if opened else "there are no maintenance windows any more"
    age_h = (now_ms - kept.created_ms) / 3_600_000
    return f"{hours}: plan {kept.plan.plan_id[:12]}, made {age_h:.1f} h ago, is carried out"
