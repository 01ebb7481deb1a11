"""States of the trigger as tests write them: in the form of earlier versions, which every version reads."""

from typing import Any

from assignor_core.deciding.state import LAGGING, TriggerState, WaitingPlan


def remembered(**before: Any) -> TriggerState:
    """The state of these fields, as the row of a decision of an earlier version holds them."""
    return TriggerState.read(before)


def waiting_id(state: TriggerState) -> str | None:
    """Id of the plan that waits."""
    return None if state.waiting is None else state.waiting.plan_id


def waiting_of(state: TriggerState) -> WaitingPlan:
    """The plan that waits; one without an id, load or brokers where none does."""
    return state.waiting or WaitingPlan("")


def lagging_since(state: TriggerState) -> tuple[tuple[Any, ...], ...]:
    """(topic, partition, when it was first seen to be under-replicated), by partition."""
    return tuple((*subject, since_ms) for subject, since_ms in state.timers.of(LAGGING).items())
