"""The same job on a Spark cluster of two executors: another master in the settings, nothing else."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.settings import Settings
from tests.conftest import FOR_SHORT_LIVES
from tests.pipeline import large_batch_job
from tests.pipeline.running import kill, produce, samples_counted, start_pipeline
from tests.pipeline.stand_alone import REPOSITORY, stand_alone
from tests.pipeline.test_adapters import ALL_TOPIC_BYTES_IN
from tests.pipeline.test_windows import load_record, make_topics, own, recount, send
from tests.topics import wait_until_known

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own"]  # the fixture

DEADLINE_S = 300.0


@pytest.fixture
def executors_start_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors with the same options of Java as all of Spark in tests: they live for half a minute."""
    (tmp_path / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {FOR_SHORT_LIVES}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


@pytest.mark.usefixtures("executors_start_quickly")
def test_two_executors_give_the_same_windows_and_end_in_order(own: Settings, tmp_path: Path) -> None:
    foreign = own.topics.byte_rate + "-foreign"
    settings = own.model_copy(
        update={
            "topics": own.topics.model_copy(update={"foreign": {foreign: "cruise-control"}}),
            "pipeline": own.pipeline.model_copy(update={"master": "local-cluster[2,1,1024]", "driver_memory": "1g"}),
        }
    )
    make_topics(settings)
    admin = admin_client(settings.kafka)
    admin.create_topics({foreign: {"num_partitions": 1, "replication_factor": 1}})
    wait_until_known(admin, [foreign])
    admin.close()
    records = [load_record(1 + index % 3, index % 7, index * 4) for index in range(5_000)]
    produce(settings, settings.topics.byte_rate, records, partitions=2)
    send(settings, foreign, [ALL_TOPIC_BYTES_IN])  # parsed in Python on an executor
    process = start_pipeline(settings, tmp_path)
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not complete(settings, len(records)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_S) == 0, (tmp_path / "pipeline.log").read_text()[-20_000:]
    finally:
        kill(process)
    stored = {
        (tables.to_ms(row["window_start"]), row["broker"], row["partition"]): row["sample_count"]
        for row in tables.read(settings.storage.tables, "partition_load")
    }
    assert stored == {key: samples for key, (_, _, samples, _) in recount(records).items()}
    (broker,) = tables.read(settings.storage.tables, "broker_load")
    assert (broker["broker"], broker["bytes_in_per_sec"]) == (3, 1234.5)


def complete(settings: Settings, samples: int) -> bool:
    return samples_counted(settings) >= samples and bool(tables.read(settings.storage.tables, "broker_load"))


@pytest.mark.long
@pytest.mark.usefixtures("executors_start_quickly")
def test_two_workers_of_a_cluster_write_the_files_of_one_batch(tmp_path: Path) -> None:
    """And what a task has written that failed is not committed beside that of its second try."""
    root = tmp_path / "tables"
    with stand_alone(tmp_path / "spark") as cluster:
        command = [sys.executable, "-m", "tests.pipeline.large_batch_job", cluster.url, str(root)]
        with (tmp_path / "job.log").open("w") as log:
            ran = subprocess.run(command, cwd=REPOSITORY, stdout=PIPE, stderr=log, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, (tmp_path / "job.log").read_text()[-20_000:]
    first, second = json.loads(ran.stdout.splitlines()[-1])
    assert sum(first.values()) == large_batch_job.PARTS // 2
    assert sum(second.values()) == large_batch_job.PARTS
    assert set(first) == set(second) == {"0", "1"}
    assert min(*first.values(), *second.values()) > 0
    written = sorted(Path(uri).name for uri in tables.opened(str(root / "broker_load")).file_uris())
    assert len({name.partition("-of-16-1-")[0] for name in written}) == len(written) == large_batch_job.PARTS
    tried_again = [path for path in root.rglob("part-0-of-16-1-*.parquet") if path.name not in written]
    assert len(tried_again) == 1
    rows = tables.read(str(root), "broker_load")
    assert sorted((row["broker"], row["sample_count"]) for row in rows) == [(broker, 2) for broker in range(200)]
