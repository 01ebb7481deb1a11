"""How old a lag is, and when was committed last: cases to check by head, and the truth of a log that grows evenly."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.lag.history import LagHistory, lag_seconds, last_commit_ms

NOTHING = float("nan")
Points = list[tuple[float, float, float]]


def history(*partitions: Sequence[tuple[float, float, float]]) -> LagHistory:
    """Partitions as points (seconds, committed offset, log end)."""
    flat = np.array([point for points in partitions for point in points], dtype=np.float64)
    starts = np.cumsum([0, *(len(points) for points in partitions[:-1])])
    return LagHistory(starts, flat[:, 0] * 1000, flat[:, 1], flat[:, 2])


@pytest.mark.parametrize(
    ("points", "seconds"),
    [
        ([(0, 10, 10), (60, 20, 20)], 0.0),  # nothing to read
        ([(0, 0, 0), (60, 0, 60)], 60.0),  # read nothing since it began
        ([(0, 0, 0), (60, 45, 60)], 15.0),  # 45 was the end after 45 s
        ([(0, 0, 0), (60, 0, 60), (60, 0, 60), (120, 60, 120)], 60.0),
        ([(0, 5, 50), (60, 5, 60)], 60.0),  # older than what is known: at least that
        ([(0, 10, 10), (30, 10, 10), (40, 10, 10), (60, 10, 20)], 20.0),  # the log stood still until 40 s
        ([(0, 9, 9), (30, 99, 99), (60, 10, 50), (90, 20, 60)], 30.0),  # made again between 30 s and 60 s
        ([(0, 9, 9), (30, 99, 99), (40, 99, NOTHING), (60, 10, 50), (90, 20, 60)], 30.0),  # and away at 40 s
        ([(0, 9, 9), (30, 99, 99), (60, 0, 10), (90, 20, 30)], 15.0),  # 20 was the end of the new log at 75 s
        ([(0, 9, 9), (30, 99, 99), (60, 10, 50)], 0.0),  # made again a moment ago
    ],
)
def test_the_age_of_a_lag(points: Points, seconds: float) -> None:
    assert lag_seconds(history(points)).tolist() == [seconds]


def test_partitions_do_not_mix_and_unknown_stays_unknown() -> None:
    several = history(
        [(0, 0, 0), (60, 45, 60)],
        [(0, NOTHING, 0), (60, NOTHING, 60)],
        [(0, 7, 7), (60, 7, 7), (60, 7, 7), (120, 7, 7)],
    )
    seconds = lag_seconds(several)
    assert seconds[0] == 15.0
    assert math.isnan(seconds[1])
    assert seconds[2] == 0.0
    committed = last_commit_ms(several)
    assert committed[0] == 60_000
    assert math.isnan(committed[1])
    assert committed[2] == 0  # no commit was seen: not later than the oldest point


def test_a_commit_between_two_windows_is_seen() -> None:
    assert last_commit_ms(history([(0, 1, 9), (50, 1, 9), (60, 5, 9), (110, 5, 9)])).tolist() == [60_000]


@given(st.integers(1, 1_000), st.integers(1, 20), st.data())
def test_of_a_log_that_grows_evenly_the_age_is_lag_per_rate(rate: int, windows: int, data: st.DataObject) -> None:
    end = windows * 60 * rate
    committed = data.draw(st.integers(0, end))
    points = [
        (second, committed, second * rate) for window in range(windows) for second in (window * 60, window * 60 + 60)
    ]
    (seconds,) = lag_seconds(history(points))
    assert seconds == pytest.approx((end - committed) / rate, abs=1e-6)
