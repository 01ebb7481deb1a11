"""Upserts a large batch into a window table: executors write its files, the driver commits them at once.

The driver reads the table's log, not its rows: it chooses the files whose rows the batch may meet, divides the batch
into parts, and starts a task for each part (`part_files.py`). Then one commit through delta-rs takes the replaced
files out and the new ones in, with the transaction id of the batch. On an object store the commit is a conditional put.
So the way is the same for a disk and a store, one machine and many, and the driver's memory does not grow with the
batch.

A batch that is killed leaves files that no commit names: the upkeep removes them. The batch is repeated as a whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from pyspark import cloudpickle
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from streaming import tables
from streaming.contract import ColumnType, Table
from streaming.pipeline import part_files
from streaming.pipeline.part_files import FINAL, RESULT, PartResult, Rule, TableFile, Upsert
from streaming.runtime.own_process import current_umask
from streaming.tables import log_statistics
from streaming.tables.data_files import DataFile, data_files, partition_values, replace_files
from streaming.tables.object_stores import storage_options
from streaming.tables.places import local_folder

ROWS_OF_PART = 250_000
"""Rows that a task holds, of the batch and of the table: 0.5 GB of Python. A part of one batch has about half of it."""
PARTS_MAX = 4_096
ROWS = "rows"
"""Application id that each commit of rows carries: of two that start from one version, as of two pipelines, Delta takes
the first. Without it two that replace no file would both be taken, and their keys would occur twice.
"""
_PART = "_part"

# Sent with the job, so that executors need Python and pyarrow, but not this package.
for _module in (part_files, log_statistics):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """How many rows a batch has, and the first and last start of their windows."""

    rows: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How a batch goes into a table: what the tasks do, and the files that they may meet."""

    upsert: Upsert
    met: tuple[DataFile, ...]


WritesParts = Callable[[Upsert], Sequence[PartResult]]
"""Writes the files of all parts; returns what each part did."""


def planned(
    delta: DeltaTable,
    table: Table,
    span: BatchSpan,
    *,
    audit: Mapping[str, Any],
    rules: Sequence[Rule],
    watermark: datetime,
    open_since: datetime | None,
) -> WritePlan:
    """Plans the upsert of a batch whose rows lack the columns of `audit`; raises DeltaError, OSError, and
    TableUnavailable if tasks may not read the table's files as they are.

    `open_since` is the start of the oldest open window, needed where open and closed rows share files.
    """
    is_partitioned = FINAL in delta.metadata().partition_columns
    since = None if is_partitioned else min(span.first, open_since or span.first)
    met = tuple(file for file in data_files(delta, table) if _is_met(file, span, since))
    wanted = Upsert(
        location=_location(delta),
        storage_options=storage_options(delta.table_uri),
        umask=current_umask(),
        schema=_schema(delta, table),
        key=table.key,
        rules=tuple(rules),
        audit=tuple(audit.items()),
        watermark=watermark,
        parts=_parts(span.rows + sum(file.rows or 0 for file in met)),
        files=tuple(TableFile(file.path, file.is_final) for file in met),
        is_partitioned=is_partitioned,
    )
    return WritePlan(wanted, met)


def on_executors(rows: DataFrame, table: Table) -> WritesParts:
    """Returns what writes the files of `rows` by a task for each part. It raises what Spark raises."""

    def write(wanted: Upsert) -> list[PartResult]:
        by_part = _numbered(rows, table, wanted).repartitionById(wanted.parts, _PART).drop(_PART)
        written = by_part.mapInArrow(partial(part_files.write_parts, upsert=wanted), f"{RESULT} string").collect()
        if len(written) != wanted.parts:
            raise AssertionError(f"{len(written)} of {wanted.parts} parts were written")
        return [PartResult.from_json(result[RESULT]) for result in written]

    return write


def on_driver(rows: DataFrame, table: Table) -> WritesParts:
    """Returns what writes the files of `rows` from the driver, which holds one part at a time: for executors without
    Python. It raises what Spark and `part_files.write_part` raise.
    """

    def write(wanted: Upsert) -> list[PartResult]:
        numbered = _numbered(rows, table, wanted)
        return [
            part_files.write_part(numbered.where(f.col(_PART) == part).drop(_PART).toArrow().to_batches(), part, wanted)
            for part in range(wanted.parts)
        ]

    return write


def commit(
    delta: DeltaTable, plan: WritePlan, results: Sequence[PartResult], transaction: tuple[str, int], *, now_ms: int
) -> None:
    """Takes the files that are not final out of the table and the new ones in; raises DeltaError, and OSError also if a
    new file is not in the table's folder.
    """
    if plan.upsert.is_in_folder:
        _check_here(plan.upsert.location, results)
    removed = [file for file in plan.met if not file.is_final]
    added = [
        AddAction(file.path, file.size_bytes, partition_values(file.is_final), now_ms, True, file.statistics)
        for result in results
        for file in result.files
    ]
    replace_files(delta, removed, added, with_rows(delta, transaction), removed_ms=now_ms)


def with_rows(delta: DeltaTable, transaction: tuple[str, int]) -> CommitProperties:
    """Properties of a commit of rows: the batch's (application id, version), and `ROWS`."""
    return CommitProperties(app_transactions=[Transaction(*transaction), Transaction(ROWS, delta.version() + 1)])


def _check_here(location: str, results: Sequence[PartResult]) -> None:
    """Raises FileNotFoundError where the driver lacks a file that a task has written: on a host that has another volume
    of this name.
    """
    for file in (file for result in results for file in result.files):
        path = Path(location, file.path)
        if not path.exists() or path.stat().st_size != file.size_bytes:
            raise FileNotFoundError(
                f"{path}, which an executor has written, is not here: storage.tables must be one place on all hosts"
            )


def gained(results: Sequence[PartResult]) -> int | None:
    """Samples that the table gains by the batch, None where another checkpoint's windows are counted anew."""
    if any(result.met_others for result in results):
        return None
    return sum(result.samples_after - result.samples_before for result in results)


def part_column(table: Table, parts: int) -> SparkColumn:
    """The number of a row's part: the same as `part_files.parts_of` computes in Arrow."""
    total = f.lit(0).cast("long")
    for column in table.columns:
        if column.name in table.key and column.type is not ColumnType.TIMESTAMP:
            value = f.col(column.name)
            total += f.crc32(value.cast("binary")) if column.type is ColumnType.STRING else value
    return f.pmod(total, f.lit(parts)).cast("int")


def _parts(rows: int) -> int:
    """The number of parts for so many rows, a power of two: then most files hold rows of one part of the next batch.

    >>> _parts(0), _parts(250_000), _parts(2_000_000), _parts(2_000_001)
    (1, 1, 8, 16)
    """
    parts = 1
    while parts * ROWS_OF_PART < rows and parts < PARTS_MAX:
        parts *= 2
    return parts


def _is_met(file: DataFile, span: BatchSpan, since: datetime | None) -> bool:
    """Whether the batch may meet rows of the file, by the log's statistics: rows of open windows up to the newest of
    the batch, and those of closed windows that the batch has rows of. `since` is given where files hold both kinds.
    """
    first = since if file.is_final is None else span.first
    is_before = file.is_final is not False and file.ends is not None and first is not None and file.ends < first
    return not is_before and not (file.begins is not None and file.begins > span.last)


def _location(delta: DeltaTable) -> str:
    """The table's folder as the file system names it, or its URI on an object store."""
    folder = local_folder(delta.table_uri)
    return delta.table_uri if folder is None else str(folder)


def _schema(delta: DeltaTable, table: Table) -> pa.Schema:
    """Columns of this release, then those that a newer one has added to the table."""
    own = tables.row_schema(table)
    stored = pa.schema(delta.schema().to_arrow())
    return pa.schema([*own, *(field.remove_metadata() for field in stored if field.name not in own.names)])


def _numbered(rows: DataFrame, table: Table, wanted: Upsert) -> DataFrame:
    return rows.withColumn(_PART, part_column(table, wanted.parts))
