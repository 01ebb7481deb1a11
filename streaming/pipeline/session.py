"""The Spark session: the Kafka source, its files here and on S3, and what matters on a small machine. Without Delta:
delta-rs reads and writes the tables (`delta_tables.py`).

Under `spark-submit` master, memory and cores are its own; settings here are those that the job's correctness or its
speed on small tables depends on. Checkpoints on S3 are reached by Hadoop's S3A, with the settings and variables that
delta-rs goes by. Credentials are none of them: AWS's own chain reads them from the environment, or from the files that
it names.

A session has one folder for all local files: Spark's blocks and state, what Java unpacks, objects on their way to S3.
Spark removes what it has written there as it ends, but nothing if it is killed, and copies of the state can take
gigabytes. So a later start removes the folders of sessions that are gone. The lock is one of the folder itself: a lock
file could be removed by what clears old files from /tmp, and systemd-tmpfiles leaves a folder alone that is locked.
"""

import atexit
import fcntl
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.errors import SetUpIncomplete, UsageProblem
from streaming.pipeline.causes import reason
from streaming.runtime import class_archive
from streaming.runtime.jars import check_extra_jars, class_path, jar_paths, java_command
from streaming.runtime.own_process import current_umask
from streaming.settings import PipelineSettings, StorageSettings
from streaming.tables.object_stores import S3_SCHEMES, s3_options
from streaming.tables.places import scheme_of

log = structlog.get_logger()

APPLICATION = "kafka-load-rebalancer"
LOOPBACK = "127.0.0.1"
PYTHON_DAEMON = "streaming.pipeline.python_daemon"
POOLS = Path(__file__).resolve().with_name("pools.xml")
"""Shares of the cores, by query."""
EXECUTORS_PATIENCE_S, EXECUTORS_POLL_S = 15.0, 1.0
LOG_SETTINGS = Path(__file__).resolve().with_name("log4j2.properties")
JVM_FAILED = (PySparkException, Py4JError, ConnectionError)
"""What Spark's calls raise: a query's failure, one of the JVM, and that of a JVM that is gone."""
SHUFFLE_PARTITIONS = 2
"""Shuffle partitions until the queries start, whose number is settled then (`state_partitions.py`)."""
MASTER = re.compile(r"local(\[(\*|\d+)(, *(\*|\d+))?\])?|local-cluster\[[\d ,]+\]|spark://.+|k8s://.+|yarn")
S3_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
S3_BOUNDS = {
    # Hadoop's own: a store that answers 503 is asked 20 times, at intervals that double up to hours.
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "6",
    "fs.s3a.retry.interval": "500ms",
    "fs.s3a.retry.throttle.limit": "6",
    "fs.s3a.retry.throttle.interval": "500ms",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "20s",
    "fs.s3a.connection.request.timeout": "60s",
}
S3_FILE_SYSTEM = {
    # `s3://`, as delta-rs names it; Hadoop knows `s3a://` by itself.
    "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SCRATCH_PREFIX = "rebalancer-spark-"
SCRATCH_TRIES = 10


def build_session(settings: PipelineSettings, storage: StorageSettings | None = None) -> SparkSession:
    """The session of this process, with a file system for checkpoints on S3 if `storage` has them there.

    Raises SetUpIncomplete where Java or a jar is missing, or where Spark doesn't start, UsageProblem where it knows no
    such master.
    """
    java_command()
    check_extra_jars(settings.extra_jars)
    if "SPARK_ENV_LOADED" not in os.environ and not MASTER.fullmatch(settings.master):
        # Spark's own message comes from another process, amid its help.
        raise UsageProblem(
            f"pipeline.master: {settings.master!r} is no Spark master: local[2], spark://host:port, yarn, k8s://..."
        )
    try:
        return _started(settings, storage or StorageSettings())
    except JVM_FAILED as error:
        raise SetUpIncomplete(f"Spark doesn't start (pipeline.master {settings.master}): {reason(error)}") from None


class StartingSession:
    """A session that starts in a thread of its own, as its pipeline waits for topics; leaving the context stops it.

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

    def __enter__(self) -> Self:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            with suppress(*JVM_FAILED):  # of a JVM that is gone
                for query in self._session.streams.active:
                    query.stop()


def check_file_systems(session: SparkSession, storage: StorageSettings) -> None:
    """Raises UsageProblem if Spark lacks Hadoop's file system for its checkpoints; tables need none."""
    context = session.sparkContext
    assert context._jvm is not None
    systems = context._jvm.org.apache.hadoop.fs.FileSystem
    place = storage.checkpoints
    try:
        systems.getFileSystemClass(scheme_of(place), context._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        raise UsageProblem(
            f"storage.checkpoints: Spark can't write to {place} ({reason(error)}): name a folder, or add Hadoop's file "
            "system of this scheme to Spark's jars, see docs/object-store.md"
        ) from None


def executor_cores(session: SparkSession) -> int:
    """How many cores the executors have, as set or as found within `EXECUTORS_PATIENCE_S`."""
    context = session.sparkContext
    master = context.master or ""
    configured = configured_cores(master, dict(context.getConf().getAll()))
    if configured is None and not master.startswith("local"):
        _wait_for_executors(session)
    return configured or context.defaultParallelism


def configured_cores(master: str, options: Mapping[str, str]) -> int | None:
    """Return how many cores the executors will have by these options of Spark, None where it depends on the cluster.

    >>> configured_cores("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"})
    12
    >>> configured_cores("spark://host:7077", {}), configured_cores("local-cluster[2,1,1024]", {})
    (None, 2)
    """
    if master.startswith("local-cluster["):
        workers, cores = (int(number) for number in master.partition("[")[2].split(",")[:2])
        return workers * cores
    if master.startswith("spark://"):
        most = options.get("spark.cores.max")
        return int(most) if most else None
    if master.startswith(("yarn", "k8s://")):
        dynamic = options.get("spark.dynamicAllocation.enabled") == "true"
        instances = options.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances")
        return int(instances) * int(options.get("spark.executor.cores", "1")) if instances else None
    return None


def _wait_for_executors(session: SparkSession) -> None:
    """Wait until executors have registered and no more of them come. Spark lists the driver among them."""
    context = session.sparkContext
    deadline, seen = time.monotonic() + EXECUTORS_PATIENCE_S, 0
    while time.monotonic() < deadline:
        now = len(context._jsc.sc().statusTracker().getExecutorInfos())
        if now > 1 and now == seen:
            return
        seen = now
        time.sleep(EXECUTORS_POLL_S)


def _started(settings: PipelineSettings, storage: StorageSettings) -> SparkSession:
    builder = SparkSession.Builder().appName(APPLICATION)
    options = {**_options(settings, storage), **hadoop_options(storage, os.environ)}
    java_options = [options.pop(JAVA_OPTIONS, "")]
    if settings.master.startswith("local") and "SPARK_ENV_LOADED" not in os.environ:
        scratch = str(scratch_folder())
        # Spark's own local folders are below Java's, unless SPARK_LOCAL_DIRS names others.
        java_options.append(f"-Djava.io.tmpdir={shlex.quote(scratch)}")
        options["spark.hadoop.hadoop.tmp.dir"] = scratch
    for key, value in options.items():
        builder = builder.config(key, value)
    # Python on the executors, for foreign formats, is the driver's: `python3` on the path may be another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        builder = builder.config("spark.driver.host", LOOPBACK).config("spark.driver.bindAddress", LOOPBACK)
    if "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(settings.master).config("spark.driver.memory", settings.driver_memory)
        if settings.master.startswith("local"):
            builder = builder.config("spark.python.daemon.module", PYTHON_DAEMON)
        java_options += [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", settings.driver_java_options]
        builder = builder.config(JAVA_OPTIONS, " ".join(filter(None, java_options)))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _jars(settings: PipelineSettings, storage: StorageSettings) -> dict[str, str]:
    more = [*(jar_paths("s3") if needs_s3_files(storage) else ()), *settings.extra_jars]
    on_class_path = {} if "SPARK_ENV_LOADED" in os.environ else driver_options(settings.master)
    if on_class_path:
        # Behind ours: the archive of classes holds for a class path that begins as it did.
        of_driver = (on_class_path["spark.driver.extraClassPath"], *map(str, more))
        return on_class_path | {"spark.driver.extraClassPath": os.pathsep.join(of_driver)}
    return {"spark.jars": ",".join(map(str, (*jar_paths("spark"), *more)))}


def _options(settings: PipelineSettings, storage: StorageSettings) -> dict[str, str]:
    return {
        **_jars(settings, storage),
        "spark.sql.session.timeZone": "UTC",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": POOLS.as_uri(),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions or SHUFFLE_PARTITIONS),
        "spark.sql.adaptive.enabled": "false",
        # What Python sums at a time: many records give few sums, and of values of 1 MiB so many would not fit.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        # HotSpot leaves methods above this interpreted for good; Spark then splits them (windows: 53,000 to 270,000/s).
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # Compiled code by its text, for all queries of all clusters. The time of a batch is part of some texts, so each
        # batch adds a few, and would push out those of other queries: Spark keeps 100.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # A batch of many window rows is kept for a moment, to be counted and written. To find out how it would compress
        # best takes half of the CPU of that, and saves a fifth of the memory.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # An empty batch would write nothing and cost a commit; windows are closed by event time, not by its help.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.ui.enabled": "false",
        # What its pages would show is kept all the same, and grows for hours: plans of 1,000 executions, tasks of 1,000
        # stages.
        "spark.sql.ui.retainedExecutions": "20",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.ui.showConsoleProgress": "false",
        "spark.metrics.namespace": APPLICATION,
        # Hadoop sets the mode of each file that it makes: without this by a umask of its own, 022.
        "spark.hadoop.fs.permissions.umask-mode": f"{current_umask():03o}",
    }


def needs_s3_files(storage: StorageSettings) -> bool:
    """Whether Spark needs a file system for S3: for checkpoints alone, as tables there are written without Spark."""
    return scheme_of(storage.checkpoints) in S3_SCHEMES


def hadoop_options(storage: StorageSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Options of a session; empty where no checkpoints lie on S3. Raises UsageProblem as `s3_options` does.

    >>> storage = StorageSettings(checkpoints="s3://b/checkpoints", s3_endpoint="http://127.0.0.1:9000")
    >>> hadoop_options(storage, {"AWS_REGION": "eu-central-1"})["spark.hadoop.fs.s3a.endpoint.region"]
    'eu-central-1'
    """
    if not needs_s3_files(storage):
        return {}
    options = S3_FILE_SYSTEM | S3_BOUNDS
    endpoint = s3_options(storage, environment).get("aws_endpoint_url")
    if endpoint is not None:  # not AWS's own: a store without a host name for each bucket
        options |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    region = storage.s3_region or next((environment[name] for name in S3_REGIONS if environment.get(name)), None)
    if region is not None:
        options["fs.s3a.endpoint.region"] = region
    return {f"spark.hadoop.{name}": value for name, value in options.items()}


def driver_options(master: str) -> dict[str, str]:
    """Spark's options by which the driver of a local master has our jars on its class path, and uses the archive if
    there is one; empty for other masters, whose executors get the jars from the driver. Raises SetUpIncomplete.
    """
    if not master.startswith("local") or master.startswith("local-cluster"):
        return {}
    spark_options = {"spark.driver.extraClassPath": class_path("spark")}
    java_options = class_archive.options(class_archive.spark_archive_path())
    if java_options:
        spark_options[JAVA_OPTIONS] = " ".join(java_options)
    return spark_options


@cache
def scratch_folder() -> Path:
    """This process's own folder below TMPDIR or /tmp, removed as the process ends; raises SetUpIncomplete."""
    try:
        parent = Path(tempfile.gettempdir())
        removed = sum(
            _removed_if_abandoned(folder) for folder in sorted(parent.glob(f"{SCRATCH_PREFIX}*")) if _is_ours(folder)
        )
        if removed:
            log.info("scratch_of_killed_pipelines_removed", folders=removed, below=str(parent))
        for _ in range(SCRATCH_TRIES):
            folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent))
            # Until it is locked, another process may take it for an abandoned one.
            lock = _locked(folder)
            if lock is not None and folder.is_dir():
                atexit.register(_remove, folder, lock)
                return folder
    except OSError as error:
        raise SetUpIncomplete(f"Spark needs a folder for its local files below TMPDIR or /tmp: {error}") from None
    raise SetUpIncomplete(f"no folder below {parent} (TMPDIR) stays: another process removes each one")


def _is_ours(folder: Path) -> bool:
    """Anybody may write to /tmp: nothing is opened or removed where another user's link would lead."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _locked(folder: Path) -> int | None:
    """What keeps the folder locked while it is open; None where another process has locked or removed it."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _removed_if_abandoned(folder: Path) -> bool:
    """Removes the folder of a process that is gone; returns whether the folder was such and is removed."""
    try:
        lock = _locked(folder)
    except OSError:
        return False
    if lock is None:
        return False
    _remove(folder, lock)
    return not folder.exists()


def _remove(folder: Path, lock: int) -> None:
    """Java may still be removing its own part, so what is gone already is no error."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
