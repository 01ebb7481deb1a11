"""Upserts in parts on an object store: another process writes the files, as executors do; the store refuses some."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa
import pytest

from streaming import tables
from streaming.errors import TableUnavailable
from streaming.pipeline import part_files
from streaming.pipeline.part_files import PartResult, Upsert
from tests.pipeline import test_part_commits
from tests.pipeline.test_delta_tables import NEVER, START_MS, STEP_MS, batch, new_table, stored
from tests.pipeline.test_part_commits import small_parts, upsert
from tests.s3 import SOUND, Asked, Fault, Proxy
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.long

__all__ = ["small_parts"]  # the fixture

SAMPLES = {(step, broker): 1 + broker for step in range(2) for broker in range(4)}


@pytest.fixture(autouse=True)
def executor(monkeypatch: pytest.MonkeyPatch, store: Proxy) -> Iterator[None]:
    """A process that writes the parts: it has the credentials by its environment, and its options with the batch."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:

        def write_part(batches: list[pa.RecordBatch], part: int, wanted: Upsert) -> PartResult:
            return pool.submit(part_files.write_part, batches, part, wanted).result(DEADLINE_S)

        monkeypatch.setattr(test_part_commits, "write_part", write_part)
        yield


def test_a_batch_is_written_once_and_closes_windows(root: str) -> None:
    assert upsert(new_table(root, 9), batch(0, SAMPLES), 0, NEVER) == sum(SAMPLES.values())
    assert upsert(new_table(root, 9), batch(0, SAMPLES), 0, NEVER) is None
    assert upsert(new_table(root, 9), batch(1, {(1, 3): 9}), 1, tables.utc(START_MS + STEP_MS)) == 5
    assert [row[2] for row in stored(root)] == [1, 2, 3, 4, 1, 2, 3, 9]
    assert [row[3] for row in stored(root)] == [True] * 4 + [False] * 4


def test_a_batch_whose_files_or_commit_the_store_refuses_is_repeated_and_changes_nothing_before(
    root: str, store: Proxy
) -> None:
    upsert(new_table(root, 9), batch(0, SAMPLES), 0, NEVER)
    before, fuller = stored(root), batch(1, {key: samples + 1 for key, samples in SAMPLES.items()})
    for refused in ("/part-", "/_delta_log/"):
        table = new_table(root, 9)

        def fault(asked: Asked, refused: str = refused) -> Fault:
            return Fault(status=403) if asked.method in ("PUT", "POST") and refused in asked.path else SOUND

        store.fault = fault
        with pytest.raises((TableUnavailable, OSError), match="403"):
            upsert(table, fuller, 1, NEVER)
        store.fault = lambda _: SOUND
        assert stored(root) == before
    assert upsert(new_table(root, 9), fuller, 1, NEVER) == len(SAMPLES)
    assert [row[2] for row in stored(root)] == [row[2] + 1 for row in before]
