"""A stand-alone Spark cluster on loopback: a master that recovers from files, and workers of one core."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark

from streaming.pipeline.session import LOOPBACK
from streaming.runtime import processes
from streaming.runtime.jars import jar_paths
from streaming.settings import Settings
from tests.conftest import FOR_SHORT_LIVES
from tests.waiting import DEADLINE_S, until

SPARK_BIN = Path(pyspark.__file__).parent / "bin"
REPOSITORY = Path(__file__).resolve().parents[2]
WORKER_MEMORY = "1g"
"""As much as Spark gives an executor by default."""


@dataclass(slots=True)
class StandAlone:
    """Processes by name: `master`, and whatever workers are called."""

    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = field(default_factory=processes.free_port)
    _page: int = field(default_factory=processes.free_port)

    @property
    def url(self) -> str:
        """What `--master` takes."""
        return f"spark://{LOOPBACK}:{self.port}"

    def start_master(self) -> None:
        """Start it, or start it again with what it noted before it was killed."""
        recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.folder / 'recovery'}"
        self._start("master", "master.Master", recovery, "--port", str(self.port), "--webui-port", str(self._page))
        until("the master answers", lambda: self.shown().get("status") == "ALIVE")

    def start_worker(self, name: str) -> None:
        """A worker of one core, with room for one executor."""
        work = ("--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(self.folder / name), "--webui-port", "0")
        self._start(name, "worker.Worker", "", *work, self.url)

    def kill(self, name: str) -> None:
        """kill -9; executors of a worker end by themselves once it is gone."""
        process = self.running.pop(name)
        process.kill()
        process.wait(timeout=DEADLINE_S)

    def shown(self) -> dict[str, Any]:
        """What the master shows of itself, its workers and the jobs; empty if it does not answer."""
        with suppress(OSError, ValueError), urllib.request.urlopen(f"http://{LOOPBACK}:{self._page}/json/") as answer:
            shown: dict[str, Any] = json.load(answer)
            return shown
        return {}

    def cores_of_job(self) -> dict[str, int]:
        """Cores on which a job has executors, by the job's id."""
        return {row["id"]: row["cores"] for row in self.shown().get("activeapps", [])}

    def _start(self, name: str, kind: str, java_options: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{FOR_SHORT_LIVES} {java_options}",
        }
        command = [str(SPARK_BIN / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", LOOPBACK, *arguments]
        self.running[name] = processes.start(command, log=self.folder / f"{name}.log", environment=environment)


@contextmanager
def stand_alone(folder: Path) -> Iterator[StandAlone]:
    """A master and two workers; all that was started is ended."""
    (folder / "recovery").mkdir(parents=True)
    cluster = StandAlone(folder)
    try:
        cluster.start_master()
        for name in ("first", "second"):
            cluster.start_worker(name)
        yield cluster
    finally:
        alive = [psutil.Process(row.pid) for row in cluster.running.values() if row.poll() is None]
        children = [child for row in alive for child in row.children(recursive=True)]
        processes.end([*alive, *children])
        for started in cluster.running.values():
            started.wait(timeout=DEADLINE_S)


def submit_pipeline(settings: Settings, master: str, folder: Path) -> subprocess.Popen[bytes]:
    """The job by `spark-submit`, as docs/pipeline.md has it; its log lies in `folder`."""
    config = folder / "pipeline.yaml"
    config.write_text(settings.model_dump_json(), encoding="utf-8")  # JSON is YAML
    jars = ",".join(map(str, jar_paths("spark")))
    command = [str(SPARK_BIN / "spark-submit"), "--master", master, "--jars", jars, "--driver-memory", "1g"]
    command += [str(REPOSITORY / "streaming" / "__main__.py"), "pipeline", "--config", str(config)]
    environment = {
        **os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK,
    }  # fmt: skip
    return processes.start(command, log=folder / "pipeline.log", environment=environment)
