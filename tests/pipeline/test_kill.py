"""kill -9 of the running pipeline while records stream in: the tables equal a recount over the topic, row for row."""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from streaming.settings import Settings
from tests.pipeline.running import (
    assert_recounted,
    kill,
    numbered_records,
    produce,
    rows_late,
    samples_counted,
    start_pipeline,
    temporary_files,
)
from tests.pipeline.test_windows import make_topics, own

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own"]  # the fixture

EXIT_QUERY_FAILED = 4
SAMPLES = 20_000
DEADLINE_S = 420.0
"""A start of Spark takes a minute where other processes keep both cores busy."""
Blow = Callable[[subprocess.Popen[bytes]], None]
"""Ends the process, or what it depends on."""
PAUSE_ON_S3_S = 2.0
"""Each look at a table there is dozens of requests to a server that the pipeline needs, too."""


def test_killed_whole_and_by_its_jvm_nothing_is_lost_or_doubled(own: Settings, tmp_path: Path) -> None:
    """Each start has another number of state partitions.

    Folders are given by URI, as Spark itself would name them: all of the pipeline takes them.
    """
    storage = {name: f"file://{getattr(own.storage, name)}" for name in ("tables", "checkpoints")}
    by_uri = own.model_copy(update={"storage": own.storage.model_copy(update=storage)})
    blows, numbers = (kill, kill_jvm), (2, 3, 4)
    chance = random.Random(11)
    assert kill_and_compare(by_uri, tmp_path, samples=SAMPLES, blows=blows, chance=chance, numbers=numbers) >= 1
    log = (tmp_path / "pipeline.log").read_text()
    assert "query_failed" in log
    assert log.count("state_partitions_changed") == 2
    check_not_for_everyone(Path(own.storage.tables))
    check_not_for_everyone(Path(own.storage.checkpoints))


def kill_jvm(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver's JVM alone: the process then ends as with a dead query."""
    (java,) = psutil.Process(process.pid).children()
    java.kill()
    assert process.wait(timeout=DEADLINE_S) == EXIT_QUERY_FAILED


def check_not_for_everyone(folder: Path) -> None:
    """Whoever wrote it: Python, delta-rs, Spark, RocksDB."""
    paths = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    assert len(paths) > 10
    assert [path for path in paths if path.stat().st_mode & 0o007] == []


def kill_and_compare(
    own: Settings,
    folder: Path,
    *,
    samples: int,
    blows: Sequence[Blow],
    chance: random.Random,
    numbers: Sequence[int | None] = (None,),
) -> int:
    """Blows at random times after new rows, over many small batches; how many came before all had been read. `numbers`
    are those of state partitions, of one start after the other; the last one stays.
    """
    settings = own.model_copy(
        update={
            "pipeline": own.pipeline.model_copy(
                update={"records_per_batch_max": max(250, samples // (4 * len(blows))), "driver_memory": "1g"}
            )
        }
    )
    records = numbered_records(samples)
    held_back = records[-samples // 100 :]  # for the last process, to be sure that it reads before it is told to end
    make_topics(settings)
    produce(settings, settings.topics.byte_rate, records[: -len(held_back)], partitions=2)
    process = start_pipeline(_with_number(settings, numbers[0]), folder)
    effective = 0
    try:
        for start, blow in enumerate(blows, 1):
            before = wait_for_more(settings, process, than=samples_counted(settings), enough=samples - len(held_back))
            time.sleep(chance.uniform(0.0, 2.0))
            assert len(list(temporary_files(folder).iterdir())) == 1, "all of its own, nothing of those killed before"
            assert any(temporary_files(folder).rglob("librocksdbjni*"))
            blow(process)
            effective += before < samples - len(held_back)
            process = start_pipeline(_with_number(settings, numbers[min(start, len(numbers) - 1)]), folder)
        produce(settings, settings.topics.byte_rate, held_back, partitions=2)
        while samples_counted(settings) < samples:
            wait_for_more(settings, process, than=samples_counted(settings), enough=samples)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_S) == 0  # the batch under way is finished
        wait_for_no_files(temporary_files(folder))
    finally:
        kill(process)
    assert_recounted(settings, records, folder)
    return effective


def _with_number(settings: Settings, number: int | None) -> Settings:
    pipeline = settings.pipeline.model_copy(update={"shuffle_partitions": number})
    return settings.model_copy(update={"pipeline": pipeline})


def wait_for_no_files(folder: Path) -> None:
    """Its own are gone once it has ended, and those of killed ones: Java ends a moment later."""
    deadline = time.monotonic() + DEADLINE_S
    while left := [str(path) for path in folder.rglob("*")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def wait_for_more(settings: Settings, process: subprocess.Popen[bytes], *, than: int, enough: int) -> int:
    """Until the table holds more samples than that, or enough; how many it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while (counted := samples_counted(settings)) <= than and counted < enough:
        assert process.poll() is None, f"the pipeline ended with {process.returncode}: see pipeline.log"
        assert time.monotonic() < deadline, f"{counted} samples, late {rows_late(settings)}: no more in {DEADLINE_S} s"
        time.sleep(PAUSE_ON_S3_S if settings.storage.tables.startswith("s3://") else 0.1)
    return counted
