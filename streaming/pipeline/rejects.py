"""Writes the table rejected_record: examples within a budget of bytes, and how many records there were besides.

A producer that sends nothing but misfits must not fill the disk on which lease and journal lie. So each window's time
has a budget; what is over it is counted by topic, reason and field, exactly, and not kept.

Offsets that the window queries have read without a single misfit are not parsed a second time: in a sound set-up no
record is rejected, and to learn that would cost as much as the windows. The source is Spark's progress of those
queries, which this process keeps: after a restart nothing is known.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from streaming.contract import REJECTED_RECORD
from streaming.errors import TableUnavailable
from streaming.pipeline.batch_reporter import ProgressReports
from streaming.pipeline.checkpoints import CheckpointFiles, Offsets, offsets_of, planned
from streaming.pipeline.records import ACCEPTED_ROWS, REJECTED_ROWS
from streaming.settings import PipelineSettings
from streaming.tables import append

EARLIEST = 0
"""Stands for the beginning of a partition's first batch, which is the earliest record there was."""
POLL_INTERVAL_S = 1.0
DRIVER_BYTES_MAX = 32_000_000
"""Bytes of raw keys and values that come to the driver, at most; of a topic full of rubbish only examples come to the
driver.
"""
RECORD_BYTES_IN_PYTHON = 1_000
"""What each record costs in Python besides: a million of `{}` would take gigabytes."""
EXAMPLES_OF_A_KIND = 100
ROW_BYTES = 100
"""What a row costs on the disk besides key and value, about: a budget of bytes bounds the number of rows, too."""
EXAMPLE_BYTES_MIN = 1_000
KIND = ("source_topic", "reason", "field")
Row = Mapping[str, Any]


class ReadRange(Enum):
    """What is known of a range of offsets."""

    SOUND = "read, every record fitted"
    SUSPECT = "a misfit is in it or near it, or nothing is known"
    UNREAD = "not read to its end yet"


def wait_until_read(
    queries: Sequence[StreamingQuery],
    checkpoint: CheckpointFiles,
    batch_id: int,
    *,
    patience_s: float,
    patience_busy_s: float,
    begin: Offsets | None = None,
) -> ReadRange:
    """What is known of the batch that `checkpoint` has planned; waits until the window queries have read it. `begin`
    has the offsets at which the first batches of the window queries begin, where they don't begin at the earliest.

    It waits `patience_s` for queries that stand still, and `patience_busy_s` as long as one of them works on a batch.
    """
    try:
        end = planned(checkpoint, batch_id)
        start = planned(checkpoint, batch_id - 1) if batch_id else {}
    except (OSError, ValueError, TableUnavailable):  # no longer there, or not to be read now
        return ReadRange.SUSPECT
    reports = list(map(ProgressReports, queries))
    began_s = busy_s = time.monotonic()
    while (
        known := judge([report for each in reports for report in each.recent()], start, end, begin)
    ) is ReadRange.UNREAD:
        now_s = time.monotonic()
        if any(query.status["isTriggerActive"] for query in queries):
            busy_s = now_s
        has_waited = now_s - busy_s >= patience_s or now_s - began_s >= patience_busy_s
        if has_waited or not all(query.isActive for query in queries):
            break
        time.sleep(POLL_INTERVAL_S)
    return known


def judge(reports: Sequence[Any], begin: Offsets, end: Offsets, first: Offsets | None = None) -> ReadRange:
    """Judge the range from `begin` to `end` by progress reports of queries that read each partition in order, one query
    a topic. `first` has the offsets at which their first batches begin, where they don't begin at the earliest.

    >>> report = {
    ...     "durationMs": {"addBatch": 9}, "observedMetrics": {"judged": {"rejected_rows": 0, "accepted_rows": 50}},
    ...     "sources": [{"startOffset": None, "endOffset": '{"load": {"0": 50}}'}],
    ... }
    >>> judge([report], {}, {("load", "0"): 50}), judge([report], {}, {("load", "0"): 51})
    (<ReadRange.SOUND: 'read, every record fitted'>, <ReadRange.UNREAD: 'not read to its end yet'>)
    """
    sound: dict[tuple[str, str], tuple[int, int]] = {}
    for report in reports:
        if "addBatch" in report["durationMs"]:
            _extend(sound, report, first or {})
    wanted = {key: (begin.get(key, EARLIEST), stop) for key, stop in end.items() if stop > begin.get(key, EARLIEST)}
    if any(key not in sound or sound[key][1] < stop for key, (_, stop) in wanted.items()):
        return ReadRange.UNREAD
    return ReadRange.SOUND if all(sound[key][0] <= start for key, (start, _) in wanted.items()) else ReadRange.SUSPECT


def _extend(sound: dict[tuple[str, str], tuple[int, int]], report: Mapping[str, Any], first: Offsets) -> None:
    """Extends each partition's newest unbroken range; the range is empty at the end of a batch with misfits."""
    observed = dict(report["observedMetrics"]).values()
    # The figures of a batch that nobody evaluated are zero.
    counted = sum(row[ACCEPTED_ROWS] for row in observed)
    all_fitted = counted > 0 and not any(row[REJECTED_ROWS] for row in observed)
    for source in report["sources"]:
        begin, end = offsets_of(source["startOffset"]), offsets_of(source["endOffset"])
        for key, stop in end.items():
            start = begin.get(key, max(EARLIEST, first.get(key, EARLIEST)))
            known = sound.get(key)
            unbroken_since = known[0] if known and known[1] == start else start
            sound[key] = (unbroken_since if all_fitted else stop, stop)


@dataclass(slots=True)
class Budget:
    """Bytes that may still be kept in the time of the running window; a start begins with a whole one."""

    bytes_per_window: int
    window_ms: int
    _window: int = -1
    _left: int = 0

    def left(self, now_ms: int) -> int:
        """Bytes left at this moment."""
        window = now_ms // self.window_ms
        if window != self._window:
            self._window, self._left = window, self.bytes_per_window
        return self._left

    def spend(self, count: int) -> None:
        """Notes that `count` bytes were written."""
        self._left -= count


@dataclass(slots=True)
class RejectsWriter:
    """The one writer of the table below `root`."""

    root: str
    settings: PipelineSettings
    now_ms: Callable[[], int]
    _budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self._budget = Budget(self.settings.rejected_bytes_per_window_max, self.settings.window_ms)

    def write(self, rows: DataFrame, batch_id: int) -> bool:
        """Write a batch of rows of the table, once; False where there are none: then there is no commit either."""
        raw = [f.coalesce(f.octet_length(name), f.lit(0)) for name in ("key", "value")]
        size = rows.agg(f.sum(raw[0] + raw[1] + RECORD_BYTES_IN_PYTHON).alias("bytes")).first()
        if size is None or not size["bytes"]:
            return False
        left = self._budget.left(self.now_ms())
        if size["bytes"] > DRIVER_BYTES_MAX:
            records = examples(rows, example_bytes=max(EXAMPLE_BYTES_MIN, left // EXAMPLES_OF_A_KIND))
        else:
            # One row a record, though each of the samples in it is judged.
            records = list({_place(row): row for row in rows.toArrow().to_pylist()}.values())
        kept, spent = within(records, left)
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "rejects"
        transaction_id = f"{query_id}:{REJECTED_RECORD.name}"
        append(self.root, REJECTED_RECORD.name, kept, transaction_id=transaction_id, transaction_version=batch_id)
        self._budget.spend(spent)
        return True


def within(records: Iterable[Row], budget_bytes: int) -> tuple[list[Row], int]:
    """Rows to be written of these records, and the bytes that they take of the budget.

    One example of each kind comes first, then the second of each, and so on. The last that is kept is cut where the
    budget ends. Those not kept are one row of each kind, as are rows that stand for several already.
    """
    left, kept, others = budget_bytes, [], []
    for record in _in_turns(records):
        room = left - ROW_BYTES
        if record["records_not_kept"] is not None or room < 0:
            others.append(record)
            continue
        key, value = _cut(record["key"], room), record["value"]
        value = _cut(value, room - len(key or b""))
        left = room - len(key or b"") - len(value or b"")
        kept.append({**record, "key": key, "value": value})
    return [*kept, *_counted(others)], budget_bytes - left


def examples(rows: DataFrame, *, example_bytes: int) -> list[Row]:
    """The first records of each kind, their values cut to `example_bytes`, and a row that counts those behind them.

    Only keys of records are sorted, on the executors; values come with the examples alone.
    """
    place = ("source_partition", "source_offset")
    records = rows.groupBy(*REJECTED_RECORD.key).agg(
        # One row a record, though each of the samples in it is judged.
        f.min(f.struct("reason", "field")).alias("misfit"), f.min("record_time").alias("record_time"),
        f.min("rejected_at").alias("rejected_at"),
    )  # fmt: skip
    records = records.select(*REJECTED_RECORD.key, "misfit.reason", "misfit.field", "record_time", "rejected_at")
    kind = Window.partitionBy(*KIND)
    ranked = records.withColumn("rank", f.row_number().over(kind.orderBy(*place))).withColumn(
        "of", f.count("*").over(kind)
    )
    first = [row.asDict() for row in ranked.where(f.col("rank") <= EXAMPLES_OF_A_KIND + 1).collect()]
    chosen = [row for row in first if row["rank"] <= EXAMPLES_OF_A_KIND]
    keys = rows.sparkSession.createDataFrame([_place(row) for row in chosen], rows.select(*REJECTED_RECORD.key).schema)
    raw = rows.join(f.broadcast(keys), list(REJECTED_RECORD.key)).select(
        *REJECTED_RECORD.key, *(f.substring(name, 1, example_bytes).alias(name) for name in ("key", "value"))
    )
    by_key = {_place(row): row for row in raw.toArrow().to_pylist()}
    return [_example(row, by_key) for row in first]


def _example(row: Row, raw: Mapping[tuple[Any, ...], Row]) -> Row:
    """A row of the table: an example, or where it comes behind all examples of its kind the number of those left."""
    known = {name: row[name] for name in (*REJECTED_RECORD.key, "reason", "field", "record_time", "rejected_at")}
    if row["rank"] > EXAMPLES_OF_A_KIND:
        return {**known, "key": None, "value": None, "records_not_kept": row["of"] - EXAMPLES_OF_A_KIND}
    of_record = raw[_place(row)]
    return {**known, "key": of_record["key"], "value": of_record["value"], "records_not_kept": None}


def _in_turns(records: Iterable[Row]) -> list[Row]:
    """The first of each kind, then the second of each; within a kind by partition and offset."""
    seen: dict[tuple[Any, ...], int] = {}
    turns = []
    for record in sorted(records, key=_place):
        kind = _kind(record)
        seen[kind] = turn = seen.get(kind, 0) + 1
        turns.append((turn, record))
    return [record for _, record in sorted(turns, key=lambda pair: pair[0])]


def _counted(records: Iterable[Row]) -> list[Row]:
    """One row of each kind, at the place of its first record, that says how many it stands for."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in sorted(records, key=_place):
        row = rows.setdefault(_kind(record), {**record, "key": None, "value": None, "records_not_kept": 0})
        row["records_not_kept"] += record["records_not_kept"] or 1
    return list(rows.values())


def _place(record: Row) -> tuple[Any, ...]:
    return tuple(record[name] for name in REJECTED_RECORD.key)


def _kind(record: Row) -> tuple[Any, ...]:
    return tuple(record[name] for name in KIND)


def _cut(raw: bytes | None, length: int) -> bytes | None:
    return raw if raw is None else raw[:length]
