"""Which windows and limits a plan is asked for, by the reason of the decision."""

from dataclasses import replace
from typing import Any

import pytest

from assignor_core.deciding.needs import PlacementStates
from assignor_core.deciding.observation import Observation, PlanRequest
from assignor_core.deciding.plan_requests import plan_request
from assignor_core.deciding.policy import PLAN_WINDOWS_MAX, DayBudget, DecisionPolicy, Detector, TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.state import TriggerState
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.load_history.load_memory import LoadMemory
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.log_dirs.planning import FillPolicy
from assignor_core.planner.policy import PlannerPolicy
from tests.core.test_load_memory import followed, noisy

WINDOWS = tuple(ClosedWindow(start, start + 10, frozenset({1, 2}), {}) for start in range(0, 400, 10))
LIVE = LiveCluster("c", {1: "a", 2: "b", 3: "c"}, {("t", 0): LivePartition((1, 2), 1, (1, 2))})
SEEN = Observation(400, LIVE, WINDOWS, (), drained=frozenset({3}))
POLICY = DecisionPolicy(planner_windows=2, fill=FillPolicy(fill_max=0.7))
BASE = PlannerPolicy(movements_max=2)
KEYS = tuple(("t", number) for number in range(3))
PLACEMENT = PlacementStates(crowded=KEYS[:1], empty=(2,), unpreferred=KEYS)


def asked(
    reason: Reason = Reason.SKEWED, *, state: TriggerState | None = None, seen: Observation = SEEN,
    policy: DecisionPolicy = POLICY, lost: frozenset[int] = frozenset(),
) -> PlanRequest:  # fmt: skip
    return plan_request(reason, BASE, state or TriggerState(), seen, policy, PLACEMENT, lost)


@pytest.mark.parametrize(
    ("detector", "changed", "count"),
    [
        (Detector.NOISE, {}, PLAN_WINDOWS_MAX),
        (Detector.WINDOWS, {}, 2),
        (Detector.NOISE, {"breached_resource": "bytes_out"}, 2),
        (Detector.NOISE, {"breached_resource": None}, 2),
        (Detector.NOISE, {"breached_broker": 2}, 2),
        (Detector.NOISE, {"breached_broker": None}, 2),
    ],
)
def test_where_the_broker_is_noisy_it_rests_on_more_windows(
    detector: Detector, changed: dict[str, Any], count: int
) -> None:
    policy = replace(POLICY, trigger=TriggerPolicy(detector=detector))
    breach: dict[str, Any] = {"breached_since_ms": 1, "breached_resource": "bytes_in", "breached_broker": 1}
    state = TriggerState(**(breach | changed))
    memory = LoadMemory(levels={"bytes_in": followed(noisy(600, noise=0.10, memory=0.6))})
    request = asked(state=state, seen=replace(SEEN, memory=memory), policy=policy)
    assert request.windows == WINDOWS[-count:]


def test_lost_replicas_are_planned_for_on_the_newest_windows_whenever_anything_was_moved() -> None:
    state = TriggerState(breached_since_ms=400, changed_ms=400)
    request = asked(state=state, lost=frozenset({2}))
    assert request == PlanRequest(BASE.for_relief(frozenset({2})), WINDOWS[-2:], frozenset({3}))


def test_a_full_log_dir_is_relieved_by_the_newest_window_alone() -> None:
    assert asked(Reason.LOG_DIR_FULL) == PlanRequest(BASE, WINDOWS[-1:], fill=FillPolicy(fill_max=0.7))


def test_what_lasts_is_mended_by_a_plan_of_its_own_on_windows_since_the_last_move() -> None:
    state = TriggerState(changed_ms=390, breached_since_ms=400)
    elections = asked(Reason.UNPREFERRED_LEADERS, state=state)
    assert elections == PlanRequest(BASE, WINDOWS[-1:], frozenset({3}), KEYS[:2])
    crowded = asked(Reason.CROWDED_RACKS, state=state)
    assert crowded == PlanRequest(replace(BASE, rules_only=True), WINDOWS[-1:], frozenset({3}))
    filled = asked(Reason.EMPTY_BROKER)
    assert filled == PlanRequest(BASE.to_fill(frozenset({2}), 2), WINDOWS[-2:], frozenset({3}))


@pytest.mark.parametrize(
    ("copied", "asked", "binds"),
    [(0, None, False), (1, None, True), (40, 60, False), (40, 59, False), (40, 61, True), (200, 1, True)],
)
def test_a_budget_binds_where_less_is_left_of_it_than_the_plan_may_copy(
    copied: int, asked: int | None, binds: bool
) -> None:
    assert DayBudget(100, copied).binds(PlannerPolicy(bytes_max=asked)) == binds
