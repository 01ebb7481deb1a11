"""Why an execution may not start, or must end: on small clusters, without tables."""

from dataclasses import replace

from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.execution.life_cycle import begin
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, Observed, ProposedPlan
from streaming.control.obstacles import misfit, reason_to_give_up

DAY_MS = 86_400_000
RESTING = LivePartition((1,), 1, (1,))
LIVE = LiveCluster("c", dict.fromkeys((1, 2, 3)), {("t", 0): RESTING, ("t", 1): RESTING})
PLAN = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),))


def kept() -> KeptPlan:
    return KeptPlan(ProposedPlan(PLAN, Observed.of(PLAN, LIVE)), 0, DAY_MS)


def test_a_plan_does_not_start_while_partitions_of_others_are_reassigned() -> None:
    moving = replace(RESTING, replicas=(3, 1), adding_replicas=(3,), removing_replicas=(1,))
    assert misfit(kept(), LIVE) is None
    other = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): moving})
    assert misfit(kept(), other) == "1 other partition is being reassigned, first t-1"


def test_a_reassignment_that_waits_for_a_broker_which_is_away_keeps_no_plan_waiting() -> None:
    """It copies nothing, and Kafka refuses to cancel it."""
    waiting = LivePartition((3, 9), NO_LEADER, (), adding_replicas=(3,), removing_replicas=(9,))
    other = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): waiting})
    assert misfit(kept(), other) is None
    back = replace(other, broker_racks={**LIVE.broker_racks, 9: None})
    assert misfit(kept(), back) == "1 other partition is being reassigned, first t-1"


def test_an_execution_gives_up_after_fourteen_days_with_its_pauses() -> None:
    execution = begin("e", "p", EventRecord(Event.APPROVED, 0, 0, "", Figures(1, 5))).after(
        EventRecord(Event.STARTED, 1, 1_000, "", Figures(1, 5)), EventRecord(Event.PAUSED, 2, 2_000, "", Figures(1, 5))
    )
    assert reason_to_give_up(execution, 14 * DAY_MS + 1_000) is None
    assert reason_to_give_up(execution, 14 * DAY_MS + 1_001) == "not finished 14 days after the start"
