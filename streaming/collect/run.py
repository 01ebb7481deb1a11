"""The collector's loop: observe, compare with the observation before, write the two topics.

Whatever fails makes one sample late or an interval unknown, never the loop end; only a signal ends it.
"""

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress

import structlog
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.cluster.answers import kafka_cluster_id
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client, reaching
from streaming.cluster.record_sender import PythonSender, RecordSender
from streaming.cluster.topics import create_input_topics
from streaming.collect.counters import PrometheusSource
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.reports import RecordMaker
from streaming.collect.sample import ClusterSample, RefusedRequests
from streaming.collect.shards import Shard
from streaming.errors import AnotherCluster, ClusterUnreachable, RebalancerError, TableUnavailable
from streaming.runtime import clocks
from streaming.runtime.cluster_threads import ClusterThreads
from streaming.runtime.own_process import stopped_by_signals
from streaming.settings import CollectSettings, KafkaSettings, Settings, TopicSettings
from streaming.settings.changes import AdjustBy
from streaming.views.identity import check_cluster_id

log = structlog.get_logger()

FAILURES_BEFORE_RECONNECT = 3
REST_SHARE = 0.1


def run_collect(settings: Settings) -> int:
    """Sample until SIGTERM or SIGINT; returns the exit code.

    Raises ClusterUnreachable if the first contact fails, ClusterRequestFailed if the topics can't be made.
    """
    return _collect(settings, stopped_by_signals())


def run_collects(clusters: Mapping[str, Settings], adjust_by: AdjustBy) -> int:
    """Sample several clusters until SIGTERM or SIGINT, each in a thread with clients of its own. What ends the sampling
    of one cluster is logged, and that cluster is tried again after a pause.
    """
    threads = ClusterThreads("collect", clusters, _collect, stopped_by_signals())
    adjust_by(threads.adjust)
    return threads.run()


def _collect(settings: Settings, stopping: threading.Event) -> int:
    with Collector(
        settings.kafka, settings.topics, settings.collect, settings.storage.tables,
        window_ms=settings.pipeline.window_ms,
    ) as collector:  # fmt: skip
        log.info("collect_started", kafka_cluster=settings.kafka.cluster_name, shard=settings.collect.shard)
        while not stopping.is_set():
            began = time.monotonic()
            collector.sample(now_ms=clocks.now_ms())
            took_s, interval_s = time.monotonic() - began, settings.collect.sample_interval_ms / 1000
            if took_s > interval_s:
                log.warning("sample_interval_stretched", took_s=round(took_s, 1), sample_interval_s=interval_s)
            stopping.wait(pause_s(took_s, interval_s))
    log.info("collect_stopped")
    return 0


def pause_s(took_s: float, interval_s: float) -> float:
    """Seconds from the end of a sample to the beginning of the next one. Samples never overlap.

    Where a sample takes longer than the interval, the brokers rest for a tenth of its time: the interval is stretched.
    """
    return interval_s - took_s if took_s <= interval_s else took_s * REST_SHARE


class Collector:
    """Clients and the last observation; a context manager that closes them.

    The tables below `root` may know which Kafka cluster is meant; nothing else of them is read. With `window_ms`,
    the length of the pipeline's windows, what doesn't change is reported less often (see `reports`).
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: TopicSettings,
        collect: CollectSettings,
        root: str,
        *,
        window_ms: int | None = None,
    ) -> None:
        self._kafka = kafka
        self._collect = collect
        self._shard = Shard.of(collect.shard)
        self._groups = GroupSampler(self._shard)
        self._refusals = RefusedRequests()
        self._reports = RecordMaker(
            kafka.cluster_name, topics, interval_ms=collect.sample_interval_ms, window_ms=window_ms, shard=self._shard
        )
        self._failures = 0
        # Whatever fails here is tried again and again where clusters share the process: no client may stay open.
        with ExitStack() as opened:
            self._admin = admin_client(kafka)
            opened.callback(self._admin.close)
            self._reads = BrokerReads(self._admin)
            # librdkafka's wheels come without Kerberos.
            self._sender = PythonSender(kafka) if kafka.mechanism == "GSSAPI" else RecordSender(kafka)
            opened.callback(self._sender.close)
            self._prometheus = PrometheusSource.of(collect)
            self._kafka_cluster_id = _meant_cluster_id(self._admin, kafka, root)
            create_input_topics(self._admin, topics)
            opened.pop_all()

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, *_error: object) -> None:
        self._admin.close()
        self._sender.close()

    def sample(self, *, now_ms: int) -> int:
        """One observation; returns the number of records that the brokers acknowledged.

        0 where reading failed; the first sample has no rates, as these need two.
        """
        try:
            after = observe(
                self._reads, self._groups, self._collect, now_ms=now_ms, kafka_cluster_id=self._kafka_cluster_id,
                shard=self._shard, before=self._reports.partitions_before, refusals=self._refusals,
                prometheus=self._prometheus,
            )  # fmt: skip
            written = self._write(after)
        except (KafkaError, OSError, AnotherCluster, ClusterUnreachable) as error:
            self._failures += 1
            log.warning("sample_failed", error=f"{type(error).__name__}: {error}", failures=self._failures)
            if self._failures % FAILURES_BEFORE_RECONNECT == 0:
                self._reconnect()
            return 0
        self._failures = 0
        self._log_traffic(written)
        return written

    def _log_traffic(self, records: int) -> None:
        """What the sample has asked of the brokers: requests besides JMX and Produce."""
        traffic = self._admin.traffic.taken().values()
        log.debug(
            "sampled",
            records=records,
            brokers=len(traffic),
            requests=sum(row.requests for row in traffic),
            requests_of_a_broker_max=max((row.requests for row in traffic), default=0),
            sent_bytes=sum(row.sent_bytes for row in traffic),
            received_bytes=sum(row.received_bytes for row in traffic),
            received_bytes_of_a_broker_max=max((row.received_bytes for row in traffic), default=0),
        )

    def _write(self, after: ClusterSample) -> int:
        written = 0
        for topic, records in self._reports.of(after):
            written += self._sender.send(topic, records)
        delivered = written - self._sender.flush(broker_hangs=bool(after.unanswering))
        if written and delivered <= 0:
            raise ClusterUnreachable("no broker has acknowledged a record of this sample")
        self._reports.arrived()
        return delivered

    def _reconnect(self) -> None:
        """A fresh client: the old one may hold on to brokers that are gone."""
        try:
            fresh = admin_client(self._kafka)
        except RebalancerError as error:
            log.warning("reconnect_failed", error=str(error))
            return
        self._admin.close()
        self._admin, self._reads = fresh, BrokerReads(fresh)


def _meant_cluster_id(admin: KafkaAdminClient, kafka: KafkaSettings, root: str) -> str:
    """Kafka's own id of the cluster that answers; raises AnotherCluster if settings or tables name another one.

    The collector needs no tables: where it can't read any, only the setting counts.
    """
    with reaching(kafka):
        actual = kafka_cluster_id(admin)
    with suppress(TableUnavailable):
        check_cluster_id(kafka, root, actual)
    return actual
