"""The trigger, a step at a time: what it waits for, what holds it back, and that it doesn't flap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.errors import InputError
from assignor_core.trigger import Reason, SkewWindow, TriggerPolicy, TriggerState, Verdict, after_plan, step

POLICY = TriggerPolicy(enter_ratio=1.3, exit_ratio=1.15, windows_over=2, windows_considered=3, cooldown_ms=100)


def windows(*ratios: float, load: float = 1e6, reporting: int = 3) -> tuple[SkewWindow, ...]:
    return tuple(
        SkewWindow(10 * (index + 1), {"bytes_in": ratio}, {"bytes_in": load}, 3, reporting)
        for index, ratio in enumerate(ratios)
    )


def reason_of(*ratios: float, state: TriggerState | None = None, reassigning: int = 0, now_ms: int = 50) -> Reason:
    _, found = step(POLICY, state or TriggerState(), windows(*ratios), reassigning_count=reassigning, now_ms=now_ms)
    return found.reason


def test_one_window_over_is_not_enough_and_two_of_three_are() -> None:
    assert reason_of(1.0, 1.0, 1.5) is Reason.NOT_ENOUGH_WINDOWS
    assert reason_of(1.0, 1.5, 1.5) is Reason.SKEWED
    assert reason_of(1.5, 1.0, 1.5) is Reason.SKEWED
    assert reason_of(1.5, 1.5, 1.2) is Reason.BALANCED  # the newest window is no longer over


def test_between_the_thresholds_the_state_stays_as_it_was() -> None:
    calm, _ = step(POLICY, TriggerState(), windows(1.2, 1.2), reassigning_count=0, now_ms=30)
    assert calm.breached_since_ms is None
    breached, _ = step(POLICY, TriggerState(), windows(1.4, 1.4), reassigning_count=0, now_ms=30)
    assert breached.breached_since_ms == 10
    still, found = step(POLICY, breached, windows(1.4, 1.4, 1.2), reassigning_count=0, now_ms=40)
    assert still.breached_since_ms == 10
    assert found.verdict is Verdict.PLAN
    ended, found = step(POLICY, still, windows(1.4, 1.2, 1.1), reassigning_count=0, now_ms=50)
    assert ended.breached_since_ms is None
    assert found.reason is Reason.BALANCED


def test_what_holds_a_plan_back_is_named() -> None:
    assert reason_of() is Reason.NOT_ENOUGH_WINDOWS
    assert reason_of(1.5, 1.5, reassigning=2) is Reason.IN_PROGRESS
    assert reason_of(1.5, 1.5, now_ms=10_000_000) is Reason.STALE_DATA
    _, found = step(POLICY, TriggerState(), windows(1.5, 1.5, reporting=2), reassigning_count=0, now_ms=30)
    assert found.reason is Reason.INCOMPLETE
    _, found = step(POLICY, TriggerState(), windows(1.5, 1.5, load=10.0), reassigning_count=0, now_ms=30)
    assert found.reason is Reason.LOW_LOAD


def test_after_a_plan_comes_a_cooldown() -> None:
    state, found = step(POLICY, TriggerState(), windows(1.5, 1.5), reassigning_count=0, now_ms=30)
    assert found.verdict is Verdict.PLAN
    state = after_plan(POLICY, state, 30)
    assert reason_of(1.5, 1.5, 1.5, state=state, now_ms=129) is Reason.COOLDOWN
    assert reason_of(1.5, 1.5, 1.5, state=state, now_ms=130) is Reason.SKEWED


@given(st.lists(st.floats(1.16, 1.29), min_size=1, max_size=30))
def test_load_between_the_thresholds_never_changes_the_state(ratios: list[float]) -> None:
    for start in (TriggerState(), TriggerState(breached_since_ms=1, breached_resource="bytes_in")):
        state = start
        for end in range(1, len(ratios) + 1):
            state, _ = step(POLICY, state, windows(*ratios[:end]), reassigning_count=0, now_ms=400)
        assert state == start


@given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=12), st.integers(0, 3), st.integers(0, 500))
def test_a_plan_is_only_asked_for_when_nothing_speaks_against_it(
    ratios: list[float], reassigning: int, now_ms: int
) -> None:
    state, found = step(POLICY, TriggerState(), windows(*ratios), reassigning_count=reassigning, now_ms=now_ms)
    if found.verdict is Verdict.PLAN:
        assert reassigning == 0
        assert sum(ratio > POLICY.enter_ratio for ratio in ratios[-3:]) >= 2
        assert state.breached_since_ms is not None


def test_thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(InputError, match="exit < enter"):
        TriggerPolicy(enter_ratio=1.1, exit_ratio=1.2)
    with pytest.raises(InputError, match="k <= n"):
        TriggerPolicy(windows_over=4, windows_considered=3)
