"""Consumer groups, worst first: their one order, and what is shown of each, its topics and its offsets.

Reads the newest windows of `group_lag`, closed or not: lag is a state, and its newest sample is the truest.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.lag import LagStatus
from assignor_core.lag.history import Ints, last_true
from assignor_core.wording import many
from streaming.settings import Settings
from streaming.tables import TableReader, as_floats
from streaming.views.group_columns import KEY, Runs, listed, rows_listed
from streaming.views.group_memberships import GroupStanding, standings_of
from streaming.views.group_picture import FIGURES, STANDING, LagPicture, LagRules, reason_of
from streaming.views.group_store import LagWindows
from streaming.views.json_values import LEFT_OUT_OF_STATUS, TextOnDemand

if TYPE_CHECKING:  # loads every assignor
    from assignor_core.lag.members import MembersAdvice

LABELS = tuple(status.label for status in LagStatus)
"""Names of verdicts by number."""
RECORDS, OFFSETS_UNIT = "records", "offsets"
SEVERITY = {
    status: number
    for number, status in enumerate(("notfound", "ok", "unknown", "warn", "err", "stop", "stall", "rewind"))
}
"""Verdict: how bad it is, those of Burrow's rules among them."""
REASONS_BLOCK = 500
REASON_COLUMNS = (
    *KEY, *STANDING, *FIGURES, "status", "at_once", "lag_records", "lag_seconds", "committed_offset",
    "log_end_offset", "log_start_offset", "last_stable_offset", "cleanup_policy", "has_steady_rates",
    "rebalancing_ms", "member_id", "client_id", "group_members", "group_type",
)  # fmt: skip
"""Columns that `reason_of` reads, with the names of group, topic and partition."""
BY_TOPIC, BY_PARTITION, OF_LOG = "group_topic", "group_partition", "log"
"""Kinds of rows: of a group and a topic, of a group and a partition, or of a partition that groups read."""
_ROWS_AT_A_TIME = 4_096
_SUMMED = ("committed_offset", "lag_records")
_FIGURES = ("committed_offset", "lag_records", "log_end_offset", "log_start_offset")
Row = Mapping[str, Any]
G = TypeVar("G", "RankedGroup", "GroupVerdict")


@dataclass(frozen=True, slots=True)
class RankingRows:
    """Rows of one kind: names and figures; null where unknown."""

    table: pa.Table
    left_out: Mapping[str, int]
    """Number of rows beyond the bound that have a value, by figure."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self.table.to_batches(max_chunksize=_ROWS_AT_A_TIME):
            yield from batch.to_pylist()


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """Lag of one group on one topic; None where it is unknown of every partition."""

    group: str
    topic: str
    state: str | None
    partitions: int
    statuses: Mapping[str, int]
    """Number of partitions by verdict, without verdicts that no partition has."""
    lag_records: int | None
    lag_max_records: int | None
    lag_seconds: float | None
    """Age of the oldest unread record's write, worst partition; at least that where the look-back is too short."""
    retention_ratio: float | None
    """Worst share of the retained records that is still to be read: at 1 records are being lost, or all were. None
    where nothing was ever deleted: all that was written is retained. None too where a group deletes what it has read
    itself."""
    last_commit_ms: int | None
    """Newest commit of any partition; if the look-back shows none, its start."""
    beyond_end_records: int | None = field(default=None, metadata=LEFT_OUT_OF_STATUS)
    """Records by which the worst commit is beyond the log end; None if no commit is."""
    lag_unit: str = RECORDS
    """`offsets` of a topic that is compacted, else `records`."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """One group with the verdict of its worst partition."""

    group: str
    status: str
    why: str | TextOnDemand
    """The worst partition and what is wrong with it."""
    state: str | None
    partitions: int
    statuses: Mapping[str, int]
    lag_records: int | None
    lag_seconds: float | None
    group_type: str | None = None
    lag_unit: str = RECORDS
    """`offsets` where it is behind on a topic that is compacted, else `records`."""


@dataclass(frozen=True, slots=True)
class GroupPart:
    """All groups, worst first, and their topics, most lag first."""

    groups: tuple[GroupVerdict, ...] = ()
    topics: tuple[GroupTopic, ...] = ()
    newest_event_ms: int | None = None
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Number of groups by verdict: all verdicts, worst first."""
    offsets: Mapping[str, RankingRows] = field(default_factory=dict, metadata=LEFT_OUT_OF_STATUS)
    """Offset rows by kind (see `offsets_of`), where they are exported one by one."""
    needs: Mapping[str, "MembersAdvice"] = field(default_factory=dict, metadata=LEFT_OUT_OF_STATUS)
    """How many members each group needs, where that is known."""


NeedsOf = Callable[[LagPicture, Sequence[GroupVerdict]], Mapping[str, "MembersAdvice"]]
"""How many members the groups of a picture need; the verdicts are on its groups, the worst first."""


class GroupReader:
    """Reads again and again: only windows that have changed. Not for two threads."""

    def __init__(self, reader: TableReader, settings: Settings, needs_of: NeedsOf) -> None:
        self._needs_of = needs_of
        self._windows = LagWindows(
            reader, settings.kafka.cluster_name, window_ms=settings.pipeline.window_ms, rules=LagRules.of(settings.lag)
        )
        self._offsets_max = settings.serve.series_max if settings.serve.compatible_metrics else 0
        self._part = GroupPart()
        self._members: Mapping[str, int | None] = {}
        self._committing: frozenset[str] = frozenset()
        self._is_old = False
        """Whether windows have changed since: they may be read, and then fail to be judged."""

    def read(self) -> GroupPart:
        """The part, of the newest windows, however old they are. Raises TableUnavailable."""
        self._refresh()
        return self._part

    def members(self) -> Mapping[str, int | None]:
        """Members of each group of the part, as `known_members`; None where they are unknown. Raises as `read`."""
        self._refresh()
        return self._members

    def committing(self) -> frozenset[str]:
        """Groups of the part of which a commit was seen in any window that was read. Raises as `read`."""
        self._refresh()
        return self._committing

    def _refresh(self) -> None:
        # Windows of numbers are kept, the rows of a picture are not: they take as much again.
        self._is_old |= self._windows.refresh()
        if not self._is_old:
            return
        picture = self._windows.picture()
        part, standings, committing = GroupPart(), dict[str, GroupStanding](), frozenset[str]()
        if picture is not None:
            part = part_of(picture, offsets_max=self._offsets_max)
            part = replace(part, needs=self._needs_of(picture, part.groups))
            standings, committing = standings_of(picture.partitions), _committing(picture.partitions)
        self._part, self._committing = part, committing
        self._members = {name: standing.members for name, standing in standings.items()}
        self._is_old = False


def part_of(picture: LagPicture, *, offsets_max: int = 0) -> GroupPart:
    """The part of these verdicts, with so many rows of offsets at most."""
    groups = verdicts_by_group(picture)
    counts = Counter(row.status for row in groups)
    statuses = {status.label: counts[status.label] for status in sorted(LagStatus, reverse=True)}
    names = [row.group for row in groups]
    offsets = offsets_of(picture.partitions, names, rows_max=offsets_max) if offsets_max else {}
    return GroupPart(groups, _by_topic(picture.partitions, groups), picture.newest_event_ms, statuses, offsets)


class RankedGroup(NamedTuple):
    """One group with the verdict of its worst partition."""

    group: str
    status: str
    lag_records: int | None
    lag_seconds: float | None
    lag_seconds_is_final: bool
    """Whether the lag's age is final; False if older windows than those of the picture may show the lag to be older."""
    place: int
    """Place of the group among the groups of the picture."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which groups or partitions are shown, and in which order: one filter and one order for all who show them."""

    matches: Callable[[str], bool] = lambda _group: True
    """Whether a group of this name is shown."""
    statuses: Collection[str] = ()
    """Verdicts that are shown; all, where none is given."""
    sort: str = "verdict"
    """`verdict`: the worst first, then most lag; `lag`, `time`: most lag or the oldest first; `name`."""

    def of(self, groups: Iterable[G]) -> list[G]:
        """The groups that are chosen, in order; those that are equal by name."""
        chosen = filter(self.picks, groups)
        return sorted(chosen, key=lambda row: (self._key(row.status, row.lag_records, row.lag_seconds), row.group))

    def picks(self, row: RankedGroup | GroupVerdict) -> bool:
        """Whether the group is chosen."""
        return self._is_wanted(row.status) and self.matches(row.group)

    def of_partitions(self, rows: Iterable[Row], topic: str | None = None) -> list[Row]:
        """The partitions of one group that are chosen, of this topic if it is given, in order."""
        chosen = (row for row in rows if self._is_wanted(row["status"]) and topic in (None, row["topic"]))
        return sorted(
            chosen,
            key=lambda row: (
                self._key(row["status"], row["lag_records"], row["lag_seconds"]), row["topic"], row["partition"],
            ),
        )  # fmt: skip

    def _is_wanted(self, status: str) -> bool:
        return not self.statuses or status in self.statuses

    def _key(self, status: str, lag_records: int | None, lag_seconds: float | None) -> tuple[float, ...]:
        worst, most = -SEVERITY[status], -(lag_records or 0)
        if self.sort == "verdict":
            return worst, most
        return {"lag": (most, worst), "time": (-(lag_seconds or 0.0), worst, most), "name": ()}[self.sort]


def ranked_groups(partitions: pa.Table) -> list[RankedGroup]:
    """All groups, worst first, then most lag, then by name. `partitions` are those of a `LagPicture`.

    From columns alone: whoever shows some of the groups needs no reason of all the others.
    """
    if not partitions.num_rows:
        return []
    runs = Runs.of(partitions, "group_id")
    columns = (
        runs.first(partitions["group_id"]),
        [LABELS[number] for number in np.maximum.reduceat(partitions["status"].to_numpy(), runs.starts)],
        runs.totals(partitions["lag_records"]),
        runs.highest(partitions["lag_seconds"]),
        np.logical_and.reduceat(partitions["lag_seconds_is_final"].to_numpy(), runs.starts).tolist(),
    )
    return Choice().of(RankedGroup(*row, place) for place, row in enumerate(zip(*columns, strict=True)))


def count_groups(partitions: pa.Table) -> int:
    """How many groups have some of these partitions, which are those of a `LagPicture`."""
    return len(Runs.of(partitions, "group_id").starts)


def verdicts_by_group(
    picture: LagPicture, groups: Sequence[RankedGroup] | None = None, *, has_reasons: bool = True
) -> tuple[GroupVerdict, ...]:
    """One verdict for each of these groups of the picture, or of all of them, in their order. Without reasons it takes
    less time, and `why` is empty.
    """
    rows = picture.partitions
    groups = ranked_groups(rows) if groups is None else groups
    if not groups:
        return ()
    runs = Runs.of(rows, "group_id")
    counts, states = runs.statuses(rows["status"].to_numpy()), _states(rows, runs)
    behind = pc.greater(pc.fill_null(rows["lag_records"], 0), 0)
    units = _units(pc.and_(pc.is_valid(rows["cleanup_policy"]), behind), runs)
    worst = _worst_partitions(rows, runs)[[row.place for row in groups]]
    types = listed(rows["group_type"].take(pa.array(worst)))
    texts: list[str | TextOnDemand] = [""] * len(groups)
    if has_reasons:
        shown = picture.with_figures(worst).select(REASON_COLUMNS)
        reasons = _Reasons(shown, [counts[row.place] for row in groups])
        texts = [TextOnDemand(partial(reasons.text, number)) for number in range(len(groups))]
    return tuple(
        GroupVerdict(
            group=row.group,
            status=row.status,
            why=why,
            state=states[row.place],
            partitions=sum(counts[row.place].values()),
            statuses=counts[row.place],
            lag_records=row.lag_records,
            lag_seconds=row.lag_seconds,
            group_type=group_type,
            lag_unit=units[row.place],
        )
        for row, group_type, why in zip(groups, types, texts, strict=True)
    )


def _committing(partitions: pa.Table) -> frozenset[str]:
    runs = Runs.of(partitions, "group_id")
    seen = np.logical_or.reduceat(partitions["commit_seen"].to_numpy(), runs.starts)
    return frozenset(compress(runs.first(partitions["group_id"]), seen.tolist()))


def _states(rows: pa.Table, runs: Runs) -> list[str | None]:
    """State at the newest sample of a row that knows it; None where none does."""
    times = np.where(pc.is_valid(rows["group_state"]).to_numpy(), rows["last_event_time_ms"].to_numpy(), -1)
    newest = np.maximum.reduceat(times, runs.starts)
    row = last_true(times == runs.spread(newest), runs.starts)
    return listed(rows["group_state"].take(pa.array(row)))


def _worst_partitions(rows: pa.Table, runs: Runs) -> Ints:
    """The row that is worst, of those the one with most lag, and of those the first."""
    status = rows["status"].to_numpy()
    is_worst = status == runs.spread(np.maximum.reduceat(status, runs.starts))
    lag = np.where(is_worst, pc.fill_null(rows["lag_records"], -1).to_numpy(), -2)
    is_first = lag == runs.spread(np.maximum.reduceat(lag, runs.starts))
    return np.minimum.reduceat(np.where(is_first, np.arange(runs.rows), runs.rows), runs.starts)


class _Reasons:
    """Why groups have their verdicts, of their worst partitions. Rows are listed some at a time: many groups are asked
    for one after the other, or none."""

    def __init__(self, worst: pa.Table, statuses: Sequence[Mapping[str, int]]) -> None:
        self._worst = worst
        self._statuses = statuses
        self._listed: tuple[int, Sequence[Mapping[str, Any]]] = (-1, ())

    def text(self, place: int) -> str:
        """Returns the reason for the status of the group at this place, in words."""
        block, row = divmod(place, REASONS_BLOCK)
        known, rows = self._listed
        if known != block:
            rows = rows_listed(self._worst.slice(block * REASONS_BLOCK, REASONS_BLOCK))
            self._listed = (block, rows)
        return _why(rows[row], self._statuses[place])


def _why(worst: Mapping[str, Any], statuses: Mapping[str, int]) -> str:
    status = LagStatus(worst["status"])
    worst_shown = f"{worst['topic']}-{worst['partition']}: {reason_of(worst)}"
    if status is LagStatus.OK:
        return worst_shown if worst["lag_records"] else reason_of(worst)
    return f"{statuses[status.label]} of {many(sum(statuses.values()), 'partition')}; {worst_shown}"


def _by_topic(rows: pa.Table, groups: Iterable[GroupVerdict]) -> tuple[GroupTopic, ...]:
    runs = Runs.of(rows, "group_id", "topic")
    of_group = {row.group: row.state for row in groups}
    columns = zip(
        runs.first(rows["group_id"]), runs.first(rows["topic"]), runs.statuses(rows["status"].to_numpy()),
        runs.totals(rows["lag_records"]), runs.highest(rows["lag_records"]), runs.highest(rows["lag_seconds"]),
        runs.highest(_retention_ratio(rows)), runs.highest(rows["commit_ms"]), runs.highest(_beyond_end(rows)),
        _units(pc.is_valid(rows["cleanup_policy"]), runs), strict=True,
    )  # fmt: skip
    topics = [
        GroupTopic(
            group=group,
            topic=topic,
            state=of_group[group],
            partitions=sum(statuses.values()),
            statuses=statuses,
            lag_records=lag,
            lag_max_records=most,
            lag_seconds=wait,
            retention_ratio=None if _is_deleted_once_read(group, topic) else ratio,
            last_commit_ms=None if commit_ms is None else math.floor(commit_ms),
            beyond_end_records=None if beyond is None else round(beyond),
            lag_unit=unit,
        )
        for group, topic, statuses, lag, most, wait, ratio, commit_ms, beyond, unit in columns
    ]
    return tuple(sorted(topics, key=lambda row: (-(row.lag_records or 0), row.group, row.topic)))


def lag_unit(row: Mapping[str, Any]) -> str:
    """What the lag of a partition is a number of: compaction removes records and keeps the offsets of the others."""
    return RECORDS if row["cleanup_policy"] is None else OFFSETS_UNIT


def lag_text(records: int, unit: str) -> str:
    """A lag with its `lag_unit`.

    >>> lag_text(1, "records"), lag_text(1_200, "offsets")
    ('1 record', '1,200 offsets')
    """
    return many(records, unit.removesuffix("s"))


def _units(counts_offsets: pa.ChunkedArray, runs: Runs) -> list[str]:
    """Offsets for each run of which any row counts them."""
    found = np.logical_or.reduceat(counts_offsets.to_numpy(), runs.starts)
    return [OFFSETS_UNIT if one else RECORDS for one in found.tolist()]


def _is_deleted_once_read(group: str, topic: str) -> bool:
    """Whether the topic is a repartition topic of the group, a Kafka Streams application: it deletes the records that
    it has committed, so all that is retained is unread however little that is."""
    return topic.startswith(f"{group}-") and topic.endswith("-repartition")


def _beyond_end(rows: pa.Table) -> pa.ChunkedArray:
    """Returns by how much a commit is beyond the log end, if the verdict says so; null elsewhere."""
    beyond = as_floats(pc.subtract(rows["committed_offset"], rows["log_end_offset"]))
    is_alarm = pc.is_in(rows["status"], pa.array([int(LagStatus.STOP), int(LagStatus.STALL)]))
    return pc.if_else(pc.and_(is_alarm, pc.greater(beyond, 0)), beyond, None)


def _retention_ratio(rows: pa.Table) -> pa.ChunkedArray:
    """Lag per records retained, 0 where none are retained; null where nothing was deleted yet: a group that has read
    nothing of a young topic has all of it before it and loses none."""
    lag = as_floats(rows["lag_records"])
    retained = as_floats(pc.subtract(rows["log_end_offset"], rows["log_start_offset"]))
    ratio = pc.if_else(pc.greater(retained, 0), pc.divide(lag, retained), pc.multiply(lag, 0.0))
    return pc.if_else(pc.greater(rows["log_start_offset"], 0), ratio, None)


def offsets_of(partitions: pa.Table, groups: Sequence[str], *, rows_max: int) -> Mapping[str, RankingRows]:
    """Rows by kind, at most `rows_max` of each. `partitions` are those of a `LagPicture`; `groups` are all of their
    groups, in the order of the rows.

    Columns: group, topic, partition, committed_offset, lag_records (sums of what is known by topic), and of a log the
    newest log_end_offset and log_start_offset that a sample of any group shows.
    """
    names = {name: partitions[column].cast(pa.string()) for name, column in (("group", "group_id"), ("topic", "topic"))}
    named = pa.table({**names, **{name: partitions[name] for name in ("partition", *_FIGURES)}})
    rank = pc.index_in(named["group"], value_set=pa.array(groups, pa.string())).to_numpy()
    named = named.take(pa.array(np.argsort(rank, kind="stable")))
    by_topic = _aggregated(_summable(named), ("group", "topic"), _SUMMED, "sum")
    of_log = _aggregated(named, ("topic", "partition"), ("log_end_offset", "log_start_offset"), "max")
    by_partition = named.select(["group", "topic", "partition", "committed_offset", "lag_records"])
    tables = {BY_TOPIC: by_topic, BY_PARTITION: by_partition, OF_LOG: of_log}
    return {kind: _bounded(table, rows_max) for kind, table in tables.items()}


def _summable(rows: pa.Table) -> pa.Table:
    """Returns the rows with floats for numbers to be summed: some offsets may add up to more than 64 bits hold."""
    for name in _SUMMED:
        rows = rows.set_column(rows.column_names.index(name), name, as_floats(rows[name]))
    return rows


def _aggregated(rows: pa.Table, keys: tuple[str, ...], figures: tuple[str, ...], function: str) -> pa.Table:
    """Returns the figures aggregated by key, in the order of the first row of each key."""
    # One thread keeps that order.
    made = rows.group_by(list(keys), use_threads=False).aggregate([(name, function) for name in figures])
    return made.rename_columns([name.removesuffix(f"_{function}") for name in made.column_names])


def _bounded(table: pa.Table, rows_max: int) -> RankingRows:
    beyond = table.slice(rows_max)
    figures = [name for name in table.column_names if name in _FIGURES]
    return RankingRows(table.slice(0, rows_max), {name: len(beyond) - beyond[name].null_count for name in figures})
