"""The archive of Spark's classes (`streaming.runtime.class_archive`): the pipeline does once what it does in a demo.

`python -m streaming.demo.spark_classes`, a step of the set-up, makes it, after that of the brokers' classes. Classes
that Spark loads for the first time at another occasion load slower.
"""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import psutil

from streaming import tables
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.class_archive import STOP_TIMEOUT_S, use
from streaming.demo.prepare import write_settings
from streaming.errors import SetUpIncomplete
from streaming.runtime import class_archive, processes

TABLES = ("broker_load", "partition_load", "group_lag")
"""Tables of all windows that the pipeline writes."""
ROWS_TIMEOUT_S = 300.0
LOOK_INTERVAL_S = 0.5


def run_and_stop_the_pipeline(java_options: tuple[str, ...], scratch: Path) -> None:
    """The pipeline writes windows of what a collector has sent to a broker; its JVM writes the archive as it ends.

    Raises BrokerStartFailed, SetUpIncomplete.
    """
    with EmbeddedCluster(scratch / "kafka", broker_count=1) as cluster:
        use(cluster.bootstrap_servers)  # so that there is a group
        options = ["--config", str(write_settings(scratch, cluster, "propose"))]
        options += ["--set", f"pipeline.driver_java_options={shlex.join(java_options)}"]
        collect, pipeline = (
            processes.start([sys.executable, "-m", "streaming", role, *options], log=scratch / f"{role}.log")
            for role in ("collect", "pipeline")
        )
        collector, driver = psutil.Process(collect.pid), psutil.Process(pipeline.pid)
        try:
            _wait_for_rows(str(scratch / "tables"), pipeline)
        finally:
            spark = driver.children(recursive=True) if driver.is_running() else []
            processes.end([driver], STOP_TIMEOUT_S)
            psutil.wait_procs(spark, timeout=STOP_TIMEOUT_S)  # PySpark's JVM ends with its standard input
            processes.end([collector, *spark])


def _wait_for_rows(root: str, pipeline: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + ROWS_TIMEOUT_S
    while not all(tables.table_exists(root, name) and tables.read(root, name) for name in TABLES):
        if pipeline.poll() is not None or time.monotonic() > deadline:
            raise SetUpIncomplete(f"the pipeline has written no rows of {', '.join(TABLES)}")
        time.sleep(LOOK_INTERVAL_S)


if __name__ == "__main__":
    sys.exit(class_archive.make_if_possible("Spark", class_archive.spark_archive_path, run_and_stop_the_pipeline))
