"""Spark's classes, loaded and checked beforehand (Java's application class-data sharing, JEP 350).

With this file a local Spark starts with half of the CPU time. Java itself checks that the file fits to it and to the
class path, and starts without it otherwise. `python -m streaming.pipeline.class_archive`, a step of the set-up, makes
it once for each virtual environment and Java, since the class path names the folder of pyspark.
"""

import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from streaming.errors import RebalancerError
from streaming.runtime.jars import CHECKSUMS, class_path, java_command

FOLDER = Path(sys.prefix) / "share" / "kafka-load-rebalancer"
STOP_TIMEOUT_S = 300.0
USE = "-XX:SharedArchiveFile={} -Xlog:cds=off -Xlog:cds+dynamic=off"
"""Without the warnings: a file that doesn't fit any more costs time, nothing else."""
MAKE = "-XX:ArchiveClassesAtExit={} -XX:TieredStopAtLevel=1 -Xlog:cds=off -Xlog:cds+dynamic=off"


def driver_options(master: str) -> dict[str, str]:
    """Spark's options by which the driver of a local master has our jars on its class path, and uses the archive if
    there is one; empty for other masters, whose executors get the jars from the driver. Raises SetUpIncomplete.
    """
    if not master.startswith("local") or master.startswith("local-cluster"):
        return {}
    options = {"spark.driver.extraClassPath": class_path("spark")}
    archive = archive_path()
    if archive.is_file():
        options["spark.driver.extraJavaOptions"] = USE.format(archive)
    return options


def archive_path() -> Path:
    """Where the archive for this Java, pyspark and these jars lies, or would lie. Raises SetUpIncomplete."""
    pyspark = importlib.util.find_spec("pyspark")  # located, not imported: an import takes seconds
    java = Path(java_command()).resolve()
    parts = (java, java.stat().st_mtime_ns, pyspark and pyspark.origin, CHECKSUMS.read_text())
    return FOLDER / f"spark-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"


def make() -> bool:
    """Make the archive; False where it is there already. Raises SetUpIncomplete, or OSError where the folder can't be
    written.
    """
    archive = archive_path()
    if archive.is_file():
        return False
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=FOLDER) as scratch:
        made = Path(scratch) / archive.name
        _start_and_stop_spark(made, Path(scratch))
        for old in FOLDER.glob("spark-*.jsa"):
            old.unlink()
        os.replace(made, archive)
    return True


def _start_and_stop_spark(archive: Path, scratch: Path) -> None:
    """A session that does a little of all that the pipeline does; its JVM writes the archive as it ends."""
    from pyspark.sql import SparkSession, functions

    from streaming.pipeline.session import build_session
    from streaming.settings import PipelineSettings

    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(["--driver-java-options", MAKE.format(archive), "pyspark-shell"])
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


def main() -> int:
    """The set-up step. Without an archive all works, only slower: a failure is a line, and no error."""
    try:
        if make():
            print("classes of Spark: archived, so that it starts in half the time", flush=True)
    except (RebalancerError, OSError, subprocess.SubprocessError) as error:
        print(f"classes of Spark: not archived, so it starts slower ({error})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
