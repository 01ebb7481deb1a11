"""Why an execution may not start, submits nothing in this hour, or has to end: in words, None where nothing is so.

Judged on what the caller holds: nothing here asks the cluster or a table.
"""

from collections.abc import Collection, Mapping, Sequence

from assignor_core.execution.accounting import NAMED_MAX
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import Progress
from assignor_core.live import LiveCluster, PartitionKey, partition_name
from assignor_core.maintenance import may_act, next_opening
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.wording import counted, first_named
from streaming.control.policies import maintenance_windows
from streaming.settings import ControlSettings

LIFE_MAX_MS = 14 * 86_400_000
"""An execution, its pauses included, gives up after this: the load it was planned for is history by then."""

CANCELS_MAX = 2
"""Cancels by somebody else after which a move is not asked for again: the execution then waits for a person."""


def expired(approved: KeptPlan, now_ms: int, begins_ms: int | None = None) -> str | None:
    """Why a plan is too old to be carried out; None if it isn't. One that a person has set to begin at a time lives as
    long from that time on as other plans live.
    """
    lives_ms = approved.expires_ms - approved.created_ms
    if now_ms <= approved.expires_ms or (begins_ms is not None and now_ms <= begins_ms + lives_ms):
        return None
    age_s = (now_ms - approved.created_ms) / 1000
    return f"plan {approved.plan.plan_id[:12]} is {age_s:.0f} s old and has expired"


def misfit(approved: KeptPlan, live: LiveCluster) -> str | None:
    """What of the live cluster speaks against carrying out this plan; None if nothing does."""
    misfits = approved.misfits(live)
    if misfits:
        return changed_since_text(misfits)
    ours = {(movement.topic, movement.partition) for movement in approved.plan.movements}
    # Those that wait for a broker which is away copy nothing. They are left alone, and keep no lost replica waiting.
    foreign = sorted(live.reassigning() - ours - live.waiting_for_brokers())
    if foreign:
        others = counted(len(foreign), "other partition is", "other partitions are")
        return f"{others} being reassigned, first {partition_name(foreign[0])}"
    return None


def changed_since_text(misfits: Sequence[str]) -> str:
    """What differs from the cluster that the plan was made on, in words; the first of many."""
    return f"the cluster has changed since the plan was made: {'; '.join(misfits[:NAMED_MAX])}"


def replaced_broker_back(
    plan: Plan, live: LiveCluster, progress: Mapping[PartitionKey, Progress], replaced: Collection[int]
) -> str | None:
    """Why the rest of a plan would empty a sound broker: one of the brokers that it replaces is back; None if not.

    Only movements that are not begun count: what copies is brought to its end.
    """
    alive = live.broker_racks.keys() & set(replaced)
    if not alive:
        return None
    pending = (row for row in plan.movements if progress[row.key] is Progress.PENDING)
    left = {broker for row in pending for broker in set(live.partitions[row.key].replicas) - set(row.new_replicas)}
    back = sorted(left & alive)
    return f"broker {back[0]}, which the plan replaces, is back" if back else None


def hours_closed(execution: Execution, control: ControlSettings, now_ms: int) -> str | None:
    """Why the hour forbids anything new, or None. Whoever applies a plan by hand decides on the hour."""
    hours = maintenance_windows(control)
    if not execution.in_windows_only or may_act(hours, now_ms):
        return None
    return f"no maintenance window is open: waits for {next_opening(hours, now_ms)}"


def cancelled_by_others(execution: Execution, plan: Plan) -> str | None:
    """Why nothing more of the plan is asked for: somebody else cancels its moves; None if nobody does."""
    places = sorted(place for place, count in execution.cancels.items() if count >= CANCELS_MAX)
    keys = [plan.movements[place].key for place in places if place < len(plan.movements)]
    if not keys:
        return None
    named = first_named(keys, NAMED_MAX, partition_name)
    return (
        f"somebody else has cancelled the move of {named} {CANCELS_MAX} times: waits for a person, "
        "`rebalancer abort` ends it, and after that the plan can be applied again"
    )


def reason_to_give_up(execution: Execution, now_ms: int) -> str | None:
    """Why it must end now, or None."""
    if execution.abort_requested:
        return "a person asked to stop"
    if now_ms - execution.begun_ms > LIFE_MAX_MS:
        return f"not finished {LIFE_MAX_MS // 86_400_000} days after the start"
    return None
