"""Upserts from the driver and in parts, without Spark: both give the same, and a kill midway changes nothing."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, TableFeatures, write_deltalake
from deltalake.schema import ArrayType, PrimitiveType
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute as pc
from pyarrow import parquet as pq
from pyspark import cloudpickle

from streaming import tables
from streaming.contract import BROKER_LOAD
from streaming.errors import TableUnavailable
from streaming.pipeline import delta_tables, part_commits, part_files
from streaming.pipeline.delta_tables import WindowTable
from streaming.pipeline.part_commits import BatchSpan, WritesParts
from streaming.pipeline.part_files import PartResult, Upsert, parts_of, write_part
from streaming.tables.upkeep import join_small_files, remove_old_files
from tests.pipeline.test_delta_tables import (
    NEVER,
    START_MS,
    STEP_MS,
    arrow,
    at,
    batch,
    new_table,
    stored,
    watermark,
    window,
)

AUDIT = ("is_final", "updated_at", "batch_id", "query_id")
DAYS_3_S = 3 * 86_400


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows a part, so that a handful of rows makes several."""
    monkeypatch.setattr(part_commits, "ROWS_OF_PART", 3)


def in_arrow(rows: pa.Table, key: tuple[str, ...]) -> WritesParts:
    """Writes all parts of `rows` in this process."""

    def write(wanted: Upsert) -> list[PartResult]:
        numbers = parts_of(rows, key, wanted.parts) if wanted.parts > 1 else np.zeros(rows.num_rows)
        return [
            write_part(rows.filter(pa.array(numbers == part)).to_batches(), part, wanted)
            for part in range(wanted.parts)
        ]

    return write


def upsert(table: WindowTable, rows: pa.Table, number: int, passed: datetime, query: str = "q") -> int | None:
    """Upserts rows of BROKER_LOAD in parts, as the batch of this number."""
    audit = {"is_final": False, "updated_at": tables.utc(START_MS), "batch_id": number, "query_id": query}
    starts = pc.min_max(rows["window_start"]).as_py()
    span = BatchSpan(rows.num_rows, starts["min"], starts["max"])
    write = in_arrow(rows.drop_columns(list(AUDIT)), BROKER_LOAD.key)
    return table.upsert_in_parts(write, span, audit, (query, number), passed)


def from_driver(table: WindowTable, rows: pa.Table, number: int, passed: datetime, query: str = "q") -> int | None:
    """The same from the driver, which holds all rows."""
    return table.upsert(rows, (query, number), passed)


Upserts = Callable[..., int | None]
BOTH_WAYS = pytest.mark.parametrize("ups", [from_driver, upsert], ids=["from the driver", "in parts"])


@pytest.mark.long
@BOTH_WAYS
def test_a_batch_is_written_once_and_replaces_no_fuller_and_no_final_window(tmp_path: Path, ups: Upserts) -> None:
    root = str(tmp_path)
    table = new_table(root, 99)
    full = {(step, broker): 5 for step in range(3) for broker in range(6)}
    assert ups(table, batch(0, full), 0, at(2)) == 90  # two windows are closed
    assert ups(table, batch(0, {(2, 0): 99}), 0, at(2)) is None
    again = dict.fromkeys(full, 3) | {(0, 0): 9, (2, 1): 7, (1, 9): 1}
    # Of a checkpoint that was lost the samples are counted anew.
    assert ups(new_table(root, 99), batch(0, again, "new"), 0, NEVER, query="new") is None
    counts = {(tables.to_ms(row[0]) - START_MS) // STEP_MS * 10 + row[1]: row[2:4] for row in stored(root)}
    assert counts[0] == (5, True)
    assert counts[21] == (7, False)
    assert counts[19] == (1, False)  # a key that a closed window lacked
    assert len(counts) == len(full) + 1
    ups(new_table(root, 99), batch(1, {(4, 0): 1}, "new"), 1, at(4), query="new")
    assert [row[3] for row in stored(root)] == [True] * 19 + [False]


@pytest.mark.long
@BOTH_WAYS
def test_a_table_of_one_partition_of_an_earlier_and_of_a_newer_release_is_written_on(
    tmp_path: Path, ups: Upserts
) -> None:
    """Its comments were other ones, a column of today wasn't there, and one of tomorrow is."""
    root, uri = str(tmp_path), tables.table_uri(str(tmp_path), "broker_load")
    columns = [field for field in tables.arrow_schema(BROKER_LOAD) if field.name != "rack"]
    DeltaTable.create(uri, pa.schema([field.with_metadata({"comment": f"once {field.name}"}) for field in columns]))
    table = new_table(root, 99)
    DeltaTable(uri).alter.add_columns([Field("of_tomorrow", PrimitiveType("double"))])
    ups(table, batch(0, {(0, broker): 2 for broker in range(5)}), 0, NEVER)
    ups(table, batch(1, {(0, 1): 9, (1, 1): 4, (1, 2): 4}), 1, at(1))
    join_small_files(root, BROKER_LOAD)
    ups(table, batch(2, {(0, 1): 11, (1, 1): 5}), 2, at(1))
    assert [row[1:4] for row in stored(root)] == [
        (0, 2, True), (1, 9, True), (2, 2, True), (3, 2, True), (4, 2, True), (1, 5, False), (2, 4, False),
    ]  # fmt: skip
    read = pa.table(DeltaTable(uri).to_pyarrow_table(columns=["of_tomorrow", "rack"]))
    assert read.num_rows == read["of_tomorrow"].null_count == 7
    ups(table, arrow(window(7, 3, rack="a")), 3, NEVER)
    assert [row["rack"] for row in tables.read(root, "broker_load", where=tables.equal("broker", 7))] == ["a"]


WORKER = """
import pickle, sys
sys.modules["streaming"] = None  # an import fails
task, batches = pickle.load(sys.stdin.buffer)
print(task(batches).to_json())
"""


@pytest.mark.long
def test_tasks_need_no_package_of_ours(tmp_path: Path) -> None:
    """Executors get the code of a task with the job, so a process that can't import `streaming` writes a part."""
    root = str(tmp_path)
    rows = batch(0, {(0, 1): 2, (1, 1): 3})

    def on_worker(wanted: Upsert) -> list[PartResult]:
        given = (partial(write_part, part=0, upsert=wanted), rows.drop_columns(list(AUDIT)).to_batches())
        sent = cloudpickle.dumps(given)  # type: ignore[no-untyped-call]
        written = subprocess.run([sys.executable, "-I", "-c", WORKER], input=sent, capture_output=True, check=True)
        return [PartResult.from_json(written.stdout.decode())]

    audit = {"is_final": False, "updated_at": tables.utc(START_MS), "batch_id": 0, "query_id": "q"}
    span = BatchSpan(rows.num_rows, tables.utc(START_MS), at(1))
    assert new_table(root, 9).upsert_in_parts(on_worker, span, audit, ("q", 0), NEVER) == 5
    assert [row[2] for row in stored(root)] == [2, 3]
    (row,) = pa.table(DeltaTable(f"{root}/broker_load").get_add_actions(flatten=True)).to_pylist()
    assert (row["min.broker"], row["num_records"]) == (1, 2), "with statistics"


_batches = st.lists(
    st.dictionaries(st.tuples(st.integers(0, 4), st.integers(1, 9)), st.integers(1, 5), min_size=1),
    min_size=1, max_size=5,
)  # fmt: skip
"""Samples by window and broker, for each of some batches."""


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(_batches, st.lists(st.booleans(), min_size=5, max_size=5))
def test_parts_give_what_the_driver_gives_whoever_wrote_before(
    batches: list[dict[tuple[int, int], int]], in_parts: list[bool]
) -> None:
    with TemporaryDirectory() as folder:
        driver, mixed = f"{folder}/driver", f"{folder}/mixed"
        whole, parts = new_table(driver, 1_000), new_table(mixed, 1_000)
        for number, samples in enumerate(batches):
            rows, passed = batch(number, samples), watermark(samples)
            gained = whole.upsert(rows, ("q", number), passed)
            if in_parts[number]:
                assert upsert(parts, rows, number, passed) == gained
            else:
                assert parts.upsert(rows, ("q", number), passed) == gained
            assert stored(mixed) == stored(driver)


@pytest.mark.parametrize("name", ["tables of us", "t\u00e4glich", "100+1"])
def test_a_folder_whose_name_a_uri_would_escape_is_written(tmp_path: Path, name: str) -> None:
    root = str(tmp_path / name)
    assert upsert(new_table(root, 9), batch(0, {(0, 1): 2, (1, 1): 2}), 0, NEVER) == 4
    assert upsert(new_table(root, 9), batch(1, {(0, 1): 3}), 1, at(1)) == 1
    assert [row[2:4] for row in stored(root)] == [(3, True), (2, False)]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def files(uri: str) -> set[str]:
    return {os.path.relpath(path, uri) for path in map(str, Path(uri).rglob("*.parquet"))}


@pytest.mark.long
def test_a_batch_that_is_killed_between_files_and_commit_leaves_no_row_and_its_files_are_removed(
    tmp_path: Path,
) -> None:
    root, samples = str(tmp_path), {(step, broker): 1 + broker for step in range(2) for broker in range(9)}
    table = new_table(root, 9)
    uri = tables.table_uri(root, "broker_load")
    assert upsert(table, batch(0, samples), 0, NEVER) == sum(samples.values())
    before = stored(root)
    fuller = batch(1, {key: count + 1 for key, count in samples.items()})
    write, wanted = in_arrow(fuller.drop_columns(list(AUDIT)), BROKER_LOAD.key), itertools.count()
    audit = {"is_final": False, "updated_at": tables.utc(START_MS), "batch_id": 1, "query_id": "q"}
    span = BatchSpan(len(samples), tables.utc(START_MS), at(1))
    for parts_written in (1, None):  # killed within the files, and after all of them

        def killed(plan: Upsert, most: int | None = parts_written) -> list[PartResult]:
            if most is None:
                write(plan)
            else:
                rows = fuller.drop_columns(list(AUDIT))
                rows = rows.filter(pa.array(parts_of(rows, BROKER_LOAD.key, plan.parts) == 0))
                write_part(rows.to_batches(), 0, plan)
            next(wanted)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            new_table(root, 9).upsert_in_parts(killed, span, audit, ("q", 1), NEVER)
        assert stored(root) == before
    orphans = files(uri) - {os.path.relpath(path.removeprefix("file://"), uri) for path in DeltaTable(uri).file_uris()}
    assert len(orphans) > 2
    assert upsert(new_table(root, 9), fuller, 1, NEVER) == len(samples)
    assert upsert(new_table(root, 9), fuller, 1, NEVER) is None  # repeated, as after a kill behind the commit
    after = stored(root)
    assert [row[2] for row in after] == [row[2] + 1 for row in before]
    for path in orphans:
        then = os.stat(f"{uri}/{path}").st_mtime - DAYS_3_S
        os.utime(f"{uri}/{path}", (then, then))
    remove_old_files(DeltaTable(uri))
    assert not orphans & files(uri)
    assert stored(root) == after


@pytest.mark.parametrize("first_in_parts", [False, True])
@pytest.mark.parametrize("second_in_parts", [False, True])
@pytest.mark.parametrize("query", ["q", "of another checkpoint"])
def test_of_two_pipelines_that_write_at_once_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_in_parts: bool, second_in_parts: bool, query: str
) -> None:
    """Also where neither replaces a file: on an object store no lock keeps the second one away."""
    root, rows = str(tmp_path), batch(0, {(0, 1): 3, (1, 1): 3})
    new_table(root, 9)

    def write(in_parts: bool, query: str) -> None:
        if in_parts:
            upsert(new_table(root, 9), rows, 0, NEVER, query=query)
        else:
            new_table(root, 9).upsert(rows, (query, 0), NEVER)

    def overtaken(*_: object) -> CommitProperties:
        monkeypatch.undo()
        monkeypatch.setattr(part_commits, "ROWS_OF_PART", 3)
        monkeypatch.setattr(delta_tables, "_WRITE_LOCKS", {})
        write(first_in_parts, query)
        return part_commits.with_rows(DeltaTable(f"{root}/broker_load"), ("q", 0))

    for module in (part_commits, delta_tables):
        monkeypatch.setattr(module, "with_rows", overtaken)
    with pytest.raises(TableUnavailable, match="oncurrent transaction"):
        write(second_in_parts, "q")
    assert [row[2] for row in stored(root)] == [3, 3]


def test_files_that_an_executor_has_put_on_another_volume_are_not_committed(tmp_path: Path) -> None:
    """The table's newest version would name files that nobody can read."""
    root, rows = str(tmp_path), batch(1, {(0, broker): 3 for broker in range(9)})
    table, elsewhere = new_table(root, 9), tmp_path / "elsewhere"
    upsert(table, batch(0, {(0, 1): 1}), 0, NEVER)
    elsewhere.mkdir()
    plans: list[Upsert] = []
    write = in_arrow(rows.drop_columns(list(AUDIT)), BROKER_LOAD.key)

    def write_elsewhere(wanted: Upsert) -> list[PartResult]:
        plans.append(wanted)
        results = list(write(wanted))
        path = results[-1].files[0].path
        os.rename(f"{wanted.location}/{path}", elsewhere / Path(path).name)
        return results

    audit = {"is_final": False, "updated_at": tables.utc(START_MS), "batch_id": 1, "query_id": "q"}
    span = BatchSpan(rows.num_rows, tables.utc(START_MS), tables.utc(START_MS))
    with pytest.raises(TableUnavailable, match=r"storage\.tables must be one place on all hosts"):
        table.upsert_in_parts(write_elsewhere, span, audit, ("q", 1), NEVER)
    assert [row[1:3] for row in stored(root)] == [(1, 1)]
    (tmp_path / "broker_load").rename(elsewhere / "broker_load")  # nor does a host without the volume make a folder
    with pytest.raises(FileNotFoundError):
        write_part(rows.drop_columns(list(AUDIT)).to_batches(), 0, replace(plans[0], files=(), parts=1))
    assert not (tmp_path / "broker_load").exists()


def test_files_that_the_upkeep_has_joined_are_met_too(tmp_path: Path) -> None:
    root = f"file://{tmp_path}"
    uri = tables.table_uri(root, "broker_load")
    table, closed = new_table(root, 9), at(1)
    samples = {(0, broker): 2 for broker in range(12)}
    upsert(table, batch(0, samples), 0, closed)
    many = len(DeltaTable(uri).file_uris())
    join_small_files(root, BROKER_LOAD)
    assert len(DeltaTable(uri).file_uris()) < many
    assert upsert(table, batch(1, {(0, 3): 4, (1, 3): 1}), 1, closed) == 1
    assert [row[2] for row in stored(root)] == [*[2] * 12, 1]
    assert [row[3] for row in stored(root)] == [True] * 12 + [False]


def add_file(root: str, rows: pa.Table, *, is_final: bool, **options: Any) -> None:
    """Adds a file as another writer makes it, of whose windows the log has no statistics."""
    uri, kind = tables.table_uri(root, "broker_load"), str(is_final).lower()
    path = f"is_final={kind}/part-00000-0-c000.snappy.parquet"
    Path(uri, path).parent.mkdir()
    pq.write_table(rows, f"{uri}/{path}", **options)
    statistics = f'{{"numRecords": {rows.num_rows}}}'
    action = AddAction(path, os.stat(f"{uri}/{path}").st_size, {"is_final": kind}, START_MS, True, statistics)
    delta = DeltaTable(uri)
    delta.create_write_transaction([action], "append", delta.schema(), partition_by=["is_final"])


def test_a_file_with_the_times_of_spark_is_met(tmp_path: Path) -> None:
    """Spark's MERGE of earlier releases wrote times of 96 bits."""
    root = str(tmp_path)
    table = new_table(root, 9)
    old = batch(0, {(0, 1): 2, (0, 2): 2}).drop_columns(["is_final"])
    add_file(root, old, is_final=False, use_deprecated_int96_timestamps=True)
    assert upsert(table, batch(1, {(0, 1): 5}), 1, at(1)) == 3
    assert [row[1:4] for row in stored(root)] == [(1, 5, True), (2, 2, True)]


@pytest.mark.long
def test_a_joined_file_of_other_windows_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late row of one window meets a file that may hold millions of rows."""
    monkeypatch.setattr(part_commits, "ROWS_OF_PART", 100_000)
    root = str(tmp_path)
    table = new_table(root, 9)
    joined = pa.concat_tables([batch(0, {(0, broker): 2 for broker in range(1_000)})] * 300).combine_chunks()
    add_file(root, joined.drop_columns(["is_final"]), is_final=True, row_group_size=20_000)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        assert upsert(table, batch(1, {(1, 1): 5}), 1, at(1)) == 5
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < joined.nbytes / 2


@BOTH_WAYS
@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ({"window_end": tables.utc(START_MS)}, "window_ends_after_start"),
        ({"sample_count": 0}, "has_samples"),
        ({"first_event_time_ms": START_MS + 5, "last_event_time_ms": START_MS}, "samples_in_order"),
        ({"kafka_cluster": None}, "kafka_cluster"),
    ],
)
def test_rows_that_make_no_sense_are_refused_in_one_line(
    tmp_path: Path, ups: Upserts, broken: dict[str, Any], named: str
) -> None:
    table = new_table(str(tmp_path), 9)
    with pytest.raises(
        (TableUnavailable, ValueError), match=rf"{named}|table broker_load can't be written: .* failed validation"
    ) as refused:
        ups(table, arrow(window(1, 3) | broken), 0, NEVER)
    assert "\n" not in str(refused.value)
    assert stored(str(tmp_path)) == []


def test_statistics_of_files_rule_out_other_windows_and_brokers(tmp_path: Path) -> None:
    root, uri = str(tmp_path), tables.table_uri(str(tmp_path), "broker_load")
    upsert(new_table(root, 9), batch(0, {(0, 1): 1, (3, 2): 1}), 0, at(1))
    actions = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).sort_by("min.window_start").to_pylist()
    assert [row["partition.is_final"] for row in actions] == [True, False]
    for row, step, broker in zip(actions, (0, 3), (1, 2), strict=True):
        assert tables.to_ms(row["min.window_start"].replace(tzinfo=UTC)) == START_MS + step * STEP_MS
        assert row["min.window_start"] == row["max.window_start"]
        assert (row["min.broker"], row["max.broker"], row["num_records"]) == (broker, broker, 1)
        assert (row["null_count.rack"], row["min.kafka_cluster"]) == (1, "test")


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None])
def test_a_figure_that_json_cannot_hold_leaves_the_table_readable(tmp_path: Path, value: float | None) -> None:
    """The log is JSON, and one entry that is not makes the whole table unreadable."""
    root, uri = str(tmp_path), tables.table_uri(str(tmp_path), "broker_load")
    rows = arrow(window(1, 3, bytes_in_per_sec=value), window(2, 3, bytes_in_per_sec=value, rack="r" * 5_000))
    upsert(new_table(root, 9), rows, 0, NEVER)
    (row,) = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).to_pylist()
    assert row.get("min.bytes_in_per_sec") is row.get("max.rack") is None
    assert row["max.broker"] == 2
    assert upsert(new_table(root, 9), arrow(window(2, 4)), 1, NEVER) == 1
    assert [row[1:3] for row in stored(root)] == [(1, 3), (2, 4)]


@BOTH_WAYS
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ArrayType(PrimitiveType("integer"), contains_null=True), pa.array([[1, 2]], pa.list_(pa.int32()))),
        (PrimitiveType("binary"), pa.array([b"\xff"])),
        (PrimitiveType("date"), pa.array([1], pa.date32())),
        (PrimitiveType("decimal(10,2)"), pa.array([1], pa.decimal128(10, 2))),
    ],
    ids=["list", "binary", "date", "decimal"],
)
def test_columns_of_any_type_of_a_newer_release_are_carried_on(
    tmp_path: Path, ups: Upserts, kind: PrimitiveType | ArrayType, value: pa.Array
) -> None:
    root, uri = str(tmp_path), tables.table_uri(str(tmp_path), "broker_load")
    table = new_table(root, 9)
    DeltaTable(uri).alter.add_columns([Field("of_tomorrow", kind)])
    write_deltalake(uri, arrow(window(1, 3)).append_column("of_tomorrow", value), mode="append")
    assert ups(table, arrow(window(2, 5)), 1, NEVER) == 5
    read = pa.table(DeltaTable(uri).to_pyarrow_table(columns=["broker", "of_tomorrow"])).sort_by("broker")
    assert read["of_tomorrow"].to_pylist() == [*value.to_pylist(), None]


def test_a_table_with_features_of_another_program_is_named_and_left_alone(tmp_path: Path) -> None:
    """Rows that are deleted by a bitmap would come back."""
    root, uri = str(tmp_path), tables.table_uri(str(tmp_path), "broker_load")
    table = new_table(root, 9)
    upsert(table, batch(0, {(0, 1): 1}), 0, NEVER)
    features = TableFeatures.DeletionVectors
    DeltaTable(uri).alter.add_feature(features, allow_protocol_versions_increase=True)
    with pytest.raises(TableUnavailable, match="table broker_load has features that another program has added"):
        upsert(table, batch(1, {(0, 1): 2}), 1, NEVER)


@given(st.integers(0, 7), st.integers(0, 7), st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_files_of_another_part_are_left_out_only_if_they_hold_no_row_of_it(
    one: int, other: int, numbers: list[int]
) -> None:
    written, wanted = 2**one, 2**other
    for number in numbers:
        path = f"is_final=true/part-{number % written}-of-{written}-7-x.parquet"
        assert part_files.may_hold(path, number % wanted, wanted) is not False
        if part_files.may_hold(path, number % wanted, wanted):
            assert written % wanted == 0
