"""Two large batches on a Spark cluster, as a process of its own, since a process has one Spark session.

    python -m tests.pipeline.large_batch_job MASTER ROOT

One task of each batch fails once its file is written, and is tried again. The job prints how many tasks each executor
has run, the failed one among them: one object for each batch, as JSON.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from streaming import tables
from streaming.contract import BROKER_LOAD
from streaming.pipeline import part_commits, part_files
from streaming.pipeline.part_commits import BatchSpan, on_executors
from streaming.pipeline.part_files import Upsert, write_parts
from streaming.pipeline.session import build_session
from streaming.settings import PipelineSettings
from tests.pipeline.test_delta_tables import NEVER, START_MS, batch, new_table
from tests.waiting import until

BROKERS = 200
ROWS_OF_PART = 25
PARTS = 16
"""Parts of the second batch, whose 200 rows meet as many; the first one, which meets none, has half of them."""
AUDIT = {"is_final": False, "updated_at": tables.utc(START_MS), "query_id": "q"}


def tasks_by_executor(session: SparkSession) -> dict[str, int]:
    """Tasks of the newest stage that ended, by executor: also the one that failed."""
    context = session.sparkContext
    assert context._jvm is not None
    assert context._gateway is not None
    store, none = context._jsc.sc().statusStore(), context._jvm.java.util.ArrayList()
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    stages = store.stageList(none, False, False, no_quantiles, none)
    newest = max((stages.apply(index) for index in range(stages.size())), key=lambda stage: stage.stageId())
    found = store.executorSummary(newest.stageId(), newest.attemptId()).iterator()
    counts: dict[str, int] = {}
    while found.hasNext():
        pair = found.next()
        counts[pair._1()] = pair._2().succeededTasks() + pair._2().failedTasks()
    return counts


def failing_once(batches: Iterator[pa.RecordBatch], upsert: Upsert) -> Iterator[pa.RecordBatch]:
    """What a task does: the first try of part 0 ends once its file is written, as one whose host fails."""
    results = list(write_parts(batches, upsert))
    context = TaskContext.get()
    assert context is not None
    if (context.partitionId(), context.attemptNumber()) == (0, 0):
        raise OSError("this host fails")
    yield from results


def executors(session: SparkSession) -> int:
    """Executors that have registered; Spark lists the driver among them."""
    return len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1


def wait_for_executors(session: SparkSession, count: int) -> None:
    """Until so many have begun: tasks of a barrier stage run all at once. Spark lists an executor before that, when it
    registers, and a stage of many short tasks may be over by then.
    """
    tasks = session.sparkContext.parallelize(range(count), count)
    assert tasks.barrier().mapPartitions(list).count() == count


def main(master: str, root: str) -> None:
    """Writes both batches and prints what the executors did."""
    part_commits.ROWS_OF_PART = ROWS_OF_PART
    part_files.write_parts = failing_once
    session = build_session(PipelineSettings(master=master, driver_memory="1g"))
    until("two executors", lambda: executors(session) == 2)
    wait_for_executors(session, 2)
    done: list[dict[str, int]] = []
    for number in range(2):
        rows = batch(number, {(0, broker): 1 + number for broker in range(BROKERS)})
        audit: dict[str, Any] = {**AUDIT, "batch_id": number}
        write = on_executors(session.createDataFrame(rows.drop_columns(list(audit))), BROKER_LOAD)
        span = BatchSpan(rows.num_rows, tables.utc(START_MS), tables.utc(START_MS))
        new_table(root, 0).upsert_in_parts(write, span, audit, ("q", number), NEVER)
        done.append(tasks_by_executor(session))
    session.stop()
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
