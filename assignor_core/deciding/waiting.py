"""Plans that wait for their maintenance window, and when one must no longer wait: nothing else shows that it has become
wrong, since the replicas that it moves lie where they lay.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from assignor_core.deciding.maintenance import MaintenanceWindow, open_window
from assignor_core.deciding.observation import Evidence, Observation
from assignor_core.deciding.trigger import TriggerState
from assignor_core.proposed_plan import KeptPlan


@dataclass(frozen=True, slots=True)
class DroppedPlan:
    """A plan that waited for its hours and no longer does, and why."""

    plan_id: str
    reason: str


def outdated(
    state: TriggerState, observation: Observation, missing_brokers: Collection[int], evidence: Evidence
) -> DroppedPlan | None:
    """The plan that waits, if it would do harm now; None else.

    One that replaces failed brokers would empty a sound broker once one of them is back. If others are still away, the
    trigger plans for those anew. One that adds replicas to a broker that is drained would fill that broker again.
    """
    waiting = state.waiting_plan_id
    if waiting is None:
        return None
    back = sorted(set(state.waiting_failed).difference(missing_brokers))
    if back:
        return DroppedPlan(waiting, f"broker {back[0]} is no longer missing")
    kept = evidence.kept_plan(waiting) if observation.drained else None
    movements = () if kept is None else kept.plan.movements
    added = {broker for row in movements for broker in set(row.new_replicas) - set(row.old_replicas)}
    drained = sorted(added & observation.drained)
    return DroppedPlan(waiting, f"would go to broker {drained[0]}, which is drained") if drained else None


def due_in_words(kept: KeptPlan, maintenance: Sequence[MaintenanceWindow], now_ms: int) -> str:
    """Why a plan that waited is carried out now, and how old it is."""
    opened = open_window(maintenance, now_ms)
    hours = f"maintenance window {opened.text} is open" if opened else "there are no maintenance windows any more"
    age_h = (now_ms - kept.created_ms) / 3_600_000
    return f"{hours}: plan {kept.plan.plan_id[:12]}, made {age_h:.1f} h ago, is carried out"


def waiting_for_nothing(state: TriggerState) -> TriggerState:
    """`state` without a plan that waits."""
    return replace(state, waiting_plan_id=None, waiting_load=0.0, waiting_failed=(), waiting_reason="")
