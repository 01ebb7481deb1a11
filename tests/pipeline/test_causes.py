"""What the log shows of an error of Spark: its cause, in one line."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming.errors import TableUnavailable
from streaming.pipeline.causes import SHORT_MAX, reason, with_short_errors, without_frames
from streaming.tables.object_stores import NO_REASON, WHAT_TO_DO
from tests.pipeline.test_windows import session
from tests.waiting import DEADLINE_S

__all__ = ["session"]  # the fixture

PROXY = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
FRAME = '  File "window_writer.py", line 1, in write\n    place.upsert(rows)\n    ^^^^^\n'
QUERY = "\n\n=== Streaming Query ===\nIdentifier: [id = 3e, runId = b8]\nCurrent State: ACTIVE\n"
JAVA = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling o1.collect.\n"
    ": org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark.X\n"
    "Caused by: java.io.IOException: No space left on device\n\tat java.io.Y\n"
)


CHAINED = f"OSError: first\n\nDuring handling of the above:\n\nTraceback (most recent call last):\n{FRAME}OSError: last"
REFUSED = "ConnectException: getFileStatus on s3://b/x: refused"


def ours(text: str) -> str:
    """What Spark passes on of an error of code of ours that it called."""
    return f"{PROXY}{FRAME}{text}{QUERY}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (ours("streaming.errors.TableUnavailable: table x can't be written: 503"), "table x can't be written: 503"),
        (ours("KeyError: 'x'\nand more"), "KeyError: 'x'"),
        (ours("deltalake.exceptions.DeltaError: broken"), "DeltaError: broken"),
        (ours("MemoryError"), "MemoryError"),
        (ours(JAVA), "IOException: No space left on device"),
        (ours(f"py4j.protocol.Py4JError: {without_frames(JAVA)}"), "IOException: No space left on device"),
        (ours(CHAINED), "OSError: last"),
        ("", "Exception"),
        ("[STREAM_FAILED] Query failed\n\nJVM stacktrace:\nx", "[STREAM_FAILED] Query failed"),
        (f"java.net.{REFUSED}\nmore", REFUSED),
        (f"{PROXY}  File cut off", PROXY.strip()),
    ],
)
def test_of_code_of_ours_it_is_what_that_raised_and_of_others_the_first_line(text: str, shown: str) -> None:
    assert reason(Exception(text)) == shown


def test_a_long_text_keeps_its_beginning_and_its_innermost_cause() -> None:
    causes = "".join(f"Caused by: java.io.IOException: {'x' * 200} {number}\n\tat a.B\n" for number in range(20))
    short = without_frames(f"{JAVA}{causes}")
    assert len(short) < SHORT_MAX + 10
    assert short.startswith("py4j.protocol.Py4JJavaError: An error occurred while calling o1.collect.")
    assert short.endswith(" 19\n")


@pytest.mark.parametrize("length", [100, 300, 700])
def test_a_long_innermost_cause_is_shown_with_its_class_and_its_end(length: int) -> None:
    """What a store answers to old credentials is long, and the advice goes by its end."""
    causes = (
        f"Caused by: org.E: lost\n\tat a.B\nCaused by: java.io.IOException: {'x' * length} (ExpiredToken)\n\tat a.B\n"
    )
    short = without_frames(f"{JAVA}{'y' * SHORT_MAX}\n{causes}")
    assert len(short) <= SHORT_MAX
    shown = reason(Exception(f"Traceback (most recent call last):\n  File\n{short}"))
    assert "java.io.IOException: xxx" in short
    assert "credentials" in shown


@pytest.mark.spark
def test_a_query_that_is_stopped_within_a_batch_ends_as_stopped(session: SparkSession, tmp_path: Path) -> None:
    """Spark's search for the interruption would overflow the stack of the query's thread on a whole stack trace."""
    begun = threading.Event()

    def asleep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(60)
        yield from batches

    def write(batch: DataFrame, _number: int) -> None:
        begun.set()
        batch.sparkSession.range(1).mapInArrow(asleep, "id long").collect()

    rows = session.readStream.format("rate").load()
    started = rows.writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(with_short_errors(write))
    query = started.trigger(processingTime="1 second").start()
    assert begun.wait(DEADLINE_S)
    time.sleep(1.0)  # until the task sleeps
    query.stop()
    assert query.status["message"] == "Stopped"
    assert query.exception() is None


def test_credentials_that_have_expired_come_with_what_to_do() -> None:
    shown = reason(Exception("getFileStatus on s3://b/x: S3Exception: The provided token has expired.:ExpiredToken"))
    assert "ExpiredToken; give new credentials" in shown
    answer = "(Service: S3, Status Code: 400, Request ID: null)"  # S3A asks by HEAD, to which no store names a reason
    shown = reason(Exception(f"getFileStatus on s3://b/x: S3Exception: {answer}:null: Bad Request {answer}"))
    assert shown.endswith(NO_REASON + WHAT_TO_DO)


@pytest.mark.spark
def test_a_query_that_dies_shows_why(session: SparkSession, tmp_path: Path) -> None:
    def table_away(_batch: DataFrame, _number: int) -> None:
        raise TableUnavailable("table broker_load can't be written: 503 Service Unavailable")

    def task_fails(batch: DataFrame, _number: int) -> None:
        batch.select(f.raise_error(f.lit("out of order"))).collect()

    for write, shown in ((table_away, "table broker_load can't be written: 503"), (task_fails, "out of order")):
        rates = session.readStream.format("rate").load().writeStream.foreachBatch(write)
        query = rates.option("checkpointLocation", str(tmp_path / write.__name__)).start()
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
        assert shown in reason(query.exception())


@pytest.mark.spark
def test_an_error_of_java_shows_its_innermost_cause_too(session: SparkSession) -> None:
    java = session.sparkContext._jvm
    assert java is not None
    inner = java.java.io.IOException("No space left on device")
    outer = java.java.lang.RuntimeException("Writing aborted", java.java.lang.RuntimeException(inner))
    assert reason(Py4JJavaError("", outer)) == "RuntimeException: Writing aborted: IOException: No space left on device"
