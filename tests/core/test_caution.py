"""Holding back and losing trust: what holds for any figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.execution.caution import (
    GAIN_JUDGED_MIN,
    LagBound,
    LatencyBound,
    SkewOutcome,
    bad_plans_in_a_row,
    brokers_too_slow,
    delivered,
    groups_falling_behind,
    judged_by,
    next_throttle_factor,
    throttle_rates,
)

LAGS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**9))


@given(LAGS, LAGS, st.floats(1.0, 10.0), st.integers(0, 10**6))
def test_only_growth_beyond_both_bounds_counts(
    before: dict[str, int], now: dict[str, int], growth: float, least: int
) -> None:
    behind = groups_falling_behind(before, now, LagBound(growth, least))
    assert all(now[group] > least and now[group] > growth * lag for group, lag, _ in behind)
    assert [now[group] - lag for group, lag, _ in behind] == sorted((row[2] - row[1] for row in behind), reverse=True)
    assert groups_falling_behind(before, before, LagBound(growth, least)) == ()


LATENCIES = st.dictionaries(st.integers(1, 6), st.floats(0.0, 1e5))


@given(st.floats(0.0, 1e4), LATENCIES, st.floats(1.0, 10.0), st.floats(0.0, 1e3))
def test_a_broker_as_slow_as_the_slowest_was_holds_nothing_back(
    before: float, now: dict[int, float], growth: float, least: float
) -> None:
    slow = brokers_too_slow(before, now, LatencyBound(growth, least))
    assert [latency for _, latency in slow] == sorted((latency for _, latency in slow), reverse=True)
    assert all(now[broker] == latency > max(before, least) for broker, latency in slow)
    assert all(latency <= max(growth * before, least) for broker, latency in now.items() if broker not in dict(slow))


@given(st.lists(st.booleans(), max_size=60), st.floats(0.01, 1.0))
def test_a_throttle_stays_within_its_bounds_and_recovers(pressures: list[bool], least: float) -> None:
    factor = 1.0
    for pressed in pressures:
        following = next_throttle_factor(factor, pressed=pressed, factor_min=least)
        assert least <= following <= 1.0
        assert (following <= factor) if pressed else (following >= factor)
        factor = following
    for _ in range(30):
        factor = next_throttle_factor(factor, pressed=False, factor_min=least)
    assert factor == 1.0


@given(st.dictionaries(st.integers(0, 5), st.floats(0, 1e10)), st.integers(1_000, 10**9), st.floats(0.1, 1.0))
def test_rates_never_exceed_the_setting(headrooms: dict[int, float], rate_max: int, factor: float) -> None:
    rates = throttle_rates(range(6), headrooms, rate_max=rate_max, rate_min=1_000, factor=factor)
    assert rates.keys() == set(range(6))
    assert all(1_000 <= rate <= rate_max for rate in rates.values())


def test_trust_comes_back_with_a_plan_that_delivers() -> None:
    good, bad, too_small = SkewOutcome(1.5, 1.0, 1.1), SkewOutcome(1.5, 1.0, 1.45), SkewOutcome(1.5, 1.49, 1.6)
    assert bad_plans_in_a_row([bad, bad, good]) == 0
    assert bad_plans_in_a_row([good, bad, too_small, bad]) == 2
    assert delivered(too_small) is None


def test_bounds_are_exceeded_by_what_is_above_them_only() -> None:
    before = {"a": 100, "b": 10}
    assert groups_falling_behind(before, {"a": 200, "b": 50}, LagBound(2.0, 50)) == ()
    assert groups_falling_behind(before, {"a": 201, "b": 51}, LagBound(2.0, 50)) == (("a", 100, 201), ("b", 10, 51))
    assert brokers_too_slow(40.0, {1: 80.0}, LatencyBound(2.0, 80.0)) == ()
    assert brokers_too_slow(40.0, {1: 80.5}, LatencyBound(2.0, 80.0)) == ((1, 80.5),)


def test_of_equals_the_first_by_name_comes_first() -> None:
    grown = groups_falling_behind({"b": 0, "a": 0}, {"b": 9, "a": 9}, LagBound(1.0, 0))
    assert [group for group, _, _ in grown] == ["a", "b"]
    assert brokers_too_slow(1.0, {2: 9.0, 1: 9.0}, LatencyBound(1.0, 0.0)) == ((1, 9.0), (2, 9.0))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (SkewOutcome(before=1.5, predicted=1.25, measured=1.375), True),  # exactly half of what was promised
        (SkewOutcome(before=1.5, predicted=1.25, measured=1.38), False),
        (SkewOutcome(before=1.25, predicted=1.22, measured=1.22), True),
        (SkewOutcome(before=1.25, predicted=1.235, measured=1.235), None),
        (SkewOutcome(before=GAIN_JUDGED_MIN, predicted=0.0, measured=0.0), True),
    ],
)
def test_half_of_a_promise_that_is_no_noise_is_a_delivery(outcome: SkewOutcome, expected: bool | None) -> None:
    assert delivered(outcome) is expected


def test_a_plan_is_judged_by_its_greatest_promise() -> None:
    small, great = SkewOutcome(2.0, 1.9, 1.0), SkewOutcome(1.5, 1.1, 1.5)
    assert judged_by({"disk": small, "bytes_in": great}) is great
    assert judged_by({}) is None
