"""What a query for one topic, one broker or one cluster reads of `partition_load`, by the statistics that readers have.

python -m tests.benchmarks.bench_reads --hours 24

Windows are written as the pipeline writes them, closed, and upkeep joins their files. Then the files are counted that
Delta's statistics can't rule out, and of these the row groups that Parquet's can't. It runs no engine: engines skip at
least as DuckDB over pyarrow does, which these figures are of.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyarrow import dataset as ds

from streaming import tables
from streaming.contract import PARTITION_LOAD
from streaming.pipeline.delta_tables import create_window_table
from streaming.tables.definitions import row_schema
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic
from tests.tables_in_memory import in_memory

BROKERS = 6
RATES = ("bytes_in_per_sec", "bytes_out_per_sec", "messages_in_per_sec")
"""Columns that get other values in each window: the same ones would compress to nothing."""
UPKEEP_EVERY = 15
"""Windows: the default interval of upkeep at windows of a minute."""


def main() -> None:
    """Write the table, and print what each kind of query reads as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        delta = _written(root, options.hours * 60, options.topics, options.partitions)
        print(json.dumps(_read(delta, options.hours), indent=2))


def _written(root: str, windows: int, topics: int, partitions: int) -> DeltaTable:
    create_window_table(root, PARTITION_LOAD)
    uri = tables.table_uri(root, PARTITION_LOAD.name)
    one, noise = _window(topics, partitions), np.random.default_rng(7)
    for index in range(windows):
        start = pa.scalar(tables.utc(NOW_MS + index * WINDOW_MS), pa.timestamp("us", tz="UTC"))
        end = pa.scalar(tables.utc(NOW_MS + (index + 1) * WINDOW_MS), pa.timestamp("us", tz="UTC"))
        rates = {name: pa.array(noise.uniform(0, 1e6, one.num_rows)) for name in RATES}
        rows = _with(one, {"window_start": start, "window_end": end} | rates)
        write_deltalake(uri, rows, mode="append")
        if index % UPKEEP_EVERY == UPKEEP_EVERY - 1:
            tables.join_small_files(root, PARTITION_LOAD)
    return tables.opened(uri)


def _window(topics: int, partitions: int) -> pa.Table:
    """One window: each partition has a leader and a follower."""
    made = Synthetic(in_memory("bench_reads"))
    rows = []
    for topic in range(topics):
        for partition in range(partitions):
            leader = (topic + partition) % BROKERS + 1
            follower = leader % BROKERS + 1
            rate = float((topic * 7919 + partition * 104_729) % 1_000_003)
            rows += [(leader, f"topic-{topic:03}", partition, "leader", rate)]
            rows += [(follower, f"topic-{topic:03}", partition, "follower", rate)]
    made.partition_load(NOW_MS, rows)
    return pa.Table.from_pylist(tables.read(in_memory("bench_reads"), PARTITION_LOAD.name), row_schema(PARTITION_LOAD))


def _with(rows: pa.Table, values: Mapping[str, pa.Scalar | pa.Array]) -> pa.Table:
    for name, value in values.items():
        index = rows.column_names.index(name)
        column = pa.repeat(value, rows.num_rows) if isinstance(value, pa.Scalar) else value
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows


def _read(delta: DeltaTable, hours: int) -> dict[str, object]:
    since = tables.instant(tables.utc(NOW_MS + (hours - 1) * 60 * WINDOW_MS))
    queries = {
        "all": None,
        "newest_hour": (
            f"window_start >= {since}",
            ds.field("window_start") >= tables.utc(NOW_MS + (hours - 1) * 60 * WINDOW_MS),
        ),
        "one_topic": ("topic = 'topic-007'", ds.field("topic") == "topic-007"),
        "one_broker": ("broker = 3", ds.field("broker") == 3),
        "another_cluster": ("kafka_cluster = 'other'", ds.field("kafka_cluster") == "other"),
    }
    return {name: _reads(delta, query) for name, query in queries.items()}


def _reads(delta: DeltaTable, query: tuple[str, ds.Expression] | None) -> dict[str, int]:
    """Files, row groups and bytes that the statistics leave, and the rows that the query wants."""
    data = delta.to_pyarrow_dataset(file_pruning_predicate=query[0] if query else None)
    where = query[1] if query else None
    files = groups = size = 0
    for fragment in data.get_fragments(filter=where):
        left = fragment.subset(filter=where) if where is not None else fragment
        files += bool(left.row_groups)
        groups += len(left.row_groups)
        size += sum(group.total_byte_size for group in left.row_groups)
    rows = data.count_rows(filter=where) if where is not None else data.count_rows()
    return {"files": files, "row_groups": groups, "bytes_uncompressed": size, "rows_wanted": rows}


if __name__ == "__main__":
    main()
