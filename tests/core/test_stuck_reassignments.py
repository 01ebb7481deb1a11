"""A reassignment without a leader waits for a broker that is away, maybe for ever: nothing else waits for it."""

from dataclasses import replace

from assignor_core.deciding.policy import Mode
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.state import TriggerState
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from tests.core import test_log_dir_decisions, test_step
from tests.core.states import remembered, waiting_id
from tests.core.test_step import AWAY, EVEN, NOON_MS, PLAN_ID, Given, kept, observed, proposed, waiting


def with_stuck(live: LiveCluster) -> LiveCluster:
    """The cluster with a partition of broker 9, which is away, that was being moved to broker 2."""
    stuck = LivePartition((2, 9), NO_LEADER, (), adding_replicas=(2,), removing_replicas=(9,))
    return replace(live, partitions={**live.partitions, ("stuck", 0): stuck})


def test_a_full_log_dir_is_relieved_all_the_same() -> None:
    _, decision = test_log_dir_decisions.decided(live=with_stuck(test_log_dir_decisions.LIVE))
    assert (decision.evaluation.verdict, decision.evaluation.reason) == (Verdict.PLAN, Reason.LOG_DIR_FULL)


def test_a_plan_that_waited_to_replace_a_failed_broker_is_carried_out() -> None:
    state = waiting(waiting_failed=(4,), missing_since_ms=((4, 0),))
    given = Given(kept=kept())
    after, decision = test_step.decided(given, observed(EVEN, EVEN, EVEN, live=with_stuck(AWAY)), state)
    assert (decision.evaluation.reason, decision.may_act, waiting_id(after)) == (Reason.BROKER_FAILED, True, None)
    assert (decision.proposed, given.requests) == (proposed(), []), "the plan that waited, and no other one is made"
    moving = replace(AWAY.partitions["t", 0], adding_replicas=(3,))
    busy = replace(AWAY, partitions={**AWAY.partitions, ("t", 0): moving})
    after, decision = test_step.decided(given, observed(EVEN, EVEN, EVEN, live=busy), state)
    assert (decision.may_act, waiting_id(after)) == (False, PLAN_ID), "a move that goes on is waited for"


def test_a_broker_that_must_end_empty_gets_its_plan() -> None:
    policy = replace(test_step.POLICY, mode=Mode.PROPOSE)
    lasting: TriggerState = remembered(lasting_since_ms=(("drained_broker", 0),), evaluated_ms=NOON_MS - 60_000)
    given = Given()
    drained = replace(
        observed(EVEN, EVEN, EVEN, live=with_stuck(test_step.LIVE), policy=policy), drained=frozenset({1})
    )
    _, decision = test_step.decided(given, drained, lasting, policy)
    assert decision.evaluation.reason is Reason.DRAINED_BROKER
