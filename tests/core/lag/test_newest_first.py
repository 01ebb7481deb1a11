"""Points that come newest first show what the same points show as a history, however many of them are left out."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.lag import LagHistory, LagTrace, lag_age, newest_commit
from assignor_core.lag.history import LagAnswers
from assignor_core.lag.newest_first import Point

STEP_MS = 30_000.0

offset = st.none() | st.integers(0, 9)
"""Goes up, down, and is unknown."""
log_end = st.none() | st.integers(0, 12)
"""The same: topics are deleted and made again."""
seen = st.tuples(st.integers(0, 29_999), offset, log_end)
partition = st.lists(st.none() | seen, min_size=7, max_size=7).filter(lambda points: any(points))
"""Points, oldest first; None where the partition was not seen."""


def points_of(partitions: list[list[tuple[int, int | None, int | None] | None]]) -> list[Point]:
    """Point after point of all partitions, oldest first."""
    columns = np.full((3, len(partitions[0]), len(partitions)), np.nan)
    for number, points in enumerate(partitions):
        for at, point in enumerate(points):
            if point is not None:
                after_ms, committed, log_end = point
                known = [np.nan if value is None else value for value in (committed, log_end)]
                columns[:, at, number] = STEP_MS * at + after_ms, *known
    return [(columns[0, at], columns[1, at], columns[2, at]) for at in range(columns.shape[1])]


def history_of(points: list[Point]) -> LagHistory:
    """The same, partition after partition."""
    columns = [np.stack(column, axis=1) for column in zip(*points, strict=True)]
    is_there = ~np.isnan(columns[0])
    counts = is_there.sum(axis=1)
    return LagHistory(np.cumsum(counts) - counts, *(column[is_there] for column in columns))


def assert_same(one: LagAnswers, other: LagAnswers) -> None:
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.is_final, other.is_final)


def traced(points: list[Point]) -> LagTrace:
    trace = LagTrace.of(*points[-1])
    for point in reversed(points[:-1]):
        trace.add(point)
    return trace


@settings(max_examples=30)
@given(st.lists(partition, min_size=1, max_size=6))
def test_it_is_what_the_history_shows(partitions: list[list[tuple[int, int | None, int | None] | None]]) -> None:
    points = points_of(partitions)
    trace, history = traced(points), history_of(points)
    assert_same(trace.age(), lag_age(history))
    assert_same(trace.commit(), newest_commit(history))


@settings(max_examples=30)
@given(st.lists(partition, min_size=2, max_size=6), st.integers(1, 6), st.data())
def test_some_partitions_go_on_alone(
    partitions: list[list[tuple[int, int | None, int | None] | None]], older: int, data: st.DataObject
) -> None:
    """What is final stays as it is with older points; the others are looked for further back, without the rest."""
    points = points_of([[*points[:-1], points[-1] or (0, 5, 9)] for points in partitions])
    newer = traced(points[older:])
    half = data.draw(st.integers(1, len(partitions) - 1))
    both = LagTrace.joined([newer.part(np.arange(half)), newer.part(np.arange(half, len(partitions)))])
    assert_same(both.age(), newer.age())
    whole = history_of(points)
    for shown, exact in ((newer.age(), lag_age(whole)), (newer.commit(), newest_commit(whole))):
        np.testing.assert_array_equal(shown.values[shown.is_final], exact.values[shown.is_final])
    open_ = np.flatnonzero(~(newer.age().is_final & newer.commit().is_final))
    part = both.part(open_)
    for point in reversed(points[:older]):
        part.add((point[0][open_], point[1][open_], point[2][open_]))
    np.testing.assert_array_equal(part.age().values, lag_age(whole).values[open_])
    np.testing.assert_array_equal(part.commit().values, newest_commit(whole).values[open_])
