"""kill -9 of the running pipeline while records stream in: the tables equal a recount over the topic, row for row."""

import random
import time
from pathlib import Path

import pytest

from streaming import tables
from streaming.settings import Settings
from tests.pipeline.running import kill, produce, samples_counted, start_pipeline
from tests.pipeline.test_windows import load_record, make_topics, own, recount

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own"]  # the fixture

SAMPLES = 20_000
KILLS = 2
DEADLINE_S = 500.0


def test_killed_at_random_instants_nothing_is_lost_or_doubled(own: Settings, tmp_path: Path) -> None:
    kill_and_compare(own, tmp_path, samples=SAMPLES, kills=KILLS, chance=random.Random(11))


def kill_and_compare(own: Settings, folder: Path, *, samples: int, kills: int, chance: random.Random) -> None:
    """Many small batches, so that a kill hits one; `kills` kills at random times after the first rows."""
    settings = own.model_copy(
        update={
            "pipeline": own.pipeline.model_copy(
                update={"records_per_batch_max": max(500, samples // (8 * kills)), "driver_memory": "1g"}
            )
        }
    )
    records = [
        load_record(1 + index % 3, index % 7, index * 20_000 // samples * 10, bytes_in_per_sec=float(index % 97))
        for index in range(samples)
    ]
    make_topics(settings)
    produce(settings, settings.topics.byte_rate, records, partitions=2)
    deadline = time.monotonic() + DEADLINE_S
    process = start_pipeline(settings, folder)
    try:
        for _ in range(kills):
            before = samples_counted(settings)
            while samples_counted(settings) == before and before < samples and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(chance.uniform(0.0, 2.0))
            kill(process)
            process = start_pipeline(settings, folder)
        while samples_counted(settings) < samples and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        kill(process)
    found = {
        (tables.to_ms(row["window_start"]), row["broker"], row["partition"]): row
        for row in tables.read(settings.storage.tables, "partition_load")
    }
    wanted = recount(records)
    assert found.keys() == wanted.keys(), (folder / "pipeline.log").read_text()[-2_000:]
    for key, (bytes_in, covered_ms, count, size) in wanted.items():
        row = found[key]
        assert (row["covered_ms"], row["sample_count"], row["size_bytes"]) == (covered_ms, count, size)
        assert row["bytes_in_per_sec"] == pytest.approx(bytes_in)
