"""The three streaming queries: byte rates, consumer lag, and what was rejected. One topic a query, nothing shared.

Two topics in one query would share a watermark: an idle one would hold back the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.contract import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, REJECTED_RECORD, Table
from streaming.pipeline.batch_reporter import CountedSamples
from streaming.pipeline.causes import with_short_errors
from streaming.pipeline.checkpoints import WINDOW_QUERIES, CheckpointFiles, Offsets, begin_of, query_files
from streaming.pipeline.delta_tables import Target, WindowWriter, create_window_table, shaped
from streaming.pipeline.rejects import ReadRange, RejectsWriter, wait_until_read
from streaming.pipeline.sources import BYTE_RATES, LAGS, InputTopics, accepted_rows, rejected_rows, summed_rows
from streaming.pipeline.windows import lag_windows, load_windows, mixed_lag_windows, mixed_load_windows
from streaming.settings import StorageSettings
from streaming.tables import create_table
from streaming.tables.places import local_folder

LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default starts a process (readlink) for each look at a file: some forty a batch, a fifth of a small batch's
time. This one renames as atomically on a local file system; our lock keeps other writers away. On S3 Spark's default
stays: it replaces a file that a killed batch has left, which this one would keep there.
"""
REJECTS_TRIGGERS, REJECTS_INTERVAL_MS = 3, 15_000
"""The rejects are read once in as many trigger intervals, as the windows come first; but once in one trigger interval
if three would be longer than this: their batches have no more records than those of the windows.
"""
REJECTS_PATIENCE_S, REJECTS_PATIENCE_BUSY_S = 15.0, 600.0
"""A batch of rejects waits this long, or three trigger intervals, for the window queries to show that all of its
records fit; then it reads them. The second time holds while these work on batches: to parse all records again would set
them back further.
"""


class Queries:
    """The three queries on the same topics and storage. Each has its checkpoint and continues where it stopped.

    `windows_version` is that of the checkpoints, as `check_fingerprint` returns it. `counted` collects the samples of
    batches. `begins` has the offsets at which a window query without a batch begins, by query: see
    `state_partitions.begins_of`.
    """

    def __init__(
        self,
        source: InputTopics,
        storage: StorageSettings,
        windows_version: int,
        *,
        now_ms: Callable[[], int],
        counted: CountedSamples | None = None,
        begins: Mapping[str, Offsets] | None = None,
    ) -> None:
        self._source = source
        self._begins = begins or {}
        self._storage = storage
        self._windows_version = windows_version
        self._now_ms = now_ms
        self._counted = CountedSamples() if counted is None else counted
        if local_folder(storage.checkpoints) is not None:
            source.session.conf.set("spark.sql.streaming.checkpointFileManagerClass", LOCAL_CHECKPOINTS)

    def start(self) -> list[StreamingQuery]:
        """Start all three. The windows come first: what was rejected is of no hurry, and reading it costs as much."""
        context = self._source.session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", "windows")
        windows = [self.start_byte_rate(), self.start_consumer_lag()]
        context.setLocalProperty("spark.scheduler.pool", "rejects")
        return [*windows, self.start_rejects(windows)]

    def start_byte_rate(self) -> StreamingQuery:
        """Windows of partitions and of brokers."""
        settings, source = self._source.pipeline, self._source_of("byte_rate")
        if self._is_foreign:
            load = mixed_load_windows(accepted_rows(source, BYTE_RATES), settings, self._windows_version)
        else:
            load = load_windows(summed_rows(source, BYTE_RATES), settings, self._windows_version)
        return self._start_windows("byte_rate", load, ((PARTITION_LOAD, True), (BROKER_LOAD, False)))

    def start_consumer_lag(self) -> StreamingQuery:
        """Starts the query that writes windows of groups."""
        settings, source = self._source.pipeline, self._source_of("consumer_lag")
        if self._is_foreign:
            lag = mixed_lag_windows(accepted_rows(source, LAGS), settings, self._windows_version)
        else:
            lag = lag_windows(summed_rows(source, LAGS), settings, self._windows_version)
        return self._start_windows("consumer_lag", lag, ((GROUP_LAG, None),))

    def start_rejects(self, windows: list[StreamingQuery]) -> StreamingQuery:
        """The query of rejected records, which reads what the queries of `windows` read."""
        create_table(self._storage.tables, REJECTED_RECORD.name)
        writer = RejectsWriter(self._storage.tables, self._source.pipeline, self._now_ms)
        checkpoint = CheckpointFiles(self._storage.checkpoints).below("rejects")
        trigger_ms = self._source.pipeline.trigger_interval_ms
        # As noted: Spark reports no start of a first batch that is repeated after a kill, either.
        notes = [begin_of(self._storage.checkpoints, query) for query in WINDOW_QUERIES]
        begun = {key: offset for begin in notes for key, offset in begin.items()}

        def write(batch: DataFrame, batch_id: int) -> None:
            # In a sound set-up no record is rejected, and to learn that would cost as much as the windows. (The window
            # queries don't know every misfit of foreign records.)
            if not self._is_foreign:
                known = wait_until_read(
                    windows,
                    checkpoint,
                    batch_id,
                    begin=begun,
                    # The newest of its records may be of the windows' next batch.
                    patience_s=max(REJECTS_PATIENCE_S, REJECTS_TRIGGERS * trigger_ms / 1000),
                    patience_busy_s=REJECTS_PATIENCE_BUSY_S,
                )
                if known is ReadRange.SOUND:
                    return
            rows = batch.persist()
            try:
                writer.write(rows, batch_id)
            finally:
                rows.unpersist()

        interval_ms = max(trigger_ms, min(REJECTS_TRIGGERS * trigger_ms, REJECTS_INTERVAL_MS))
        with nullcontext() if self._is_foreign else _without_code_of_stages(self._source.session):
            return (
                shaped(rejected_rows(self._source), REJECTED_RECORD)
                .writeStream.queryName("rejects")
                .outputMode("append")
                .option("checkpointLocation", checkpoint.for_spark)
                .trigger(processingTime=f"{interval_ms} milliseconds")
                .foreachBatch(with_short_errors(write))
                .start()
            )

    def _start_windows(
        self, name: str, windows: DataFrame, tables: Sequence[tuple[Table, bool | None]]
    ) -> StreamingQuery:
        """The query that writes these windows into the tables: of each, whether it has the rows with a topic, or those
        without one, or (None) all.
        """
        root, settings = self._storage.tables, self._source.pipeline
        for table, _ in tables:
            create_window_table(root, table)
        checkpoint = query_files(self._storage.checkpoints, name)
        writer = WindowWriter(
            [
                Target(root, table, with_topic=with_topic, python_on_executors=settings.python_on_executors)
                for table, with_topic in tables
            ],
            watermark_ms=settings.watermark_ms,
            counted=self._counted,
            now_ms=self._now_ms,
            # A record of ours is a sample of one window; one of another tool may hold many.
            checkpoint=None if self._is_foreign else checkpoint,
        )
        return (
            windows.writeStream.queryName(name)
            .outputMode("update")
            .option("checkpointLocation", checkpoint.for_spark)
            .trigger(processingTime=f"{settings.trigger_interval_ms} milliseconds")
            .foreachBatch(with_short_errors(writer.write))
            .start()
        )

    def _source_of(self, query: str) -> InputTopics:
        """The topics, read from where this query begins."""
        return replace(self._source, begin=self._begins.get(query, {}))

    @property
    def _is_foreign(self) -> bool:
        """Whether other tools write the records."""
        return bool(self._source.topics.foreign)


@contextmanager
def _without_code_of_stages(session: SparkSession) -> Iterator[None]:
    """A query that is started within, which keeps the settings of its start, runs its stages without code of their own.
    Spark would write and compile that for each batch, as the batch's time is part of it, before the query's function
    finds that nobody needs the rows.
    """
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        yield
    finally:
        session.conf.unset("spark.sql.codegen.wholeStage")
