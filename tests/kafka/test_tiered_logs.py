"""Tiered, compacted and re-created topics on real brokers: what looks add up to is what the brokers count, within 2 %,
and a plan copies of a tiered log only what lies on disks, or what is not uploaded yet, as it names before.
"""

import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError

from assignor_core.proposed_plan import ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.rates import RecordBytes, learned, replica_rates
from streaming.collect.sample import ClusterSample
from streaming.control.journal import ExecutionRecord
from streaming.control.planning import propose_live
from streaming.control.policies import planner_policy
from streaming.control.wiring import executor_of, journal_of, window_tables_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.runtime.jars import class_path
from streaming.settings import Settings
from tests.collect.by_row import ReplicaRates, partition_views, rates_of
from tests.control.windows import write_windows
from tests.kafka.test_executor import carry_out
from tests.topics import set_settings, wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

MB = 1 << 20
VALUE = bytes(range(250)) * 4
KEYS = 100
PER_SECOND = 700
"""Records of a steady producer."""
SEGMENT_BYTES, LOCAL_BYTES = MB, 2 * MB
"""Local retention keeps the newest segments that have `LOCAL_BYTES` together, so less than one segment more."""
TIERED = {
    "remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": str(LOCAL_BYTES),
    "retention.bytes": "-1",
}  # fmt: skip
NEVER, ALWAYS = "1.0", "0.0"
"""Shares of a log that must be dirty before it is compacted."""
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(MB), "min.cleanable.dirty.ratio": NEVER}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Two that share a remote storage, and look every second for what they may delete."""
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": class_path("tiered"),
        "rsm.config.dir": str(tmp_path_factory.mktemp("remote")),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "500",
    }
    with EmbeddedCluster(tmp_path_factory.mktemp("kafka-tiered"), 2, broker_settings=settings) as cluster:
        yield cluster


@pytest.fixture
def settings(brokers: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "test", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path_factory.mktemp("home") / "tables")},
        }
    )


@pytest.fixture
def admin(settings: Settings) -> Iterator[Any]:
    client = admin_client(settings.kafka)
    yield client
    client.close()


@dataclass
class Watch:
    """The collector's looks, without its topics; all that a look reads counts as read at one moment."""

    admin: Any
    settings: Settings
    before: ClusterSample | None = None
    known: RecordBytes | None = None
    measured_bytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rates: dict[tuple[str, int], ReplicaRates] = field(default_factory=dict)
    """Of leaders, at the newest look."""

    def look(self) -> ClusterSample:
        before = self.before
        seen = observe(
            BrokerReads(self.admin), GroupSampler(), self.settings.collect, now_ms=time.time_ns() // 1_000_000,
            before=before.partitions if before else None,
        )  # fmt: skip
        after = replace(seen, read_ms={})
        if before is not None:
            self.known = learned(self.known, before, after)
            rates = replica_rates(before, after, known=self.known)
            self.rates = {key: row for (_, key), row in rates_of(rates).items() if row.role == "leader"}
            for (topic, _), row in self.rates.items():
                self.measured_bytes[topic] += (row.bytes_in or 0.0) * (after.time_ms - before.time_ms) / 1000
        self.before = after
        return after


def counted_bytes(brokers: EmbeddedCluster, topic: str) -> float:
    """What clients have written to a topic, by the meters of its brokers."""
    pattern = re.compile(rf'^kafka_server_brokertopicmetrics_bytesin_total{{topic="{topic}",?}} (\S+)$', re.MULTILINE)
    pages = [httpx.get(url, timeout=60).text for url in brokers.jmx_endpoints.values()]
    return sum(float(found.group(1)) for page in pages for found in pattern.finditer(page))


def made(admin: Any, configs: dict[str, str], *replicas: list[int], name: str | None = None) -> str:
    """A topic; a broker that has just started may still be fenced, and one that is being deleted is still there."""
    topic = name or f"t-{uuid.uuid4().hex[:8]}"

    def is_made() -> bool:
        try:
            admin.create_topics({topic: {"assignments": dict(enumerate(replicas)), "configs": configs}})
        except TopicAlreadyExistsError:
            return name is None
        except KafkaError:
            return False
        return True

    until("the topic is made", is_made)
    wait_until_known(admin, [topic])
    return topic


class Writer:
    """Writes records of one size, with the same few keys over and over, to all partitions of a topic in turn."""

    def __init__(self, settings: Settings, topic: str, partitions: int = 1) -> None:
        self._producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all", linger_ms=20)
        self._topic, self._partitions, self._sent = topic, partitions, 0

    def write(self, records: int) -> None:
        """Until the brokers have them."""
        for _ in range(records):
            key = str(self._sent % KEYS).encode()
            self._producer.send(self._topic, VALUE, key=key, partition=self._sent % self._partitions)
            self._sent += 1
        self._producer.flush()

    def write_on(self, stopping: threading.Event) -> None:
        """At a steady rate, until stopped."""
        while not stopping.wait(0.1):
            self.write(PER_SECOND // 10)

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def writer_of(settings: Settings) -> Iterator[Callable[..., Writer]]:
    writers: list[Writer] = []

    def make(topic: str, partitions: int = 1) -> Writer:
        writers.append(Writer(settings, topic, partitions))
        return writers[-1]

    yield make
    for writer in writers:
        writer.close()


def test_a_tiered_topic_is_measured_within_2_percent_while_local_retention_deletes(
    brokers: EmbeddedCluster, settings: Settings, admin: Any, writer_of: Callable[..., Writer]
) -> None:
    topic = made(admin, TIERED, [1], [2])
    writer, watch, stopping = writer_of(topic, 2), Watch(admin, settings), threading.Event()
    writer.write(2 * KEYS)
    watch.look()
    first = counted_bytes(brokers, topic)
    writing = threading.Thread(target=writer.write_on, args=(stopping,))
    writing.start()
    starts: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(starts) < 8:
            time.sleep(2)
            view = partition_views(watch.look().partitions)[topic, 0]
            assert view.log_start_offset == 0
            assert view.local_log_start_offset is not None
            starts.add(view.local_log_start_offset)
            assert time.monotonic() < deadline, f"local retention has deleted up to {sorted(starts)} only"
    finally:
        stopping.set()
        writing.join()

    def rests() -> ClusterSample | None:
        """A look at which nothing has left the disks since the one before."""
        before = sizes_of_leaders()
        seen = watch.look()
        return seen if sizes_of_leaders() == before else None

    def sizes_of_leaders() -> list[tuple[int | None, int | None]]:
        rates = (watch.rates[topic, number] for number in (0, 1))
        return [(row.size_bytes, row.remote_records) for row in rates]

    seen = until("local retention rests", rests, pause_s=1.0)
    grown = counted_bytes(brokers, topic) - first
    assert watch.measured_bytes[topic] == pytest.approx(grown, rel=0.02)
    for number in (0, 1):
        view, rates = partition_views(seen.partitions)[topic, number], watch.rates[topic, number]
        assert view.local_log_start_offset is not None
        assert rates.remote_records == view.local_log_start_offset > 0
        assert rates.remote_size_bytes == pytest.approx(rates.remote_records * len(VALUE), rel=0.1)
        assert rates.size_bytes is not None
        assert rates.size_bytes + (rates.remote_size_bytes or 0) == pytest.approx(grown / 2, rel=0.1)


def test_a_compacted_topic_is_measured_within_2_percent_while_the_cleaner_works(
    brokers: EmbeddedCluster, settings: Settings, admin: Any, writer_of: Callable[..., Writer]
) -> None:
    topic = made(admin, COMPACTED, [1])
    writer, watch = writer_of(topic), Watch(admin, settings)
    writer.write(KEYS)
    watch.look()
    first = counted_bytes(brokers, topic)

    def write_and_look(times: int) -> None:
        for _ in range(times):
            writer.write(3_000)
            watch.look()

    def size() -> int:
        rows = BrokerReads(admin).log_dirs(1)
        return sum(
            int(bytes_) for row in rows
            for place, bytes_ in zip(row.replicas.topic, row.replicas.rows["size"], strict=True)
            if row.replicas.topics[place] == topic
        )  # fmt: skip

    def compact() -> None:
        full = size()
        alter(admin, topic, ALWAYS)
        until("the log is compacted", lambda: size() < full / 2)
        alter(admin, topic, NEVER)

    write_and_look(3)
    compact()  # seen as such: the log is smaller than at the look before
    write_and_look(2)
    for _ in range(2):  # and hidden: written and compacted away in one look
        writer.write(3_000)
        compact()
        write_and_look(2)
    grown = counted_bytes(brokers, topic) - first
    assert size() < grown / 2
    assert watch.measured_bytes[topic] == pytest.approx(grown, rel=0.02)
    assert watch.rates[topic, 0].remote_records is None


def alter(admin: Any, topic: str, dirty_ratio: str) -> None:
    configs = {"min.cleanable.dirty.ratio": dirty_ratio}
    set_settings(admin, ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs))


def test_a_topic_made_again_is_unknown_once_and_measured_within_2_percent_from_then_on(
    brokers: EmbeddedCluster, settings: Settings, admin: Any, writer_of: Callable[..., Writer]
) -> None:
    topic = made(admin, TIERED, [1])
    old, watch = writer_of(topic), Watch(admin, settings)
    for _ in range(3):
        old.write(2_000)
        watch.look()
    old_id = partition_views(watch.look().partitions)[topic, 0].topic_id
    old.close()
    admin.delete_topics([topic])
    made(admin, TIERED, [2], name=topic)

    def is_another() -> bool:
        partitions = watch.look().partitions  # brokers hear of topics one after the other, and any of them may be asked
        return (topic, 0) in partition_views(partitions) and partition_views(partitions)[topic, 0].topic_id != old_id

    until("the new topic is seen", is_another)
    assert watch.rates[topic, 0].bytes_in is None
    first, watch.measured_bytes[topic] = counted_bytes(brokers, topic), 0.0
    writer = writer_of(topic)
    for _ in range(6):
        writer.write(2_000)
        watch.look()
        assert watch.rates[topic, 0].bytes_in is not None
    grown = counted_bytes(brokers, topic) - first
    assert watch.measured_bytes[topic] == pytest.approx(grown, rel=0.02)


@pytest.fixture
def begins_behind_uploads(request: pytest.FixtureRequest, admin: Any) -> Iterator[bool]:
    """Whether new replicas on broker 2, and on no other, begin behind what is uploaded (KIP-1023)."""
    set_on_broker_2(admin, is_on=request.param)
    yield request.param
    set_on_broker_2(admin, is_on=False)


def set_on_broker_2(admin: Any, *, is_on: bool) -> None:
    configs = {"follower.fetch.last.tiered.offset.enable": str(is_on).lower()}
    set_settings(admin, ConfigResource(ConfigResourceType.BROKER, "2", configs=configs))


@pytest.mark.parametrize("begins_behind_uploads", [False, True], indirect=True)
def test_a_plan_copies_of_a_tiered_log_what_it_says_before(
    brokers: EmbeddedCluster,
    settings: Settings,
    admin: Any,
    writer_of: Callable[..., Writer],
    begins_behind_uploads: bool,
) -> None:
    topic = made(admin, TIERED, [1])
    key, watch, cluster = (topic, 0), Watch(admin, settings), Cluster(admin)
    writer_of(topic).write(12_000)

    def settled() -> ReplicaRates | None:
        """All but the newest segments have left the disk, and nothing more goes."""
        before = watch.rates.get(key)
        watch.look()
        now = watch.rates.get(key)
        is_done = now is not None and 0 < (now.size_bytes or 0) < LOCAL_BYTES + SEGMENT_BYTES
        return now if is_done and now == before else None

    watch.look()
    rates = until(
        "local retention is done", settled, pause_s=5.0, state=lambda: f"the last look: {watch.rates.get(key)}"
    )
    assert rates.remote_size_bytes is not None
    assert rates.size_bytes is not None
    assert rates.remote_size_bytes > 2 * rates.size_bytes
    proposed = proposed_drain(cluster, settings, topic, rates.remote_size_bytes)
    (movement,) = proposed.plan.movements
    assert movement.new_replicas == (2,)
    whole = rates.size_bytes + rates.remote_size_bytes
    copied = movement.bytes_to_move
    if begins_behind_uploads:
        assert 0 < copied < SEGMENT_BYTES
        note = f"only what is not uploaded yet: {copied:.0f} of {whole} bytes, as brokers say with"
    else:
        assert copied == rates.size_bytes
        note = f"local bytes only: {copied:.0f} of {whole} bytes, the rest stays in remote storage"
    assert any(f"1 movement is of a tiered log and copies {note}" in line for line in proposed.plan.diagnosis)
    copied_before = copied_bytes(brokers)
    record = carried_out(cluster, settings, proposed)
    assert record.execution.figures.bytes_moved == round(copied)
    assert copied_bytes(brokers) - copied_before == pytest.approx(copied, rel=0.1)
    until("broker 2 leads it", lambda: partition_views(watch.look().partitions)[key].leader == 2)
    view = partition_views(watch.look().partitions)[key]
    assert (view.log_start_offset, view.log_end_offset) == (0, 12_000)
    assert view.local_log_start_offset is not None
    assert view.local_log_start_offset >= (rates.remote_records or 0)


def proposed_drain(cluster: Cluster, settings: Settings, topic: str, remote_bytes: int) -> ProposedPlan:
    """What moves the topic away from broker 1, made on windows that know of its remote part."""
    live, now_ms = cluster.describe(), time.time_ns() // 1_000_000
    window_ms = settings.pipeline.window_ms
    end_ms = now_ms // window_ms * window_ms
    write_windows(settings, live, end_ms=end_ms, remote_bytes={(topic, 0): remote_bytes})
    own = planner_policy(settings.planner, {name for name, _ in live.partitions})
    policy = replace(own, drain=frozenset({1}), only_topics=frozenset({topic}))
    return propose_live(
        cluster, live, window_tables_of(settings), settings.planner, now_ms=end_ms + 2 * window_ms, policy=policy
    )


def carried_out(cluster: Cluster, settings: Settings, proposed: ProposedPlan) -> ExecutionRecord:
    """The execution of an approved plan, at its end."""
    journal, now_ms = journal_of(settings), time.time_ns() // 1_000_000
    journal.write_plan(proposed, decision=None, now_ms=now_ms)
    approved = journal.plan(proposed.plan.plan_id)
    record = ExecutionRecord(journal.approve(approved, "a test", now_ms=now_ms, in_windows_only=False))
    executor = executor_of(cluster, journal, settings)
    assert executor.begin(record, approved, now_ms=now_ms)
    carry_out(executor, record, approved.plan)
    assert record.execution.last_event == "done"
    return record


def copied_bytes(brokers: EmbeddedCluster) -> float:
    """What reassignments have copied to the brokers, by their own meters."""
    pages = [httpx.get(url, timeout=60).text for url in brokers.jmx_endpoints.values()]
    found = [
        re.search(r"^kafka_server_brokertopicmetrics_reassignmentbytesin_total (\S+)$", page, re.M) for page in pages
    ]
    return sum(float(row.group(1)) for row in found if row)
