"""Data files as a table's log has them, how their rows are written anew, and how one commit replaces files.

Whoever rewrites files works in two steps. It reads and writes data files without any lock, as nothing refers to a new
file before its commit. The commit replaces the old files by the new ones, if all old files are still in the table;
otherwise the new files are removed. A writer that must not be disturbed therefore waits for the commit alone. A process
that is killed leaves files that no version refers to, and `remove_old_files` removes them.

**How rows lie.** A file is a sequence of stretches of time of some `STRETCH_ROWS` rows. A stretch consists of row
groups of at most `GROUP_ROWS` rows, a grid of topics by the other columns of the key: rows are cut into as many ranges
of topics as each range has row groups, and within a range rows follow the key. Statistics of row groups then rule out
most of a file for a query of one topic, broker, group or cluster, and other stretches for a query of some hours. In
this order neighbouring rows differ little: whole numbers and times are written as differences (Parquet's
DELTA_BINARY_PACKED), floats without a dictionary, which makes files 30 % smaller (docs/measurements/pipeline.md).
"""

import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
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
from streaming.tables.opening import file_statistics
from streaming.tables.places import local_folder
from streaming.tables.reader import TEXTS, check_plain, with_texts_once

STRETCH_ROWS = 500_000
"""Rows that are in memory at once and sorted together, and the rows of one window more: some 200 MB."""
GROUP_ROWS = 20_000
"""Fewer rows a group make finer statistics, larger footers and slower scans of everything."""
COMPRESSION_LEVEL = 3
FINAL = "is_final"
"""Partition column of tables of windows: files of open windows are replaced by each batch."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as the table's log has it. What the log does not know is None."""

    path: str
    size_bytes: int
    rows: int | None
    begins: datetime | None
    """Least value of the table's time column."""
    ends: datetime | None
    """Greatest value of the table's time column."""
    is_final: bool | None
    """Value of the partition; None of a table without partitions, whose files hold rows of both kinds."""


def data_files(delta: DeltaTable, table: Table) -> list[DataFile]:
    """Return all data files of the table; raises TableUnavailable if another program has changed the table so that its
    files may not be rewritten.
    """
    check_plain(delta, table.name)
    partitions = delta.metadata().partition_columns
    if partitions not in ([], [FINAL]):
        raise TableUnavailable(
            f"table {table.name} is partitioned by {', '.join(partitions)}: its files are neither joined nor replaced"
        )
    actions = pa.table(delta.get_add_actions(flatten=True))
    times = file_statistics(delta, table.time_column)
    kinds = actions[f"partition.{FINAL}"] if partitions else pa.nulls(actions.num_rows)
    columns = (actions["path"], actions["size_bytes"], actions["num_records"], times["least"], times["greatest"], kinds)
    return [DataFile(*facts) for facts in zip(*(column.to_pylist() for column in columns), strict=True)]


def partition_values(is_final: bool | None) -> dict[str, str | None]:
    """Return the values of the partition columns of such a file, as the log has them."""
    return {} if is_final is None else {FINAL: str(is_final).lower()}


def replace_files(
    delta: DeltaTable,
    removed: Sequence[DataFile],
    added: Sequence[AddAction],
    properties: CommitProperties,
    *,
    removed_ms: int,
    changes_rows: bool = True,
) -> None:
    """Replace data files in one commit; raises DeltaError, OSError."""
    gone = [
        RemoveAction(file.path, changes_rows, removed_ms, file.size_bytes, partition_values(file.is_final))
        for file in removed
    ]
    delta.create_write_transaction(
        [*added, *gone],
        mode="append",  # the mode that takes both kinds of action
        schema=delta.schema(),
        partition_by=delta.metadata().partition_columns,
        commit_properties=properties,
    )


def rewrite(
    delta: DeltaTable,
    table: Table,
    groups: Sequence[Sequence[DataFile]],
    properties: CommitProperties,
    *,
    alone: AbstractContextManager[object],
    now_ms: int = 0,
    since: datetime | None = None,
) -> list[AddAction] | None:
    """Write the rows of each group of files into a new file, and replace all files of the groups in one commit.

    With `since` rows of an earlier time are left out. Files that hold only such rows are not read, and `now_ms` must be
    the time at which they are removed. `alone` is entered for the commit and keeps other writers of the table out.

    Returns the new files. None if somebody else has replaced one of the old files meanwhile: then nothing has changed.
    Raises TableUnavailable, DeltaError, OSError, ArrowException, and what `alone` raises.
    """
    old = [file for group in groups for file in group]
    system = _file_system(delta.table_uri, old)
    added: list[AddAction] = []
    paths: list[str] = []
    with ExitStack() as while_committing:
        try:
            for group in groups:
                parts = [file for file in group if since is None or file.ends is None or file.ends >= since]
                paths.append(_new_path(group[0].is_final))
                added += _written(system, delta, table, parts, paths[-1], since)
            while_committing.enter_context(alone)
        except BaseException:
            _remove(system, paths)
            raise
        # An error may come after the commit, as when a store's answer is lost: then the files must stay.
        is_committed = _commit(delta, old, added, properties, now_ms, since is not None)
    if not is_committed:
        _remove(system, paths)
        return None
    return added


def _new_path(is_final: bool | None) -> str:
    folder = "".join(f"{name}={value}/" for name, value in partition_values(is_final).items())
    return f"{folder}part-00000-{uuid.uuid4()}-c000.zstd.parquet"


def _file_system(uri: str, files: Sequence[DataFile]) -> fs.FileSystem:
    """The folder or prefix of a table as a file system, with paths as the table's log has them; of these files an
    object store need not be asked for the size.
    """
    folder = local_folder(uri)
    if folder is not None:
        return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    sizes = {unquote(file.path): file.size_bytes for file in files}
    return fs.PyFileSystem(DeltaStorageHandler(uri, storage_options(uri), sizes))


def _written(
    system: fs.FileSystem,
    delta: DeltaTable,
    table: Table,
    parts: Sequence[DataFile],
    path: str,
    since: datetime | None,
) -> list[AddAction]:
    """Write the rows of these files from `since` on into one, and return the action that adds it; none of no rows.

    Raises OSError, ArrowException, and TableUnavailable if rows were lost.
    """
    # Imports pandas: half of the CPU time and 40 MB of a process that rewrites no files.
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
    fragments = [form.make_fragment(unquote(file.path), system) for file in parts]
    data = ds.FileSystemDataset(fragments, schema, form, system)
    wanted = None if since is None else pc.field(table.time_column) >= since
    known = [file.rows for file in parts if file.rows is not None and since is None]
    rows = sum(known) if len(known) == len(parts) else data.count_rows(filter=wanted)
    if not rows:
        return []
    key = [name for name in table.key if name in schema.names and name != table.time_column]
    found: list[parquet.FileMetaData] = []
    with (
        system.open_output_stream(path) as sink,
        parquet.ParquetWriter(
            sink, schema, store_schema=False, metadata_collector=found, **_encodings(schema)
        ) as writer,
    ):
        for stretch in _stretches(data, table.time_column, rows, wanted):
            for group in _groups(data.to_table(filter=stretch), key, table.time_column):
                writer.write_table(group, row_group_size=GROUP_ROWS)
    (metadata,) = found
    if metadata.num_rows != rows:
        raise TableUnavailable(
            f"table {table.name}: {rows} rows became {metadata.num_rows} in a new file; the files stay as they are"
        )
    file = system.get_file_info(path)
    partition = partition_values(parts[0].is_final)
    statistics = statistics_of(metadata, plain)
    return [AddAction(path, file.size, partition, file.mtime_ns // 1_000_000, since is not None, statistics)]


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


def _stretches(data: Any, column: str, rows: int, wanted: pc.Expression | None) -> Iterator[pc.Expression | None]:
    """Filters of the dataset by its time column, one for each stretch of the rows that are `wanted`, in the order of
    time; None is no filter.
    """
    if rows <= STRETCH_ROWS:
        yield wanted
        return
    times = data.to_table([column], filter=wanted)[column].combine_chunks()
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


def _commit(
    delta: DeltaTable,
    old: Sequence[DataFile],
    added: Sequence[AddAction],
    properties: CommitProperties,
    now_ms: int,
    changes_rows: bool,
) -> bool:
    """Put the new files in the place of the old ones; False if one of the old ones is no longer in the table."""
    delta.update_incremental()
    there = set(pa.table(delta.get_add_actions())["path"].to_pylist())
    if not there.issuperset(file.path for file in old):
        return False
    # By the clock that dates the files, too, as whoever removes replaced files compares it with theirs.
    removed_ms = max([now_ms, *(file.modification_time for file in added)])
    replace_files(delta, old, added, properties, removed_ms=removed_ms, changes_rows=changes_rows)
    return True


def _remove(system: fs.FileSystem, paths: Sequence[str]) -> None:
    """Remove files that no version refers to; what can't be removed, `remove_old_files` will."""
    for path in paths:
        with suppress(OSError, pa.ArrowException):
            system.delete_file(path)
