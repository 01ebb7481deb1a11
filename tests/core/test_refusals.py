"""Partitions that Kafka refuses to move: what is asked for again, what is skipped, and how the plan ends."""

from assignor_core.execution.accounting import TRIES_MAX, Refusals, refusals_text
from assignor_core.execution.reconcile import Abort, Done, Limits, Submit, next_step
from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.plan import Movement, Plan

T0: PartitionKey = ("t", 0)
T1: PartitionKey = ("t", 1)
POLICY = {T0: "PolicyViolationError"}


def at(*brokers: int) -> LiveCluster:
    """Partitions t-0, t-1, ... on one broker each."""
    rows = {("t", number): LivePartition((broker,), broker, (broker,)) for number, broker in enumerate(brokers)}
    return LiveCluster("c", dict.fromkeys((1, 2, 3)), rows)


PLAN = Plan("c", (Movement("t", 0, (1,), (2,), 1.0), Movement("t", 1, (1,), (3,), 1.0, wave=1)))


def test_a_broker_that_was_cordoned_a_moment_ago_is_asked_for_again() -> None:
    """`rebalancer add` uncordons a broker and fills it, and the controller hears of that a moment later."""
    refused = Refusals().after([T0], {T0: "InvalidReplicationAssignmentError"})
    assert refused.skipped == {}
    assert refused.after([T0], {}) == Refusals()


def test_what_is_refused_for_good_is_skipped_and_what_may_change_is_tried_again() -> None:
    assert Refusals().after([T0], POLICY).skipped == POLICY
    state = Refusals()
    for _ in range(TRIES_MAX):
        assert state.skipped == {}
        state = state.after([T0, T1], {T0: "UnknownServerError"})
    assert state.skipped == {T0: "UnknownServerError"}
    # Another partition's request changes nothing; one that is accepted is forgotten.
    assert state.after([T1], {}) == state
    assert state.after([T0], {}) == Refusals()


def test_the_rest_goes_on_and_the_next_wave_begins() -> None:
    assert next_step(PLAN, at(1, 1), Limits(), worked_ms=0) == Submit({T0: (2,)})
    assert next_step(PLAN, at(1, 1), Limits(), worked_ms=0, refused=POLICY) == Submit({T1: (3,)})
    assert next_step(PLAN, at(1, 3), Limits(), worked_ms=0, refused=POLICY) == Done()


def test_a_plan_of_which_nothing_was_made_is_never_done() -> None:
    both = POLICY | {T1: "UnknownTopicOrPartitionError"}
    assert next_step(PLAN, at(1, 1), Limits(), worked_ms=0, refused=both) == Abort(
        "0 movements made, 2 skipped: t-0 (PolicyViolationError), t-1 (UnknownTopicOrPartitionError)", ()
    )
    assert next_step(PLAN, at(), Limits(), worked_ms=0) == Abort("0 movements made, 2 partitions are gone", ())
    assert next_step(Plan("c", ()), at(), Limits(), worked_ms=0) == Done()


def test_a_few_of_many_are_named() -> None:
    many = {("t", number): "E" for number in range(7)}
    assert refusals_text(many) == "t-0 (E), t-1 (E), t-2 (E), t-3 (E), t-4 (E) and 2 more"
