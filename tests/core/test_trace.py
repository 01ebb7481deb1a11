"""The trace of a decision: each need that was looked at, the gates that it passed and the one that held it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assignor_core.deciding.gates import GATES, NEEDS
from assignor_core.deciding.observation import Observation
from assignor_core.deciding.policy import DecisionPolicy, Mode
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import Decision
from assignor_core.deciding.trace import TEXT_MAX, WAITING_PLAN, Traced
from tests.core.test_step import (
    EVEN,
    HOT,
    NIGHT,
    NOON_MS,
    OFFLINE,
    PLAN_ID,
    POLICY,
    SKEWED,
    WITH_OFFLINE,
    Given,
    decided,
    observed,
    proposed,
)

BY_NAME = {gate.name: gate for gate in GATES}
BEFORE_A_PLAN = tuple(gate.name for gate in GATES if Reason.SKEWED in gate.needs and not gate.after_plan)


def traced(given: Given, seen: Observation, state: TriggerState | None = None, **policy: Any) -> dict[str, Traced]:
    """By need; each gate that holds says what its row allows, and the row of the decision says that or more."""
    decision: Decision = decided(given, seen, state, replace(POLICY, **policy))[1]
    for row in decision.trace:
        if row.held_by in BY_NAME:
            assert decision.evaluation.reason in BY_NAME[row.held_by].reasons or BY_NAME[row.held_by].is_silent
            assert row.why
    return {row.need: row for row in decision.trace}


def test_needs_are_looked_at_in_their_order_until_one_has_a_plan() -> None:
    trace = traced(Given(), observed(HOT, HOT, HOT))
    assert list(trace) == ["broker_failed", "log_dir_full", "skewed"]
    assert not trace["broker_failed"].is_found
    skewed = trace["skewed"]
    assert (skewed.text, skewed.held_by, skewed.why) == (SKEWED, None, "")
    assert skewed.passed == tuple(gate.name for gate in GATES if Reason.SKEWED in gate.needs)


def test_of_an_even_cluster_every_need_is_denied_and_load_with_its_figures() -> None:
    trace = traced(Given(), observed(EVEN, EVEN, EVEN))
    assert list(trace) == [kind.reason.value for kind in NEEDS]
    assert not any(row.is_found for row in trace.values())
    assert trace["skewed"].why.startswith("worst is bytes_in max/mean 1.000")


@pytest.mark.parametrize(
    ("given", "seen", "state", "policy", "gate", "why"),
    [
        (
            Given(), observed(HOT, HOT, HOT), TriggerState(cooldown_end_ms=NOON_MS + 1_000), {}, "cooldown",
            "cooldown after the last plan runs for 1 s more",
        ),
        (Given(), observed(HOT, HOT, HOT), None, {"mode": Mode.OBSERVE}, "observe", "mode is observe"),
        (Given(), observed(HOT, HOT, HOT, live=WITH_OFFLINE), None, {}, "unhealthy", OFFLINE),
        (
            Given(proposed(after=1.5)), observed(HOT, HOT, HOT), None, {}, "gain",
            "no plan lowers max/mean of bytes_in by 0.01 or more; its lower bound is 1.0",
        ),
    ],
)  # fmt: skip
def test_the_gate_that_holds_is_named_with_its_figures_after_those_that_let_pass(
    given: Given, seen: Observation, state: TriggerState | None, policy: dict[str, Any], gate: str, why: str
) -> None:
    skewed = traced(given, seen, state, **policy)["skewed"]
    assert (skewed.held_by, skewed.why) == (gate, why)
    asked = [name for name in BY_NAME if Reason.SKEWED in BY_NAME[name].needs]
    assert list(skewed.passed) == asked[: asked.index(gate)]


def test_a_plan_for_later_is_traced_and_then_its_waiting() -> None:
    state, decision = decided(Given(), observed(HOT, HOT, HOT), policy=replace(POLICY, maintenance=NIGHT))
    assert decision.trace[-1].held_by == "maintenance window"
    assert set(BEFORE_A_PLAN) < set(decision.trace[-1].passed)
    waits = traced(Given(), observed(EVEN, EVEN, EVEN), state, maintenance=NIGHT)[WAITING_PLAN]
    assert (waits.text, waits.held_by) == (f"plan {PLAN_ID[:12]}, made before", "waits")
    assert waits.why.startswith("maintenance window 22:00-23:00, which opens in ")


def test_what_is_only_noted_stands_in_the_text_of_the_need() -> None:
    skewed = traced(Given(), observed(HOT, HOT, HOT, live=WITH_OFFLINE), mode=Mode.PROPOSE)["skewed"]
    assert skewed.text == f"{SKEWED}; it would have to wait: {OFFLINE}"
    assert skewed.held_by is None


def test_the_row_of_a_decision_stays_small() -> None:
    long = Traced("skewed", is_found=True, text="x" * 10_000, why="y" * TEXT_MAX)
    shown = long.to_json()
    assert (len(shown["text"]), shown["text"][-3:], shown["why"]) == (TEXT_MAX, "...", "y" * TEXT_MAX)
    rows = [replace(long, passed=tuple(BY_NAME), held_by="gain").to_json() for _ in range(len(NEEDS) + 1)]
    assert len(json.dumps(rows)) < 10_000


def test_the_policy_of_these_tests_has_every_need() -> None:
    assert set(DecisionPolicy().lasting.placement_reasons) < {kind.reason for kind in NEEDS}
