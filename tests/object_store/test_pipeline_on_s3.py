"""The pipeline with tables and checkpoints on S3, as a process: killed, refused, and left alone by the store."""

import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from streaming.runtime.jars import broken_jars, cache_folder
from streaming.settings import Settings
from streaming.tables.object_stores import WHAT_TO_DO
from tests.object_store.test_tables_on_s3 import EXPIRED
from tests.pipeline.running import (
    assert_recounted,
    kill,
    none_late,
    numbered_records,
    produce,
    samples_counted,
    start_pipeline,
)
from tests.pipeline.test_kill import DEADLINE_S, EXIT_QUERY_FAILED, wait_for_more
from tests.pipeline.test_windows import make_topics, own
from tests.s3 import SOUND, Fault, Proxy
from tests.waiting import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.story,
    pytest.mark.skipif(
        bool(broken_jars(cache_folder(), ("s3",))), reason="jars for S3 are missing: deploy/bootstrap.sh s3"
    ),
]

__all__ = ["own"]  # the fixture

SAMPLES = 4_000
EXPIRED_TOKEN = Fault(status=400, body=EXPIRED)
PARTS = 3
"""Of the records: one for each end of a process that is not in order, and one before them."""


@pytest.fixture
def on_s3(own: Settings, root: str, store: Proxy) -> Settings:
    """Settings with tables and checkpoints at the proxy before the store."""
    places = {"tables": root, "checkpoints": root.replace("/tables", "/checkpoints"), "s3_endpoint": store.url}
    pipeline = {"driver_memory": "1g", "shuffle_partitions": 2}
    patient = none_late(own, parts=PARTS)
    return patient.model_copy(
        update={
            "storage": own.storage.model_copy(update=places),
            "pipeline": patient.pipeline.model_copy(update=pipeline),
        }
    )


def test_refused_and_killed_it_goes_on_with_nothing_lost_or_doubled(
    on_s3: Settings, store: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some moment on the store refuses the token of the first process.

    The second one is killed at a random instant, the last one ends in order.
    """
    refused = dict[str, Fault]()
    store.fault = lambda asked: refused.get(asked.session_token or "", SOUND)
    records = numbered_records(SAMPLES)
    parts = [records[SAMPLES * part // PARTS : SAMPLES * (part + 1) // PARTS] for part in range(PARTS)]
    make_topics(on_s3)
    produce(on_s3, on_s3.topics.byte_rate, parts[0], partitions=2)
    for number in range(1, PARTS):
        token = f"token-{number}"
        before = samples_counted(on_s3)
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        process = start_pipeline(on_s3, tmp_path)
        try:
            wait_for_more(on_s3, process, than=before, enough=SAMPLES)
            monkeypatch.setenv("AWS_SESSION_TOKEN", "ours")
            # A store that refuses the last steps of a start ends it with another code: that is no query that died.
            until("all queries run", partial(has_started, tmp_path / "pipeline.log", number))
            is_refused = number == 1
            if is_refused:
                refused[token] = EXPIRED_TOKEN
            produce(on_s3, on_s3.topics.byte_rate, parts[number], partitions=2)
            if is_refused:
                assert process.wait(timeout=DEADLINE_S) == EXIT_QUERY_FAILED
                check_told(tmp_path / "pipeline.log")
            else:
                time.sleep(random.Random(7).uniform(0.0, 3.0))
        finally:
            kill(process)
    process = start_pipeline(on_s3, tmp_path)
    try:
        while samples_counted(on_s3) < SAMPLES:
            wait_for_more(on_s3, process, than=samples_counted(on_s3), enough=SAMPLES)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_S) == 0
    finally:
        kill(process)
    assert_recounted(on_s3, records, tmp_path)


def has_started(log: Path, times: int) -> bool:
    """Whether the log has so many starts after which all queries ran."""
    return log.read_text().count("pipeline_started") == times


def check_told(log: Path) -> None:
    """The log has one failure of a query, with its cause."""
    (told,) = (line for line in log.read_text().splitlines() if "query_failed" in line)
    assert WHAT_TO_DO in told
    assert "Python Proxy" not in told
