"""What is OK at a glance is OK by all rules: the short cut changes no verdict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.lag import (
    Course,
    LagHistory,
    LagPolicy,
    LagStatus,
    Standing,
    evaluate,
    keeps_up,
    lag_age,
    newest_commit,
)
from assignor_core.lag.newest_first import Point
from tests.core.lag.cases import Story, history

POLICY = LagPolicy(window_ms=60_000, windows=4)
MINUTES = 5

point = st.tuples(
    st.integers(0, 59_999),  # into its half of the window
    st.none() | st.integers(-2, 9),  # what is committed since the point before
    st.integers(-1, 9),  # and written
)
partition = st.lists(st.tuples(st.booleans(), point, point), min_size=MINUTES, max_size=MINUTES)


Step = tuple[int, int | None, int]
Partition = list[tuple[bool, Step, Step]]


def history_of(partitions: list[Partition]) -> LagHistory:
    """Two points a minute of the minutes in which a partition was seen; each is seen in the newest."""
    starts: list[int] = []
    times: list[float] = []
    committed: list[float] = []
    ends: list[float] = []
    for minutes in partitions:
        starts.append(len(times))
        offset, end = 20, 25
        for minute, (is_seen, *points) in enumerate(minutes):
            for half, (at_ms, read, written) in enumerate(points):
                offset, end = max(0, offset + (read or 0)), max(0, end + written)
                if is_seen or minute == MINUTES - 1:
                    times.append(minute * 60_000 + (half * 60_000 + at_ms) // 2)
                    committed.append(np.nan if read is None else min(offset, end))
                    ends.append(end)
    return LagHistory(np.array(starts), *(np.array(column, dtype=float) for column in (times, committed, ends)))


def at_a_glance(points: LagHistory, left_over: np.ndarray[tuple[int], np.dtype[np.bool_]], now_ms: float) -> list[bool]:
    course = Course.of(one_by_one(points), POLICY, now_ms=now_ms)
    age, commit = lag_age(points), newest_commit(points)
    newest = one_by_one(points)[-1]
    return [bool(flag) for flag in keeps_up(newest, course, age, commit, left_over, POLICY, now_ms=now_ms)]


def one_by_one(points: LagHistory) -> list[Point]:
    """Point after point of all partitions; NaN where one was not seen."""
    longest = int(points.counts.max())
    columns = np.full((3, longest, len(points.starts)), np.nan)
    for number, (start, count) in enumerate(zip(points.starts, points.counts, strict=True)):
        for column, values in zip(columns, (points.time_ms, points.committed, points.log_end), strict=True):
            column[longest - count :, number] = values[start : start + count]
    return [(columns[0, at], columns[1, at], columns[2, at]) for at in range(longest)]


@pytest.mark.long
@settings(max_examples=40)
@given(st.lists(partition, min_size=1, max_size=6), st.booleans(), st.booleans(), st.integers(0, 2))
def test_what_is_ok_at_a_glance_is_ok_by_all_rules(
    partitions: list[Partition], owned: bool, left_over: bool, later_minutes: int
) -> None:
    points = history_of(partitions)
    now_ms = points.time_ms.max() + later_minutes * 60_000
    flags = np.full(len(partitions), owned)
    over = np.full(len(partitions), left_over)
    standing = Standing(flags, flags, over, np.zeros(len(partitions)))
    evaluated = evaluate(points, standing, POLICY, now_ms=now_ms)
    for glance, status, at_once in zip(
        at_a_glance(points, over, now_ms), evaluated.status, evaluated.at_once, strict=True
    ):
        assert not glance or status == at_once == LagStatus.OK


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (Story(lambda s: 10 * s, lambda s: 10 * s), True),
        (Story(lambda s: 10 * s, lambda s: 10 * max(0, s - 5)), True),  # a little behind, as who reads always is
        (Story(lambda s: 10 * s, lambda s: 10 * max(0, s - 5), left_over=True), False),
        (Story(lambda s: 10 * s, lambda s: 8 * s), False),  # falls behind
        (Story(lambda s: 10 * s, lambda s: 10 * min(s, 200)), False),  # stands still
        (Story(lambda s: 10 * s, lambda s: 10 * s - (500 if s >= 400 else 0)), False),  # not yet where it was
        (Story(lambda s: 10 * s, lambda _: None), False),
        (Story(lambda _: 100, lambda _: 100), True),  # nothing to read
        (Story(lambda s: 10 * s + (-2_900 if s > 300 else 50), lambda s: 10 * s - 2_910), False),  # made again at 300
        (
            Story(lambda s: None if 270 < s <= 300 else 10 * s - (2_900 if s > 300 else 0), lambda s: 10 * s - 2_910),
            False,
        ),
    ],
)
def test_who_reads_as_is_usual_is_seen_at_a_glance(story: Story, expected: bool) -> None:
    points = history([story], from_s=180, until_s=405)
    assert at_a_glance(points, np.array([story.left_over]), 405_000.0) == [expected]
