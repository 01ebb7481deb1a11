"""The pipeline with tables and checkpoints on S3, as a process that is killed."""

import random
from pathlib import Path

import pytest

from streaming.runtime.jars import broken_jars, cache_folder
from streaming.settings import Settings
from tests.pipeline.test_kill import kill_and_compare
from tests.pipeline.test_windows import own
from tests.s3 import Proxy

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.skipif(
        bool(broken_jars(cache_folder(), ("s3",))), reason="jars for S3 are missing: deploy/bootstrap.sh s3"
    ),
]

__all__ = ["own"]  # the fixture

SAMPLES = 4_000
KILLS = 2


@pytest.fixture
def on_s3(own: Settings, root: str, store: Proxy) -> Settings:
    """Settings with tables and checkpoints at the proxy before the store."""
    places = {"tables": root, "checkpoints": root.replace("/tables", "/checkpoints"), "s3_endpoint": store.url}
    pipeline = {"driver_memory": "1g", "shuffle_partitions": 2}
    return own.model_copy(
        update={
            "storage": own.storage.model_copy(update=places),
            "pipeline": own.pipeline.model_copy(update=pipeline),
        }
    )


def test_killed_at_random_instants_nothing_is_lost_or_doubled(on_s3: Settings, tmp_path: Path) -> None:
    assert kill_and_compare(on_s3, tmp_path, samples=SAMPLES, kills=KILLS, chance=random.Random(7)) >= 1
