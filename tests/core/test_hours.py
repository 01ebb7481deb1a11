"""Loads by the hour of the day: hours that become one column, and what counts where an hour is not known."""

import math

import numpy as np
import pytest

from assignor_core.live_plans.measured_loads import CELLS_MAX, DAY_HOURS, NO_HOURS, HourlyRates, merged, with_hours
from assignor_core.load import NEGLIGIBLE
from assignor_core.model import RATE_KEYS

KEY, OTHER, NEW = (("t", number) for number in range(3))
DAY = HourlyRates(tuple(range(DAY_HOURS)), {KEY: 0}, np.arange(48.0).reshape(1, DAY_HOURS, 2), 7)


@pytest.mark.parametrize(("length", "columns"), [(1, 24), (2, 12), (3, 8), (4, 6), (6, 4), (8, 3), (12, 2)])
def test_hours_become_one_column_as_far_as_a_large_cluster_needs(length: int, columns: int) -> None:
    """One column more holds the newest windows."""
    cells = 10 * (columns + 1)
    found = merged(DAY, 10, cells)
    assert found.hours == tuple(range(0, DAY_HOURS, length))
    assert found.rates[0, :, 0].tolist() == DAY.rates[0, :, 0].reshape(columns, length).mean(axis=1).tolist()
    assert (found.partitions, found.days) == (DAY.partitions, 7)
    assert len(merged(DAY, 10, cells - 1).hours) < columns


def test_a_day_of_one_column_shows_no_hour() -> None:
    assert merged(DAY, 10, 29) is NO_HOURS
    assert NO_HOURS.rates.shape == (0, 0, len(RATE_KEYS))
    assert (NO_HOURS.hours, NO_HOURS.partitions, NO_HOURS.days) == ((), {}, 0)


def test_the_bound_is_half_a_million_cells() -> None:
    assert CELLS_MAX == 500_000
    assert merged(DAY, 20_000) is DAY
    assert len(merged(DAY, 20_001).hours) == 12
    assert merged(DAY, 0) is DAY
    assert merged(DAY, 1, 25) is DAY


def test_a_column_is_the_mean_of_the_hours_that_are_known() -> None:
    rates = np.array([[[1.0, math.nan], [3.0, math.nan], [math.nan, 6.0]], [[math.nan, 2.0], [4.0, 4.0], [8.0, 0.0]]])
    found = merged(HourlyRates((2, 3, 11), {KEY: 0, OTHER: 1}, rates), 10, 130)
    assert found.hours == (2, 10)
    np.testing.assert_array_equal(found.rates, [[[2.0, math.nan], [math.nan, 6.0]], [[4.0, 3.0], [8.0, 0.0]]])
    nothing = HourlyRates((), {}, np.zeros((0, 0, 2)))
    assert merged(nothing, 10, 130).rates.shape == (0, 0, 2)


def test_what_is_not_known_of_an_hour_follows_those_that_are() -> None:
    rates = np.array([[[2.0, 8.0], [math.nan, 1.0]], [[4.0, math.nan], [math.nan, 3.0]]])
    hourly = HourlyRates((3, 4), {KEY: 0, OTHER: 1}, rates)
    newest = np.array([[5.0, 1.0], [1.0, 4.0], [3.0, 2.0]])
    found = with_hours([NEW, KEY, OTHER], newest, hourly)
    assert found.shape == (3, 3, 2)
    assert found[:, 0].tolist() == newest.tolist(), "the newest windows come first"
    # At three 6 of what is 4 now, and 8 of what is 4; at four nothing is known of the first rate, and 4 of what is 6.
    assert found[:, 1].tolist() == [[7.5, 2.0], [2.0, 8.0], [4.0, 4.0]]
    assert found[:, 2].tolist() == [[5.0, pytest.approx(4 / 6)], [1.0, 1.0], [3.0, 3.0]]


def test_a_cluster_without_partitions_has_no_rows() -> None:
    assert with_hours([], np.zeros((0, 2)), DAY).shape == (0, 1 + DAY_HOURS, 2)


def test_an_hour_of_partitions_without_load_now_says_nothing_of_others() -> None:
    hourly = HourlyRates((3,), {KEY: 0}, np.array([[[7.0, 7.0]]]))
    newest = np.array([[NEGLIGIBLE, 2 * NEGLIGIBLE], [5.0, 5.0]])
    found = with_hours([KEY, NEW], newest, hourly)
    assert found[1, 1].tolist() == [5.0, pytest.approx(5.0 * 7.0 / (2 * NEGLIGIBLE))]
    assert found[0, 1].tolist() == [7.0, 7.0]
