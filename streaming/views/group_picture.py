"""Windows of `group_lag` as verdicts, one row per partition out: what is judged, by which rules and with which figures.

Most partitions are OK at a glance; only the others are evaluated by all rules, and only lags and commits that are older
than the newest windows are searched in older ones. Knows neither how a table is read nor how a verdict is shown.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from assignor_core.group.events import REBALANCING, SHARE
from assignor_core.group.states import GroupState
from assignor_core.lag import (
    BurrowStatus,
    BurrowWindow,
    Commit,
    Course,
    LagHistory,
    LagPolicy,
    LagStatus,
    LagTrace,
    Standing,
    burrow_status,
    evaluate,
    keeps_up,
    measure,
)
from assignor_core.lag.figures import is_catching_up
from assignor_core.lag.history import Flags, Floats, Ints
from assignor_core.lag.reasons import PartitionFigures, reason
from assignor_core.lag.waits import EarlierWaits
from assignor_core.maintenance import MaintenanceWindow, window_of
from streaming.settings import LagSettings
from streaming.tables import as_floats, as_whole
from streaming.views.group_columns import (
    KEY,
    OFFSETS,
    LagWindow,
    PartitionKeys,
    history_of,
    of_group,
    of_topic,
    points_of,
    points_of_newest_first,
    starts_of,
)

HISTORY_MS = 1_800_000
HISTORY_WINDOWS_MAX = 200
POPULATED = (GroupState.STABLE.value, *REBALANCING)
"""States of a group that has members."""
BURROW_INTERVALS = 10
"""Length of Burrow's rings, its default."""
SHOWN = (
    "lag_records", "log_start_offset", "group_state", "group_type", "group_members", "member_id", "client_id",
    "last_stable_offset", "cleanup_policy",
)  # fmt: skip
"""Further columns of the newest samples that a picture needs."""
COLUMNS = tuple(dict.fromkeys((*OFFSETS, *SHOWN)))
FIGURES = (
    "completeness", "stuck_ms", "rewound_records", "beyond_records", "lost_records", "markers", "uncommitted_ms",
    "consumed_per_sec", "produced_per_sec",
)  # fmt: skip
"""Fields of `LagFigures` that a reason rests on."""
STANDING = ("left_over", "orphaned", "obscure")
"""Facts of `Standing` that a reason names."""
NO_SHOWN_STATE = ("Unknown", "")
"""States of a group in which its members are unknown."""
JUDGED = (
    "status", "at_once", "committed_offset", "log_end_offset", "last_event_time_ms", "lag_seconds",
    "lag_seconds_is_final", "commit_ms", "commit_seen",
)  # fmt: skip
"""Columns of `Judged` that a picture has."""
RebalancingSince = Callable[[Sequence[str]], Mapping[str, int]]
"""When each of some groups was first seen in the middle of the rebalance that goes on, ms."""
WHOLE = ("committed_offset", "log_end_offset", "last_event_time_ms")
"""Figures that are whole numbers."""
CURRENT_WINDOWS = 2
"""A partition without a sample in this many windows before the newest is no longer the group's."""
VERDICT_WINDOWS = LagPolicy().windows + 2
"""Number of windows before the newest that a verdict reads; the verdict before reads one more, and the age of a lag far
more.
"""
BLOCK = 8_192
"""Partitions that are evaluated together: their points fit into the processor's cache."""
EVALUATED_BLOCK = 2_048
"""Partitions that are evaluated together. All their points are kept at a time: of more the memory would go back to the
system, and come from it again with each block."""
T = TypeVar("T")
Patterns = Sequence[tuple[re.Pattern[str], T]]


@dataclass(frozen=True, slots=True)
class LagRules:
    """Rules by pattern; of a group the first counts that matches its name."""

    allowed_records: Patterns[int] = ()
    allowed_ms: Patterns[int] = ()
    schedules: Patterns[Sequence[MaintenanceWindow]] = ()

    @classmethod
    def of(cls, settings: LagSettings) -> "LagRules":
        """Returns the settings' rules of groups."""
        schedules = {pattern: tuple(map(window_of, texts)) for pattern, texts in settings.schedules.items()}
        return cls(_compiled(settings.allowed_records), _compiled(settings.allowed_ms), _compiled(schedules))

    def applied(self, standing: Standing, keys: Ints, names: PartitionKeys, *, now_ms: int) -> Standing:
        """The standing of these keys, which are sorted, with what the rules allow."""
        if not (self.allowed_records or self.allowed_ms or self.schedules):
            return standing
        _, group = np.unique(of_group(keys), return_inverse=True)
        groups = names.group_names(keys)
        openings = [_newest_opening(_first(self.schedules, name, ()), now_ms) for name in groups]
        return replace(
            standing,
            allowed_records=np.array([_first(self.allowed_records, name, 0) for name in groups], dtype=float)[group],
            allowed_ms=np.array([_first(self.allowed_ms, name, 0) for name in groups], dtype=float)[group],
            reads_from_ms=np.array([begin for begin, _ in openings])[group],
            reads_until_ms=np.array([end for _, end in openings])[group],
        )


NO_RULES = LagRules()


def _compiled(values: Mapping[str, T]) -> Patterns[T]:
    return tuple((re.compile(pattern), value) for pattern, value in values.items())


def _first(patterns: Patterns[T], name: str, otherwise: T) -> T:
    return next((value for pattern, value in patterns if pattern.search(name)), otherwise)


def _newest_opening(windows: Sequence[MaintenanceWindow], now_ms: int) -> tuple[float, float]:
    """The time in which the group reads, or has read last; all time without a schedule."""
    return max((window.newest_opening(now_ms) for window in windows), default=(-np.inf, np.inf))


@dataclass(frozen=True, slots=True)
class JudgedPartitions:
    """P partitions: what is shown of all of them. NaN where unknown."""

    status: Ints
    """Status of each partition, as a value of `LagStatus`."""
    at_once: Ints
    committed_offset: Floats
    log_end_offset: Floats
    last_event_time_ms: Floats
    lag_seconds: Floats
    lag_seconds_is_final: Flags
    """Whether the lag's age is final; False if an older window than those given may show the lag to be older."""
    commit_ms: Floats
    commit_seen: Flags
    """Whether any window that was read shows a commit."""
    earlier: EarlierWaits


EarlierOf = Callable[[Ints], EarlierWaits]
"""What earlier windows show of some keys, which are sorted."""


@dataclass(frozen=True, slots=True)
class _Glance:
    """What the newest windows show of P partitions, and which of them are not OK at a glance."""

    trace: LagTrace
    is_doubtful: Flags

    @classmethod
    def joined(cls, glances: Sequence[Self]) -> Self:
        trace = LagTrace.joined([glance.trace for glance in glances])
        return cls(trace, np.concatenate([glance.is_doubtful for glance in glances]))


def judged(
    windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, *, now_ms: int,
    earlier_of: EarlierOf | None = None,
) -> JudgedPartitions:  # fmt: skip
    """Verdicts of these partitions, in the order of `keys`, and what is shown of all. Windows are oldest first; each
    partition is in one of the current ones. Earlier windows are asked for of those that would not be OK."""
    glances = [_glance(windows, keys[block], standing.of(block), policy, now_ms=now_ms) for block in _blocks(len(keys))]
    glance = _Glance.joined(glances)
    status, at_once = _statuses(windows, keys, standing, policy, np.flatnonzero(glance.is_doubtful), now_ms=now_ms)
    earlier = EarlierWaits.none(len(keys))
    if earlier_of is not None:
        waiting = np.flatnonzero((at_once > LagStatus.UNKNOWN) | (standing.left_over & (at_once != LagStatus.OK)))
        if len(waiting):
            earlier.put(waiting, earlier_of(keys[waiting]))
            standing = replace(standing, earlier=earlier)
            again = _statuses(windows, keys, standing, policy, waiting, now_ms=now_ms)
            status[waiting], at_once[waiting] = (values[waiting] for values in again)
    age, commit = glance.trace.age(), glance.trace.commit()
    older = [window for window in windows if not is_current(window, windows, policy)]
    open_ = np.flatnonzero(~(age.is_final & commit.is_final))
    for part in (open_[block] for block in _blocks(len(open_))):
        trace = glance.trace.part(part)
        for point in points_of_newest_first(older, keys[part]):
            trace.add(point)
        of_part = trace.age()
        age.values[part], age.is_final[part] = of_part.values, of_part.is_final
        of_part = trace.commit()
        commit.values[part], commit.is_final[part] = of_part.values, of_part.is_final
    commit_seen = (commit.is_final & ~np.isnan(commit.values)) | (earlier.commits > 0)
    time_ms, committed, log_end = glance.trace.newest
    return JudgedPartitions(
        status, at_once, committed, log_end, time_ms, age.values, age.is_final, commit.values, commit_seen, earlier
    )


def recent_windows(windows: Sequence[LagWindow], policy: LagPolicy) -> list[LagWindow]:
    """Returns the windows that a verdict rests on; `windows` are oldest first."""
    since_ms = windows[-1].start_ms - VERDICT_WINDOWS * policy.window_ms
    return [window for window in windows if window.start_ms >= since_ms]


def is_current(window: LagWindow, windows: Sequence[LagWindow], policy: LagPolicy) -> bool:
    """Returns whether the samples of `window` count as a partition's newest; `windows` are oldest first."""
    return window.start_ms >= windows[-1].start_ms - CURRENT_WINDOWS * policy.window_ms


def _glance(windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, *, now_ms: int) -> _Glance:
    current = [window for window in windows if is_current(window, windows, policy)]
    newest, *points = points_of_newest_first(current, keys)
    trace = LagTrace.of(*newest, standing.log_start)
    for point in points:
        trace.add(point)
    course = Course.of(points_of(recent_windows(windows, policy), keys), policy, now_ms=now_ms)
    keeping_up = keeps_up(
        trace.newest, course, trace.age(), trace.commit(), standing.left_over, policy, now_ms=now_ms,
        log_start=standing.log_start,
    )  # fmt: skip
    return _Glance(trace, ~keeping_up)


def _statuses(
    windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, doubtful: Ints, *, now_ms: int
) -> tuple[Ints, Ints]:
    """Verdicts of all, and those of the newest evaluation alone; only the doubtful ones are evaluated.

    By all windows: how often a consumer commits shows in more of them than a verdict looks back over.
    """
    status = np.full(len(keys), int(LagStatus.OK))
    at_once = status.copy()
    for part in (doubtful[block] for block in _blocks(len(doubtful), EVALUATED_BLOCK)):
        evaluated = evaluate(history_of(windows, keys[part]), standing.of(part), policy, now_ms=now_ms)
        status[part], at_once[part] = evaluated.status, evaluated.at_once
    return status, at_once


def _blocks(rows: int, block: int = BLOCK) -> Iterator[slice]:
    return (slice(begin, begin + block) for begin in range(0, rows, block))


@dataclass(frozen=True, slots=True)
class LagPicture:
    """One row per group and partition, sorted by both, with figures and verdict; and the windows it rests on.

    Columns: `KEY`, `SHOWN`, committed_offset, log_end_offset and last_event_time_ms of the newest sample, status and
    at_once (`LagStatus`), lag_seconds, lag_seconds_is_final, commit_ms, commit_seen, `STANDING`, rebalancing_ms of the
    group; null where unknown. Lag is of records that can still be read: those below the log start are deleted. Texts
    are dictionaries.
    """

    partitions: pa.Table
    newest_event_ms: int
    keys: Ints
    """Keys of the partitions, sorted; the column `row` numbers them."""
    _windows: tuple[LagWindow, ...]
    _policy: LagPolicy
    _standing: Standing
    """Standing of each partition's group, in the order of `keys`."""

    def with_figures(self, rows: Ints | None = None) -> pa.Table:
        """These rows of `partitions`, or all, with `FIGURES`, which as a rule take longer than a verdict."""
        shown = self.partitions if rows is None else self.partitions.take(pa.array(rows))
        places, of_row = np.unique(shown["row"].to_numpy(), return_inverse=True)
        history, standing = history_of(self._windows, self.keys[places]), self._standing.of(places)
        figures = measure(
            history, self._policy, until_ms=self.newest_event_ms, allowed_records=standing.allowed_records,
            earlier=standing.earlier,
        )  # fmt: skip
        for name in FIGURES:
            shown = shown.append_column(name, pa.array(getattr(figures, name)[of_row], from_pandas=True))
        return shown.append_column("has_steady_rates", pa.array(is_catching_up(figures, self._policy)[of_row]))

    def of_topic(self, topic: str | None) -> "LagPicture":
        """Returns the picture with only the partitions of this topic, which may be none; all partitions for None."""
        if topic is None:
            return self
        return replace(self, partitions=self.partitions.filter(pc.equal(self.partitions["topic"], topic)))

    def history(self) -> LagHistory:
        """Points of all partitions, in the order of `keys`."""
        return history_of(self._windows, self.keys)


def since(newest_start: datetime, *, window_ms: int, verdicts_only: bool = False) -> datetime:
    """Start of the oldest window that a picture at `newest_start` rests on."""
    windows_ms = HISTORY_WINDOWS_MAX * window_ms
    verdicts_ms = VERDICT_WINDOWS * window_ms
    return newest_start - timedelta(milliseconds=min(HISTORY_MS, verdicts_ms if verdicts_only else windows_ms))


def current_since(newest_start: datetime, *, window_ms: int) -> datetime:
    """Start of the oldest window whose samples count as a partition's newest."""
    return newest_start - timedelta(milliseconds=CURRENT_WINDOWS * window_ms)


def reason_of(row: Mapping[str, Any]) -> str:
    """Why a partition of a picture, with its figures, has its verdict, in one line."""
    return reason(LagStatus(row["status"]), LagStatus(row["at_once"]), figures_of(row))


def figures_of(row: Mapping[str, Any]) -> PartitionFigures:
    """Figures of one partition of a picture, which has them."""
    return PartitionFigures(
        lag_records=row["lag_records"],
        lag_seconds=row["lag_seconds"],
        stuck_seconds=(row["stuck_ms"] or 0.0) / 1000,
        rewound_records=round(row["rewound_records"] or 0.0),
        consumed_per_sec=row["consumed_per_sec"],
        produced_per_sec=row["produced_per_sec"],
        client_id=row["client_id"],
        shared_by=row["group_members"] if row["group_type"] == SHARE else None,
        is_shared=row["group_type"] == SHARE,
        left_over=row["left_over"],
        completeness=row["completeness"] or 0.0,
        has_steady_rates=row["has_steady_rates"],
        beyond_records=None if row["beyond_records"] is None else round(row["beyond_records"]),
        deleted_records=round(row["lost_records"] or 0.0),
        below_start_records=max(0, (row["log_start_offset"] or 0) - (row["committed_offset"] or 0))
        if row["committed_offset"] is not None
        else 0,
        marker_records=round(row["markers"] or 0.0),
        uncommitted_seconds=(row["uncommitted_ms"] or 0.0) / 1000,
        rebalancing_seconds=(row["rebalancing_ms"] or 0.0) / 1000,
        held_back_records=held_back(row),
        has_members_unknown=row["obscure"],
        orphaned=row["orphaned"],
        is_owned=row["member_id"] is not None,
        is_compacted=row["cleanup_policy"] is not None,
    )


def held_back(row: Mapping[str, Any]) -> int:
    """Records of a partition that wait for an open transaction, where the group has read all that comes before it."""
    stable, committed, end = row["last_stable_offset"], row["committed_offset"], row["log_end_offset"]
    if stable is None or committed is None or end is None or committed < stable:
        return 0
    return max(0, int(end - committed))


def burrow_status_of(history: LagHistory, row: Mapping[str, Any], *, now_ms: int) -> BurrowStatus:
    """Burrow's verdict on one partition of a picture with this history, as Burrow would have stored it: a commit
    wherever samples show another offset.

    A commit of the same offset leaves no trace in samples: a consumer that repeats itself shows as one that is silent.
    """
    start, count = int(history.starts[row["row"]]), int(history.counts[row["row"]])
    commits: list[Commit] = []
    for index in range(start, start + count):
        offset = history.committed[index]
        if math.isnan(offset) or (commits and commits[-1].offset == offset):
            continue
        end = history.log_end[index]
        lag = None if math.isnan(end) else max(0, int(end - offset))
        commits.append(Commit(int(offset), int(history.time_ms[index]), lag))
    ends = [int(end) for end in history.log_end[start : start + count] if not math.isnan(end)]
    return burrow_status(BurrowWindow(commits[-BURROW_INTERVALS:], ends[-BURROW_INTERVALS:]), now_ms=now_ms)


def picture_of(
    windows: Sequence[LagWindow],
    shown: Mapping[int, pa.Table],
    names: PartitionKeys,
    *,
    window_ms: int,
    groups: Sequence[str] | None = None,
    earlier_of: EarlierOf | None = None,
    rebalancing_since: RebalancingSince | None = None,
    rules: LagRules = NO_RULES,
) -> LagPicture | None:
    """The picture of `windows`, oldest first, with `SHOWN` of each row of the current ones by their start, ms.

    Of `groups` alone, if they are given. None where no window is current, or none of these groups is in it. Windows
    whose partitions are in newer ones too need not be in `shown`. `earlier_of` and `rebalancing_since` are asked
    for what older windows show of a few partitions and groups.
    """
    if not shown:
        return None
    current = [window for window in windows if window.start_ms in shown]
    keys = _union(window.keys for window in current)
    samples = _newest_samples(current, shown, keys)
    if groups is not None:
        wanted = names.are_of(keys, groups)
        keys, samples = keys[wanted], samples.filter(pa.array(wanted))
    if not len(keys):
        return None
    newest_ms = max(window.newest_ms for window in windows)
    standing = rules.applied(_standing(samples, keys), keys, names, now_ms=newest_ms)
    policy = LagPolicy(window_ms=window_ms)
    of_keys = judged(windows, keys, standing, policy, now_ms=newest_ms, earlier_of=earlier_of)
    standing = replace(standing, earlier=of_keys.earlier)
    figures: dict[str, NDArray[Any]] = {name: getattr(of_keys, name) for name in JUDGED}
    figures |= {name: getattr(standing, name) for name in STANDING}
    figures["row"] = np.arange(len(keys))
    figures["rebalancing_ms"] = _rebalancing_ms(samples, names, keys, newest_ms, rebalancing_since)
    samples = _without_deleted(samples, of_keys)
    order = names.by_name(keys)
    columns = dict(zip(KEY, names.texts(keys[order]), strict=True))
    columns |= {name: samples[name].take(pa.array(order)) for name in SHOWN}
    for name, values in figures.items():
        column = pa.array(values[order], from_pandas=True)
        columns[name] = as_whole(column) if name in WHOLE else column
    return LagPicture(pa.table(columns), newest_ms, keys, tuple(windows), policy, standing)


def _rebalancing_ms(
    samples: pa.Table, names: PartitionKeys, keys: Ints, newest_ms: int, since: RebalancingSince | None
) -> Floats:
    """How long the group of each partition has been in the middle of a rebalance, as far as was seen; else 0."""
    lasted = np.zeros(len(keys))
    rebalancing = np.flatnonzero(_flags(pc.fill_null(pc.is_in(samples["group_state"], pa.array(REBALANCING)), False)))
    if since is None or not len(rebalancing):
        return lasted
    since_ms = since(names.group_names(keys[rebalancing]))
    groups = names.texts(keys[rebalancing])[0].to_pylist()
    lasted[rebalancing] = [max(0, newest_ms - since_ms.get(group, newest_ms)) for group in groups]
    return lasted


def _without_deleted(samples: pa.Table, of_keys: JudgedPartitions) -> pa.Table:
    """Returns the samples with the lag of what can still be read, where the log start is above the committed offset."""
    log_start = as_floats(samples["log_start_offset"]).to_numpy()
    below = log_start > of_keys.committed_offset
    if not below.any():
        return samples
    left = np.where(below, np.maximum(of_keys.log_end_offset - log_start, 0.0), np.nan)
    lag = pc.if_else(pa.array(below), as_whole(pa.array(left, from_pandas=True)), samples["lag_records"])
    return samples.set_column(samples.column_names.index("lag_records"), "lag_records", lag)


def _union(keys: Iterable[Ints]) -> Ints:
    """Returns all keys once, sorted; windows of the same partitions share one array."""
    apart = list({id(one): one for one in keys}.values())
    return apart[0] if len(apart) == 1 else np.unique(np.concatenate(apart))


def _newest_samples(current: Sequence[LagWindow], shown: Mapping[int, pa.Table], keys: Ints) -> pa.Table:
    """Rows of `shown` in the order of `keys`, of each the newest window's."""
    newest = current[-1]
    if newest.keys is keys:
        return shown[newest.start_ms]
    row = np.full(len(keys), -1, dtype=np.int64)
    begin = 0
    for window in current:
        row[np.searchsorted(keys, window.keys)] = begin + np.arange(len(window.keys))
        begin += len(window.keys)
    return pa.concat_tables([shown[window.start_ms] for window in current]).unify_dictionaries().take(pa.array(row))


def _standing(samples: pa.Table, keys: Ints) -> Standing:
    owned = _flags(pc.is_valid(samples["member_id"]))
    states = samples["group_state"]
    populated = _flags(pc.fill_null(pc.is_in(states, pa.array(POPULATED)), False))
    settled = ~_flags(pc.fill_null(pc.is_in(states, pa.array(REBALANCING)), False))
    shown = _flags(pc.is_valid(states)) & ~_flags(pc.fill_null(pc.is_in(states, pa.array(NO_SHOWN_STATE)), False))
    groups, topics = starts_of(of_group(keys)), starts_of(of_topic(keys))
    group_owns, topic_owned = _any(owned, groups), _any(owned, topics)
    log_start: Floats = as_floats(samples["log_start_offset"]).to_numpy()
    return Standing(
        owned, populated, populated & group_owns & ~topic_owned, log_start,
        orphaned=populated & settled & topic_owned & ~owned,
        obscure=~group_owns & ~_any(shown, groups),
        held_back=_flags(pc.is_valid(samples["last_stable_offset"])),
    )  # fmt: skip


def _any(flags: Flags, starts: Ints) -> Flags:
    """Flags of rows in whose run any row's flag is true."""
    return np.repeat(np.logical_or.reduceat(flags, starts), np.diff(np.append(starts, len(flags))))


def _flags(values: pa.ChunkedArray) -> Flags:
    flags: Flags = values.to_numpy()
    return flags
