"""Load and lag over time, for whoever asks by HTTP: read from windows, hours or days, and joined into steps.

The finest table is read whose periods and rows stay within bounds, so an answer costs the same however long its span.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from streaming.contract import (
    BROKER_LOAD,
    BROKER_LOAD_DAILY,
    BROKER_LOAD_HOURLY,
    GROUP_LAG,
    GROUP_LAG_DAILY,
    PARTITION_LOAD,
    PARTITION_LOAD_DAILY,
    PARTITION_LOAD_HOURLY,
    TABLES,
)
from streaming.contract.rates import RATES
from streaming.contract.records import OUT_OF_SYNC_REPLICAS
from streaming.errors import UsageProblem
from streaming.settings import DAY_MS, HOUR_MS
from streaming.tables import ALL_ROWS, Condition, TableReader, as_floats, as_whole, at_least, equal, one_of
from streaming.views.spans import of_span, of_window, times_ms

PERIODS_MAX = 1_500
"""Most periods of one table that an answer reads."""
ROWS_MAX = 10_000_000
"""Rows that these periods may hold, of all keys: what a query may have to read."""

REPLICA_RATES = tuple(rate.name for rate in RATES if rate.of_replica)
_PARTITION = ("topic", "partition")
_KNOWN_MS = "covered_ms"
"""Column with the time that the rates of a row cover."""


@dataclass(frozen=True, slots=True)
class TableFamily:
    """Tables that hold the same at several lengths of their periods, and how their columns are joined."""

    tables: tuple[str, ...]
    """By the window, then by the hour if there is such a table, then by the day."""
    keys: tuple[str, ...]
    """Columns by which the series of an answer differ."""
    joined: Mapping[str, str]
    """Column: Arrow's name of how periods become a step. `mean`, `max` or `last`."""
    sums_partitions: bool = False
    """Whether rows of one period and key are summed first."""

    def periods_ms(self, window_ms: int) -> dict[str, int]:
        """Length of the periods, ms, by table."""
        lengths = (window_ms, DAY_MS) if len(self.tables) == 2 else (window_ms, HOUR_MS, DAY_MS)
        return dict(zip(self.tables, lengths, strict=True))


_PARTITION_TABLES = (PARTITION_LOAD.name, PARTITION_LOAD_HOURLY.name, PARTITION_LOAD_DAILY.name)
_LAG_TABLES = (GROUP_LAG.name, GROUP_LAG_DAILY.name)

BROKERS = TableFamily(
    (BROKER_LOAD.name, BROKER_LOAD_HOURLY.name, BROKER_LOAD_DAILY.name),
    ("broker",),
    {
        **{rate.name: "mean" for rate in RATES},
        "bytes_in_per_sec_max": "max",
        "log_dir_used_bytes": "last",
        "log_dir_usable_bytes": "last",
    },
)
TOPICS = TableFamily(
    _PARTITION_TABLES, ("topic",), {**dict.fromkeys(REPLICA_RATES, "mean"), "size_bytes": "last"}, sums_partitions=True
)
PARTITIONS = TableFamily(
    _PARTITION_TABLES, ("topic", "partition"), {**dict.fromkeys(REPLICA_RATES, "mean"), "size_bytes": "last"}
)
GROUPS = TableFamily(
    _LAG_TABLES, ("group_id", "topic"), {"lag_records": "last", "lag_records_max": "max"}, sums_partitions=True
)
GROUP_PARTITIONS = TableFamily(
    _LAG_TABLES,
    ("group_id", "topic", "partition"),
    {"committed_offset": "last", "log_end_offset": "last", "lag_records": "last", "lag_records_max": "max"},
)


@dataclass(frozen=True, slots=True)
class Span:
    """From `from_ms` (inclusive) to `to_ms` (exclusive), in steps of `step_ms`; None: the table's periods."""

    from_ms: int
    to_ms: int
    step_ms: int | None = None
    since_ms: int | None = None
    """The steps before this one have been shown. It does not change which table is read."""


@dataclass(frozen=True, slots=True)
class History:
    """Rows by start and key; `step_ms` may be longer than asked for, as no table is finer."""

    table: str
    step_ms: int
    rows: list[dict[str, Any]]


def read_history(
    reader: TableReader,
    family: TableFamily,
    span: Span,
    where: Condition,
    *,
    kafka_cluster: str,
    window_ms: int,
    rows_per_period: int,
    rows_max: int,
) -> History:
    """Raises UsageProblem for a span that no table answers within the bounds, and TableUnavailable.

    `rows_per_period` is how many rows of all keys the tables hold for one period. Of the steps after `since_ms` at most
    `rows_max` rows come: a row costs a kilobyte once it is no longer Arrow's, and a span may have a million.
    """
    table, period_ms = _table_for(family, span, window_ms, rows_per_period)
    step_ms = _step(span, period_ms)
    there = TABLES[table].column_names()
    start = "window_start" if "window_start" in there else "period_start"
    values = [name for name in family.joined if name in there]
    first_ms = max(span.from_ms, span.since_ms or 0)
    first_ms -= first_ms % step_ms
    own = of_span(kafka_cluster, start, first_ms, span.to_ms) & where
    if "role" in there:
        columns = (start, *_PARTITION, _KNOWN_MS, *values)
        leaders = reader.arrow(table, columns=columns, where=own & equal("role", "leader"))
        rows = _each_partition_once(leaders, start, values)
    else:
        rows = reader.arrow(table, columns=(start, *family.keys, *values), where=own)
    if family.sums_partitions:
        rows = _summed(rows, start, family.keys, values)
    steps = _in_steps(rows, start, family, values, step_ms)
    shown = 0 if span.since_ms is None else pc.sum(pc.equal(steps["start_ms"], span.since_ms)).as_py() or 0
    return History(table, step_ms, steps.slice(0, shown + rows_max).to_pylist())


def _table_for(family: TableFamily, span: Span, window_ms: int, rows_per_period: int) -> tuple[str, int]:
    periods = family.periods_ms(window_ms)
    most = max(1, min(PERIODS_MAX, ROWS_MAX // max(1, rows_per_period)))
    length_ms = span.to_ms - span.from_ms
    fitting = {name: period_ms for name, period_ms in periods.items() if length_ms <= most * period_ms}
    if not fitting:
        raise UsageProblem(f"from, to: {length_ms} ms apart, allowed here are at most {most * max(periods.values())}")
    coarse_enough = {name: ms for name, ms in fitting.items() if span.step_ms is not None and ms <= span.step_ms}
    chosen = coarse_enough or dict(list(fitting.items())[:1])
    return max(chosen.items(), key=lambda entry: entry[1])


def _step(span: Span, period_ms: int) -> int:
    """Shortest whole number of periods that is at least the requested step."""
    wanted_ms = max(span.step_ms or 0, period_ms)
    return -(-wanted_ms // period_ms) * period_ms


def _each_partition_once(rows: pa.Table, start: str, values: Sequence[str]) -> pa.Table:
    """One row for each partition and period. Where its leader has moved to another broker, both have led in the window
    and on the day: rates are weighed by how long each is known, and the larger log is the whole one.
    """
    by = [start, *_PARTITION]
    if rows.group_by(by, use_threads=False).aggregate([]).num_rows == rows.num_rows:
        return rows
    how = {name: "sum" if name in REPLICA_RATES else "max" for name in values}
    rates = [name for name in values if name in REPLICA_RATES]
    for name in rates:
        known_ms = pc.if_else(pc.is_valid(rows[name]), pc.max_element_wise(rows[_KNOWN_MS], 1), None)
        weighed = pc.multiply(rows[name], as_floats(known_ms))
        rows = rows.set_column(rows.column_names.index(name), name, weighed).append_column(f"{name}_ms", known_ms)
    joined = rows.group_by(by, use_threads=False).aggregate([*how.items(), *((f"{name}_ms", "sum") for name in rates)])
    columns = {name: joined[name] for name in by} | {name: joined[f"{name}_{how[name]}"] for name in values}
    columns |= {name: pc.divide(columns[name], as_floats(joined[f"{name}_ms_sum"])) for name in rates}
    return pa.table(columns)


def _summed(rows: pa.Table, start: str, keys: Sequence[str], values: Sequence[str]) -> pa.Table:
    """Sums by key; whole numbers, like lags, at most as great as 64 bits hold."""
    by = [start, *keys]
    whole = [name for name in values if pa.types.is_integer(rows.schema.field(name).type)]
    rows = _converted(rows, whole, as_floats)
    sums = rows.group_by(by, use_threads=False).aggregate([(name, "sum") for name in values])
    sums = sums.select([*by, *(f"{name}_sum" for name in values)]).rename_columns([*by, *values])
    return _converted(sums, whole, as_whole)


def _converted(rows: pa.Table, names: Sequence[str], convert: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    for name in names:
        rows = rows.set_column(rows.column_names.index(name), name, convert(rows[name]))
    return rows


def _in_steps(rows: pa.Table, start: str, family: TableFamily, values: Sequence[str], step_ms: int) -> pa.Table:
    rows = rows.sort_by([(start, "ascending"), *((key, "ascending") for key in family.keys)])
    rows = rows.append_column("start_ms", pa.array(times_ms(rows[start]) // step_ms * step_ms))
    by = ["start_ms", *family.keys]
    joined = [(name, family.joined[name]) for name in values]
    steps = rows.group_by(by, use_threads=False).aggregate([*joined, (start, "count")])
    names = [*by, *(f"{name}_{how}" for name, how in joined)]
    return steps.select(names).rename_columns([*by, *values]).sort_by([(key, "ascending") for key in by])


ORDERS: Mapping[str, str | None] = {
    "name": None, "bytes_in": "bytes_in_per_sec", "bytes_out": "bytes_out_per_sec", "size": "size_bytes",
}  # fmt: skip
"""Orders of partitions, and the column whose highest values come first; None: by topic and number."""

_OF_LEADERS = ("broker", *REPLICA_RATES, "size_bytes", OUT_OF_SYNC_REPLICAS.name)


def window_partitions(
    reader: TableReader,
    kafka_cluster: str,
    window_start_ms: int,
    where: Condition,
    *,
    broker: int | None = None,
    column: str | None = None,
    after: tuple[str, int] | None = None,
    first: int = 0,
    rows_max: int,
) -> list[dict[str, Any]]:
    """Leaders of partitions as they were in one window, by topic and partition; with `column` those with its highest
    values come first, and unknown values last.

    From the one after the partition `after` on, or without the `first` ones; with `broker` only those that it leads.
    At most `rows_max` rows. Raises TableUnavailable.
    """
    where &= ALL_ROWS if after is None else at_least("topic", after[0])
    newest = _newest_leaders(reader, kafka_cluster, window_start_ms, where)
    if broker is not None:
        newest = newest.filter(pc.equal(newest["broker"], broker))
    if after is not None:
        is_later = pc.and_(pc.equal(newest["topic"], after[0]), pc.greater(newest["partition"], after[1]))
        newest = newest.filter(pc.or_(pc.greater(newest["topic"], after[0]), is_later))
    order = [] if column is None else [(column, "descending")]
    newest = newest.sort_by([*order, ("topic", "ascending"), ("partition", "ascending")])
    return _with_replicas(reader, kafka_cluster, window_start_ms, newest.slice(first, rows_max))


def _with_replicas(
    reader: TableReader, kafka_cluster: str, window_start_ms: int, leaders: pa.Table
) -> list[dict[str, Any]]:
    """The rows, each with the brokers that reported a replica of its partition in the window: the leader first."""
    listed: list[dict[str, Any]] = leaders.to_pylist()
    where = of_window(kafka_cluster, window_start_ms) & one_of("topic", {row["topic"] for row in listed})
    brokers: dict[tuple[str, int], list[int]] = {(row["topic"], row["partition"]): [] for row in listed}
    for row in reader.rows(PARTITION_LOAD.name, columns=("broker", *_PARTITION), where=where) if listed else ():
        brokers.get((row["topic"], row["partition"]), []).append(row["broker"])
    for row in listed:
        others = set(brokers[row["topic"], row["partition"]]) - {row["broker"]}
        row["replicas"] = [row["broker"], *sorted(others)]
    return listed


def _newest_leaders(reader: TableReader, kafka_cluster: str, window_start_ms: int, where: Condition) -> pa.Table:
    """One row for each partition. While a leader moves, two brokers report it in one window: the later one leads."""
    own = of_window(kafka_cluster, window_start_ms) & equal("role", "leader") & where
    columns = ("topic", "partition", *_OF_LEADERS, "last_event_time_ms")
    rows = reader.arrow(PARTITION_LOAD.name, columns=columns, where=own)
    rows = rows.sort_by([("last_event_time_ms", "ascending"), ("broker", "ascending")])
    newest = rows.group_by(["topic", "partition"], use_threads=False).aggregate(
        [(name, "last") for name in _OF_LEADERS]
    )
    return newest.select(["topic", "partition", *(f"{name}_last" for name in _OF_LEADERS)]).rename_columns(
        ["topic", "partition", *_OF_LEADERS]
    )
