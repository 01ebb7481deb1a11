"""Holding back and losing trust: what holds for any figures."""

from hypothesis import given
from hypothesis import strategies as st

from assignor_core.execution.caution import (
    LagBound,
    LatencyBound,
    Outcome,
    bad_plans_in_a_row,
    brokers_too_slow,
    delivered,
    groups_falling_behind,
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
    good, bad, too_small = Outcome(1.5, 1.0, 1.1), Outcome(1.5, 1.0, 1.45), Outcome(1.5, 1.49, 1.6)
    assert bad_plans_in_a_row([bad, bad, good]) == 0
    assert bad_plans_in_a_row([good, bad, too_small, bad]) == 2
    assert delivered(too_small) is None
