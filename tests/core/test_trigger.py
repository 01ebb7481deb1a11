"""The trigger, a step at a time: what it waits for, what holds it back, and that it doesn't flap."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import TriggerPolicy
from assignor_core.deciding.reasons import LASTING_REASONS, Evaluation, Reason, Verdict
from assignor_core.deciding.skewed import entering
from assignor_core.deciding.state import Timers, TriggerState, WaitingPlan, after_plan, brokers_failed, offline_since_ms
from assignor_core.errors import InputError
from assignor_core.load_history.windows import SkewWindow
from tests.core.judging import step
from tests.core.states import remembered

POLICY = TriggerPolicy(enter_ratio=1.3, exit_ratio=1.15, windows_over=2, windows_considered=3)
QUICK = replace(POLICY, cooldown_ms=100)
HOUR_MS = 3_600_000
METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"


def window(number: int, ratios: dict[str, dict[int, float]], *, load: float = 1e6, reporting: int = 20) -> SkewWindow:
    """The window that ends at 10 x `number` ms, of 20 brokers."""
    return SkewWindow(10 * number, ratios, dict.fromkeys(ratios, load), 20, reporting)


def windows(*ratios: float, **changed: Any) -> tuple[SkewWindow, ...]:
    """Windows in which broker 1 has each ratio in turn."""
    return tuple(window(index, {"bytes_in": {1: row, 2: 1.0}}, **changed) for index, row in enumerate(ratios, 1))


def evaluated(
    given: tuple[SkewWindow, ...],
    state: TriggerState | None = None,
    around: Surroundings | None = None,
    *,
    policy: TriggerPolicy = POLICY,
    now_ms: int = 100,
) -> Evaluation:
    return step(policy, state or TriggerState(), given, around or Surroundings(), now_ms=now_ms)[1]


def test_reasons_are_those_of_the_metrics() -> None:
    _, _, after = METRICS.read_text().partition("- `reason` of `rebalancer_rebalance_suppressed_total`:")
    named = re.findall("`([a-z_]+)`", after.partition("\n- ")[0])
    lasting = ("drained_broker", "outside_set", "crowded_racks", "empty_broker", "unpreferred_leaders")
    reasons_to_plan = {"skewed", "broker_failed", "log_dir_full", *lasting}
    assert tuple(map(str, LASTING_REASONS)) == lasting
    assert {str(reason) for reason in Reason} == {*named, *reasons_to_plan, "balanced"}
    assert [str(verdict) for verdict in Verdict] == ["plan", "hold"]


@pytest.mark.parametrize(
    "changed",
    [
        {"relief_max_away_share": 0.0},
        {"relief_max_away_share": 1.0},
        {"exit_ratio": 1.0},
        {"windows_over": 1},
        {"windows_over": 3},
        {"recurring_plan_min_ms": 0},
    ],
)
def test_settings_at_their_bounds_are_allowed(changed: dict[str, Any]) -> None:
    assert replace(POLICY, **changed) != POLICY


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"relief_max_away_share": -0.1}, "relief_max_away_share: found -0.1, allowed is 0 to 1"),
        ({"relief_max_away_share": 1.1}, "relief_max_away_share: found 1.1, allowed is 0 to 1"),
        ({"exit_ratio": 0.9}, "trigger policy exit_ratio: found 0.9, allowed is 1 or more"),
        ({"exit_ratio": 1.3}, "exit_ratio 1.3 must be below enter_ratio 1.3"),
        ({"windows_over": 0}, "trigger policy windows_over: found 0, allowed is 1 to 1000"),
        ({"recurring_plan_min_ms": -1}, "recurring_plan_min_ms: found -1, allowed is 0 to 2592000000"),
        ({"windows_over": 4}, "windows_over 4 exceeds windows_considered 3"),
    ],
)
def test_settings_beyond_their_bounds_are_refused_with_what_was_found(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(POLICY, **changed)


def test_a_window_without_figures_is_even_and_as_complete_as_its_brokers() -> None:
    empty = SkewWindow(30, {}, {}, 0, 0)
    assert (empty.window_start_ms, empty.completeness, empty.max_over_mean("disk")) == (30, 0.0, 1.0)
    assert [replace(empty, brokers_expected=4, brokers_reporting=n).completeness for n in (3, 4, 5)] == [0.75, 1.0, 1.0]
    found = evaluated((window(1, {}),))
    assert (found.reason, found.resource, found.max_over_mean) == (Reason.BALANCED, "bytes_in", 1.0)


@pytest.mark.parametrize(
    ("ratios", "reason", "detail"),
    [
        ((1.5, 1.0, 1.5), Reason.SKEWED, "bytes_in max/mean 1.500; broker 1 over 1.3 in 2 of the last 3 windows"),
        ((1.4, 1.6, 1.5), Reason.SKEWED, "bytes_in max/mean 1.500; broker 1 over 1.3 in 3 of the last 3 windows"),
        ((1.5, 1.5, 1.0, 1.0, 1.5), Reason.NOT_ENOUGH_WINDOWS, None),  # three are considered
        ((1.0, 1.0, 1.5, 1.0, 1.5), Reason.SKEWED, None),
        ((1.0, 1.3, 1.5), Reason.NOT_ENOUGH_WINDOWS, None),  # at the threshold is not over it
        ((1.5, 1.5, 1.3), Reason.BALANCED, "worst is bytes_in max/mean 1.300, at most 1.3 allowed"),
        ((1.0, 1.2, 1.1), Reason.BALANCED, "worst is bytes_in max/mean 1.100, at most 1.3 allowed"),
        (
            (1.0, 1.2, 1.4),
            Reason.NOT_ENOUGH_WINDOWS,
            "bytes_in max/mean 1.400; broker 1 is over 1.3 in 1 window, 2 needed",
        ),
    ],
)
def test_the_newest_window_and_enough_of_those_considered_must_be_over(
    ratios: tuple[float, ...], reason: Reason, detail: str | None
) -> None:
    found = evaluated(windows(*ratios))
    assert (found.reason, found.max_over_mean) == (reason, ratios[-1])
    assert detail in (None, found.detail)


def test_a_broker_that_is_missing_in_a_window_is_not_over_in_it() -> None:
    given = (window(1, {"bytes_in": {2: 1.0}}), window(2, {}), window(3, {"bytes_in": {1: 1.5}}))
    assert evaluated(given).reason is Reason.NOT_ENOUGH_WINDOWS


@pytest.mark.parametrize(
    ("ratios", "resource", "broker"),
    [
        ({"bytes_in": {1: 1.5, 2: 1.6}}, "bytes_in", 2),
        ({"bytes_in": {1: 1.5, 2: 1.4}, "bytes_out": {3: 1.6}}, "bytes_out", 3),
        ({"bytes_out": {1: 1.5}, "bytes_in": {2: 1.5}}, "bytes_in", 2),
        ({"bytes_in": {2: 1.5, 1: 1.5}}, "bytes_in", 1),
    ],
)
def test_the_worst_comes_first_then_the_order_of_names(
    ratios: dict[str, dict[int, float]], resource: str, broker: int
) -> None:
    over = entering(POLICY, (window(1, ratios), window(2, ratios)))
    assert over is not None
    assert (over.resource, over.broker, over.since_ms) == (resource, broker, 10)


def test_a_breach_ends_below_the_lower_threshold_in_every_resource() -> None:
    breached = TriggerState(breached_since_ms=10, breached_resource="bytes_in", breached_broker=1)

    def remembered(*given: SkewWindow) -> tuple[int | None, str | None, int | None]:
        state, _ = step(POLICY, breached, given, now_ms=100)
        return state.breached_since_ms, state.breached_resource, state.breached_broker

    assert remembered(*windows(1.5, 1.0, 1.15)) == (10, "bytes_in", 1)
    held = evaluated(windows(1.4, 1.4, 1.2), breached)
    assert (held.verdict, held.reason) == (Verdict.HOLD, Reason.BALANCED), "a breach starts no plan by itself"
    assert held.detail.endswith("it counts as skewed until it is below 1.15")
    assert remembered(*windows(1.5, 1.2, 1.14)) == (None, None, None)
    assert remembered(*windows(1.0, 1.0, 1.2)) == (10, "bytes_in", 1)
    assert remembered(window(3, {"bytes_in": {1: 1.0}, "disk": {2: 1.2}})) == (10, "bytes_in", 1)
    elsewhere = {"disk": {2: 1.5}}
    assert remembered(window(2, elsewhere), window(3, elsewhere)) == (10, "disk", 2)


def test_as_many_brokers_as_the_floor_are_enough() -> None:
    """19 of 20 are 0.95."""
    assert evaluated(windows(1.5, 1.5, reporting=19)).reason is Reason.SKEWED
    found = evaluated((*windows(1.5, 1.5), window(3, {"bytes_in": {1: 1.5}}, reporting=18)))
    assert (found.reason, found.detail) == (Reason.INCOMPLETE, "18 of 20 brokers reported in the newest window")
    # An incomplete one among the older ones doesn't count.
    assert evaluated((*windows(1.5, reporting=18), *windows(1.0, 1.5)[1:])).reason is Reason.NOT_ENOUGH_WINDOWS


def test_data_are_stale_once_they_are_older_than_allowed() -> None:
    newest = windows(1.0, 1.0, 1.0)
    assert evaluated(newest, now_ms=30 + POLICY.stale_after_ms).reason is Reason.BALANCED
    assert evaluated(newest, now_ms=31 + POLICY.stale_after_ms).reason is Reason.STALE_DATA
    assert evaluated(newest, now_ms=30 + HOUR_MS).detail == "the newest closed window ended 3600 s ago"
    assert evaluated(()).detail == "no closed window yet"


def test_brokers_that_send_nothing_hold_back_no_relief_and_stale_data_does() -> None:
    away = remembered(missing_since_ms=((4, 0),), evaluated_ms=50)
    around = Surroundings(missing_brokers=frozenset({4}), alive_count=19)
    policy = replace(POLICY, broker_failure_grace_ms=100, stale_after_ms=200)
    incomplete = windows(1.0, reporting=10)
    assert evaluated(incomplete, away, around, policy=policy).reason is Reason.BROKER_FAILED
    assert evaluated(incomplete, away, around, policy=policy, now_ms=99).reason is Reason.INCOMPLETE
    assert evaluated(incomplete, away, around, policy=policy, now_ms=211).reason is Reason.STALE_DATA


def test_time_away_goes_on_over_a_gap_as_long_as_data_stay_fresh() -> None:
    away = remembered(missing_since_ms=((4, 1_000),), evaluated_ms=2_000)
    around = Surroundings(missing_brokers=frozenset({4}), alive_count=3)
    longest_ms = 2_000 + POLICY.stale_after_ms
    for now_ms, since_ms in ((longest_ms, 1_000), (longest_ms + 1, longest_ms + 1)):
        state, _ = step(POLICY, away, windows(1.0), around, now_ms=now_ms)
        assert (tuple(offline_since_ms(state).items()), state.evaluated_ms) == (((4, since_ms),), now_ms)


def test_what_holds_back_is_named_with_its_figures() -> None:
    hot = windows(1.5, 1.5)
    later_ms = POLICY.stale_after_ms
    rest = evaluated(hot, TriggerState(cooldown_end_ms=2 * later_ms), now_ms=later_ms).detail
    assert rest == f"cooldown after the last plan runs for {later_ms / 1000:.0f} s more"
    # Never for longer than it is set to: a clock was ahead when it began.
    longest = evaluated(hot, TriggerState(cooldown_end_ms=HOUR_MS + POLICY.cooldown_ms + 1_000)).detail
    assert longest == f"cooldown after the last plan runs for {POLICY.cooldown_ms / 1000:.0f} s more"
    details = {
        evaluated(hot, around=Surroundings(reassigning_count=2)).detail: "2 partitions are being reassigned",
        evaluated(hot, TriggerState(cooldown_end_ms=HOUR_MS + 100)).detail: (
            "cooldown after the last plan runs for 600 s more"
        ),
        evaluated(windows(1.5, 1.5, load=99_999.0)).detail: (
            "mean bytes_in 99999 B/s per broker is below the floor 100000 B/s"
        ),
    }
    assert list(details) == list(details.values())
    assert evaluated(windows(1.5, 1.5, load=100_000.0)).reason is Reason.SKEWED
    unknown = tuple(replace(row, mean_load={}) for row in hot)
    assert evaluated(unknown).detail == "mean bytes_in 0 B/s per broker is below the floor 100000 B/s"


def test_after_a_move_it_is_named_for_how_long_no_window_has_begun() -> None:
    newest = (replace(windows(1.5)[0], window_end_ms=HOUR_MS + 5, length_ms=HOUR_MS + 5),)
    for changed_ms, seconds in ((5, 3600), (HOUR_MS + 5, 0), (2 * HOUR_MS, 0)):
        found = evaluated(newest, TriggerState(changed_ms=changed_ms), now_ms=HOUR_MS + 10)
        assert found.reason is Reason.NOT_ENOUGH_WINDOWS
        assert found.detail.endswith(f" moved, {seconds} s before the newest window ended")
    assert evaluated(newest, TriggerState(changed_ms=0), now_ms=HOUR_MS + 10).detail.startswith("bytes_in")


def test_failed_brokers_are_named_with_the_time_they_are_away() -> None:
    minutes_ms = 33_000 * 60_000
    policy = replace(POLICY, broker_failure_grace_ms=minutes_ms, stale_after_ms=minutes_ms)
    away = remembered(missing_since_ms=((4, 0), (5, 60_000)), evaluated_ms=minutes_ms)
    around = Surroundings(missing_brokers=frozenset({4, 5}), alive_count=18)
    newest = (replace(windows(1.0)[0], window_end_ms=minutes_ms),)
    found = evaluated(newest, away, around, policy=policy, now_ms=minutes_ms + 60_000)
    assert found.detail == "away for longer than 33000 min: broker 4 (33001 min), 5 (33000 min)"
    assert (found.verdict, found.resource, found.max_over_mean) == (Verdict.PLAN, None, None)


def test_after_a_plan_comes_a_cooldown() -> None:
    state, evaluation = step(QUICK, TriggerState(), windows(1.5, 1.5), now_ms=30)
    assert evaluation.verdict is Verdict.PLAN
    state = after_plan(QUICK, state, 30)
    for now_ms, reason in ((129, Reason.COOLDOWN), (130, Reason.SKEWED)):
        assert step(QUICK, state, windows(1.5, 1.5, 1.5), now_ms=now_ms)[1].reason is reason


def long(*ratios: float) -> tuple[SkewWindow, ...]:
    """The same windows with a length: each begins where the one before it ends."""
    return tuple(replace(window, length_ms=10) for window in windows(*ratios))


def test_after_a_move_only_windows_that_began_later_make_a_plan() -> None:
    state, evaluation = step(QUICK, TriggerState(), long(1.5, 1.5), now_ms=20)
    assert evaluation.verdict is Verdict.PLAN
    moved = Surroundings(changed_ms=25)
    for ratios, reason in (
        ((1.5, 1.5, 1.5), Reason.NOT_ENOUGH_WINDOWS),  # the third one was half over when the move ended
        ((1.5, 1.5, 1.5, 1.5), Reason.NOT_ENOUGH_WINDOWS),  # the first of the new load
        ((1.5, 1.5, 1.5, 1.5, 1.19), Reason.BALANCED),
        ((1.5, 1.5, 1.5, 1.5, 1.19, 1.19), Reason.BALANCED),
    ):
        state, evaluation = step(QUICK, state, long(*ratios), moved, now_ms=10 * len(ratios))
        assert (evaluation.verdict, evaluation.reason) == (Verdict.HOLD, reason), ratios
        assert state.breached_since_ms == 10  # alerts show it until it is below exit_ratio
    _, evaluation = step(QUICK, state, long(1.5, 1.5, 1.5, 1.5, 1.5), moved, now_ms=50)
    assert (evaluation.verdict, evaluation.reason) == (Verdict.PLAN, Reason.SKEWED)


def test_a_reassignment_by_anybody_counts_as_a_move() -> None:
    state, evaluation = step(QUICK, TriggerState(), long(1.5, 1.5), Surroundings(reassigning_count=1), now_ms=25)
    assert evaluation.reason is Reason.IN_PROGRESS
    state, evaluation = step(QUICK, state, long(1.5, 1.5, 1.5), now_ms=30)
    assert (evaluation.verdict, evaluation.reason) == (Verdict.HOLD, Reason.NOT_ENOUGH_WINDOWS)
    assert evaluation.detail.startswith("no window has begun since replicas were moved")
    state, evaluation = step(QUICK, state, long(1.5, 1.5, 1.5, 1.5, 1.5), now_ms=50)
    assert evaluation.verdict is Verdict.PLAN


@given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=12), st.integers(0, 12), st.booleans(), st.integers(1, 3))
def test_no_plan_rests_on_windows_from_before_a_move(
    ratios: list[float], moved_after: int, breached: bool, hot: int
) -> None:
    start = TriggerState(10, "bytes_in", 1) if breached else TriggerState()
    around = Surroundings(changed_ms=10 * moved_after, behind={hot: "billing"})
    _, evaluation = step(QUICK, start, long(*ratios), around, now_ms=10 * len(ratios))
    if evaluation.verdict is Verdict.PLAN:
        newest = ratios[max(moved_after, len(ratios) - 3) :]
        assert sum(ratio > QUICK.enter_ratio for ratio in newest) >= 2


@given(st.lists(st.floats(1.16, 1.29), min_size=1, max_size=30))
def test_load_between_the_thresholds_never_changes_the_state(ratios: list[float]) -> None:
    for start in (TriggerState(), TriggerState(breached_since_ms=1, breached_resource="bytes_in", breached_broker=1)):
        state = start
        for end in range(1, len(ratios) + 1):
            state, _ = step(QUICK, state, windows(*ratios[:end]), now_ms=400)
        assert replace(state, evaluated_ms=0) == start


@given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=12), st.integers(0, 3), st.integers(0, 500))
def test_a_plan_is_only_asked_for_when_nothing_speaks_against_it(
    ratios: list[float], reassigning: int, now_ms: int
) -> None:
    around = Surroundings(reassigning_count=reassigning)
    state, evaluation = step(QUICK, TriggerState(), windows(*ratios), around, now_ms=now_ms)
    if evaluation.verdict is Verdict.PLAN:
        assert reassigning == 0
        assert sum(ratio > QUICK.enter_ratio for ratio in ratios[-3:]) >= 2
        assert state.breached_since_ms is not None


def hot(window_end_ms: int, broker: int) -> SkewWindow:
    ratios = {other: 1.4 if other == broker else 0.8 for other in (1, 2, 3)}
    return SkewWindow(window_end_ms, {"bytes_in": ratios}, {"bytes_in": 1e6}, 3, 3)


def test_it_must_be_the_same_broker_that_is_hot() -> None:
    turns = (hot(10, 1), hot(20, 2), hot(30, 3))
    state, evaluation = step(QUICK, TriggerState(), turns, now_ms=40)
    assert state.breached_since_ms is None
    assert evaluation.detail == "bytes_in max/mean 1.400; broker 3 is over 1.3 in 1 window, 2 needed"
    state, _ = step(QUICK, TriggerState(), (hot(10, 3), *turns[1:]), now_ms=40)
    assert (state.breached_broker, state.breached_since_ms) == (3, 10)


def test_consumers_that_fall_behind_on_the_hot_broker_make_it_urgent() -> None:
    policy = TriggerPolicy(windows_over=3, windows_considered=5)
    newest = (hot(10, 2), hot(20, 1), hot(30, 1))
    assert step(policy, TriggerState(), newest, now_ms=40)[1].reason is Reason.NOT_ENOUGH_WINDOWS
    elsewhere = Surroundings(behind={2: "billing"})
    assert step(policy, TriggerState(), newest, elsewhere, now_ms=40)[1].reason is Reason.NOT_ENOUGH_WINDOWS
    state, evaluation = step(policy, TriggerState(), newest, Surroundings(behind={1: "billing"}), now_ms=40)
    assert evaluation.verdict is Verdict.PLAN
    assert state.breached_since_ms == 20
    assert evaluation.detail.endswith("urgent, 2 windows are enough: groups that read from it fall behind (billing)")


def test_a_broker_that_is_away_for_too_long_has_failed_and_comes_first() -> None:
    policy = TriggerPolicy(broker_failure_grace_ms=100, cooldown_ms=50)
    even, gone = windows(1.0, 1.0), Surroundings(missing_brokers=frozenset({4}), alive_count=3)
    state, evaluation = step(policy, TriggerState(), even, gone, now_ms=1_000)
    assert (tuple(offline_since_ms(state).items()), evaluation.reason) == (((4, 1_000),), Reason.BALANCED)
    state, evaluation = step(policy, state, even, gone, now_ms=1_099)
    assert evaluation.reason is Reason.BALANCED
    state, evaluation = step(policy, state, even, gone, now_ms=1_100)
    assert (evaluation.verdict, evaluation.reason) == (Verdict.PLAN, Reason.BROKER_FAILED)
    assert brokers_failed(policy, state, 1_100) == (4,)
    state = after_plan(policy, state, 1_100)
    assert step(policy, state, even, gone, now_ms=1_149)[1].reason is Reason.COOLDOWN
    busy = Surroundings(reassigning_count=1, missing_brokers=frozenset({4}))
    assert step(policy, state, even, busy, now_ms=1_150)[1].reason is Reason.IN_PROGRESS
    state, evaluation = step(policy, state, even, now_ms=1_151)
    assert (tuple(offline_since_ms(state).items()), evaluation.reason) == ((), Reason.BALANCED)


def test_time_that_an_execution_has_watched_counts_as_time_away() -> None:
    policy = TriggerPolicy(broker_failure_grace_ms=100)
    gone = Surroundings(missing_brokers=frozenset({4}), alive_count=3, away_since_ms={4: 900, 5: 1})
    state, evaluation = step(policy, TriggerState(), windows(1.0), gone, now_ms=1_000)
    assert (tuple(offline_since_ms(state).items()), evaluation.reason) == (((4, 900),), Reason.BROKER_FAILED)
    known = remembered(missing_since_ms=((4, 950),), evaluated_ms=990)
    assert offline_since_ms(step(policy, known, windows(1.0), gone, now_ms=1_000)[0]) == {4: 950}


def test_a_broker_that_comes_back_in_time_starts_anew() -> None:
    policy = TriggerPolicy(broker_failure_grace_ms=100)
    gone = Surroundings(missing_brokers=frozenset({4}), alive_count=3)
    state = TriggerState()
    for now_ms, around in ((1_000, gone), (1_060, Surroundings()), (1_070, gone), (1_160, gone)):
        state, evaluation = step(policy, state, windows(1.0), around, now_ms=now_ms)
        assert evaluation.reason is Reason.BALANCED
    assert tuple(offline_since_ms(state).items()) == ((4, 1_070),)


def test_time_without_evaluations_does_not_count_as_time_away() -> None:
    policy, gone = (
        TriggerPolicy(broker_failure_grace_ms=1_800_000),
        Surroundings(missing_brokers=frozenset({4}), alive_count=3),
    )
    state, _ = step(policy, TriggerState(), windows(1.0), gone, now_ms=60_000)
    # Control stood still for two hours; broker 4 is just being restarted, again.
    state, evaluation = step(policy, state, windows(1.0), gone, now_ms=7_260_000)
    assert tuple(offline_since_ms(state).items()) == ((4, 7_260_000),)
    assert evaluation.reason is not Reason.BROKER_FAILED
    for now_ms in range(7_320_000, 9_060_001, 60_000):
        newest = (replace(windows(1.0)[0], window_end_ms=now_ms),)
        state, evaluation = step(policy, state, newest, gone, now_ms=now_ms)
    assert evaluation.reason is Reason.BROKER_FAILED


def test_while_a_broker_may_come_back_skew_is_no_reason_to_plan() -> None:
    gone = Surroundings(missing_brokers=frozenset({4}), alive_count=3)
    state, evaluation = step(QUICK, remembered(missing_since_ms=((4, 20),)), windows(1.5, 1.5), gone, now_ms=30_020)
    assert state.breached_since_ms == 10
    assert (evaluation.reason, evaluation.detail) == (
        Reason.INCOMPLETE,
        "broker 4 has been offline for 30 s: it may come back",
    )


DAY_MS, NOW_MS = 86_400_000, 1_700_000_000_000


def on_the_minute(minute: int, ratio: float) -> tuple[SkewWindow, ...]:
    """Windows of a minute each, the newest of which ends then."""
    ends_ms = [NOW_MS + 60_000 * (minute - back) for back in (2, 1, 0)]
    return tuple(replace(windows(ratio)[0], window_end_ms=end_ms, length_ms=60_000) for end_ms in ends_ms)


def first_plan(policy: TriggerPolicy, state: TriggerState, around: Surroundings, ratio: float) -> int | None:
    """The minute after `NOW_MS` in which the trigger first asks for a plan, within two hours."""
    for minute in range(1, 121):
        now_ms = NOW_MS + 60_000 * minute
        state, evaluation = step(policy, state, on_the_minute(minute, ratio), around, now_ms=now_ms)
        if evaluation.verdict is Verdict.PLAN:
            return minute
    return None


@pytest.mark.parametrize("known_ms", [(), ((4, NOW_MS - 600_000),)])
def test_after_a_clock_was_ahead_the_time_of_a_broker_that_is_away_starts_again(
    known_ms: tuple[tuple[int, int], ...],
) -> None:
    policy = TriggerPolicy(broker_failure_grace_ms=1_800_000)
    gone = Surroundings(missing_brokers=frozenset({4}), alive_count=9)
    state = remembered(missing_since_ms=known_ms, evaluated_ms=NOW_MS - 60_000)
    ahead, _ = step(policy, state, on_the_minute(0, 1.0), gone, now_ms=NOW_MS + DAY_MS)
    assert first_plan(policy, ahead, gone, 1.0) == 31
    # What an execution has noted by the same clock is no better.
    noted = replace(gone, away_since_ms={4: NOW_MS + DAY_MS})
    assert first_plan(policy, ahead, noted, 1.0) == 31


def test_after_a_clock_was_ahead_skew_makes_a_plan_as_soon_as_windows_show_it() -> None:
    start = TriggerState(evaluated_ms=NOW_MS - 60_000)
    moving = Surroundings(reassigning_count=1, alive_count=9)
    ahead, _ = step(QUICK, start, on_the_minute(0, 1.0), moving, now_ms=NOW_MS + DAY_MS)
    assert first_plan(QUICK, ahead, Surroundings(alive_count=9), 1.5) == 3, "two windows began after it"
    # The end of an execution that the same clock has dated counts once, and not anew at each step.
    ended = Surroundings(alive_count=9, changed_ms=NOW_MS + DAY_MS)
    ahead, _ = step(QUICK, start, on_the_minute(0, 1.0), ended, now_ms=NOW_MS + DAY_MS)
    assert first_plan(QUICK, ahead, ended, 1.5) == 3
    assert first_plan(QUICK, TriggerState(), ended, 1.5) == 3


def test_after_a_clock_was_ahead_a_cooldown_is_no_longer_than_it_is_set() -> None:
    policy = replace(QUICK, cooldown_ms=600_000)
    for evaluated_ms in (NOW_MS, NOW_MS + DAY_MS):  # a plan that waited is due without a step of the trigger
        state = after_plan(policy, TriggerState(evaluated_ms=evaluated_ms), NOW_MS + DAY_MS, recurring_broker=1)
        assert first_plan(policy, state, Surroundings(alive_count=9), 1.5) == 11
        after, _ = step(policy, state, on_the_minute(0, 1.5), now_ms=NOW_MS)
        assert after.recurring_planned_ms == ((1, NOW_MS),)


@given(st.integers(1, 10**12), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**12)), max_size=3))
def test_the_state_survives_its_json(now_ms: int, missing: list[tuple[int, int]]) -> None:
    timers = Timers(tuple(sorted(("offline", (broker,), min(since_ms, now_ms)) for broker, since_ms in missing)))
    state = TriggerState(now_ms, "bytes_in", 3, None, now_ms, timers, WaitingPlan("plan", 1.5, (4, 7)))
    state = replace(state, recurring_planned_ms=((1, now_ms),))
    assert TriggerState.read(json.loads(json.dumps(asdict(state)))) == state


def test_a_state_of_an_earlier_version_is_folded_into_the_one_of_now() -> None:
    """A row of 2026-11-28, with a plan that waits, brokers that are away and partitions that lag."""
    row = {
        "breached_since_ms": 10, "breached_resource": "bytes_in", "breached_broker": 1, "broker_since_ms": 20,
        "cooldown_end_ms": 90, "missing_since_ms": [[4, 30], [5, 31]], "waiting_plan_id": "p", "waiting_load": 2.0,
        "waiting_failed": [4], "waiting_reason": "", "lasting_since_ms": [["empty_broker", 40]],
        "lagging_since_ms": [["t", 0, 50]], "recurring_planned_ms": [[2, 60]], "futile": [], "changed_ms": 70,
        "evaluated_ms": 80,
    }  # fmt: skip
    rows = (
        ("lagging", ("t", 0), 50), ("lasting", ("empty_broker",), 40), ("offline", (4,), 30), ("offline", (5,), 31),
    )  # fmt: skip
    assert TriggerState.read(json.loads(json.dumps(row))) == TriggerState(
        10, "bytes_in", 1, 20, 90, Timers(rows), WaitingPlan("p", 2.0, (4,)), ((2, 60),), (), 70, 80
    )
    assert TriggerState.read({}) == TriggerState()


def test_of_many_subjects_a_timer_keeps_those_that_last_longest() -> None:
    timers = Timers((("lagging", ("t", 3), 5), ("offline", (1,), 2)))
    kept = timers.folded("lagging", {("t", number): 9 for number in range(5)}, continuous=True, most=2)
    assert kept.rows == (("lagging", ("t", 0), 9), ("lagging", ("t", 3), 5), ("offline", (1,), 2))
    assert timers.at_most(3).rows == (("lagging", ("t", 3), 3), ("offline", (1,), 2))
