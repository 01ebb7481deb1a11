"""The trigger at its thresholds, and the figures that its reasons name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import Detector, TriggerPolicy
from assignor_core.deciding.reasons import LASTING_REASONS, Evaluation, Reason, Verdict
from assignor_core.deciding.skewed import entering
from assignor_core.deciding.state import TriggerState, offline_since_ms
from assignor_core.errors import InputError
from assignor_core.load_history.windows import SkewWindow
from tests.core.judging import step
from tests.core.states import remembered, waiting_of

POLICY = TriggerPolicy(enter_ratio=1.3, exit_ratio=1.15, windows_over=2, windows_considered=3)
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


def test_at_first_nothing_is_remembered() -> None:
    state = TriggerState()
    assert (state.cooldown_end_ms, waiting_of(state).load, state.changed_ms, state.evaluated_ms) == (0, 0.0, 0, 0)
    around = Surroundings()
    assert (around.reassigning_count, around.changed_ms, around.alive_count) == (0, 0, 0)


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


def test_a_broker_that_may_come_back_is_named_with_the_time_it_is_away() -> None:
    policy = replace(POLICY, broker_failure_grace_ms=2 * HOUR_MS, stale_after_ms=2 * HOUR_MS)
    away = remembered(missing_since_ms=((4, HOUR_MS // 2),), evaluated_ms=HOUR_MS)
    around = Surroundings(missing_brokers=frozenset({4}), alive_count=18)
    found = evaluated(windows(1.5, 1.5), away, around, policy=policy, now_ms=HOUR_MS * 3 // 2)
    assert found.detail == "broker 4 has been offline for 3600 s: it may come back"


def test_the_defaults_are_those_that_the_documentation_explains() -> None:
    assert TriggerPolicy() == TriggerPolicy(
        enter_ratio=1.30, exit_ratio=1.15, windows_over=3, windows_considered=5, detector=Detector("noise"),
        recurring_load=True, recurring_plan_min_ms=HOUR_MS, cooldown_ms=600_000,
        completeness_min=0.95, load_min_bytes_per_sec=100_000.0, stale_after_ms=360_000,
        broker_failure_grace_ms=1_800_000, relief_max_away_share=0.40,
    )  # fmt: skip
    assert [str(row) for row in Detector] == ["noise", "windows"]


def test_a_recurring_skew_of_any_length_may_be_planned_for() -> None:
    assert TriggerPolicy(recurring_plan_min_ms=0).recurring_plan_min_ms == 0
    with pytest.raises(
        InputError, match=r"^trigger policy recurring_plan_min_ms: found -1, allowed is 0 to 2592000000$"
    ):
        TriggerPolicy(recurring_plan_min_ms=-1)
