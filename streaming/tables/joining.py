"""Joins small data files of a table into larger ones, a bounded step at a time, and lays their rows out for queries.

**Which files.** Each commit adds a file. Small files of about the same age are joined up to 1 MB, then up to 10 MB,
then up to 100 MB (`TIERS_BYTES`), so each row is written about three more times in its life. A step joins one run of
files, the oldest that are due, and reads at most 100 MB.

**How rows lie.** A joined file is a sequence of stretches of time of some `STRETCH_ROWS` rows. A stretch consists of
row groups of at most `GROUP_ROWS` rows, a grid of topics by the other columns of the key: rows are cut into as many
ranges of topics as each range has row groups, and within a range rows follow the key. Statistics of row groups then
rule out most of a file for a query of one topic, broker, group or cluster, and other stretches for a query of some
hours. In this order neighbouring rows differ little: whole numbers and times are written as differences (Parquet's
DELTA_BINARY_PACKED), floats without a dictionary, which makes files 30 % smaller (docs/measurements/pipeline.md).

**Beside a writer.** A step reads and writes data files without any lock: nothing refers to the new file before its
commit. The commit replaces the parts by the joined file, if all parts are still in the table; otherwise the new file is
removed. A writer that must not be disturbed therefore waits for the commit alone. A process that is killed leaves at
most one file that no version refers to, and `remove_old_files` removes it.
"""

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import compute as pc
from pyarrow import fs, parquet

from streaming.contract import Table
from streaming.errors import TableUnavailable
from streaming.tables.log_statistics import statistics_of
from streaming.tables.object_stores import storage_options
from streaming.tables.opening import file_statistics, table_uri
from streaming.tables.places import local_folder
from streaming.tables.reader import JOINED, TEXTS, check_plain, with_texts_once
from streaming.tables.store import current_table

TIERS_BYTES = (100_000_000, 10_000_000, 1_000_000)
"""Sizes up to which files are joined, largest first."""
STRETCH_ROWS = 500_000
"""Rows that are in memory at once and sorted together, and the rows of one window more: some 200 MB."""
GROUP_ROWS = 20_000
"""Fewer rows a group make finer statistics, larger footers and slower scans of everything."""
COMPRESSION_LEVEL = 3
CLOSED = "is_final"
"""Partition column of tables of windows: files of open windows are replaced by each batch, so they are not joined."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as the table's log has it."""

    path: str
    size_bytes: int
    rows: int | None
    """None if the log lacks statistics."""
    begins: datetime
    """Least value of the table's time column; the greatest time there is if the log lacks statistics."""


def join_next(root: str, table: Table, *, alone: AbstractContextManager[object] | None = None) -> bool:
    """Join one run of small files, if any are due; return whether another run is due by what the table held before.
    Files that came meanwhile wait for the next time, or a busy table would never be done.

    `alone` is entered for the commit and keeps other writers of the table out. Raises TableUnavailable, DeltaError,
    OSError, ArrowException, and whatever `alone` raises.
    """
    delta = current_table(root, table.name)
    files = [] if delta is None else _joinable(delta, table)
    sizes = [file.size_bytes for file in files]
    run = next_run(sizes)
    if delta is None or not run:
        return False
    chosen = [files[index] for index in run]
    system = _file_system(table_uri(root, table.name), chosen)
    folder = f"{CLOSED}=true/" if delta.metadata().partition_columns else ""
    path = f"{folder}part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    with ExitStack() as while_committing:
        try:
            joined = _write_joined(system, delta, table, chosen, path)
            while_committing.enter_context(alone or nullcontext())
        except BaseException:
            _remove(system, path)
            raise
        # An error may come after the commit, as when a store's answer is lost: then the file must stay.
        is_committed = _commit(delta, chosen, joined)
    if not is_committed:
        _remove(system, path)
    left = [size for index, size in enumerate(sizes) if index not in run]
    return is_committed and bool(next_run([joined.size, *left]))


def tier_due(sizes: Sequence[int]) -> int:
    """Return the size in bytes up to which files of these sizes are to be joined.

    A tier is due once the files below half of it could fill a file of its size together. Half, since a joined file is
    somewhat smaller than its parts: if only files of nearly full size counted, no joined file would ever count for the
    next tier. The smallest tier is always due. One tier for all files would rewrite up to 100 MB in each run, and
    replaced files stay for the days of time travel: 5 GB a day.

    >>> tier_due([900_000] * 11 + [50_000] * 100), tier_due([900_000] * 12), tier_due([])
    (10000000, 10000000, 1000000)
    >>> tier_due([6_000_000] * 8), tier_due([6_000_000] * 17)
    (1000000, 100000000)
    """
    return next(
        (tier for tier in TIERS_BYTES if sum(size for size in sizes if size < tier // 2) >= tier), TIERS_BYTES[-1]
    )


def next_run(sizes: Sequence[int]) -> list[int]:
    """Return the indices of the files that the next step joins, for sizes of files in the order of time: the oldest
    files below half of the tier that is due, up to the tier together. Empty if no two files are due.

    >>> next_run([900_000] * 3), next_run([300_000, 900_000, 300_000]), next_run([2_000_000] * 6)
    ([], [0, 2], [0, 1, 2, 3, 4])
    """
    tier = tier_due(sizes)
    small = [index for index, size in enumerate(sizes) if size < tier // 2]
    totals = np.cumsum([sizes[index] for index in small])
    run = small[: int(np.searchsorted(totals, tier, side="right"))]
    return run if len(run) > 1 else []


def _joinable(delta: DeltaTable, table: Table) -> list[DataFile]:
    """All files that may be joined with each other, in the order of time; raises TableUnavailable if another program
    has changed the table so that its rows may not be copied.
    """
    check_plain(delta, table.name)
    actions = pa.table(delta.get_add_actions(flatten=True))
    begins = file_statistics(delta, table.time_column)["least"]
    columns = {"size": actions["size_bytes"], "rows": actions["num_records"], "begins": begins}
    files = pa.table({"path": actions["path"], **columns})
    partitions = delta.metadata().partition_columns
    if partitions == [CLOSED]:
        files = files.filter(actions[f"partition.{CLOSED}"])
    elif partitions:
        raise TableUnavailable(
            f"table {table.name} is partitioned by {', '.join(partitions)}: its files are not joined"
        )
    latest = datetime.max.replace(tzinfo=UTC)
    found = [DataFile(row["path"], row["size"], row["rows"], row["begins"] or latest) for row in files.to_pylist()]
    return sorted(found, key=lambda file: (file.begins, file.path))


def _file_system(uri: str, files: Sequence[DataFile]) -> fs.FileSystem:
    """The folder or prefix of a table as a file system, with paths as the table's log has them; of these files an
    object store need not be asked for the size.
    """
    folder = local_folder(uri)
    if folder is not None:
        return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    sizes = {unquote(file.path): file.size_bytes for file in files}
    return fs.PyFileSystem(DeltaStorageHandler(uri, storage_options(uri), sizes))


def _write_joined(
    system: fs.FileSystem, delta: DeltaTable, table: Table, chosen: Sequence[DataFile], path: str
) -> AddAction:
    """Write the rows of the chosen files into one, and return the action that adds it; raises OSError, ArrowException,
    and TableUnavailable if rows were lost.
    """
    # Imports pandas: half of the CPU time and 40 MB of a process that joins no files.
    from pyarrow import dataset as ds

    partitions = delta.metadata().partition_columns
    plain = pa.schema(
        field.remove_metadata() for field in pa.schema(delta.schema().to_arrow()) if field.name not in partitions
    )
    schema = with_texts_once(plain)
    texts = [field.name for field in schema if field.type == TEXTS]
    form = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(dictionary_columns=texts, coerce_int96_timestamp_unit="us")
    )
    parts = [form.make_fragment(unquote(file.path), system) for file in chosen]
    data = ds.FileSystemDataset(parts, schema, form, system)
    rows = sum(
        file.rows if file.rows is not None else part.count_rows() for file, part in zip(chosen, parts, strict=True)
    )
    key = [name for name in table.key if name in schema.names and name != table.time_column]
    found: list[parquet.FileMetaData] = []
    with (
        system.open_output_stream(path) as sink,
        parquet.ParquetWriter(
            sink, schema, store_schema=False, metadata_collector=found, **_encodings(schema)
        ) as writer,
    ):
        for stretch in _stretches(data, table.time_column, rows):
            for group in _groups(data.to_table(filter=stretch), key, table.time_column):
                writer.write_table(group, row_group_size=GROUP_ROWS)
    (metadata,) = found
    if metadata.num_rows != rows:
        raise TableUnavailable(f"table {table.name}: {rows} rows became {metadata.num_rows} by joining files; all stay")
    partition = {CLOSED: "true"} if partitions else {}
    # By the clock that dates the files, as whoever removes replaced files compares it with theirs.
    file = system.get_file_info(path)
    modified_ms = file.mtime_ns // 1_000_000
    return AddAction(path, file.size, partition, modified_ms, False, statistics_of(metadata, plain))


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Options of ParquetWriter: whole numbers and times as differences, floats as they are, all others by Parquet's
    dictionaries.
    """
    kinds = {field.name: field.type for field in schema}
    differences = [name for name, kind in kinds.items() if pa.types.is_int64(kind) or pa.types.is_timestamp(kind)]
    plain = {*differences, *(name for name, kind in kinds.items() if pa.types.is_floating(kind))}
    return {
        "compression": "zstd",
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": [name for name in kinds if name not in plain],
        "column_encoding": dict.fromkeys(differences, "DELTA_BINARY_PACKED"),
    }


def _stretches(data: Any, column: str, rows: int) -> Iterator[pc.Expression | None]:
    """Filters of the dataset by its time column, one for each stretch, in the order of time; None is no filter."""
    if rows <= STRETCH_ROWS:
        yield None
        return
    times = data.to_table([column])[column].combine_chunks()
    starts = pc.unique(times.take(pc.sort_indices(times)).take(pa.array(range(0, len(times), STRETCH_ROWS))))
    for since, until in pairwise([*starts, None]):
        yield pc.field(column) >= since if until is None else (pc.field(column) >= since) & (pc.field(column) < until)


def _groups(rows: pa.Table, key: Sequence[str], time_column: str) -> Iterator[pa.Table]:
    """The rows of one stretch as row groups: a grid of ranges of topics by the key's order, as the module describes."""
    rows = rows.unify_dictionaries().combine_chunks()
    count = rows.num_rows
    if not count:
        return
    ranks = {name: _ranks(rows[name]) for name in (*key, time_column)}
    of_key = [ranks[name] for name in (time_column, *reversed(key))]  # lexsort takes the last as the first
    ranges = math.isqrt(-(-count // GROUP_ROWS)) if "topic" in key else 1
    by_topic = np.lexsort([ranks[name] for name in ("topic", "kafka_cluster") if name in ranks] or of_key)
    range_of = np.empty(count, np.int64)
    range_of[by_topic] = np.arange(count) * ranges // count
    ordered = rows.take(pa.array(np.lexsort([*of_key, range_of])))
    groups = ranges * -(-count // (ranges * GROUP_ROWS))
    for begin, end in pairwise(count * number // groups for number in range(groups + 1)):
        yield ordered.slice(begin, end - begin)


def _ranks(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """Whole numbers that order rows as the column's values do; null comes first."""
    values = column.chunk(0)
    if isinstance(values, pa.DictionaryArray):
        values = pc.rank(values.dictionary).take(values.indices)
    return np.asarray(pc.fill_null(values.cast(pa.int64()), -1))


def _commit(delta: DeltaTable, parts: Sequence[DataFile], joined: AddAction) -> bool:
    """Put the joined file in the place of its parts; False if one of them is no longer in the table."""
    delta.update_incremental()
    there = set(pa.table(delta.get_add_actions())["path"].to_pylist())
    if not there.issuperset(part.path for part in parts):
        return False
    values: Mapping[str, str | None] = joined.partition_values
    removed = [
        RemoveAction(part.path, False, joined.modification_time, part.size_bytes, dict(values)) for part in parts
    ]
    delta.create_write_transaction(
        [joined, *removed],
        mode="append",
        schema=delta.schema(),
        partition_by=delta.metadata().partition_columns,
        commit_properties=CommitProperties(custom_metadata={JOINED: len(parts)}),
    )
    return True


def _remove(system: fs.FileSystem, path: str) -> None:
    """Remove a file that no version refers to; if it can't be removed, `remove_old_files` will."""
    with suppress(OSError, pa.ArrowException):
        system.delete_file(path)
