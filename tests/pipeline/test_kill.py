"""kill -9 of the running pipeline while records stream in: the tables equal a recount over the topic, row for row."""

import random
import signal
import time
from pathlib import Path

import pytest

from streaming.settings import Settings
from tests.pipeline.running import (
    assert_recounted,
    kill,
    numbered_records,
    produce,
    samples_counted,
    start_pipeline,
)
from tests.pipeline.test_windows import make_topics, own

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
    records = numbered_records(samples)
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
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0  # the batch under way is finished
    finally:
        kill(process)
    assert_recounted(settings, records, folder)
