"""The pipeline with tables and checkpoints on S3, as a process: killed, refused, and left alone by the store."""

import random
import signal
from pathlib import Path

import pytest

from streaming.runtime.jars import broken_jars, cache_folder
from streaming.settings import Settings
from streaming.tables.object_stores import WHAT_TO_DO
from tests.object_store.test_tables_on_s3 import EXPIRED
from tests.pipeline.running import assert_recounted, kill, numbered_records, produce, samples_counted, start_pipeline
from tests.pipeline.test_kill import DEADLINE_S, EXIT_QUERY_FAILED, kill_and_compare, wait_for_more
from tests.pipeline.test_windows import make_topics, own
from tests.s3 import SOUND, Fault, Proxy

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
REFUSALS = ((Fault(status=400, body=EXPIRED), WHAT_TO_DO), (Fault(status=503), "503"))
"""What the store answers, and what the log of the pipeline then shows."""


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


def test_a_store_that_refuses_ends_it_with_the_cause_and_the_next_start_goes_on(
    on_s3: Settings, store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some moment on the store refuses the token of a process in one way, and that of the next in another."""
    parts, refused = len(REFUSALS) + 1, dict[str, Fault]()
    records = numbered_records(SAMPLES)
    store.fault = lambda asked: refused.get(asked.session_token or "", SOUND)
    make_topics(on_s3)
    produce(on_s3, on_s3.topics.byte_rate, records[: SAMPLES // parts], partitions=2)
    for number, (fault, shown) in enumerate(REFUSALS, start=1):
        token = f"token-{number}"
        before = samples_counted(on_s3)
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        process = start_pipeline(on_s3, tmp_path)
        try:
            wait_for_more(on_s3, process, than=before, enough=SAMPLES)
            monkeypatch.setenv("AWS_SESSION_TOKEN", "ours")
            refused[token] = fault
            more = records[SAMPLES * number // parts : SAMPLES * (number + 1) // parts]
            produce(on_s3, on_s3.topics.byte_rate, more, partitions=2)
            assert process.wait(timeout=DEADLINE_S) == EXIT_QUERY_FAILED
        finally:
            kill(process)
        failures = [line for line in (tmp_path / "pipeline.log").read_text().splitlines() if "query_failed" in line]
        assert len(failures) == number
        assert shown in failures[-1]
        assert "Python Proxy" not in failures[-1]
    process = start_pipeline(on_s3, tmp_path)
    try:
        while samples_counted(on_s3) < SAMPLES:
            wait_for_more(on_s3, process, than=samples_counted(on_s3), enough=SAMPLES)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_S) == 0
    finally:
        kill(process)
    assert_recounted(on_s3, records, tmp_path)
