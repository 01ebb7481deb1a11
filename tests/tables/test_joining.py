"""Files are joined a bounded step at a time: no row is lost or doubled, no writer waits, and queries read less."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import TableFeatures, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute as pc
from pyarrow import dataset as ds

from streaming import tables
from streaming.contract import BROKER_LOAD, PARTITION_LOAD, TABLES
from streaming.errors import TableUnavailable
from streaming.tables import data_files, upkeep
from streaming.tables.definitions import row_schema
from streaming.tables.reader import JOINED
from streaming.tables.upkeep import TIERS_BYTES, next_run
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster
from tests.tables.test_readers import opened

BROKERS = 5
TOPICS = 8
WINDOWS = 16
CUT_OFF = 64
"""Characters of a text that delta-rs keeps in statistics."""


class Killed(BaseException):
    """kill -9: no code of the process sees it."""


def rows_of(root: str, name: str) -> list[str]:
    """Rows of the table in an order of their own, as texts: some hold lists."""
    return sorted(repr(sorted(row.items())) for row in tables.read(root, name))


def write_windows(root: str) -> None:
    """Windows of a load with a leader for each partition, in a commit each, all closed."""
    made = Synthetic(root)
    for number in range(WINDOWS):
        made.partition_load(
            NOW_MS + number * WINDOW_MS,
            [
                ((topic * 3 + partition) % BROKERS, f"topic-{topic}", partition, "leader", float(number))
                for topic in range(TOPICS)
                for partition in range(6)
            ],
        )


def write_another(root: str) -> None:
    """One more row in a file of its own, as a batch commits them."""
    rows = opened(root, "partition_load").to_pyarrow_table()
    write_deltalake(tables.table_uri(root, "partition_load"), rows.slice(0, 1), mode="append")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen windows in as many files; only to be copied."""
    root = tmp_path_factory.mktemp("written")
    write_windows(str(root))
    return root


@pytest.fixture
def root(written: Path, tmp_path: Path) -> str:
    shutil.copytree(written, tmp_path / "tables")
    return str(tmp_path / "tables")


@pytest.fixture
def in_small_steps(monkeypatch: pytest.MonkeyPatch, root: str) -> int:
    """Tiers so small that the table is a backlog of several steps; returns the bytes of the largest."""
    sizes = pa.table(opened(root, "partition_load").get_add_actions())["size_bytes"].to_pylist()
    tier: int = 4 * max(sizes)
    monkeypatch.setattr(upkeep, "TIERS_BYTES", (tier,))
    return tier


@pytest.mark.long
def test_a_backlog_is_worked_off_in_steps_of_bounded_size(root: str, in_small_steps: int) -> None:
    before, reader = rows_of(root, "partition_load"), tables.TableReader(root)
    version = reader.version("partition_load")
    assert version is not None
    steps = 0
    while upkeep.join_next(root, PARTITION_LOAD):
        steps += 1
        assert 2 <= opened(root, "partition_load").history(1)[0][JOINED] <= 8
        assert rows_of(root, "partition_load") == before
    assert steps >= WINDOWS // 8
    sizes = pa.table(opened(root, "partition_load").get_add_actions())["size_bytes"].to_pylist()
    assert max(sizes) <= in_small_steps
    assert len([size for size in sizes if size < in_small_steps // 2]) <= 1
    reader.look_again()
    assert reader.has_same_rows_since("partition_load", version), "who follows the table reads nothing again"
    write_another(root)
    reader.look_again()
    assert not reader.has_same_rows_since("partition_load", version)


@pytest.mark.long
@pytest.mark.parametrize("step", ["_written", "_commit"])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.usefixtures("in_small_steps")
def test_killed_between_two_steps_no_row_is_lost(
    root: str, monkeypatch: pytest.MonkeyPatch, step: str, is_after: bool
) -> None:
    before = rows_of(root, "partition_load")
    whole = getattr(data_files, step)
    for _ in range(2):

        def breaks(*arguments: Any) -> Any:
            if is_after:
                whole(*arguments)
            raise Killed

        with monkeypatch.context() as broken:
            broken.setattr(data_files, step, breaks)
            broken.setattr(data_files, "_remove", lambda *_: None)
            with pytest.raises(Killed):
                upkeep.join_next(root, PARTITION_LOAD)
        assert rows_of(root, "partition_load") == before
    tables.join_small_files(root, PARTITION_LOAD)
    assert rows_of(root, "partition_load") == before


def parquet_files(root: str, name: str) -> set[str]:
    """All data files in the table's folder."""
    return {path.name for path in (Path(root) / name).rglob("*.parquet")}


def there(root: str) -> set[str]:
    """Data files of the newest version."""
    return {Path(uri).name for uri in opened(root, "partition_load").file_uris()}


@pytest.mark.long
@pytest.mark.parametrize("error", [OSError("No space left on device"), Killed()])
def test_a_step_that_fails_leaves_no_file(root: str, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """A full disk would otherwise get a file more at each try."""
    before = parquet_files(root, "partition_load")

    def groups(*_: object) -> Iterator[pa.Table]:
        raise error

    monkeypatch.setattr(data_files, "_groups", groups)
    with pytest.raises(type(error)):
        upkeep.join_next(root, PARTITION_LOAD)
    assert parquet_files(root, "partition_load") == before


def test_a_step_that_waits_for_its_commit_in_vain_leaves_no_file(root: str) -> None:
    """The largest batches may hold a table for longer than a step waits, run after run."""
    before = parquet_files(root, "partition_load")

    @contextmanager
    def alone() -> Iterator[None]:
        raise TimeoutError("table partition_load is being written")
        yield

    with pytest.raises(TimeoutError):
        upkeep.join_next(root, PARTITION_LOAD, alone=alone())
    assert parquet_files(root, "partition_load") == before


@pytest.mark.long
def test_a_commit_whose_answer_is_lost_keeps_its_file(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, whole = rows_of(root, "partition_load"), data_files._commit

    def lost(*arguments: Any) -> bool:
        assert whole(*arguments)
        raise OSError("operation timed out")

    with monkeypatch.context() as broken:
        broken.setattr(data_files, "_commit", lost)
        with pytest.raises(OSError, match="timed out"):
            upkeep.join_next(root, PARTITION_LOAD)
    assert len(there(root)) == 1
    assert rows_of(root, "partition_load") == before


@pytest.mark.long
def test_parts_that_somebody_else_replaced_are_left_to_the_next_step(root: str) -> None:
    whole, before = data_files._written, parquet_files(root, "partition_load")

    def meanwhile(*arguments: Any) -> Any:
        added = whole(*arguments)
        tables.delete(root, "partition_load", tables.equal("topic", "topic-3"))
        return added

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(data_files, "_written", meanwhile)
        assert not upkeep.join_next(root, PARTITION_LOAD), "a table that others change all the time is never done"
    left = rows_of(root, "partition_load")
    assert len(left) == WINDOWS * (TOPICS - 1) * 6
    assert not any("topic-3" in row for row in left)
    assert opened(root, "partition_load").history(1)[0]["operation"] == "DELETE"
    assert parquet_files(root, "partition_load") == before | there(root)
    tables.join_small_files(root, PARTITION_LOAD)
    assert rows_of(root, "partition_load") == left
    assert len(opened(root, "partition_load").file_uris()) == 1


def test_open_windows_are_left_to_the_batches(root: str) -> None:
    made = Synthetic(root)
    for number in range(3):
        made.broker_load(NOW_MS + number * WINDOW_MS, {1: 1.0})
    uri = tables.table_uri(root, "broker_load")
    closed = tables.opened(uri).to_pyarrow_table()
    index = closed.column_names.index("is_final")
    is_open = closed.set_column(index, closed.schema.field(index), pa.array([False] * closed.num_rows))
    for row in range(3):
        write_deltalake(uri, is_open.slice(row, 1), mode="append")
    tables.join_small_files(root, BROKER_LOAD)
    states = pa.table(tables.opened(uri).get_add_actions(flatten=True))["partition.is_final"].to_pylist()
    assert sorted(states) == [False, False, False, True]


@pytest.fixture(scope="module")
def of_every_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every table as the product makes it; most have rows, in two files each. Only to be copied."""
    root = tmp_path_factory.mktemp("tables")
    for name in TABLES:
        tables.create_table(str(root), name)
    skewed_cluster(Synthetic(str(root)), NOW_MS)
    for name in TABLES:
        rows = opened(str(root), name).to_pyarrow_table()
        if rows.num_rows:
            write_deltalake(tables.table_uri(str(root), name), rows, mode="append")
    return root


def file_facts(delta: Any) -> dict[str, Any]:
    """Statistics of the table's only file, by name."""
    (facts,) = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    of_statistics = ("min.", "max.", "null_count.", "num_records", "partition.")
    return {
        name: value
        for name, value in facts.items()
        if name.startswith(of_statistics) and value is not None and len(str(value)) < CUT_OFF
    }


@pytest.mark.long
def test_the_log_has_the_statistics_that_delta_itself_would_write(of_every_table: Path, tmp_path: Path) -> None:
    """For each table, of the same rows joined by delta-rs; long texts aside, of which it writes a part."""
    compared = 0
    for place in ("ours", "theirs"):
        shutil.copytree(of_every_table, tmp_path / place)
    for name, table in TABLES.items():
        before = rows_of(str(tmp_path / "ours"), name)
        tables.join_small_files(str(tmp_path / "ours"), table)
        assert rows_of(str(tmp_path / "ours"), name) == before
        ours, theirs = opened(str(tmp_path / "ours"), name), opened(str(tmp_path / "theirs"), name)
        theirs.optimize.compact()
        if len(ours.file_uris()) != 1 or not before:
            continue
        compared += 1
        assert file_facts(theirs).items() <= file_facts(ours).items()
    assert compared > 8


@pytest.mark.long
def test_a_joined_file_is_read_in_part_for_a_topic_a_broker_a_cluster_and_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the statistics of its row groups; on a scale at which a test takes a second."""
    monkeypatch.setattr(data_files, "STRETCH_ROWS", 40_000)
    monkeypatch.setattr(data_files, "GROUP_ROWS", 1_000)
    count = 160 * 600
    number = np.arange(count)
    window, replica = number // 600, number % 600
    topic, partition = replica // 12, replica % 12
    times = {"window_start": window * WINDOW_MS, "window_end": (window + 1) * WINDOW_MS}
    columns: dict[str, Any] = {
        "kafka_cluster": np.where(topic < 10, "other", "main"),
        "topic": [f"topic-{name:02}" for name in topic],
        "partition": pa.array(partition, pa.int32()),
        "broker": pa.array((topic * 5 + partition) % 8, pa.int32()),
        **{name: pa.array((NOW_MS + at) * 1_000, pa.timestamp("us", tz="UTC")) for name, at in times.items()},
    }
    fallback: dict[str, Any] = {"is_final": True, "role": "leader", "query_id": "q", "updated_at": tables.utc(NOW_MS)}
    schema = row_schema(PARTITION_LOAD)
    for field in schema:
        if field.name not in columns:
            value = fallback.get(field.name, None if field.nullable else 1)
            columns[field.name] = pa.repeat(pa.scalar(value, field.type), count)
    rows = pa.table({field.name: columns[field.name] for field in schema}, schema)
    delta = tables.create_table(str(tmp_path), "partition_load")
    for part in range(4):
        write_deltalake(delta, rows.slice(part * count // 4, count // 4), mode="append")
    tables.join_small_files(str(tmp_path), PARTITION_LOAD)
    joined = opened(str(tmp_path), "partition_load").to_pyarrow_dataset()
    (fragment,) = joined.get_fragments()
    groups = len(fragment.row_groups)

    def share(where: ds.Expression) -> float:
        return len(fragment.subset(filter=where).row_groups) / groups

    assert (
        joined.to_table()
        .sort_by([(name, "ascending") for name in PARTITION_LOAD.key])
        .equals(rows.select(joined.schema.names).sort_by([(name, "ascending") for name in PARTITION_LOAD.key]))
    )
    assert share(pc.field("topic") == "topic-30") < 0.35
    assert share(pc.field("broker") == 3) < 0.5
    assert share(pc.field("kafka_cluster") == "other") < 0.4
    assert share(pc.field("window_start") >= tables.utc(NOW_MS + 134 * WINDOW_MS)) < 0.3


def test_a_table_with_features_of_another_program_is_left_alone_and_named(root: str) -> None:
    tables.opened(tables.table_uri(root, "partition_load")).alter.add_feature(
        [TableFeatures.DeletionVectors], allow_protocol_versions_increase=True
    )
    with pytest.raises(TableUnavailable, match="table partition_load has features that another program has added"):
        upkeep.join_next(root, PARTITION_LOAD)


RUNS_A_DAY = 96
"""Upkeep runs each quarter of an hour by default."""


def after_joining(sizes: list[int], shrinks: float) -> tuple[list[int], int]:
    """One run of upkeep, a step for each run of files, until none are due. A joined file has `shrinks` times the bytes
    of its parts and takes the place of the oldest. Returns the sizes afterwards and the bytes written.
    """
    written = 0
    while chosen := next_run(sizes):
        whole = max(1, round(sum(sizes[index] for index in chosen) * shrinks))
        assert sum(sizes[index] for index in chosen) <= TIERS_BYTES[0], "a step reads as much as the largest tier"
        left = dict(enumerate(sizes))
        for index in chosen[1:]:
            del left[index]
        sizes = [*(left | {chosen[0]: whole}).values()]
        written += whole
    return sizes, written


def after_a_while(days: int, commits_a_run: int, commit_bytes: int, shrinks: float) -> tuple[list[int], int, int]:
    """Sizes of the files of a table after so many days, the most files at any time, and the bytes written by upkeep."""
    sizes: list[int] = []
    most = written = 0
    for _ in range(days * RUNS_A_DAY):
        sizes += [commit_bytes] * commits_a_run
        most = max(most, len(sizes))
        sizes, rewritten = after_joining(sizes, shrinks)
        written += rewritten
    return sizes, most, written


def few(total: int, commits_a_run: int) -> int:
    """Return how many files a table may have: twenty for each lower tier, and two for each half of the largest."""
    return 2 * 20 + commits_a_run + 2 * (total // (TIERS_BYTES[0] // 2) + 1)


@pytest.mark.long
@pytest.mark.parametrize("commit_bytes", [3_000, 40_000, 890_000, 1_100_000, 6_000_000])
def test_a_quarter_of_a_year_of_small_commits_leaves_few_files_and_writes_each_byte_a_few_times(
    commit_bytes: int,
) -> None:
    days = min(90, 40_000_000_000 // (commit_bytes * 15 * RUNS_A_DAY))  # up to 40 GB
    for shrinks in (1.0, 0.85):
        sizes, most, written = after_a_while(days, 15, commit_bytes, shrinks)
        assert most <= few(sum(sizes), 15)
        # Each run may write the newest file of the smallest tier again; besides that each byte is written a few times.
        assert written <= days * RUNS_A_DAY * TIERS_BYTES[-1] + 6 * sum(sizes) / shrinks**3


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(500, 120_000_000), max_size=200),
    shrinks=st.floats(0.5, 1.0),
)
def test_whatever_files_there_are_a_run_comes_to_rest_with_few(sizes: list[int], shrinks: float) -> None:
    after, _ = after_joining(sizes, shrinks)
    assert len([size for size in after if size < TIERS_BYTES[-1] // 2]) <= 1
    assert len(after) <= few(sum(after), 0)
