"""Window rows of a large batch as Parquet files of a Delta table: what one task of the executors does with one part.

The rows of a key always belong to the same part: to the sum of the key's numbers and of the checksums of its texts,
modulo the number of parts. So a part can be brought up to date alone:

1. read the rows of the part from the files of open windows, and from those of closed windows that the batch meets;
2. of each key keep the final row, otherwise the one that rests on more samples (`fullest`);
3. mark what the watermark has passed, and write at most two new files, one of open and one of closed rows.

A file's name says which part it holds (`part-3-of-8-...`). A task reads only files that may hold rows of its part: as
parts are counted by the power of two, a file of part 3 of 8 holds rows of part 1 of 2, and rows of part 11 of 16. From
files of other names a task takes the rows of its own part.

Nothing becomes visible here: the driver commits all files at once (`part_commits.py`). What a killed task leaves is
removed by the upkeep. This module runs in Python on the executors, which get its code with the job. Therefore it
imports no other module of ours than `log_statistics.py`, which is sent with it (`part_commits.py`).
"""

import json
import math
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import fs
from pyarrow import parquet as pq

from streaming.tables.log_statistics import statistics_of

PART_OF = re.compile(r"(?:^|/)part-(\d+)-of-(\d+)-[^/]*$")
RESULT = "files"
"""The one column that a task returns: one `PartResult` a row, as JSON."""
FINAL = "is_final"
COMPARISONS = {">": pc.greater, ">=": pc.greater_equal}
ROWS_AT_A_TIME = 65_536
"""Rows of a file that are in memory before those of other parts and windows are left out."""

Rule = tuple[str, str, str, str | int]
"""What each row must fulfil: a name, a column, an operator, and a column or a number."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of the table: its path below the table, and whether all of its rows are final; None where it may hold
    both kinds.
    """

    path: str
    is_final: bool | None


@dataclass(frozen=True, slots=True)
class Upsert:
    """What all tasks of one batch share."""

    location: str
    """The table's folder or URI."""
    storage_options: dict[str, str] | None
    """Options of delta-rs for an object store; None for a folder."""
    umask: int
    """Mask of the modes of new files in a folder."""
    schema: pa.Schema
    """Columns of the table, those of a newer release among them."""
    key: tuple[str, ...]
    rules: tuple[Rule, ...]
    audit: tuple[tuple[str, Any], ...]
    """Columns that have the same value in all rows of the batch, with it."""
    watermark: datetime
    parts: int
    """How many parts there are, a power of two."""
    files: tuple[TableFile, ...]
    """The files whose rows the batch may meet. Those that are not final are replaced."""
    is_partitioned: bool
    """Whether open and closed rows lie in files of their own."""

    @property
    def is_in_folder(self) -> bool:
        """Whether the table lies in a folder, not on an object store."""
        return "://" not in self.location


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a task has written, as a Delta table's log notes it."""

    path: str
    size_bytes: int
    is_final: bool | None
    statistics: str


@dataclass(frozen=True, slots=True)
class PartResult:
    """What a task did: its files, the samples of its windows before and after, and whether it met rows of another
    checkpoint.
    """

    files: tuple[NewFile, ...]
    samples_before: int
    samples_after: int
    met_others: bool

    def to_json(self) -> str:
        """Returns the result as one line."""
        files = [[file.path, file.size_bytes, file.is_final, file.statistics] for file in self.files]
        return json.dumps([files, self.samples_before, self.samples_after, self.met_others])

    @classmethod
    def from_json(cls, text: str) -> "PartResult":
        """Returns the result that `to_json` wrote."""
        files, before, after, met_others = json.loads(text)
        return cls(tuple(NewFile(*file) for file in files), before, after, met_others)


def parts_of(rows: pa.Table, key: Sequence[str], parts: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the number of each row's part: the same as `part_commits.part_column` computes in Spark.

    >>> parts_of(pa.table({"topic": ["a", "a"], "partition": [1, 2]}), ("topic", "partition"), 8)
    array([4, 5])
    """
    total = np.zeros(rows.num_rows, np.int64)
    for name in key:
        column = rows[name].combine_chunks()
        if pa.types.is_timestamp(column.type):
            continue
        if pa.types.is_integer(column.type):
            total += column.to_numpy(zero_copy_only=False)
            continue
        texts = column.dictionary_encode()
        checksums = [zlib.crc32(text.encode()) for text in texts.dictionary.to_pylist()]
        total += np.array(checksums, np.int64)[texts.indices.to_numpy()]
    return total % parts


def may_hold(path: str, part: int, parts: int) -> bool | None:
    """Whether the file holds rows of this part: False if none, True if all of its rows are, None if some may be.

    >>> [may_hold("is_final=false/part-3-of-8-7-x.parquet", part, parts) for part, parts in ((3, 8), (1, 2), (11, 16))]
    [True, True, None]
    >>> may_hold("part-3-of-8-7-x.parquet", 0, 2), may_hold("part-00000-c000.snappy.parquet", 0, 2)
    (False, None)
    """
    named = PART_OF.search(path)
    if named is None:
        return None
    number, of_parts = int(named[1]), int(named[2])
    if (number - part) % math.gcd(of_parts, parts):
        return False
    return True if of_parts % parts == 0 else None


def write_part(batches: Iterable[pa.RecordBatch], part: int, upsert: Upsert) -> PartResult:
    """Writes the files of one part, whose rows of the batch are `batches`. Raises ValueError where a row breaks a rule
    of the table, OSError, pa.ArrowException, and what the store raises.
    """
    rows = _of_batch(batches, upsert)
    _check(rows, upsert)
    present = _present(rows, part, upsert)
    fresh = fullest(present, rows, upsert.key)
    before, after = (pc.sum(windows["sample_count"]).as_py() or 0 for windows in (present, fresh))
    others = set(pc.unique(present["query_id"]).to_pylist()) - {dict(upsert.audit)["query_id"]}
    if not upsert.is_partitioned:
        written = [_written(closed_by(fresh, upsert.watermark), None, part, upsert)]
    else:
        # Final rows lie in files that stay.
        closed = closed_by(fresh.filter(pc.invert(fresh[FINAL])), upsert.watermark)
        written = [
            _written(closed.filter(is_of_kind), is_final, part, upsert)
            for is_final, is_of_kind in ((False, pc.invert(closed[FINAL])), (True, closed[FINAL]))
        ]
    return PartResult(tuple(file for file in written if file is not None), before, after, bool(others))


def fullest(present: pa.Table, new: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """One row per key: a final one, else the one that rests on more samples, the new one of equals."""
    both = pa.concat_tables([present, new])
    # Ranks of equals rise with the row, as the sort is stable. To sort whole rows would cost as much as to write them.
    ranked = np.lexsort((both["sample_count"].to_numpy(), both[FINAL].to_numpy()))
    rank = np.empty_like(ranked)
    rank[ranked] = np.arange(len(ranked))
    by_key = both.select(list(key)).append_column("_rank", pa.array(rank)).group_by(list(key))
    best = by_key.aggregate([("_rank", "max")])["_rank_max"].to_numpy()
    return both.take(pa.array(ranked[best]))


def closed_by(rows: pa.Table, watermark: datetime) -> pa.Table:
    """Returns `rows` with those of windows that end at or before `watermark` marked final."""
    passed = pc.less_equal(rows["window_end"], pa.scalar(watermark, rows["window_end"].type))
    index = rows.column_names.index(FINAL)
    return rows.set_column(index, rows.schema.field(index), pc.or_(rows[FINAL], passed))


def _file_system(upsert: Upsert) -> fs.FileSystem:
    """The table's folder or prefix, as the root of a file system to read from."""
    if upsert.is_in_folder:
        return fs.SubTreeFileSystem(upsert.location, fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler  # a table in a folder needs no delta-rs on executors

    return fs.PyFileSystem(DeltaStorageHandler(upsert.location, upsert.storage_options))


def _put(upsert: Upsert, path: str, content: bytes) -> None:
    """Writes a file of the table."""
    if upsert.is_in_folder:
        os.umask(upsert.umask)
        place = Path(upsert.location, path)
        # The folder of the table itself is not made: this machine may lack the volume that holds it.
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)
        return
    from deltalake._internal import DeltaFileSystemHandler

    # Arrow's stream on it would hand over buffers, which delta-rs refuses.
    files: Any = DeltaFileSystemHandler(upsert.location, upsert.storage_options)  # its stub lacks close
    stream = files.open_output_stream(path)
    stream.write(content)
    stream.close()


def _of_batch(batches: Iterable[pa.RecordBatch], upsert: Upsert) -> pa.Table:
    """The part's rows of the batch, with the columns of the audit."""
    given = list(batches)
    if not given:
        return upsert.schema.empty_table()
    rows = pa.Table.from_batches(given)
    for name, value in upsert.audit:
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, upsert.schema.field(name).type), rows.num_rows))
    return _in_schema(rows, upsert.schema)


def _present(rows: pa.Table, part: int, upsert: Upsert) -> pa.Table:
    """The part's rows of the files: of open windows all, of closed ones those of windows that `rows` hold."""
    store, starts = _file_system(upsert), pc.unique(rows["window_start"])
    read = [upsert.schema.empty_table()]
    for file in upsert.files:
        holds = may_hold(file.path, part, upsert.parts)
        if holds is False or (file.is_final and not len(starts)):
            continue
        for table in _rows_of(file, store, upsert.schema):
            rows_of_part = table.filter(pc.is_in(table["window_start"], starts)) if file.is_final else table
            if holds is None:
                is_of_part = parts_of(rows_of_part, upsert.key, upsert.parts) == part
                rows_of_part = rows_of_part.filter(pa.array(is_of_part))
            read.append(rows_of_part)
    return pa.concat_tables(read)


def _rows_of(file: TableFile, store: fs.FileSystem, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file, some at a time: a joined file may hold millions, of which the part wants a few."""
    with pq.ParquetFile(file.path, filesystem=store, coerce_int96_timestamp_unit="us") as stored:
        for batch in stored.iter_batches(ROWS_AT_A_TIME):
            table = pa.Table.from_batches([batch])
            if file.is_final is not None:
                table = table.append_column(FINAL, pa.repeat(pa.scalar(file.is_final), table.num_rows))
            yield _in_schema(table, schema)


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table's columns in the order and the types of `schema`, null where the table lacks one."""
    there = set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in there else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema.names).cast(schema)


def _check(rows: pa.Table, upsert: Upsert) -> None:
    """Raises ValueError where a row breaks a rule: of files that others commit Delta checks none."""
    for name, column, operator, limit in upsert.rules:
        fulfilled = COMPARISONS[operator](rows[column], rows[limit] if isinstance(limit, str) else limit)
        if pc.any(pc.invert(fulfilled)).as_py():
            raise ValueError(f"rows of {upsert.location} break the rule {name}: {column} {operator} {limit}")


def _written(rows: pa.Table, is_final: bool | None, part: int, upsert: Upsert) -> NewFile | None:
    """The new file of these rows; None of no rows."""
    if rows.num_rows == 0:
        return None
    # In the order of time, so that a reader of some windows skips parts of files by their statistics.
    rows = rows.sort_by("window_start")
    folder = "" if is_final is None else f"{FINAL}={str(is_final).lower()}/"
    path = f"{folder}part-{part}-of-{upsert.parts}-{dict(upsert.audit)['batch_id']}-{uuid.uuid4().hex}.parquet"
    if is_final is not None:
        rows = rows.drop_columns([FINAL])
    content = pa.BufferOutputStream()
    pq.write_table(rows, content)
    written = content.getvalue()
    _put(upsert, path, written.to_pybytes())
    statistics = statistics_of(pq.read_metadata(pa.BufferReader(written)), rows.schema)
    return NewFile(path, written.size, is_final, statistics)


def write_parts(batches: Iterator[pa.RecordBatch], upsert: Upsert) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` runs: the number of the task is that of its part."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    result = write_part(batches, context.partitionId(), upsert)
    yield pa.RecordBatch.from_pydict({RESULT: [result.to_json()]})
