"""A large batch on a Spark cluster of two workers. `test_stand_alone.py` has the whole job on one."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from streaming import tables
from tests.conftest import FOR_SHORT_LIVES
from tests.pipeline import large_batch_job
from tests.pipeline.stand_alone import REPOSITORY, stand_alone

pytestmark = [pytest.mark.spark, pytest.mark.long]

DEADLINE_S = 300.0


@pytest.fixture
def executors_start_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors with the same options of Java as all of Spark in tests: they live for half a minute."""
    (tmp_path / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {FOR_SHORT_LIVES}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


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
    assert sum(first.values()) == large_batch_job.PARTS // 2 + 1
    assert sum(second.values()) == large_batch_job.PARTS + 1
    assert set(first) == set(second) == {"0", "1"}
    assert min(*first.values(), *second.values()) > 0
    written = sorted(Path(uri).name for uri in tables.opened(str(root / "broker_load")).file_uris())
    assert len({name.partition("-of-16-1-")[0] for name in written}) == len(written) == large_batch_job.PARTS
    tried_again = [path for path in root.rglob("part-0-of-16-1-*.parquet") if path.name not in written]
    assert len(tried_again) == 1
    rows = tables.read(str(root), "broker_load")
    assert sorted((row["broker"], row["sample_count"]) for row in rows) == [(broker, 2) for broker in range(200)]
