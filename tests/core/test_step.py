"""One decision, whole: each way it can go, on three brokers of which the first is hot. Evidence is given, not read."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from assignor_core.deciding.observation import PAUSE_MIN_MS, GivenUp, Observation, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, Mode, TriggerPolicy
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import Decision, step
from assignor_core.errors import LoadsDisagree, NothingToPlanOn
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.maintenance import window_of
from assignor_core.plan import TAKE_NONE, Movement, Plan
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from tests.core.states import lagging_since, remembered, waiting_id, waiting_of

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
NOON_MS = 12 * HOUR_MS
NIGHT = (window_of("22:00-23:00"),)
HOT, EVEN = {1: 3e6, 2: 1e6, 3: 1e6}, dict.fromkeys((1, 2, 3), 1e6)
SKEWED = "bytes_in max/mean 1.800; broker 1 over 1.3 in 3 of the last 3 windows"
BALANCED = "worst is bytes_in max/mean 1.000, at most 1.3 allowed"
OFFLINE = "1 partition is offline, first t-1"

TRIGGER = TriggerPolicy(windows_over=2, windows_considered=3, cooldown_ms=1_000, relief_max_away_share=0.5)
POLICY = DecisionPolicy(trigger=TRIGGER, mode=Mode.APPLY, planner=PlannerPolicy(movements_max=7), planner_windows=2)


def at(*replicas: int) -> LivePartition:
    return LivePartition(replicas, replicas[0], replicas)


LIVE = LiveCluster("c", dict.fromkeys((1, 2, 3)), {("t", 0): at(1, 2), ("t", 1): at(2, 3)})
WITH_OFFLINE = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): LivePartition((2, 3), NO_LEADER, ())})
AWAY = replace(LIVE, partitions={**LIVE.partitions, ("t", 2): LivePartition((1, 4), 1, (1,))})
"""Broker 4 is away."""


def ratios(bytes_in: float) -> dict[str, dict[str, float]]:
    return {"bytes_in": {"max_over_mean": bytes_in}, "bytes_out": {"max_over_mean": bytes_in}}


def proposed(after: float = 1.25, **changed: Any) -> ProposedPlan:
    """A plan that lowers max/mean from 1.5."""
    plan = Plan("c", (Movement("t", 0, (1, 2), (3, 2), 100.0),), ratios(1.5), ratios(after), {"bytes_in": 1.0})
    return ProposedPlan(replace(plan, **changed))


PLAN_ID = proposed().plan.plan_id


@dataclass
class Given:
    """Evidence that a test gives, and what was asked for."""

    answer: ProposedPlan | Exception = field(default_factory=proposed)
    kept: dict[str, KeptPlan] = field(default_factory=dict)
    behind: dict[int, str] = field(default_factory=dict)
    catch_up: dict[int, float] = field(default_factory=dict)
    gave_up: GivenUp = field(default_factory=GivenUp)
    requests: list[PlanRequest] = field(default_factory=list)
    copied_bytes: int = 0
    asked_behind: list[frozenset[int]] = field(default_factory=list)
    asked_windows: list[int] = field(default_factory=list)

    def groups_behind(self, brokers: frozenset[int]) -> dict[int, str]:
        self.asked_behind.append(brokers)
        return self.behind

    def catch_up_bytes_per_sec(self, windows: tuple[ClosedWindow, ...]) -> dict[int, float]:
        self.asked_windows.append(len(windows))
        return self.catch_up

    def copied_bytes_of_day(self) -> int:
        return self.copied_bytes

    def kept_plan(self, plan_id: str) -> KeptPlan | None:
        return self.kept.get(plan_id)

    def given_up(self) -> GivenUp:
        return self.gave_up

    def propose(self, request: PlanRequest) -> ProposedPlan:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def observed(
    *loads: dict[int, float],
    live: LiveCluster = LIVE,
    policy: DecisionPolicy = POLICY,
    now_ms: int = NOON_MS,
    changed_ms: int = 0,
    resource: str = "bytes_in",
) -> Observation:
    """Windows of a minute with these loads, the last one ends now; bytes in are even where others are given."""
    windows = tuple(
        ClosedWindow(end_ms - MINUTE_MS, end_ms, frozenset(row), {"bytes_in": EVEN, resource: row})
        for row, end_ms in zip(loads, range(now_ms - (len(loads) - 1) * MINUTE_MS, now_ms + 1, MINUTE_MS), strict=True)
    )
    return Observation.of(live, windows, policy, drained=frozenset(), changed_ms=changed_ms, now_ms=now_ms)


def decided(
    given: Given, observation: Observation, state: TriggerState | None = None, policy: DecisionPolicy = POLICY
) -> tuple[TriggerState, Decision]:
    return step(state or TriggerState(), observation, policy, given)


def summary(decision: Decision) -> tuple[Verdict, Reason, str]:
    return decision.evaluation.verdict, decision.evaluation.reason, decision.evaluation.detail


def waiting(load: float = 1e6, **changed: Any) -> TriggerState:
    """A plan waits, made at this mean load."""
    before = {"waiting_plan_id": PLAN_ID, "waiting_load": load, "evaluated_ms": NOON_MS - MINUTE_MS}
    return remembered(**{**before, **changed})


def kept(created_ms: int = NOON_MS - 180_000, **changed: Any) -> dict[str, KeptPlan]:
    return {PLAN_ID: KeptPlan(proposed(**changed), created_ms, NOON_MS + HOUR_MS)}


def test_skew_makes_a_plan_that_may_be_carried_out_at_once() -> None:
    given = Given()
    observation = observed(HOT, HOT, HOT, HOT)
    state, decision = decided(given, observation)
    assert summary(decision) == (Verdict.PLAN, Reason.SKEWED, SKEWED)
    assert (decision.proposed, decision.may_act, decision.dropped) == (proposed(), True, ())
    assert decision.window == observation.skews[-1]
    assert state.cooldown_end_ms == NOON_MS + 1_000
    (request,) = given.requests
    needed = ("bytes_in", POLICY.gain_min)
    assert (request.policy, request.drained) == (PlannerPolicy(movements_max=7, gain_needed=needed), frozenset())
    assert request.windows == observation.windows[-2:], "as many as the planner takes"


@pytest.mark.parametrize(
    ("breached_since_ms", "changed_ms", "count"),
    [
        (None, 0, 2),  # the newest that make the breach
        (NOON_MS - MINUTE_MS, 0, 2),
        (1, 0, 4),  # all since it began
        (1, NOON_MS - 3 * MINUTE_MS, 3),  # and since the last move
    ],
)
def test_a_plan_for_skew_rests_on_windows_that_show_it(
    breached_since_ms: int | None, changed_ms: int, count: int
) -> None:
    roomy = replace(POLICY, planner_windows=5)
    given = Given()
    observation = observed(HOT, HOT, HOT, HOT, changed_ms=changed_ms)
    decided(given, observation, TriggerState(breached_since_ms=breached_since_ms), roomy)
    assert given.requests[0].windows == observation.windows[-count:]


def test_a_plan_for_a_broker_rests_on_no_window_from_before_it_was_over() -> None:
    """Another broker began the breach, which goes on: what no plan helps stays above `exit_ratio` for days."""
    roomy = replace(POLICY, planner_windows=5)
    hour_ago = observed(HOT, HOT, HOT, now_ms=NOON_MS - HOUR_MS)
    state, decision = decided(Given(proposed(after=1.5)), hour_ago, policy=roomy)
    assert (decision.evaluation.reason, state.breached_broker) == (Reason.MIN_GAIN, 1)
    warm, other_hot = {1: 1.3e6, 2: 1e6, 3: 1e6}, {1: 1.2e6, 2: 3e6, 3: 1e6}
    given = Given()
    observation = observed(warm, warm, warm, other_hot, other_hot)
    other, decision = decided(given, observation, state, roomy)
    assert (decision.evaluation.verdict, other.breached_broker) == (Verdict.PLAN, 2)
    assert given.requests[0].windows == observation.windows[-2:]
    assert other.breached_since_ms == state.breached_since_ms, "the cluster has been skewed since then"
    # All of a skew that goes on counts, and what an earlier version has noted of it.
    for known in (other, replace(other, broker_since_ms=None, breached_since_ms=NOON_MS - MINUTE_MS)):
        later = observed(warm, warm, other_hot, other_hot, other_hot, now_ms=NOON_MS + MINUTE_MS)
        decided(given, later, known, roomy)
        assert given.requests[-1].windows == later.windows[-3:]


def test_an_even_load_asks_for_nothing() -> None:
    given = Given()
    _, decision = decided(given, observed(HOT, EVEN, EVEN))
    assert summary(decision) == (Verdict.HOLD, Reason.BALANCED, BALANCED)
    assert (decision.proposed, decision.may_act) == (None, False)
    assert (given.requests, given.asked_behind, given.asked_windows) == ([], [], [])


def test_groups_are_asked_for_only_while_they_can_decide() -> None:
    given = Given(behind={1: "billing"})
    urgent = replace(POLICY, trigger=replace(TRIGGER, windows_over=3), gain_over_noise_min=0.0)
    _, decision = decided(given, observed(EVEN, HOT, HOT), policy=urgent)
    assert decision.evaluation.detail.endswith("groups that read from it fall behind (billing)")
    assert given.asked_behind == [frozenset({1})]
    decided(given, observed(HOT, HOT, HOT), TriggerState(breached_since_ms=1), urgent)
    assert len(given.asked_behind) == 1


def test_groups_that_fall_behind_count_also_while_a_skew_goes_on() -> None:
    """It counts as skewed until all brokers are below `exit_ratio`: for days where no plan helps."""
    urgent = replace(POLICY, trigger=replace(TRIGGER, windows_over=3), gain_over_noise_min=0.0)
    goes_on = TriggerState(breached_since_ms=1, breached_resource="bytes_in", breached_broker=1)
    warm, other_hot = {1: 1.3e6, 2: 1e6, 3: 1e6}, {1: 1.2e6, 2: 3e6, 3: 1e6}
    given = Given(behind={2: "billing"})
    _, decision = decided(given, observed(warm, other_hot, other_hot), goes_on, urgent)
    assert decision.evaluation.detail.endswith("groups that read from it fall behind (billing)")
    assert decision.evaluation.verdict is Verdict.PLAN
    _, decision = decided(Given(), observed(warm, other_hot, other_hot), goes_on, urgent)
    assert decision.evaluation.reason is Reason.NOT_ENOUGH_WINDOWS


def test_mode_observe_makes_no_plan() -> None:
    given = Given()
    _, decision = decided(given, observed(HOT, HOT, HOT), policy=replace(POLICY, mode=Mode.OBSERVE))
    assert summary(decision) == (Verdict.HOLD, Reason.DRY_RUN, f"mode is observe; {SKEWED}")
    assert (decision.proposed, decision.may_act, given.requests) == (None, False, [])


def test_after_executions_that_it_gave_up_mode_apply_makes_no_plan_for_a_while() -> None:
    given = Given(gave_up=GivenUp(1, NOON_MS - PAUSE_MIN_MS + 1_000))
    _, decision = decided(given, observed(HOT, HOT, HOT))
    pause = "mode apply gave up the last execution and makes no plan for 1 s more"
    assert summary(decision) == (Verdict.HOLD, Reason.GIVEN_UP, f"{pause}; {SKEWED}")
    assert (decision.proposed, given.requests) == (None, [])
    _, decision = decided(Given(gave_up=GivenUp(1, NOON_MS - PAUSE_MIN_MS)), observed(HOT, HOT, HOT))
    assert decision.may_act
    # A person decides on what other modes propose.
    _, decision = decided(given, observed(HOT, HOT, HOT), policy=replace(POLICY, mode=Mode.PROPOSE))
    assert decision.proposed == proposed()


def test_what_an_execution_would_wait_for_holds_a_plan_back_or_is_named() -> None:
    observation = observed(HOT, HOT, HOT, live=WITH_OFFLINE)
    _, decision = decided(Given(), observation)
    assert summary(decision) == (Verdict.HOLD, Reason.UNHEALTHY, f"{OFFLINE}; {SKEWED}")
    assert decision.proposed is None
    _, decision = decided(Given(), observation, policy=replace(POLICY, mode=Mode.PROPOSE))
    assert summary(decision) == (Verdict.PLAN, Reason.SKEWED, f"{SKEWED}; it would have to wait: {OFFLINE}")
    assert decision.may_act
    # Until the window opens it may be over.
    _, decision = decided(Given(), observation, policy=replace(POLICY, maintenance=NIGHT))
    assert decision.evaluation.reason is Reason.MAINTENANCE_WINDOW


def test_outside_the_maintenance_windows_a_plan_waits() -> None:
    own = replace(POLICY, maintenance=NIGHT)
    state, decision = decided(Given(), observed(HOT, HOT, HOT), policy=own)
    opens = "maintenance window 22:00-23:00, which opens in 10.0 h"
    assert summary(decision) == (Verdict.PLAN, Reason.MAINTENANCE_WINDOW, f"{SKEWED}; the plan waits for {opens}")
    assert (decision.proposed, decision.may_act) == (proposed(), False)
    assert (waiting_id(state), waiting_of(state).failed) == (PLAN_ID, ())
    assert waiting_of(state).load == pytest.approx(5e6 / 3)
    state, decision = decided(Given(), observed(HOT, HOT, HOT), waiting(), replace(own, mode=Mode.PROPOSE))
    assert (decision.may_act, waiting_id(state)) == (True, None)


def test_the_plan_that_was_made_at_the_highest_load_waits() -> None:
    own = replace(POLICY, maintenance=NIGHT)
    given = Given()
    state, decision = decided(given, observed(HOT, HOT, HOT), waiting(load=5e6 / 3), own)
    opens = "maintenance window 22:00-23:00, which opens in 10.0 h"
    detail = f"plan {PLAN_ID[:12]}, made at a higher load, waits for {opens}; {SKEWED}"
    assert summary(decision) == (Verdict.HOLD, Reason.MAINTENANCE_WINDOW, detail)
    assert (given.requests, waiting_id(state)) == ([], PLAN_ID)
    state, decision = decided(given, observed(HOT, HOT, HOT), waiting(load=1e6), own)
    assert decision.evaluation.verdict is Verdict.PLAN
    assert waiting_of(state).load == pytest.approx(5e6 / 3)


def test_a_plan_stays_within_what_is_left_of_the_budget_of_the_day() -> None:
    own = replace(POLICY, bytes_per_day_max=1_000)
    given = Given(copied_bytes=400)
    _, decision = decided(given, observed(HOT, HOT, HOT), policy=own)
    assert (decision.evaluation.verdict, given.requests[0].policy.bytes_max) == (Verdict.PLAN, 600)
    small = replace(own, planner=PlannerPolicy(bytes_max=500))
    decided(given, observed(HOT, HOT, HOT), policy=small)
    assert given.requests[1].policy.bytes_max == 500
    decided(given, observed(HOT, HOT, HOT), policy=replace(own, mode=Mode.PROPOSE))
    assert given.requests[2].policy.bytes_max is None, "a person decides"


def test_a_day_whose_budget_is_spent_holds_and_the_decision_shows_it() -> None:
    own = replace(POLICY, bytes_per_day_max=2_000_000_000)
    given = Given(proposed(after=1.5), copied_bytes=2_500_000_000)
    _, decision = decided(given, observed(HOT, HOT, HOT), policy=own)
    assert given.requests[0].policy.bytes_max == 0, "leaders may still change"
    assert decision.evaluation.reason is Reason.DAY_BUDGET
    words = "automatic plans have copied 2.50 of 2.00 GB in the last 24 h; no plan lowers max/mean of bytes_in by 0.01"
    assert decision.evaluation.detail.startswith(words)
    given.copied_bytes = 0
    _, decision = decided(given, observed(HOT, HOT, HOT), policy=own)
    assert decision.evaluation.reason is Reason.MIN_GAIN


def test_the_budget_of_the_day_holds_back_no_plan_that_replaces_lost_replicas() -> None:
    own = replace(POLICY, bytes_per_day_max=0)
    lost = waiting(missing_since_ms=((4, 0),), waiting_plan_id=None)
    given = Given()
    _, decision = decided(given, observed(EVEN, EVEN, live=AWAY), lost, own)
    assert (decision.evaluation.reason, given.requests[0].policy.bytes_max) == (Reason.BROKER_FAILED, None)


def test_a_plan_that_waited_waits_on_while_it_copies_more_than_is_left_of_the_day() -> None:
    own = replace(POLICY, bytes_per_day_max=150)
    given = Given(kept=kept(), copied_bytes=51)
    state, decision = decided(given, observed(EVEN, EVEN, EVEN), waiting(), own)
    assert (decision.evaluation.reason, waiting_id(state)) == (Reason.DAY_BUDGET, PLAN_ID)
    assert decision.evaluation.detail.startswith(f"plan {PLAN_ID[:12]} waits: automatic plans have copied")
    given.copied_bytes = 50
    _, decision = decided(given, observed(EVEN, EVEN, EVEN), waiting(), own)
    assert (decision.evaluation.verdict, decision.may_act) == (Verdict.PLAN, True)


def test_a_plan_that_waited_is_due_once() -> None:
    given = Given(kept=kept())
    night = replace(POLICY, maintenance=(window_of("12:00-13:00"),))
    breached = waiting(breached_since_ms=1, breached_resource="bytes_in", breached_broker=1)
    state, decision = decided(given, observed(EVEN, EVEN, HOT), breached, night)
    detail = f"maintenance window 12:00-13:00 is open: plan {PLAN_ID[:12]}, made 0.1 h ago, is carried out"
    assert summary(decision) == (Verdict.PLAN, Reason.SKEWED, detail)
    assert decision.evaluation.resource == "bytes_in"
    assert decision.evaluation.max_over_mean == pytest.approx(1.8)
    assert (decision.proposed, decision.may_act, given.requests) == (proposed(), True, [])
    assert (waiting_id(state), waiting_of(state).load, state.cooldown_end_ms) == (None, 0.0, NOON_MS + 1_000)
    _, decision = decided(given, observed(EVEN), waiting())
    assert decision.evaluation.detail.startswith(f"there are no maintenance windows any more: plan {PLAN_ID[:12]}, ")
    assert (decision.evaluation.resource, decision.evaluation.max_over_mean) == (None, None)


def test_a_plan_that_waited_goes_on_waiting_while_it_can_not_begin() -> None:
    given = Given(kept=kept())
    moving = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): replace(at(2, 3), adding_replicas=(3,))})
    state, decision = decided(given, observed(EVEN, EVEN, EVEN, live=moving), waiting())
    assert (waiting_id(state), decision.evaluation.reason) == (PLAN_ID, Reason.BALANCED)
    _, decision = decided(given, observed(HOT, HOT, HOT, live=moving), waiting())
    assert (decision.evaluation.reason, given.requests) == (Reason.IN_PROGRESS, [])
    state, decision = decided(given, observed(EVEN, EVEN, EVEN, live=WITH_OFFLINE), waiting())
    detail = f"plan {PLAN_ID[:12]} waits: {OFFLINE}; {BALANCED}"
    assert summary(decision) == (Verdict.HOLD, Reason.UNHEALTHY, detail)
    assert waiting_id(state) == PLAN_ID
    # A plan for new skew would wait as well, and that reason stands alone.
    _, decision = decided(given, observed(HOT, HOT, HOT, live=WITH_OFFLINE), waiting())
    assert summary(decision) == (Verdict.HOLD, Reason.UNHEALTHY, f"{OFFLINE}; {SKEWED}")


def test_a_plan_that_waited_is_dropped_where_it_is_unknown_or_does_not_fit() -> None:
    state, decision = decided(Given(), observed(EVEN), waiting())
    assert [(row.plan_id, row.reason) for row in decision.dropped] == [(PLAN_ID, "is unknown")]
    assert (waiting_id(state), decision.evaluation.reason) == (None, Reason.BALANCED)
    gone = tuple(Movement("u", number, (1,), (2,), 1.0) for number in range(6))
    _, decision = decided(Given(kept=kept(movements=gone)), observed(EVEN), waiting())
    assert decision.dropped[0].reason == "u-0 is gone; u-1 is gone; u-2 is gone; u-3 is gone; u-4 is gone"
    # In another mode a person decides, and it is no news.
    state, decision = decided(Given(), observed(EVEN), waiting(), replace(POLICY, mode=Mode.PROPOSE))
    assert (waiting_id(state), decision.dropped) == (None, ())


def test_a_plan_that_waits_is_dropped_once_a_broker_that_it_fills_is_drained() -> None:
    given = Given(kept=kept())
    for policy in (POLICY, replace(POLICY, maintenance=NIGHT)):  # due, and before its hours
        state, decision = decided(given, replace(observed(EVEN), drained=frozenset({3, 4})), waiting(), policy)
        assert [(row.plan_id, row.reason) for row in decision.dropped] == [
            (PLAN_ID, "would go to broker 3, which is drained")
        ]
        assert (waiting_id(state), decision.proposed, decision.evaluation.reason) == (None, None, Reason.BALANCED)
        # What leaves a drained broker, or stays on one, is no reason.
        _, decision = decided(given, replace(observed(EVEN), drained=frozenset({1, 2, 4})), waiting(), policy)
        assert decision.dropped == ()
    unknown = replace(observed(EVEN), drained=frozenset({3}))
    state, _ = decided(Given(), unknown, waiting(), replace(POLICY, maintenance=NIGHT))
    assert waiting_id(state) == PLAN_ID, "what is unknown is dropped once it is due"


def test_a_plan_for_failed_brokers_is_due_unless_too_many_are_away_or_one_is_back() -> None:
    relief = (Movement("t", 2, (1, 4), (1, 2), 1.0),)
    given = Given(kept=kept(movements=relief))
    state = waiting(waiting_failed=(4,), missing_since_ms=((4, 0),))
    _, decision = decided(given, observed(EVEN, live=AWAY), state)
    assert (decision.evaluation.verdict, decision.evaluation.reason) == (Verdict.PLAN, Reason.BROKER_FAILED)
    assert decision.proposed is not None
    assert decision.proposed.plan.movements == relief
    # What only the failed broker held is no obstacle to replacing it.
    lost = replace(AWAY, partitions={**AWAY.partitions, ("t", 3): LivePartition((4,), NO_LEADER, ())})
    _, decision = decided(given, observed(EVEN, live=lost), state)
    assert decision.evaluation.reason is Reason.BROKER_FAILED
    strict = replace(POLICY, trigger=replace(TRIGGER, relief_max_away_share=0.2))
    kept_on, decision = decided(given, observed(EVEN, live=AWAY), state, strict)
    assert (waiting_id(kept_on), decision.proposed) == (PLAN_ID, None)
    both = replace(state, waiting=replace(waiting_of(state), failed=(4, 5)))
    for policy in (POLICY, replace(POLICY, maintenance=NIGHT)):  # due, and before its hours
        dropped, decision = decided(given, observed(EVEN), both, policy)
        assert [(row.plan_id, row.reason) for row in decision.dropped] == [(PLAN_ID, "broker 4 is no longer missing")]
        assert (waiting_id(dropped), waiting_of(dropped).load, waiting_of(dropped).failed) == (None, 0.0, ())


GONE = remembered(missing_since_ms=((4, 0),), evaluated_ms=NOON_MS - MINUTE_MS, changed_ms=NOON_MS)
LONG_AWAY = "away for longer than 30 min: broker 4 (720 min)"


def test_replicas_of_failed_brokers_are_planned_for_on_the_newest_windows() -> None:
    given = Given(proposed(problems=("no room for t-2",)), gave_up=GivenUp(9, NOON_MS))
    observation = observed(EVEN, EVEN, EVEN, live=AWAY)
    _, decision = decided(given, observation, GONE)
    assert summary(decision) == (Verdict.PLAN, Reason.BROKER_FAILED, f"{LONG_AWAY}; no room for t-2")
    assert given.requests == [PlanRequest(PlannerPolicy(only_brokers=frozenset({4})), observation.windows[-2:])]
    # What only the failed broker held is no obstacle.
    lost = replace(AWAY, partitions={**AWAY.partitions, ("t", 3): LivePartition((4,), NO_LEADER, ())})
    assert decided(Given(), observed(EVEN, live=lost), GONE)[1].evaluation.verdict is Verdict.PLAN
    state, decision = decided(Given(), observation, GONE, replace(POLICY, maintenance=NIGHT))
    assert (waiting_of(state).failed, waiting_of(state).load) == ((4,), 1e6)


def test_a_plan_for_failed_brokers_may_wait_while_no_load_is_known() -> None:
    window = ClosedWindow(NOON_MS - MINUTE_MS, NOON_MS, frozenset(), {})
    own = replace(POLICY, maintenance=NIGHT)
    observation = Observation.of(AWAY, (window,), own, drained=frozenset(), changed_ms=0, now_ms=NOON_MS)
    state, decision = decided(Given(), observation, GONE, own)
    assert (decision.evaluation.reason, waiting_of(state).load) == (Reason.MAINTENANCE_WINDOW, 0.0)


@pytest.mark.parametrize(
    ("problems", "reason", "why"),
    [
        (("full", "no rack"), Reason.NO_ROOM, "full; no rack"),
        ((), Reason.MIN_GAIN, "they hold nothing that may move"),
    ],
)
def test_where_nothing_can_be_made_anew_the_reason_is_named(
    problems: tuple[str, ...], reason: Reason, why: str
) -> None:
    given = Given(proposed(movements=(), problems=problems))
    _, decision = decided(given, observed(EVEN, live=AWAY), GONE)
    assert summary(decision) == (Verdict.HOLD, reason, f"nothing can be re-created: {why}")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(LoadsDisagree("they differ"), Reason.LOADS_DISAGREE), (NothingToPlanOn("too little"), Reason.INCOMPLETE)],
)
def test_where_no_plan_can_be_made_the_reason_is_named(error: Exception, reason: Reason) -> None:
    state, decision = decided(Given(error), observed(HOT, HOT, HOT))
    assert summary(decision) == (Verdict.HOLD, reason, str(error))
    assert (decision.proposed, state.cooldown_end_ms) == (None, 0)


def test_a_plan_must_gain_something() -> None:
    worth_it = replace(POLICY, gain_min=0.25)
    assert decided(Given(proposed()), observed(HOT, HOT, HOT), policy=worth_it)[1].may_act, "exactly as much"
    too_little = Given(proposed(after=1.26, diagnosis=("hot partition", f"{TAKE_NONE}: 3"), problems=("full",)))
    _, decision = decided(too_little, observed(HOT, HOT, HOT), policy=worth_it)
    detail = f"no plan lowers max/mean of bytes_in by 0.25 or more; its lower bound is 1.0; {TAKE_NONE}: 3"
    assert summary(decision) == (Verdict.HOLD, Reason.MIN_GAIN, detail)
    _, decision = decided(Given(proposed(movements=())), observed(HOT, HOT, HOT))
    assert decision.evaluation.reason is Reason.MIN_GAIN


def test_a_plan_is_judged_by_the_resource_that_it_is_for() -> None:
    """What is left undone elsewhere is a matter for people, and no news of this decision."""
    even = {"max_over_mean": 1.0}
    before, after = ({"bytes_in": even, "bytes_out": ratios(row)["bytes_out"]} for row in (1.5, 1.25))
    given = Given(proposed(skew_before=before, skew_after=after, problems=("full",)))
    _, decision = decided(given, observed(HOT, HOT, HOT, resource="bytes_out"))
    skewed = "bytes_out max/mean 1.800; broker 1 over 1.3 in 3 of the last 3 windows"
    assert (summary(decision), decision.may_act) == ((Verdict.PLAN, Reason.SKEWED, skewed), True)
    assert decided(given, observed(HOT, HOT, HOT))[1].evaluation.reason is Reason.MIN_GAIN


def test_a_plan_must_gain_more_than_noise_could_promise() -> None:
    """Broker 2 changes by a fifth of its share from one window to the next, so the median is below that."""
    noisy = [{1: 3.0e6, 2: load, 3: 1e6} for load in (1.0e6, 1.5e6, 1.0e6)]
    _, decision = decided(Given(), observed(*noisy))
    assert (decision.evaluation.verdict, decision.evaluation.reason) == (Verdict.HOLD, Reason.MIN_GAIN)
    assert decision.evaluation.detail == (
        "a plan lowers max/mean of bytes_in by 0.25; brokers' loads change so much from window to window that less "
        "than 0.56 may be noise"
    )
    assert decided(Given(), observed(*noisy), policy=replace(POLICY, gain_over_noise_min=1.0))[1].may_act
    given = Given(proposed(movements=()))
    _, none = decided(given, observed(*noisy))
    resource, gain = given.requests[0].policy.gain_needed or ("", 0.0)
    assert (resource, round(gain, 2)) == ("bytes_in", 0.56)
    assert none.evaluation.detail == (
        "no plan lowers max/mean of bytes_in by 0.56 or more, and less may be noise; its lower bound is 1.0"
    )
    _, at_least = decided(Given(), observed(*noisy), policy=replace(POLICY, gain_min=0.25))
    assert at_least.evaluation.detail == decision.evaluation.detail
    _, decision = decided(Given(), observed(*noisy, resource="bytes_out"))
    assert decision.evaluation.detail.startswith("a plan lowers max/mean of bytes_out by 0.25; ")
    # The noise is that of as many windows as are looked at for anything.
    settled = [{1: 3.0e6, 2: load, 3: 1e6} for load in (1.0e6, 1.5e6, 1.5e6)]
    assert decided(Given(), observed(*settled))[1].evaluation.reason is Reason.MIN_GAIN
    calm = (*noisy, *[noisy[-1]] * 3)
    assert decided(Given(), observed(*calm))[1].may_act
    longer = replace(POLICY, planner_windows=6)
    assert decided(Given(), observed(*calm[1:]), policy=longer)[1].may_act


def test_consumers_that_catch_up_make_no_lasting_skew() -> None:
    both = replace(POLICY, planner_windows=3)
    hot_out = {1: 6e6, 2: 2e6, 3: 2e6}
    observation = observed(*[hot_out] * 4, resource="bytes_out")
    given = Given(catch_up={1: 4e6})
    _, decision = decided(given, observation, policy=both)
    skewed = "bytes_out max/mean 1.800; broker 1 over 1.3 in 3 of the last 3 windows"
    read = "4.0 MB/s of that is read by consumers that catch up"
    assert summary(decision) == (Verdict.HOLD, Reason.CATCHING_UP, f"{skewed}; {read}")
    assert (given.asked_windows, given.requests, decision.may_act) == ([3], [], False)
    for catch_up in ({}, {1: 1e6}):
        _, decision = decided(Given(catch_up=catch_up), observation, policy=both)
        assert summary(decision) == (Verdict.PLAN, Reason.SKEWED, skewed)
    _, decision = decided(Given(catch_up={2: -4e6, 3: -4e6}), observation, policy=both)
    assert decision.evaluation.detail.endswith("; 0.0 MB/s of that is read by consumers that catch up")
    complete = replace(both, trigger=replace(TRIGGER, completeness_min=1.0))
    assert decided(Given(catch_up={1: 1e6}), observation, policy=complete)[1].may_act
    # A skew of bytes in is none of theirs.
    given = Given(catch_up={1: 4e6})
    assert decided(given, observed(HOT, HOT, HOT))[1].may_act
    assert given.asked_windows == []


def test_a_pause_after_what_was_given_up_begins_with_15_minutes_and_ends_to_the_ms() -> None:
    assert GivenUp() == GivenUp(0, 0)
    assert [GivenUp(count).pause_ms for count in (0, 1, 5, 6)] == [0, 900_000, 14_400_000, 21_600_000]
    assert GivenUp(1).reason(899_999) is not None
    assert GivenUp(1).reason(900_000) is None
    # One that is dated ahead of now was written by a clock that was wrong.
    assert GivenUp(1, last_ms=86_400_000).reason(0) is None
    assert GivenUp(1, last_ms=60_001).reason(0) is None
    assert GivenUp(1, last_ms=60_000).reason(0) is not None, "clocks differ a little"


@pytest.mark.parametrize("waited", [False, True])
def test_what_a_clock_that_was_ahead_has_noted_holds_nothing_back(waited: bool) -> None:
    behind = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): LivePartition((2, 3), 2, (2,))})
    day_ms = 24 * HOUR_MS
    start = waiting() if waited else TriggerState(evaluated_ms=NOON_MS - MINUTE_MS)
    ahead, _ = decided(Given(kept=kept()), observed(EVEN, EVEN, EVEN, live=behind, now_ms=NOON_MS + day_ms), start)
    noted = (("t", 1, NOON_MS + day_ms),)
    assert lagging_since(ahead) == noted
    state, _ = decided(Given(), observed(HOT, HOT, HOT, live=behind), ahead)
    _, decision = decided(Given(), observed(HOT, HOT, HOT, live=behind, now_ms=NOON_MS + MINUTE_MS), state)
    detail = "1 partition is under-replicated, first t-1, for 1.0 min"
    assert (decision.evaluation.reason, decision.evaluation.detail[: len(detail)]) == (Reason.UNHEALTHY, detail)
