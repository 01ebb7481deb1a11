"""Loads that are known between bounds alone: skew counts where it holds at both ends, and is unknown elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from assignor_core.deciding.policy import TriggerPolicy
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.state import TriggerState
from assignor_core.load_history.windows import ClosedWindow, skew_window, without_catch_up
from assignor_core.model import Capacity
from assignor_core.resources import Resource
from assignor_core.skew import relative_bounds, relative_loads
from tests.core.judging import step

RESOURCES = (Resource.BYTES_IN, Resource.BYTES_OUT)
EVEN = {1: 1e6, 2: 1e6, 3: 1e6}
POLICY = TriggerPolicy(windows_over=2, windows_considered=3)


@pytest.mark.parametrize("seed", range(5))
def test_no_load_within_the_bounds_has_a_ratio_beyond_them_and_the_bounds_are_reached(seed: int) -> None:
    random = np.random.default_rng(seed)
    low = {broker: float(value) for broker, value in enumerate(random.uniform(0, 10, 5))}
    high = {broker: value + float(random.choice([0, 1, 20])) for broker, value in low.items()}
    capacities = {broker: float(value) for broker, value in enumerate(random.uniform(1, 4, 5))}
    bounds = relative_bounds(low, high, capacities)
    for _ in range(200):
        loads = {broker: float(random.uniform(low[broker], high[broker])) for broker in low}
        for broker, ratio in relative_loads(loads, capacities).items():
            least, most = bounds[broker]
            assert least - 1e-9 <= ratio <= most + 1e-9
    for broker, (least, most) in bounds.items():
        assert relative_loads(high | {broker: low[broker]}, capacities)[broker] == pytest.approx(least)
        assert relative_loads(low | {broker: high[broker]}, capacities)[broker] == pytest.approx(most)


def test_loads_that_are_all_known_have_one_ratio_and_next_to_nothing_is_even() -> None:
    known = {1: 30.0, 2: 10.0, 3: 20.0}
    for broker, (least, most) in relative_bounds(known, known).items():
        assert least == most == pytest.approx(relative_loads(known)[broker])
    assert relative_bounds({1: 0.0, 2: 0.0}, {1: 0.0, 2: 0.0}) == {1: (1.0, 1.0), 2: (1.0, 1.0)}


def window(end_ms: int, bounds: dict[int, tuple[float, float]], known: dict[int, float] | None = None) -> ClosedWindow:
    loads: dict[str, dict[int, float]] = {Resource.BYTES_IN: EVEN, Resource.BYTES_OUT: known or {}}
    return ClosedWindow(end_ms - 10, end_ms, frozenset(EVEN), loads, bounds={Resource.BYTES_OUT: bounds})


def decided(bounds: dict[int, tuple[float, float]], known: dict[int, float] | None = None) -> tuple[str, str, str]:
    windows = [window(end_ms, bounds, known) for end_ms in (10, 20, 30)]
    skews = tuple(skew_window(row, RESOURCES, {}, frozenset(EVEN)) for row in windows)
    _, found = step(POLICY, TriggerState(), skews, now_ms=40)
    return found.verdict, found.reason, found.detail


def test_skew_that_holds_at_both_ends_triggers() -> None:
    """Broker 1 sends most even if the others send all that they may."""
    verdict, reason, detail = decided({1: (4e6, 4.1e6), 2: (1e6, 1.2e6), 3: (1e6, 1.1e6)})
    assert (verdict, reason) == (Verdict.PLAN, Reason.SKEWED)
    assert detail.startswith("bytes_out max/mean at least 1.905; broker 1 over 1.3 in 3 of the last 3 windows")


def test_skew_that_holds_at_one_end_alone_is_unknown_and_does_not_trigger() -> None:
    verdict, reason, detail = decided({1: (2e6, 2e6), 2: (1e6, 4e6), 3: (1e6, 2e6)})
    assert (verdict, reason) == (Verdict.HOLD, Reason.BALANCED)
    assert detail.endswith("; unknown if bytes_out is skewed: broker 2 has 0.600 to 1.714 of the mean")


def test_where_no_broker_can_be_over_nothing_is_said_of_it() -> None:
    _, reason, detail = decided({1: (1e6, 1.1e6), 2: (1e6, 1.1e6), 3: (1e6, 1.1e6)})
    assert (reason, "unknown" in detail) == (Reason.BALANCED, False)


def test_brokers_whose_load_is_known_count_beside_those_with_bounds() -> None:
    assert decided({2: (1e6, 1e6), 3: (1e6, 1.2e6)}, {1: 4e6})[1] is Reason.SKEWED
    assert decided({2: (1e6, 9e6), 3: (1e6, 1.2e6)}, {1: 4e6})[1] is Reason.BALANCED


def test_a_broker_without_bounds_leaves_nothing_to_compare() -> None:
    unknown = window(10, {2: (1e6, 1e6)}, {1: 4e6})
    judged = replace(unknown, reads_unknown=frozenset({2}))
    assert skew_window(judged, RESOURCES, {}, frozenset(EVEN)).ratios[Resource.BYTES_OUT][1] == 1.6
    unjudged = replace(unknown, reads_unknown=frozenset({2, 3}))
    assert skew_window(unjudged, RESOURCES, {}, frozenset(EVEN)).ratios.keys() == {Resource.BYTES_IN}
    assert skew_window(unjudged, RESOURCES, {}, frozenset({1, 2})).ratios[Resource.BYTES_OUT][1] == 1.6, "3 is drained"


def test_the_floor_of_load_counts_what_is_sent_at_least() -> None:
    assert decided({1: (400.0, 410.0), 2: (100.0, 110.0), 3: (100.0, 110.0)})[1] is Reason.LOW_LOAD


def test_bounds_are_compared_by_capacity_and_drained_brokers_do_not_count() -> None:
    capacities = {1: Capacity(bytes_out_per_sec=4.0), 2: Capacity(bytes_out_per_sec=1.0)}
    skew = skew_window(window(10, {1: (4.0, 4.0), 2: (1.0, 1.0), 3: (9.0, 9.0)}), RESOURCES, capacities, {1, 2})
    assert skew.ratios[Resource.BYTES_OUT] == skew.ratios_at_most[Resource.BYTES_OUT] == {1: 1.0, 2: 1.0}
    assert skew.mean_load[Resource.BYTES_OUT] == 2.5


def test_what_consumers_read_to_catch_up_is_taken_from_both_ends() -> None:
    lasting = without_catch_up(window(10, {2: (3.0, 8.0), 3: (1.0, 2.0)}, {1: 5.0}), {1: 1.0, 2: 4.0})
    assert lasting.values(Resource.BYTES_OUT) == {1: 4.0}
    assert lasting.bounds[Resource.BYTES_OUT] == {2: (0.0, 4.0), 3: (1.0, 2.0)}
