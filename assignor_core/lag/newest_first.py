"""Age of the lag and newest commit of partitions whose points come newest first: old points can then be left out.

Gives what `lag_age` and `newest_commit` give for the same points as a history, in less time. Knows no verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from assignor_core.lag.history import Flags, Floats, Ints, LagAnswers, next_read

Point = tuple[Floats, Floats, Floats]
"""P times (ms), committed offsets and log ends; NaN where a partition was not seen, or its offset is unknown."""


@dataclass(slots=True)
class LagTrace:
    """What the points of P partitions show so far; `add` takes the next older one.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> trace = LagTrace.of(row(120e3), row(150), row(200))  # the log's end was 150 halfway through the second minute
    >>> trace.add((row(60e3), row(0), row(100)))
    >>> trace.age().values, trace.commit().values
    (array([30.]), array([120000.]))
    """

    newest: Point
    """Newest point of each partition; all fields are NaN for a partition that was not seen yet."""
    _oldest: Point
    _oldest_known: Point
    """Oldest point of each partition with a known log end."""
    _age_s: Floats
    """NaN until the log's end is seen at or below the newest committed offset, or above what it was later: that is
    another topic of the same name."""
    _commit_ms: Floats
    """NaN until another committed offset is seen."""
    _log_start: Floats
    """NaN where unknown."""

    @classmethod
    def of(cls, time_ms: Floats, committed: Floats, log_end: Floats, log_start: Floats | None = None) -> Self:
        """Figures of the newest point; what waits counts from its log start, as records below it are deleted."""
        newest = (time_ms, committed, log_end)
        unknown = np.full(len(time_ms), np.nan)
        start = unknown.copy() if log_start is None else log_start
        age_s = np.where(log_end <= next_read(committed, start), 0.0, np.nan)
        return cls(newest, newest, newest, age_s, unknown, start)

    @classmethod
    def joined(cls, traces: Sequence[Self]) -> Self:
        """All partitions of one or more traces, one trace after another."""
        return cls(
            _joined([trace.newest for trace in traces]),
            _joined([trace._oldest for trace in traces]),
            _joined([trace._oldest_known for trace in traces]),
            np.concatenate([trace._age_s for trace in traces]),
            np.concatenate([trace._commit_ms for trace in traces]),
            np.concatenate([trace._log_start for trace in traces]),
        )

    def part(self, partitions: Ints) -> Self:
        """Returns the trace of `partitions`; points that are added to the returned trace don't appear in this one."""
        return type(self)(
            _part(self.newest, partitions),
            _part(self._oldest, partitions),
            _part(self._oldest_known, partitions),
            self._age_s[partitions],
            self._commit_ms[partitions],
            self._log_start[partitions],
        )

    def add(self, point: Point) -> None:
        """Adds the next older point of each partition; no array of `point` is changed."""
        seen = ~np.isnan(point[0])
        is_first = seen & np.isnan(self.newest[0])
        if is_first.any():
            self.newest, self._oldest = (_chosen(is_first, point, known) for known in (self.newest, self._oldest))
        self._note_drop(point)
        self._note_age(point)
        self._note_commit(point, seen)
        self._oldest = point if seen.all() else _chosen(seen, point, self._oldest)
        known = ~np.isnan(point[2])
        self._oldest_known = point if known.all() else _chosen(known, point, self._oldest_known)

    def age(self) -> LagAnswers:
        """Returns P ages of the next record to be read, seconds, as `lag_age` does."""
        time_ms, committed, _ = self.newest
        is_known = ~np.isnan(self._age_s)
        age_s = np.where(is_known, self._age_s, (time_ms - self._oldest[0]) / 1000)
        unknown = np.isnan(committed)
        return LagAnswers(np.where(unknown, np.nan, age_s), unknown | is_known)

    def commit(self) -> LagAnswers:
        """Returns P times of the newest commit, ms, as `newest_commit` does."""
        unknown, is_known = np.isnan(self.newest[1]), ~np.isnan(self._commit_ms)
        commit_ms = np.where(is_known, self._commit_ms, self._oldest[0])
        return LagAnswers(np.where(unknown, np.nan, commit_ms), unknown | is_known)

    def _note_drop(self, point: Point) -> None:
        later_ms, _, later_end = self._oldest_known
        dropped = (point[2] > later_end) & np.isnan(self._age_s)
        if dropped.any():
            self._age_s[dropped] = (self.newest[0][dropped] - later_ms[dropped]) / 1000

    def _note_age(self, point: Point) -> None:
        time_ms, _, log_end = point
        read_to = next_read(self.newest[1], self._log_start)
        reached = np.flatnonzero((log_end <= read_to) & np.isnan(self._age_s))
        if not len(reached):
            return
        newest_ms, committed = self.newest[0][reached], read_to[reached]
        later_ms, later_end = self._oldest[0][reached], self._oldest[2][reached]
        before_ms, before_end = time_ms[reached], log_end[reached]
        grown = later_end - before_end
        share = np.where(grown > 0, (committed - before_end) / np.where(grown > 0, grown, 1.0), 0.0)
        passed_ms = before_ms + np.clip(share, 0.0, 1.0) * (later_ms - before_ms)
        self._age_s[reached] = (newest_ms - passed_ms) / 1000

    def _note_commit(self, point: Point, seen: Flags) -> None:
        committed, later_ms, later = point[1], self._oldest[0], self._oldest[1]
        # Unknown beside unknown is no change.
        differs = (later != committed) & ~(np.isnan(later) & np.isnan(committed))
        changed = differs & seen & np.isnan(self._commit_ms)
        if changed.any():
            self._commit_ms[changed] = later_ms[changed]


def _chosen(which: Flags, one: Point, other: Point) -> Point:
    time_ms, committed, log_end = (np.where(which, *pair) for pair in zip(one, other, strict=True))
    return time_ms, committed, log_end


def _joined(points: Sequence[Point]) -> Point:
    time_ms, committed, log_end = (np.concatenate(columns) for columns in zip(*points, strict=True))
    return time_ms, committed, log_end


def _part(point: Point, partitions: Ints) -> Point:
    time_ms, committed, log_end = (column[partitions] for column in point)
    return time_ms, committed, log_end
