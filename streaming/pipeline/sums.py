"""Our records, from Kafka's bytes to sums by window, in Arrow: several times as fast as parsing them in the JVM.

This parser takes only records that fit beyond doubt. It hands back every other record, and Spark's parser and rules
judge it: `records.py` alone defines a misfit. This module runs in Python on the executors, which get its code with the
job, so it imports no other module of ours.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import json as arrow_json

FAST_BYTES_MAX = 1_000
"""Length above which values are handed back, bytes. Within so few bytes neither numbers nor nesting reach the limits of
Spark's parser, which this parser doesn't share.
"""
PORTIONS = 8
"""A batch that doesn't parse is tried again in as many portions; those that don't are handed back whole."""
NOT_JSON = re.compile(rb"[\s:,\[{]-?(?:Inf|NaN)")
"""Words that this parser reads as numbers outside of strings; Spark's parser rejects them or reads no finite number."""
SAMPLES_AT_ONCE = 500_000
"""Samples that are summed together, though they come in smaller batches: several looks at a partition give one row,
which Spark then sorts, sends and keeps as one. 200 MB of Python at the most.
"""
ROWS_OUT = 50_000
"""Rows of sums in a batch that goes back to Spark: as many as Spark hands records in."""
WEIGHT_WINDOWS = 2
"""A sample weighs by its interval, at most by so many windows: one that claims a month would outweigh all others."""
_WRAPPED, _END, _NEWLINE = b'{"r":', b"}\n", b"\n"

TIME = "event_time_ms"


@dataclass(frozen=True, slots=True)
class Fitting:
    """What a record must fulfil, as in `records.RecordShape` and its rules."""

    schema: pa.Schema
    required: tuple[str, ...]
    together: tuple[str, ...]
    not_negative: tuple[str, ...]
    greatest: tuple[tuple[str, float], ...]
    version: int
    time_min_ms: int
    clock_skew_max_ms: int


@dataclass(frozen=True, slots=True)
class Sums:
    """What is kept of a window's samples, by `keys`; sums of sums are the same again.

    Columns: the keys; of each `weighted` field the sum of value x interval and the interval over which it is known;
    `maxima`; `newest` fields as the newest sample has them and `oldest` as the oldest; count, first and last time.
    """

    keys: tuple[str, ...]
    weighted: tuple[str, ...]
    maxima: tuple[str, ...]
    newest: tuple[str, ...]
    oldest: tuple[str, ...]
    interval: str = "interval_ms"

    def added(self) -> tuple[str, ...]:
        """Columns of the weighted fields, which are added up."""
        return tuple(of(name) for name in self.weighted for of in (weight, known_ms))

    def schema(self, of_records: pa.Schema) -> pa.Schema:
        """Arrow's types of the columns."""
        known = {field.name: field.type for field in of_records}
        return pa.schema(
            [(name, known[name]) for name in self.keys]
            + [pair for name in self.weighted for pair in ((weight(name), pa.float64()), (known_ms(name), pa.int64()))]
            + [(maximum(name), known[name]) for name in self.maxima]
            + [(name, known[name]) for name in self.newest]
            + [(first(name), known[name]) for name in self.oldest]
            + [(name, pa.int64()) for name in AUDIT]
        )


AUDIT = ("sample_count", "first_event_time_ms", "last_event_time_ms")


def weight(name: str) -> str:
    """Column of the sum of value x interval."""
    return f"{name}_weighted"


def known_ms(name: str) -> str:
    """Column of the interval over which the value is known."""
    return f"{name}_known_ms"


def maximum(name: str) -> str:
    """Column of the greatest value."""
    return f"{name}_max"


def first(name: str) -> str:
    """Column of the oldest sample's value."""
    return f"{name}_first"


def summed(batches: Iterable[pa.RecordBatch], fitting: Fitting, sums: Sums, window_ms: int) -> Iterator[pa.RecordBatch]:
    """Yields rows of sums, in which `timestamp` and `value` are null, and rows of records handed back, in which all
    other columns are null. `batches` have Kafka's `timestamp` (us) and `value`.
    """
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.binary()), *sums.schema(fitting.schema)])
    waiting: list[pa.Table] = []
    for batch in batches:
        kafka_ms = pc.divide(batch["timestamp"].cast(pa.int64()), 1_000)
        samples, doubtful = parse_fitting(batch["value"], kafka_ms, fitting)
        if len(doubtful):
            yield from _batches(batch.select(["timestamp", "value"]).take(doubtful), schema)
        if samples.num_rows:
            waiting.append(samples)
        if sum(table.num_rows for table in waiting) >= SAMPLES_AT_ONCE:
            yield from _batches(windows(pa.concat_tables(waiting), sums, window_ms), schema)
            waiting.clear()
    if waiting:
        yield from _batches(windows(pa.concat_tables(waiting), sums, window_ms), schema)


def parse_fitting(values: pa.Array, kafka_ms: pa.Array, fitting: Fitting) -> tuple[pa.Table, pa.Array]:
    """Records that fit beyond doubt, with their fields as columns, and the positions of all others."""
    lengths = pc.fill_null(pc.binary_length(values), 0)
    short = pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, FAST_BYTES_MAX))
    positions = pc.indices_nonzero(short)
    parts = [fitting.schema.empty_table().append_column("_position", pa.array([], pa.uint64()))]
    for start, samples in _parsed(values.filter(short), fitting.schema):
        ours = positions.slice(start, samples.num_rows)
        fit = _fit(samples, kafka_ms.take(ours), fitting)
        parts.append(samples.append_column("_position", ours).filter(fit))
    fits = pa.concat_tables(parts)
    doubtful = np.ones(len(values), dtype=bool)
    doubtful[fits["_position"].to_numpy()] = False
    return fits.drop_columns("_position"), pa.array(np.flatnonzero(doubtful))


def windows(samples: pa.Table, sums: Sums, window_ms: int) -> pa.Table:
    """Sums of the samples by window and key."""
    time = samples[TIME]
    if len(time) > 1 and not pc.all(pc.less_equal(time[:-1], time[1:])).as_py():
        samples = samples.take(pc.sort_indices(time))
        time = samples[TIME]
    columns = {name: samples[name] for name in sums.keys} | {"_window": pc.divide(time, window_ms)}
    for name in sums.weighted:
        known = pc.is_valid(samples[name])
        interval = pc.min_element_wise(samples[sums.interval], pa.scalar(WEIGHT_WINDOWS * window_ms, pa.int64()))
        columns[weight(name)] = pc.multiply(samples[name], interval.cast(pa.float64()))
        columns[known_ms(name)] = pc.if_else(known, interval, pa.scalar(None, pa.int64()))
    columns |= {maximum(name): samples[name] for name in sums.maxima}
    columns |= {"_row": pa.array(np.arange(samples.num_rows)), TIME: time}
    aggregates = [*((name, "sum") for name in sums.added()), *((maximum(name), "max") for name in sums.maxima),
             ("_row", "first"), ("_row", "last"), (TIME, "min"), (TIME, "max"), (TIME, "count")]  # fmt: skip
    grouped = pa.table(columns).group_by(["_window", *sums.keys], use_threads=False).aggregate(aggregates)
    oldest, newest = samples.take(grouped["_row_first"]), samples.take(grouped["_row_last"])
    return pa.table(
        {name: grouped[name] for name in sums.keys}
        | {name: grouped[f"{name}_{how}"] for name, how in aggregates if not name.startswith("_") and name != TIME}
        | {name: newest[name] for name in sums.newest}
        | {first(name): oldest[name] for name in sums.oldest}
        | dict(zip(AUDIT, (grouped[f"{TIME}_{how}"] for how in ("count", "min", "max")), strict=True))
    )


def _batches(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from _of_schema(rows, schema).combine_chunks().to_batches(max_chunksize=ROWS_OUT)


def _of_schema(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Returns `rows` with all columns of `schema`; columns that the rows lack are null."""
    there = set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _parsed(values: pa.Array, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
    """The values, or those portions of them that parse, with their first position."""
    if not len(values):
        return
    whole = _lines(values, schema)
    if whole is not None:
        yield 0, whole
        return
    size = -(-len(values) // PORTIONS)
    for start in range(0, len(values), size):
        portion = _lines(values[start : start + size], schema)
        if portion is not None:
            yield start, portion


def _lines(values: pa.Array, schema: pa.Schema) -> pa.Table | None:
    """Returns all of these values as rows; None if one value doesn't parse strictly. None of them is null.

    Each value is wrapped in an object of its own line, so that a line is one value or an error.
    """
    lines = pc.binary_join_element_wise(_WRAPPED, values, _END, b"")
    text = _data(lines)
    if text.count(_NEWLINE) != len(values):
        return None
    if (b"Inf" in text or b"NaN" in text) and NOT_JSON.search(text):
        return None
    try:
        values.cast(pa.string())  # the parser takes any bytes for UTF-8
        rows = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([("r", pa.struct(list(schema)))]), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if rows.num_rows != len(values) or rows["r"].null_count:
        return None
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(chunk) for chunk in rows["r"].chunks])


def _data(values: pa.Array) -> bytes:
    """Bytes of a binary array without nulls, one value after the other."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return bytes(data.slice(bounds[0], bounds[-1] - bounds[0]))


def _fit(samples: pa.Table, kafka_ms: pa.Array, fitting: Fitting) -> pa.ChunkedArray:
    """Which samples break no rule."""
    present = {name for name in samples.column_names if samples[name].null_count < samples.num_rows}
    conditions = [pc.is_valid(samples[name]) for name in fitting.required]
    conditions += [
        pc.equal(pc.is_valid(samples[name]), pc.is_valid(samples[fitting.together[0]])) for name in fitting.together[1:]
    ]
    conditions += [pc.greater_equal(samples[name], 0) for name in fitting.not_negative if name in present]
    conditions += [pc.less_equal(samples[name], most) for name, most in fitting.greatest if name in present]
    conditions += [
        pc.is_finite(samples[name])
        for name in fitting.not_negative
        if name in present and pa.types.is_floating(samples[name].type)
    ]
    latest = pc.add(kafka_ms, fitting.clock_skew_max_ms)
    conditions += [
        pc.equal(samples["v"], fitting.version),
        pc.greater_equal(samples[TIME], fitting.time_min_ms),
        pc.less_equal(samples[TIME], latest),
    ]
    fit = conditions[0]
    for condition in conditions[1:]:
        # An unknown value breaks no rule: the first conditions check that required fields are known.
        fit = pc.and_(fit, pc.fill_null(condition, True))
    return fit
