"""The Spark session: Delta, the Kafka source, and what matters on a small machine.

Under `spark-submit` master, memory and cores are its own; settings here are those that the job's correctness or its
speed on small tables depends on.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streaming.jars import jar_paths, java_command
from streaming.settings import PipelineSettings

APPLICATION = "kafka-load-rebalancer"
LOOPBACK = "127.0.0.1"
POOLS = Path(__file__).resolve().with_name("pools.xml")
"""Shares of the cores, by query."""


def build_session(settings: PipelineSettings) -> SparkSession:
    """The session of this process; raises SetUpIncomplete where Java or a jar is missing."""
    java_command()
    builder = SparkSession.Builder().appName(APPLICATION)
    for key, value in _options(settings).items():
        builder = builder.config(key, value)
    # Python on the executors, for foreign formats, is the driver's: `python3` on the path may be another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        builder = builder.config("spark.driver.host", LOOPBACK).config("spark.driver.bindAddress", LOOPBACK)
    if "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(settings.master).config("spark.driver.memory", settings.driver_memory)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _options(settings: PipelineSettings) -> dict[str, str]:
    return {
        "spark.jars": ",".join(str(path) for path in jar_paths("spark")),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": POOLS.as_uri(),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # The default of 50 made each commit to a small table take 10 s and more on 2 cores.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.adaptive.enabled": "false",
        # What Python sums at a time: many records give few sums, and of values of 1 MiB so many would not fit.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        # HotSpot leaves methods above this interpreted for good; Spark then splits them (windows: 53,000 to 270,000/s).
        "spark.sql.codegen.hugeMethodLimit": "8000",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # An empty batch would write nothing and cost a commit; windows are closed by event time, not by its help.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.metrics.namespace": APPLICATION,
    }
