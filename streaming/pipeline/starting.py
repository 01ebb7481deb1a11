"""Spark starts while its pipeline still waits for the topics: that takes seconds, and needs nothing of them."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType

from pyspark.sql import SparkSession

from streaming.pipeline.session import JVM_FAILED, build_session
from streaming.settings import PipelineSettings, StorageSettings


class StartingSession:
    """A session that starts in a thread of its own; leaving the context stops it.

    PySpark takes over SIGINT where the main thread starts a session; from another thread it leaves our handler alone.
    """

    def __init__(self, settings: PipelineSettings, storage: StorageSettings) -> None:
        self._settings = settings
        self._storage = storage
        self._pool = ThreadPoolExecutor(1, "spark-start")
        self._session: Future[SparkSession] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin, if it hasn't begun yet; raises what `build_session` raises, if it has failed by now."""
        with self._lock:  # threads of several clusters may start it
            if self._session is None:
                self._session = self._pool.submit(build_session, self._settings, self._storage)
        if self._session.done():
            self._session.result()

    def session(self) -> SparkSession:
        """The session, once it has started; raises what `build_session` raises."""
        self.start()
        assert self._session is not None
        return self._session.result()

    def has_ended(self) -> bool:
        """Returns whether Spark runs no more. Raises what `build_session` raises, if Spark has failed to start."""
        if self._session is None or not self._session.done():
            return False
        try:
            return bool(self._session.result().sparkContext._jsc.sc().isStopped())
        except JVM_FAILED:
            return True

    def __enter__(self) -> "StartingSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if self._session is not None and self._session.exception() is None:
            with suppress(*JVM_FAILED):  # of a JVM that is gone
                self._session.result().stop()


class SessionOfCluster:
    """A session for one of several clusters in one Spark; leaving the context ends the queries of this cluster alone.

    Settings of the session, such as the number of shuffle partitions, and names of queries are the cluster's own.
    """

    def __init__(self, spark: StartingSession) -> None:
        self._spark = spark
        self._session: SparkSession | None = None

    def start(self) -> None:
        """Begin to start Spark, if nobody has; raises what `build_session` raises, if Spark has failed to start."""
        self._spark.start()

    def session(self) -> SparkSession:
        """The session of the cluster, once Spark has started; raises what `build_session` raises."""
        if self._session is None:
            self._session = self._spark.session().newSession()
        return self._session

    def __enter__(self) -> "SessionOfCluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            with suppress(*JVM_FAILED):  # of a JVM that is gone
                for query in self._session.streams.active:
                    query.stop()
