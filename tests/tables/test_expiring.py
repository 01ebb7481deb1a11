"""Expired rows go in one commit: only files that hold younger rows, too, are read, and no writer waits for that."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming import tables
from streaming.contract import PARTITION_LOAD
from streaming.tables import data_files
from streaming.tables.upkeep import EXPIRED
from tests.serve.synthetic import NOW_MS, WINDOW_MS
from tests.tables.test_joining import TOPICS, WINDOWS, parquet_files, root, rows_of, there, write_another, written
from tests.tables.test_readers import opened

__all__ = ["root", "written"]  # the fixtures

KEPT_SINCE = 6
"""Windows before this one expire."""
A_WINDOW = TOPICS * 6
"""Rows of a window."""


@contextmanager
def nobody_else() -> Iterator[None]:
    yield


def expire(root: str, alone: Any = nobody_else) -> None:
    before = tables.utc(NOW_MS + KEPT_SINCE * WINDOW_MS)
    tables.expire_rows(root, PARTITION_LOAD, before, now_ms=NOW_MS, alone=alone)


def young(root: str) -> list[str]:
    """Rows that do not expire."""
    since = tables.at_least("window_start", tables.utc(NOW_MS + KEPT_SINCE * WINDOW_MS))
    return sorted(repr(sorted(row.items())) for row in tables.read(root, "partition_load", where=since))


@pytest.mark.long
def test_files_of_expired_rows_alone_are_not_read(root: str) -> None:
    wanted = young(root)
    facts = tables.file_statistics(opened(root, "partition_load"), "window_start").sort_by("least").to_pylist()
    assert len(facts) == WINDOWS
    for file in facts[:KEPT_SINCE]:
        (Path(root) / "partition_load" / file["path"]).unlink()
    expire(root)
    assert rows_of(root, "partition_load") == wanted
    assert len(there(root)) == WINDOWS - KEPT_SINCE
    version = opened(root, "partition_load").version()
    expire(root)
    assert opened(root, "partition_load").version() == version, "there is nothing left to delete"


@pytest.mark.long
@pytest.mark.parametrize("stretch_rows", [data_files.STRETCH_ROWS, 100])
def test_a_file_that_holds_younger_rows_is_written_anew_without_the_others(
    root: str, monkeypatch: pytest.MonkeyPatch, stretch_rows: int
) -> None:
    monkeypatch.setattr(data_files, "STRETCH_ROWS", stretch_rows)
    wanted = young(root)
    tables.join_small_files(root, PARTITION_LOAD)
    assert len(there(root)) == 1
    reader = tables.TableReader(root)
    version = reader.version("partition_load")
    assert version is not None
    expire(root)
    assert rows_of(root, "partition_load") == wanted
    assert len(there(root)) == 1
    delta = opened(root, "partition_load")
    facts = tables.file_statistics(delta, "window_start").to_pylist()
    assert facts[0]["least"] == tables.utc(NOW_MS + KEPT_SINCE * WINDOW_MS)
    assert facts[0]["num_records"] == (WINDOWS - KEPT_SINCE) * A_WINDOW
    assert delta.history(1)[0][EXPIRED].startswith("20")
    reader.look_again()
    assert not reader.has_same_rows_since("partition_load", version)


@pytest.mark.long
def test_the_lock_is_entered_for_the_commit_and_a_lost_race_is_run_again_within_it(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.join_small_files(root, PARTITION_LOAD)
    lock, whole, done = threading.Lock(), data_files._written, list[str]()

    @contextmanager
    def alone() -> Iterator[None]:
        with lock:
            done.append("lock")
            yield

    def overtaken(*arguments: Any) -> Any:
        added = whole(*arguments)
        done.append("file")
        if done == ["file"]:
            with lock:  # a batch
                tables.delete(root, "partition_load", tables.equal("topic", "topic-3"))
        return added

    monkeypatch.setattr(data_files, "_written", overtaken)
    before = parquet_files(root, "partition_load")
    expire(root, alone)
    assert done == ["file", "lock", "lock", "file"]
    left = rows_of(root, "partition_load")
    assert len(left) == (WINDOWS - KEPT_SINCE) * (A_WINDOW - 6)
    assert not any("topic-3" in row for row in left)
    assert len(parquet_files(root, "partition_load") - before) == 2, "the file of the batch, and one without its rows"


@pytest.mark.long
def test_rows_that_come_meanwhile_stay(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.join_small_files(root, PARTITION_LOAD)
    whole, wanted = data_files._written, young(root)

    def meanwhile(*arguments: Any) -> Any:
        added = whole(*arguments)
        write_another(root)
        return added

    monkeypatch.setattr(data_files, "_written", meanwhile)
    expire(root)
    assert len(there(root)) == 2
    assert len(rows_of(root, "partition_load")) == len(wanted) + 1


@pytest.mark.long
def test_a_table_without_partitions_expires_and_of_one_that_is_not_there_nothing_is_done(root: str) -> None:
    rows, wanted = opened(root, "partition_load").to_pyarrow_table(), young(root)
    shutil.rmtree(Path(root) / "partition_load")
    expire(root)
    assert not tables.join_next(root, PARTITION_LOAD)
    write_deltalake(tables.table_uri(root, "partition_load"), pa.table(rows))
    expire(root)
    assert rows_of(root, "partition_load") == wanted
