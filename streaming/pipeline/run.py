"""The pipeline's process: waits for the topics, starts the queries, watches them, ends in order.

One dead query ends the process with an exit code of its own, so that a supervisor starts it again; a signal lets the
batch under way finish. What it remembers is in the checkpoints and the tables.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from assignor_core.intervals import is_due
from streaming.cluster.clients import admin_client, reaching
from streaming.cluster.topics import first_offsets, partitions_of
from streaming.errors import ClusterUnreachable, TableUnavailable, UsageProblem
from streaming.pipeline.batch_reporter import BatchReporter, CountedSamples
from streaming.pipeline.causes import reason
from streaming.pipeline.checkpoints import Offsets
from streaming.pipeline.guards import (
    LeaseOn,
    StillOurs,
    check_fingerprint,
    check_tables_are_there,
    check_tables_fit_checkpoints,
    check_topic_ids,
    check_window_lengths,
    fingerprint,
    offsets_read,
    only_pipeline,
    only_writer,
    topic_ids,
    topics_read,
)
from streaming.pipeline.queries import Queries
from streaming.pipeline.session import (
    JVM_FAILED,
    SessionOfCluster,
    StartingSession,
    check_file_systems,
    executor_cores,
)
from streaming.pipeline.sources import InputTopics
from streaming.pipeline.state_partitions import begins_of, settle_state_partitions
from streaming.pipeline.upkeep import UpkeepThread, jobs_of_pipeline
from streaming.runtime import clocks
from streaming.runtime.cluster_threads import ClusterThreads
from streaming.runtime.own_process import stop_on_signals
from streaming.settings import KafkaSettings, Settings
from streaming.settings.changes import AdjustBy

log = structlog.get_logger()

Answer = TypeVar("Answer")

EXIT_QUERY_FAILED = 4
POLL_INTERVAL_S = 1.0
TOPIC_POLL_S = 2.0
TOPIC_CHECK_INTERVAL_MS = 30_000
STOP_GRACE_S = 25.0
READ_TASKS_MAX = 200
"""Number of tasks that read a topic by default, at most: each keeps a connection to a broker, and memory for what it
fetches.
"""


def run_pipeline(settings: Settings, lease_on: LeaseOn | None = None) -> int:
    """Run until SIGTERM or SIGINT (0) or until a query dies (4); raises RefusedForSafety before it does harm.

    `lease_on` gives the lease that keeps other pipelines from checkpoints on an object store.
    """
    stopping = _stopped_by_signals()
    return _run_cluster(settings, StartingSession(settings.pipeline, settings.storage), stopping, lease_on, stopping)


def run_pipelines(
    clusters: Mapping[str, Settings],
    lease_on: LeaseOn | None,
    adjust_by: AdjustBy,
) -> int:
    """Run the pipelines of several clusters in one Spark until SIGTERM or SIGINT (0) or until Spark ends (4). What ends
    the pipeline of one cluster is logged, and that pipeline is started again. `adjust_by` is given what takes changed
    clusters. Raises SetUpIncomplete, UsageProblem.
    """
    stopping = _stopped_by_signals()
    of_any = next(iter(clusters.values()))

    with StartingSession(of_any.pipeline, of_any.storage) as spark:

        def run_one(settings: Settings, own_end: threading.Event) -> int:
            return _run_cluster(settings, SessionOfCluster(spark), own_end, lease_on, stopping)

        threads = ClusterThreads("pipeline", clusters, run_one, stopping, spark)
        adjust_by(threads.adjust)
        return threads.run()


def _stopped_by_signals() -> threading.Event:
    """Returns an event that SIGTERM and SIGINT set; a second signal ends the process."""
    stopping = threading.Event()

    def stop(number: int) -> None:
        if stopping.is_set():  # a second signal ends it at once: the next start repeats what was half done
            os._exit(128 + number)
        stopping.set()

    stop_on_signals(stop)
    return stopping


def _run_cluster(
    settings: Settings,
    starting: StartingSession | SessionOfCluster,
    stopping: threading.Event,
    lease_on: LeaseOn | None,
    process_ends: threading.Event,
) -> int:
    """Runs until `stopping` is set, which `process_ends` may be, too."""
    storage = settings.storage
    with only_pipeline(storage.checkpoints, lease_on, stopping) as still_ours:
        check_tables_are_there(storage)
        check_window_lengths(storage.tables, window_ms=settings.pipeline.window_ms)  # before the next notes the length
        with starting as spark:

            def meanwhile() -> None:
                spark.start()
                still_ours()

            ids = _wait_for_topics(settings.kafka, topics_read(settings.topics), stopping, meanwhile)
            if ids is None:
                return _stopped()
            with only_writer(storage.tables):  # not before, as it makes the folder
                made_with = fingerprint(settings.topics, settings.pipeline)
                windows_version = check_fingerprint(storage.checkpoints, made_with, ids)
                check_tables_fit_checkpoints(storage)
                session = spark.session()
                if stopping.is_set():  # a first batch would take long, and be waited for
                    return _stopped()
                return _run_queries(session, settings, windows_version, stopping, still_ours, process_ends)


def _run_queries(
    session: SparkSession,
    settings: Settings,
    windows_version: int,
    stopping: threading.Event,
    still_ours: StillOurs,
    process_ends: threading.Event,
) -> int:
    storage = settings.storage
    try:
        check_file_systems(session, storage)
        counted = CountedSamples()
        source, begins = _settled(session, settings)
        queries = Queries(
            source, storage, windows_version, now_ms=clocks.now_ms, counted=counted, begins=begins
        ).start()
        log.info("pipeline_started", queries=[query.name for query in queries], read_tasks=source.read_tasks)
        if settings.pipeline.skew_max_ms > settings.pipeline.watermark_ms // 2:
            log.warning(
                "clock_skew_above_watermark",
                clock_skew_max_ms=settings.pipeline.skew_max_ms,
                watermark_ms=settings.pipeline.watermark_ms,
            )
        jobs = jobs_of_pipeline(storage.tables, settings.kafka.cluster_name, settings.pipeline)
        with UpkeepThread(jobs, now_ms=clocks.now_ms, patience_s=STOP_GRACE_S) as upkeep:
            reporter = BatchReporter(queries, storage.tables, settings.pipeline, counted, upkeep.failing)
            if not _watch(queries, reporter, settings, stopping, still_ours):
                return EXIT_QUERY_FAILED
            upkeep.end_soon()
            stop_queries(session, queries, is_quiet=process_ends.is_set())
        return _stopped()
    except JVM_FAILED as error:  # a checkpoint that Spark won't begin with, or a JVM that was killed
        log.error("query_failed", error=reason(error))
        return EXIT_QUERY_FAILED


def _settled(session: SparkSession, settings: Settings) -> tuple[InputTopics, dict[str, Offsets]]:
    """The topics, read by as many tasks as executors have cores, and where window queries without a batch begin.

    Settles the number of partitions of the state, too. Raises ClusterUnreachable, ClusterRequestFailed.
    """
    kafka, checkpoints = settings.kafka, settings.storage.checkpoints
    cores = executor_cores(session)

    def found(partitions: Collection[tuple[str, str]], since_ms: int) -> Mapping[tuple[str, str], int]:
        return _answer(kafka, lambda admin: first_offsets(admin, partitions, since_ms))

    number = settle_state_partitions(checkpoints, settings.pipeline, cores=cores, first_offsets=found)
    names = topics_read(settings.topics)
    begins = begins_of(checkpoints, lambda: _answer(kafka, lambda admin: partitions_of(admin, names)))
    session.conf.set("spark.sql.shuffle.partitions", number)
    read_tasks = settings.pipeline.read_tasks_min or min(cores, READ_TASKS_MAX)
    return InputTopics(session, kafka, settings.topics, settings.pipeline, read_tasks=read_tasks), begins


def stop_queries(session: SparkSession, queries: list[StreamingQuery], *, is_quiet: bool = True) -> None:
    """Let batches under way finish: `stop()` would cut them in the middle and leave work to be repeated.

    Spark and py4j log traces of a batch that is cut. Nothing has failed: the next start repeats the batch. `is_quiet`
    hides the traces and all that Spark would log later, so it is for the end of the process alone.
    """
    deadline = time.monotonic() + STOP_GRACE_S
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.05)
        if is_quiet:
            _hush(session)
        query.stop()


def _hush(session: SparkSession) -> None:
    """Let neither Spark nor py4j write about what is cut from now on; Java writes of dying threads past its log."""
    context = session.sparkContext
    context.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    assert context._jvm is not None
    java = context._jvm.java
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


def _wait_for_topics(
    kafka: KafkaSettings, names: Sequence[str], stopping: threading.Event, meanwhile: Callable[[], None]
) -> dict[str, str] | None:
    """Ids of all topics, once all are there (the collector makes our two); None if `stopping` is set first.

    `meanwhile` is called once brokers have answered, and while topics are waited for. A topic just made may be listed
    before it can be described: without its id it isn't there yet.
    """
    ids = _topic_ids(kafka, names)  # a cluster that was never reached isn't waited for: the address may be wrong
    logged: list[str] = []
    while not stopping.is_set():
        meanwhile()
        missing = sorted(set(names) - ids.keys())
        if not missing:
            return ids
        if missing != logged:
            log.info("waiting_for_topics", missing=missing, hint="`rebalancer collect` makes them")
            logged = missing
        stopping.wait(TOPIC_POLL_S)
        try:
            ids = _topic_ids(kafka, names)
        except (ClusterUnreachable, UsageProblem) as error:
            log.warning("still_waiting_for_topics", error=str(error))
    return None


def _topic_ids(kafka: KafkaSettings, names: Sequence[str]) -> dict[str, str]:
    return _answer(kafka, lambda admin: topic_ids(admin, names))


def _answer(kafka: KafkaSettings, request: Callable[[Any], Answer]) -> Answer:
    """What `request` returns of an admin client, which is closed then. Raises ClusterUnreachable."""
    admin = admin_client(kafka)
    try:
        with reaching(kafka):
            return request(admin)
    finally:
        with reaching(kafka):
            admin.close()


def _check_topics(settings: Settings, last_good: Offsets) -> Offsets:
    """Check the ids while the queries run: Spark does not notice a new topic that holds more than was read.

    Returns the offsets that were read before the check; `last_good` if the brokers or the checkpoints are away.
    """
    try:
        read = offsets_read(settings.storage.checkpoints)
        ids = _topic_ids(settings.kafka, topics_read(settings.topics))
        check_topic_ids(settings.storage.checkpoints, ids, last_good)
    except (ClusterUnreachable, TableUnavailable, UsageProblem) as error:  # a file of the login may be written just now
        log.warning("topic_check_skipped", error=str(error))
        return last_good
    return read


def _watch(
    queries: list[StreamingQuery],
    reporter: BatchReporter,
    settings: Settings,
    stopping: threading.Event,
    still_ours: StillOurs,
) -> bool:
    """Report batches and check topics until the end is asked for; False if a query has died before."""
    checked_ms = clocks.now_ms()
    last_good: Offsets = {}
    with suppress(TableUnavailable, UsageProblem):
        last_good = offsets_read(settings.storage.checkpoints)
    while not stopping.wait(POLL_INTERVAL_S):
        # A store that refuses ends queries and the lease alike: why a query died says more.
        for query in queries:
            if not query.isActive:
                log.error("query_failed", query=query.name, error=reason(query.exception()))
                return False
        still_ours()
        now_ms = clocks.now_ms()
        reporter.report(now_ms=now_ms)
        if is_due(checked_ms, TOPIC_CHECK_INTERVAL_MS, now_ms):
            checked_ms = now_ms
            last_good = _check_topics(settings, last_good)
    return True


def _stopped() -> int:
    log.info("pipeline_stopped")
    return 0
