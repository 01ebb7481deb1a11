"""The archive of Spark's classes (`streaming.runtime.class_archive`), and the options by which a session uses it.

`python -m streaming.pipeline.class_archive`, a step of the set-up, makes it.
"""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

from streaming.runtime import class_archive
from streaming.runtime.jars import class_path

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
STOP_TIMEOUT_S = 300.0


def driver_options(master: str) -> dict[str, str]:
    """Spark's options by which the driver of a local master has our jars on its class path, and uses the archive if
    there is one; empty for other masters, whose executors get the jars from the driver. Raises SetUpIncomplete.
    """
    if not master.startswith("local") or master.startswith("local-cluster"):
        return {}
    spark_options = {"spark.driver.extraClassPath": class_path("spark")}
    java_options = class_archive.options(archive_path())
    if java_options:
        spark_options[JAVA_OPTIONS] = " ".join(java_options)
    return spark_options


def archive_path() -> Path:
    """Where the archive lies, or would lie. Raises SetUpIncomplete."""
    pyspark = importlib.util.find_spec("pyspark")  # located, not imported: an import takes seconds
    return class_archive.archive_path("spark", pyspark and pyspark.origin)


def start_and_stop_spark(java_options: tuple[str, ...], scratch: Path) -> None:
    """A session that does a little of all that the pipeline does; its JVM writes the archive as it ends."""
    from pyspark.sql import SparkSession, functions

    from streaming.pipeline.session import build_session
    from streaming.settings import PipelineSettings

    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(["--driver-java-options", " ".join(java_options), "pyspark-shell"])
    session: SparkSession = build_session(PipelineSettings(master="local[2]"))
    session.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t").load()
    samples = session.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    windows = samples.groupBy(functions.window("timestamp", "1 second"), "value").count().select("value", "count")
    query = (
        windows.writeStream.outputMode("update")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .foreachBatch(lambda batch, _: batch.write.format("delta").mode("append").save(str(scratch / "table")))
        .trigger(processingTime="1 second")
        .start()
    )
    while query.isActive and query.lastProgress is None:
        query.awaitTermination(1)
    query.stop()
    session.read.format("delta").load(str(scratch / "table")).count()
    gateway = session.sparkContext._gateway
    session.stop()
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None
    process.stdin.close()  # PySpark's JVM ends with its standard input
    process.wait(timeout=STOP_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(class_archive.make_if_possible("Spark", archive_path, start_and_stop_spark))
