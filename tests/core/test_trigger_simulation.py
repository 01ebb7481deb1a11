"""The shipped defaults over weeks of generated load, and the simulator itself on loads to follow by head."""

import warnings
from math import nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.deciding.observation import PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, Detector, TriggerPolicy
from assignor_core.errors import InputError
from assignor_core.load_history.windows import ClosedWindow, SkewWindow, load_noise
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.replays.recorded_windows import EXECUTION_WINDOWS, UNDER_WAY, EvenPlans, Report, evened, simulate
from assignor_core.replays.traces import SCENARIOS, Trace, generate
from assignor_core.skew import skew_of
from tests.benchmarks.bench_trigger import COLUMNS, POLICIES, figures_of, row_of, why_of
from tests.benchmarks.foresight import drift_with_foresight, foresight_row

pytestmark = pytest.mark.long

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "trigger.md"
DEFAULTS = TriggerPolicy()
LOADS = st.sampled_from([nan, 0.0, 1e-6, 1.0, 3.0, 715.8278831297643, 1e6]) | st.floats(1e-6, 1e3)
PLAYED = ("diurnal", "gaps", "bursts", "steps")
"""The scenarios of the document that cost least; each takes seconds."""
QUICK = TriggerPolicy(windows_over=2, windows_considered=3, cooldown_ms=0)


def trace(*rows: tuple[float, ...], steps_at: tuple[int, ...] = ()) -> Trace:
    ends = tuple(60_000 * (index + 1) for index in range(len(rows)))
    by_resource = {"bytes_in": np.array(rows) * 1e6}
    return Trace("by hand", ends, tuple(range(1, len(rows[0]) + 1)), by_resource, steps_at)


@pytest.fixture(scope="module")
def weeks_of_the_defaults() -> dict[str, list[Report]]:
    """Two weeks of some scenarios, played once for all tests of this file."""
    return figures_of(POLICIES["the defaults"], scenarios=PLAYED)


@pytest.mark.parametrize("scenario", ["diurnal", "gaps", "bursts"])
def test_a_week_of_noise_makes_the_defaults_do_nothing(
    scenario: str, weeks_of_the_defaults: dict[str, list[Report]]
) -> None:
    for report in weeks_of_the_defaults[scenario]:
        assert report.windows > 9_000
        assert (report.triggers, report.false_triggers, report.flaps) == (0, 0, 0)


def test_a_real_step_is_found_within_three_windows_and_mended_by_one_plan(
    weeks_of_the_defaults: dict[str, list[Report]],
) -> None:
    for report in weeks_of_the_defaults["steps"]:
        assert report.found_after_windows == (3, 3, 3)
        assert (report.triggers, report.false_triggers, report.flaps) == (3, 0, 0)


def test_time_in_skew_is_counted_by_what_was_decided() -> None:
    report = simulate(generate("steps", seed=1, windows=700), DEFAULTS)
    assert sum(report.skewed_by_reason.values()) == report.windows_in_skew > 0
    assert report.skewed_by_reason[UNDER_WAY] == 15, "three plans of five windows each"
    minutes = f"minutes by seed: {report.windows_in_skew}; steps found after 3 windows (median)"
    assert why_of("steps", [report]).endswith(minutes)


def test_a_naive_threshold_flaps_on_the_same_week() -> None:
    """The figures above could be zero because nothing is ever counted."""
    naive = TriggerPolicy(
        enter_ratio=1.1, exit_ratio=1.099, windows_over=1, windows_considered=1, cooldown_ms=0,
        detector=Detector.WINDOWS,
    )  # fmt: skip
    report = simulate(generate("diurnal", seed=1), naive)
    assert report.false_triggers > 100
    assert report.flaps > 100
    assert report.reversals > 100


def test_each_flap_has_its_time() -> None:
    """Skewed, even without a plan, and skewed again a few minutes later."""
    even, skewed = (1.0, 1.0, 1.0), (2.0, 1.0, 1.0)
    rows = [even] * 20 + [skewed] * 4 + [even] * 5 + [skewed] * 4
    report = simulate(trace(*rows), TriggerPolicy(load_min_bytes_per_sec=1e9))
    assert (report.triggers, report.flaps, report.flapped_ms) == (0, 1, (32 * 60_000,))
    assert why_of("by hand", [report]).endswith("; flaps on days 1")


def test_a_plan_for_a_burst_is_a_false_trigger_and_is_taken_back() -> None:
    even, burst = (1.0, 1.0, 1.0), (4.0, 1.0, 1.0)
    report = simulate(trace(*[even] * 3, burst, burst, *[even] * 40), QUICK)
    # Found in the second window of the burst; carried out, broker 1 has too little: what was moved comes back.
    assert (report.triggers, report.false_triggers, report.reversals) == (2, 1, 1)
    # 4 of 6 on broker 1 is 1/3 of the load too much; then it has 1/2 and the others 2 each: 1/9, which is 2/9 too few.
    taken, left = 4 / 6 - 1 / 3, (1 / 2) / (1 / 2 + 2 * 2)
    assert report.load_moved == pytest.approx(taken + (1 / 3 - left))


def test_what_a_plan_leaves_between_the_thresholds_is_no_reason_for_another() -> None:
    even, burst = (1.0, 1.0, 1.0), (3.0, 1.0, 1.0)
    # The plan for the burst leaves brokers 2 and 3 at 1.286 of the mean: above exit_ratio, below enter_ratio.
    assert simulate(trace(*[even] * 3, burst, burst, *[even] * 40), QUICK).triggers == 1


def test_time_in_skew_ends_with_the_plan() -> None:
    even, skewed = (1.0, 1.0, 1.0), (2.0, 1.0, 1.0)
    rows = [even] * 20 + [skewed] * 60
    quiet = TriggerPolicy(enter_ratio=9.0, exit_ratio=8.0)
    unmended = simulate(trace(*rows, steps_at=(20,)), quiet)
    assert unmended.found_after_windows == (None,)
    mended = simulate(trace(*rows, steps_at=(20,)), DEFAULTS)
    assert mended.found_after_windows == (3,)
    # 60 windows and the few before in whose surroundings the skew already weighs; or until the plan has been made.
    assert 60 <= unmended.windows_in_skew <= 65
    assert mended.windows_in_skew <= 3 + EXECUTION_WINDOWS + 5


def test_windows_without_a_broker_are_not_judged() -> None:
    even, skewed, silent = (1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (2.0, nan, 1.0)
    assert simulate(trace(even, *[silent] * 10, even), QUICK).triggers == 0
    assert simulate(trace(even, *[silent] * 3, skewed, skewed), QUICK).triggers == 1


def test_a_broker_that_has_left_for_good_is_no_longer_expected() -> None:
    assert simulate(trace((1.0, 1.0, 1.0), *[(2.0, 1.0, nan)] * 3), QUICK).triggers == 1


def test_earlier_windows_are_judged_by_the_brokers_that_are_there_now() -> None:
    """Control judges earlier windows by the brokers of now: broker 1 was far above the mean beside one that left."""
    policy = DecisionPolicy(QUICK, gain_over_noise_min=0.0)
    three, two = (1.2, 1.0, 0.4), (2.0, 1.0, nan)
    assert simulate(trace(three, two), policy).triggers == 0, "one of two windows"
    assert simulate(trace(three, two, two), policy).triggers == 1, "two of three windows"


def test_a_simulated_window_is_what_control_would_measure() -> None:
    values = {1: 58.0, 2: 25.0, 3: 37.0}
    only_window = TriggerPolicy(enter_ratio=skew_of(values).max_over_mean - 1e-9, windows_over=1, windows_considered=1)
    assert simulate(trace(tuple(values.values())), only_window).triggers == 1
    above = TriggerPolicy(enter_ratio=skew_of(values).max_over_mean + 1e-9, windows_over=1, windows_considered=1)
    assert simulate(trace(tuple(values.values())), above).triggers == 0


def test_no_load_is_lost_to_a_broker_that_carries_none() -> None:
    """A new broker that nobody fills: each plan took a quarter of the cluster's load away, until none was left."""
    with_empty = simulate(trace(*[(6.0, 2.0, 2.0, 0.0)] * 60), QUICK)
    assert with_empty.triggers == 1
    assert with_empty.load_moved == pytest.approx(8 / 30)
    assert with_empty.windows_in_skew == 60, "it stays as empty as it was"
    assert simulate(trace(*[(3.0, 3.0, 3.0, 0.0)] * 60), QUICK).triggers == 0
    # The mean of equal loads may be below each of them by a rounding error.
    assert evened(np.full(3, 715827883.1297643), 0.0).tolist() == [715827883.1297643] * 3


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4).flatmap(lambda brokers: st.lists(st.tuples(*[LOADS] * brokers), min_size=1, max_size=25)))
def test_figures_are_numbers_whatever_the_loads(rows: list[tuple[float, ...]]) -> None:
    """One broker, none that reports, loads of nothing: tables hold such windows, and nothing warns of them."""
    eager = TriggerPolicy(windows_over=1, windows_considered=2, cooldown_ms=0, load_min_bytes_per_sec=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = simulate(trace(*rows), eager)
    assert 0 <= report.load_moved <= report.triggers
    assert report.false_triggers <= report.triggers
    assert report.windows_in_skew <= report.windows == len(rows)


def test_a_plan_that_waits_is_known_after_others_were_made() -> None:
    plans = EvenPlans((1, 2), ("bytes_in",))
    windows = [ClosedWindow(at, at + 10, frozenset({1, 2}), {"bytes_in": {1: 3.0, 2: 1.0}}) for at in (0, 10)]
    first, second = (plans.propose(PlanRequest(PlannerPolicy(), (window,))) for window in windows)
    for proposed in (first, second):
        kept = plans.kept_plan(proposed.plan.plan_id)
        assert kept is not None
        assert kept.proposed == proposed


def test_noise_is_no_gain() -> None:
    """At 10 % noise every plan leaves a skew of that size, and noise lifts the next broker over the threshold."""
    noisy = generate("steps", seed=2, noise=0.10)
    windows = TriggerPolicy(detector=Detector.WINDOWS)
    gullible, careful = (simulate(noisy, DecisionPolicy(windows, gain_over_noise_min=factor)) for factor in (0.0, 4.0))
    assert gullible.triggers > 30
    assert careful.triggers < gullible.triggers / 2
    assert careful.false_triggers < gullible.false_triggers / 2
    assert None not in careful.found_after_windows
    assert DecisionPolicy().gain_over_noise_min == 4.0


def test_noise_that_is_known_makes_no_plan_and_hides_no_step() -> None:
    """The same week: one plan for each step, found as soon as with windows alone."""
    report = simulate(generate("steps", seed=3, noise=0.10), DEFAULTS)
    assert (report.triggers, report.false_triggers) == (3, 0)
    delays = [delay for delay in report.found_after_windows if delay is not None]
    assert len(delays) == 3
    assert max(delays) <= 7


def test_bursts_are_waited_out_once_a_few_have_ended_by_themselves() -> None:
    bursts = generate("long bursts", seed=5, noise=0.10)
    learning, gullible = (simulate(bursts, TriggerPolicy(detector=detector)) for detector in Detector)
    assert learning.triggers < gullible.triggers / 3
    assert learning.false_triggers < gullible.false_triggers / 2


def test_bursts_that_come_each_day_make_no_plan_once_they_have_come_three_times() -> None:
    """Two brokers, each at its own hour. Plans for one give back what was taken from the other, so they never end."""
    daily = generate("daily bursts", seed=13, windows=5 * 1440)
    learning, forgetful = (simulate(daily, TriggerPolicy(recurring_load=known)) for known in (True, False))
    assert learning.triggers == 2 * 3
    assert forgetful.triggers >= 2 * 5 - 1


def test_a_step_is_not_noise_even_of_few_brokers() -> None:
    """It changes the share of every broker once; loads that are quiet before and after have no noise."""
    even, skewed = (
        SkewWindow(10, {"bytes_in": {1: 1.0, 2: 1.0}}, {}, 2, 2),
        SkewWindow(20, {"bytes_in": {1: 1.8, 2: 0.2}}, {}, 2, 2),
    )
    assert load_noise([even, even, skewed, skewed], "bytes_in") == 0
    assert load_noise([even, skewed, even], "bytes_in") > 0.5
    assert load_noise([even], "bytes_in") == 0
    assert load_noise([even, skewed], "bytes_out") == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_seed_gives_the_same_trace_and_another_another(scenario: str) -> None:
    one, same, other = (generate(scenario, seed=seed, windows=500) for seed in (1, 1, 2))
    assert one.loads["bytes_in"].tobytes() == same.loads["bytes_in"].tobytes()
    assert one.loads["bytes_in"].tobytes() != other.loads["bytes_in"].tobytes()


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="scenario 'tides': unknown"):
        generate("tides", seed=1)
    with pytest.raises(InputError, match="not in order"):
        Trace("x", (2, 1), (1,), {"bytes_in": np.ones((2, 1))})
    with pytest.raises(InputError, match="shape"):
        Trace("x", (1, 2), (1,), {"bytes_in": np.ones((3, 1))})


def test_the_documented_figures_of_the_defaults_are_those_of_the_simulator(
    weeks_of_the_defaults: dict[str, list[Report]],
) -> None:
    """The document has the figures of the scenarios that this file plays. `make bench-trigger` makes all others."""
    places = [1, *(2 + COLUMNS.index(name) for name in PLAYED), 2 + len(COLUMNS)]
    documented = [cells(line) for line in DOCUMENT.read_text().splitlines() if line.startswith("| the defaults |")]
    made = cells(row_of("the defaults", weeks_of_the_defaults))[1 : 1 + len(places)]
    assert made in [[row[place] for place in places] for row in documented if len(row) > max(places)]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")]


def test_who_knows_a_drift_without_its_noise_plans_as_often_as_it_grows() -> None:
    """From 1 to 2 of six brokers: a plan at each 1.26 times is three, at each 1.4 times two."""
    assert drift_with_foresight(6 * 1.25 / 6.25, noise=0.0, seeds=(1,), windows=2_000) == (3, 0)
    assert drift_with_foresight(6 * 1.40 / 6.40, noise=0.0, seeds=(1,), windows=2_000)[0] == 2
    plans, late = drift_with_foresight(9.0, noise=0.0, seeds=(1,), windows=2_000)
    # It is above 1.30 of the mean from 1.383 times on, less the few windows whose surroundings reach beyond the end.
    assert plans == 0
    assert late == pytest.approx(2_000 * (2.0 - 1.383), abs=10)


def test_the_documented_yardstick_of_a_drift_is_that_of_the_simulator() -> None:
    """`make bench-trigger ARGS="--foresight ..."` makes the other rows."""
    row = foresight_row(1.21, noise=0.1, seeds=range(51, 59))
    assert f"| with foresight, at {row.removeprefix('| ')}\n" in DOCUMENT.read_text()
