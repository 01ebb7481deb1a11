"""The job on a stand-alone Spark cluster: a worker is killed, the master is killed and recovers, nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.settings import Settings
from tests.pipeline.running import assert_recounted, kill, none_late, numbered_records, produce, samples_counted
from tests.pipeline.stand_alone import StandAlone, stand_alone, submit_pipeline
from tests.pipeline.test_adapters import ALL_TOPIC_BYTES_IN
from tests.pipeline.test_kill import wait_for_more
from tests.pipeline.test_scale_out import executors_start_quickly
from tests.pipeline.test_topics import send_to
from tests.pipeline.test_windows import make_topics, own, send
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

__all__ = ["executors_start_quickly", "own"]  # the fixtures

SAMPLES = 6_000
PARTS = 4
DEADLINE_S = 420.0


@pytest.fixture
def cluster(executors_start_quickly: None, tmp_path: Path) -> Iterator[StandAlone]:
    with stand_alone(tmp_path / "spark") as started:
        yield started


def test_a_killed_worker_and_a_killed_master_lose_nothing(own: Settings, cluster: StandAlone, tmp_path: Path) -> None:
    foreign = own.topics.byte_rate + "-foreign"
    topics = own.topics.model_copy(update={"foreign": {foreign: "cruise-control"}})
    own = none_late(own.model_copy(update={"topics": topics}), parts=PARTS)
    records = numbered_records(SAMPLES)
    size = SAMPLES // PARTS
    parts = [records[number * size : (number + 1) * size] for number in range(PARTS)]
    make_topics(own)
    make_topic(own, foreign)
    send(own, foreign, [ALL_TOPIC_BYTES_IN])  # parsed in Python on an executor
    produce(own, own.topics.byte_rate, parts[0], partitions=2)
    process = submit_pipeline(own, cluster.url, tmp_path)

    def counted(count: int) -> None:
        while samples_counted(own) < count:
            wait_for_more(own, process, than=samples_counted(own), enough=count)

    try:
        counted(size)
        (job,) = cluster.cores_of_job()
        until("two executors", lambda: cluster.cores_of_job() == {job: 2}, DEADLINE_S)
        cluster.kill("first")
        send_to(own, 0, parts[1][::2])
        counted(size + size // 2)  # on the worker that is left
        send_to(own, 1, parts[1][1::2])
        counted(2 * size)  # none of them late, though the watermark has seen the newest of the first half
        cluster.kill("master")
        produce(own, own.topics.byte_rate, parts[2], partitions=2)
        counted(3 * size)  # executors need no master
        cluster.start_master()
        until("the job and its worker are known again", lambda: cluster.cores_of_job() == {job: 1}, DEADLINE_S)
        cluster.start_worker("third")
        until(
            "the recovered master gives the job a new executor", lambda: cluster.cores_of_job() == {job: 2}, DEADLINE_S
        )
        cluster.kill("second")
        produce(own, own.topics.byte_rate, parts[3], partitions=2)
        counted(SAMPLES)  # on the worker that the first master never knew
        process.terminate()  # spark-submit is the JVM: it ends at once, and the next start would repeat a cut batch
        process.wait(timeout=DEADLINE_S)
    finally:
        kill(process)
    assert_recounted(own, records, tmp_path)
    (broker,) = tables.read(own.storage.tables, "broker_load")
    assert (broker["broker"], broker["bytes_in_per_sec"]) == (3, 1234.5)


def make_topic(settings: Settings, topic: str) -> None:
    admin = admin_client(settings.kafka)
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    wait_until_known(admin, [topic])
    admin.close()
