"""One execution on real brokers under live producers, hit by one fault at a random instant, then looked at.

    python -m tests.chaos.harness --runs 50 --seed 1

prints a line a run and a table at the end. What must hold after every run is in `Run.check`. A fault strikes within 8 s
of the approval with an odd seed, of the start of the execution with an even one.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from assignor_core import PlannerPolicy, cluster_from_json, propose
from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client, consumer
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import RebalancerError
from streaming.runtime import processes
from streaming.settings import Settings
from tests.chaos.faults import FAULTS, Expectation, log_dir_full
from tests.kafka.volumes import MIB, MountingNotPermitted, volumes
from tests.topics import wait_until_known
from tests.waiting import until

BROKERS = 4
SMALL_VOLUME = 256 * MIB
"""Of each of the two log dirs of the last broker; memory, as far as it is written to."""
PARTITIONS = 8
RECORDS_BEFORE = 1_500
VALUE_BYTES = 1_000
LINGER_MS = 200
"""librdkafka sends a request for each partition: at 20 ms these took nearly half of the brokers' CPU time."""
RECORDS_PER_SECOND = 400
THROTTLE = 500_000
STRIKE_WITHIN_S = 8.0
NEEDS_VOLUMES = log_dir_full.__name__
DEADLINE_S = 600.0
SETTLE_S = 60.0


@dataclass(slots=True)
class Run:
    """One topic, one plan, one control, one fault."""

    cluster: EmbeddedCluster
    folder: Path
    chance: random.Random
    topic: str
    goal: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """New replicas by partition; none: what the planner makes of the skew."""
    control_settings: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = field(init=False)
    admin: Any = field(init=False)
    control: subprocess.Popen[bytes] = field(init=False)
    controls: list[subprocess.Popen[bytes]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    placement: dict[int, tuple[int, ...]] = field(default_factory=dict)
    plan: Plan = field(init=False)
    acknowledged: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    seen_last: dict[int, str] = field(default_factory=dict)
    """Partitions that were not where they must be at the last look."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _sender: threading.Thread = field(init=False)

    @contextmanager
    def begun(self) -> Iterator[ExecutionRecord]:
        """Skewed topic, live producer, control, an approved plan; everything started is ended."""
        self.settings = self._settings()
        self.admin = admin_client(self.settings.kafka)
        self.make_topic()
        self._sender = threading.Thread(target=self._send)
        self._sender.start()
        self.control = self.start_control()
        try:
            yield self._approve()
        finally:
            self.stop_producer()
            for process in [self.control, *self.controls]:
                process.kill()
                process.wait()
            with suppress(KafkaError):
                self.admin.delete_topics([self.topic])  # disks are small
            self.admin.close()

    def start_control(self) -> subprocess.Popen[bytes]:
        """A control of its own process; its log lies in the run's folder."""
        config = self.folder / "rebalancer.yaml"
        config.write_text(self.settings.model_dump_json(), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "streaming", "control", "--config", str(config)]
        return processes.start(command, log=self.folder / "control.log")

    def untouched_partition(self) -> int:
        """A partition that the plan leaves alone."""
        return min(self.placement.keys() - {movement.partition for movement in self.plan.movements})

    def moved_partition(self) -> int:
        """A partition that the plan moves last."""
        return self.plan.movements[-1].partition

    def stop_producer(self) -> None:
        """Flush and stop; what was acknowledged is known then."""
        self._ended.set()
        self._sender.join()

    def end(self, record: ExecutionRecord) -> str:
        """Wait for the execution's end, with a control always running; returns its last event and why."""
        deadline = time.monotonic() + DEADLINE_S
        while not record.execution.ended:
            assert time.monotonic() < deadline, f"never ended: {record.execution.last}\n{self._log()}"
            if self.control.poll() is not None:
                self.control = self.start_control()
            self.read(record)
            time.sleep(0.5)
        return f"{record.execution.last_event}: {record.execution.last.detail}"

    def read(self, record: ExecutionRecord) -> None:
        """What the journal knows by now; nothing new while the tables can't be read."""
        with suppress(RebalancerError):
            executions = journal_of(self.settings).executions(now_ms=_now_ms())
            record.execution = next(row for row in executions if row.execution_id == record.execution.execution_id)

    def has_started(self, record: ExecutionRecord) -> bool:
        """Whether the journal shows the start."""
        self.read(record)
        return record.execution.started_ms is not None

    def check(self, record: ExecutionRecord, expected: Expectation) -> None:
        """What must hold after any fault."""
        self.stop_producer()
        started = sum(event.event is Event.STARTED for event in record.execution.events)
        # A plan that no longer fits, with a broker down, is refused before it begins.
        assert started == (record.execution.last_event is not Event.REFUSED), f"begun {started} times"
        assert [event.sequence for event in record.execution.events] == list(range(len(record.execution.events)))
        cluster = Cluster(self.admin)
        self._soon(lambda: cluster.throttle_rates() == {}, "a throttle rate was left")
        if expected.topic_gone:
            return
        self._soon(lambda: cluster.throttled_replicas([self.topic]) == {}, "a list of throttled replicas was left")
        self._soon(lambda: not self._misplaced(cluster, record, expected), "partitions are not where they must be")
        if expected.records_gone:
            return
        lost = {partition: (count, kept) for partition, count, kept in self._kept() if kept < count}
        assert not lost, f"acknowledged records are lost, partition: (acknowledged, found) {lost}"

    def _misplaced(self, cluster: Cluster, record: ExecutionRecord, expected: Expectation) -> dict[int, str]:
        """What is seen of partitions that are not whole, in sync and on two racks, or not where they were sent: by
        others, or by the plan where the journal holds `done`.
        """
        wanted = (
            {row.partition: row.new_replicas for row in self.plan.movements}
            if record.execution.last_event == "done"
            else {}
        )
        wanted |= dict(expected.placed_by_others)
        live = cluster.describe()
        placed = {key[1]: row for key, row in live.partitions.items() if key[0] == self.topic}
        misplaced = dict.fromkeys(self.placement.keys() - placed.keys(), "is not there")
        for partition, row in placed.items():
            racks = {live.broker_racks.get(broker) for broker in row.replicas}
            spread = len(racks) == 2 or partition in dict(expected.placed_by_others)
            whole = len(row.replicas) == len(row.isr) == 2 and not row.reassigning
            if not (whole and spread and row.replicas == wanted.get(partition, row.replicas)):
                misplaced[partition] = f"{row}, wanted {wanted.get(partition)}"
        self.seen_last = misplaced
        return misplaced

    def _kept(self) -> Iterator[tuple[int, int, int]]:
        """(partition, records acknowledged, distinct records found) for every partition."""
        reader = consumer(self.settings.kafka, auto_offset_reset="earliest", max_poll_records=10_000)
        try:
            for partition, count in sorted(self.acknowledged.items()):
                place = TopicPartition(self.topic, partition)
                reader.assign([place])
                end = reader.end_offsets([place])[place]
                kept: set[bytes] = set()
                deadline = time.monotonic() + SETTLE_S
                reader.seek_to_beginning(place)
                while reader.position(place) < end and time.monotonic() < deadline:
                    kept |= {row.value[:12] for rows in reader.poll(1_000).values() for row in rows}
                yield partition, count, len(kept)
        finally:
            reader.close()

    def _soon(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + SETTLE_S
        while True:
            with suppress(RebalancerError):
                if condition():
                    return
            assert time.monotonic() < deadline, f"{otherwise}: {self.seen_last}\n{self._log()}"
            time.sleep(0.3)

    def log_text(self) -> str:
        """What every control of this run has logged."""
        return (self.folder / "control.log").read_text()

    def _log(self) -> str:
        return self.log_text()[-4_000:]

    def _settings(self) -> Settings:
        return Settings.model_validate(
            {
                "kafka": {"bootstrap_servers": self.cluster.bootstrap_servers, "request_timeout_ms": 5_000},
                "storage": {"tables": str(self.folder / "tables"), "checkpoints": str(self.folder / "checkpoints")},
                "control": {
                    "tick_interval_ms": 500, "throttle_bytes_per_sec": THROTTLE,
                    "movements_in_flight_max": 2, "execution_deadline_ms": 150_000, **self.control_settings,
                },
            }
        )  # fmt: skip

    def make_topic(self) -> None:
        """Leaders on brokers 1 and 2 only, so that half of the partitions have to move."""
        self.placement = {number: ((1, 2), (2, 3))[number % 2] for number in range(PARTITIONS)}
        assignments = {number: list(replicas) for number, replicas in self.placement.items()}
        self.admin.create_topics({self.topic: {"assignments": assignments}})
        wait_until_known(self.admin, [self.topic])

    def _approve(self) -> ExecutionRecord:
        size = RECORDS_BEFORE * VALUE_BYTES
        while sum(self.acknowledged.values()) < RECORDS_BEFORE * PARTITIONS:
            time.sleep(0.1)
        load = {"bytes_in_per_sec": 1e6, "bytes_out_per_sec": 0.0, "disk_bytes": float(size)}
        model = {
            "brokers": [{"broker_id": row.broker_id, "rack": row.rack} for row in self.cluster.brokers],
            "partitions": [
                {"topic": self.topic, "partition": number, "replicas": list(replicas), "load": load}
                for number, replicas in self.placement.items()
            ],
        }
        moves = (Movement(self.topic, key, self.placement[key], new, 2.0 * size) for key, new in self.goal.items())
        planned = propose(cluster_from_json(model), PlannerPolicy())
        self.plan = Plan("chaos", tuple(moves)) if self.goal else planned
        journal = journal_of(self.settings)
        observed = Observed.of(self.plan, Cluster(self.admin).describe())
        kept = journal.write_plan(ProposedPlan(self.plan, observed), decision=None, now_ms=_now_ms())
        return ExecutionRecord(journal.approve(kept, "chaos", now_ms=_now_ms()))

    def _send(self) -> None:
        """Numbered records to all partitions in turn: fast at first, then at a steady rate, until told to stop."""
        producer = Producer(
            {"bootstrap.servers": ",".join(self.cluster.bootstrap_servers), "acks": "all", "linger.ms": LINGER_MS,
             "enable.idempotence": True, "message.timeout.ms": 120_000}
        )  # fmt: skip

        def delivered(error: object, message: Any) -> None:
            if error is None:
                self.acknowledged[message.partition()] += 1

        padding = "x" * (VALUE_BYTES - 12)
        number = 0
        while not self._ended.is_set():
            with suppress(BufferError):
                producer.produce(
                    self.topic, f"{number:012d}{padding}", partition=number % PARTITIONS, on_delivery=delivered
                )
                number += 1
            producer.poll(0)
            if number > RECORDS_BEFORE * PARTITIONS:
                self._ended.wait(1 / RECORDS_PER_SECOND)
        producer.flush(150)


def run_once(cluster: EmbeddedCluster, folder: Path, fault: str, seed: int, *, once_started: bool = False) -> str:
    """Strike with `fault` at a random instant; returns how the execution ended. Raises AssertionError.

    With `once_started` the time is counted from the start of the execution: on a busy machine control may need longer
    for that than a fault waits, and refuses a plan for a broker that is down.
    """
    chance = random.Random(f"{fault}-{seed}")
    folder.mkdir(parents=True)
    run = Run(cluster, folder, chance, f"chaos-{fault.replace('_', '-')}-{seed}")
    with run.begun() as record:
        if once_started:
            until("the execution starts", lambda: run.has_started(record), DEADLINE_S)
        time.sleep(chance.uniform(0.0, STRIKE_WITHIN_S))
        expected = FAULTS[fault](run)
        ending = run.end(record)
        run.check(record, expected)
    return "; ".join([ending, *run.notes])


def main() -> None:
    """Run as many as asked, faults in turn, and print how each ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--home", type=Path, help="folder for logs and tables, kept afterwards; one that is removed")
    options = parser.parse_args()
    names = options.faults.split(",")
    endings: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        home = options.home or Path(temporary)
        small = small_log_dirs(home, stack) if NEEDS_VOLUMES in names else {}
        if NEEDS_VOLUMES in names and not small:
            names.remove(NEEDS_VOLUMES)
        cluster = stack.enter_context(EmbeddedCluster(home / "kafka", BROKERS, log_dirs=small))
        for index in range(options.runs if names else 0):
            fault, seed = names[index % len(names)], options.seed + index // len(names)
            began = time.monotonic()
            try:
                ending = run_once(cluster, home / f"{fault}-{seed}", fault, seed, once_started=seed % 2 == 0)
            except AssertionError as error:
                ending = f"FAILED: {error}"
            endings[fault][ending.split(":")[0]] += 1
            print(f"{index + 1:3} {fault} seed {seed} {time.monotonic() - began:5.1f} s  {ending}", flush=True)
    print(json.dumps(endings, indent=2))
    sys.exit(any("FAILED" in counts for counts in endings.values()))


def small_log_dirs(home: Path, stack: ExitStack) -> dict[int, tuple[Path, ...]]:
    """Two small volumes for the last broker, given back with `stack`; none, and a line, where none can be mounted."""
    folders = [home / f"volume-{index}" for index in range(2)]
    try:
        stack.enter_context(volumes(*folders, size_bytes=SMALL_VOLUME))
    except MountingNotPermitted as error:
        print(f"{NEEDS_VOLUMES} is left out, as it needs the right to mount a small volume: {error}", flush=True)
        return {}
    # Below the mount: Kafka wants a folder that holds nothing but its own.
    return {BROKERS: tuple(folder / "data" for folder in folders)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
