"""Figures drawn from a replay: brokers that growth asks for, and what no placement is below."""

from dataclasses import replace

import pytest

from assignor_core.deciding.policy import LastingPolicy
from assignor_core.model import Capacity
from assignor_core.what_if.changes import Changes
from assignor_core.what_if.outlook import BROKERS_MAX, DAYS_AHEAD, bounds, brokers_needed, growth_of, headroom
from tests.core.replays.histories import MB, history, skewed
from tests.core.replays.test_placed_cluster import POLICY, run

STEEP = (
    [1e9, 1e9, 1e9, 60e9],
    [5e6, 4e6, 6e6, 5e6, 2e8, 40e9, 41e9],
    [1e-300, 1.0, 1e300, 1e300],
    [1e300, 1.0, 1e-300, 1e-300],
)


@pytest.mark.long
@pytest.mark.parametrize("totals", STEEP)
def test_a_steep_rise_asks_for_no_more_brokers_than_can_be_counted(totals: list[float]) -> None:
    growth = growth_of(totals)
    assert growth is not None
    assert growth.high**30 < float("inf"), "the growth of a month can be shown"
    rows = brokers_needed(run(skewed()), growth, {}, {})
    assert {row.days_ahead for row in rows} == set(DAYS_AHEAD)
    for row in rows:
        assert 0 <= row.low <= row.likely <= row.high <= BROKERS_MAX
    assert any(row.high == BROKERS_MAX for row in rows) == (totals[0] < totals[-1])


@pytest.mark.long
def test_brokers_needed_by_date_follow_the_growth_exactly() -> None:
    growth = growth_of([2.0**day for day in range(5)])
    assert growth is not None
    rows = [row for row in brokers_needed(run(skewed()), growth, {}, {}) if row.resource == "bytes_in"]
    assert [row.likely for row in rows] == [BROKERS_MAX] * 4, "three brokers, doubled each day"
    slow = growth_of([1.001**day for day in range(5)])
    assert slow is not None
    rows = [row for row in brokers_needed(run(skewed()), slow, {}, {}) if row.resource == "bytes_in"]
    assert [(row.low, row.likely, row.high) for row in rows] == [(4, 4, 4), (4, 4, 4), (4, 4, 4), (5, 5, 5)]


def test_a_broker_that_is_away_has_no_headroom() -> None:
    """What is left of it is nothing that anybody could use."""
    result = run(history([(1, 2), (2, 3)], hours=1), Changes(brokers_down=frozenset({2})))
    rows = headroom(result, dict.fromkeys((1, 2, 3), Capacity(10 * MB)), {2: 10**12, 3: 10**12})
    assert {(row.broker, row.resource) for row in rows} == {(1, "bytes_in"), (3, "bytes_in"), (3, "disk")}


def test_racks_that_stay_crowded_force_nothing_on_what_is_there() -> None:
    # Four brokers in rack a carry alike, the one in rack b nothing: 1.25 times the mean, with crowded racks.
    crowded = history([(1, 2), (2, 3), (3, 4), (4, 1)], hours=1, racks="aaaab", brokers=5)
    still = replace(POLICY, lasting=LastingPolicy(placement_reasons=()))
    row = bounds(crowded, run(crowded, policy=still), frozenset())[0]
    assert row.max_over_mean <= 1.25 + 1e-9


def test_what_is_used_of_capacities_is_bound_as_it_is_shown() -> None:
    """A heavy partition on a large broker: bytes are uneven, what is used of capacities is not."""
    heavy = history([(1,), (1,), (2,), (3,)], hours=1, bytes_in=[4.0, 1.0, 1.0, 1.0])
    capacities = {1: Capacity(100 * MB), 2: Capacity(25 * MB), 3: Capacity(25 * MB)}
    result = run(heavy, policy=replace(POLICY, capacities=capacities))
    bound, plain = (bounds(heavy, result, frozenset(), given)[0] for given in (capacities, {}))
    assert plain.max_over_mean == pytest.approx(4 / (7 / 3))
    assert bound.max_over_mean <= result.max_over_mean["bytes_in"].min() < 1.1
    assert bound.load == plain.load == pytest.approx(4 * MB), "some broker carries the heavy partition"
