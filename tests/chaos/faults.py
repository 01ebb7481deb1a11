"""What goes wrong while a plan is carried out: each fault strikes once and heals what it broke.

A fault that changes what may be expected afterwards says so in its `Expectation`.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.answers import kafka_cluster_id
from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import RebalancerError
from streaming.settings import KafkaSettings
from tests.java_programs import tool
from tests.kafka import volumes
from tests.waiting import DEADLINE_S, until

if TYPE_CHECKING:
    from tests.chaos.harness import Run

FROZEN_S = 20.0
"""Longer than the brokers' session, so that it runs out."""
NOTICED_MAX_S = 20.0
"""So long a fault waits for what it may bring: an execution that has ended by then notices nothing."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Beyond what always holds: the topic is gone, or what was written to it, or somebody else has placed partitions:
    (partition, replicas).
    """

    topic_gone: bool = False
    records_gone: bool = False
    placed_by_others: tuple[tuple[int, tuple[int, ...]], ...] = ()


def control_killed(run: "Run") -> Expectation:
    """kill -9 of control."""
    run.control.kill()
    run.control.wait()
    return Expectation()


def control_killed_beside_a_stand_by(run: "Run") -> Expectation:
    """The stand-by goes on where the other was killed."""
    stand_by = run.start_control()
    time.sleep(run.chance.uniform(0.0, 3.0))
    run.control.kill()
    run.control.wait()
    run.control = stand_by
    return Expectation()


def control_frozen_beside_a_stand_by(run: "Run") -> Expectation:
    """The frozen one wakes up after the other has taken over, and must do nothing."""
    holder = _lease_holder(run, other_than=None)
    frozen, run.control = run.control, run.start_control()
    run.controls.append(frozen)
    time.sleep(5.0)  # the stand-by has started and watches
    os.kill(frozen.pid, signal.SIGSTOP)
    began = time.monotonic()
    _lease_holder(run, other_than=holder)
    run.notes.append(f"taken over after {time.monotonic() - began:.1f} s")
    time.sleep(1.0)
    os.kill(frozen.pid, signal.SIGCONT)
    return Expectation()


def second_control(run: "Run") -> Expectation:
    """Two at once, nothing else."""
    run.controls.append(run.start_control())
    return Expectation()


def broker_killed(run: "Run") -> Expectation:
    """kill -9 of a broker, back after some seconds."""
    broker = run.chance.choice(sorted(run.cluster.process_ids()))
    run.cluster.kill_broker(broker)
    time.sleep(run.chance.uniform(1.0, 10.0))
    run.cluster.start_broker(broker)
    return Expectation()


def broker_frozen(run: "Run") -> Expectation:
    """A broker that answers nothing for 20 s."""
    process_id = run.chance.choice(sorted(run.cluster.process_ids().values()))
    _freeze([process_id], FROZEN_S)
    return Expectation()


def no_broker_answers(run: "Run") -> Expectation:
    """What control sees of a network that is cut: connections stand, nothing comes back."""
    _freeze(list(run.cluster.process_ids().values()), 5.0)
    return Expectation()


def tables_unavailable(run: "Run") -> Expectation:
    """The tables' folder is away for a while, a file in its place: neither read nor written."""
    folder = Path(run.settings.storage.tables)
    away = folder.with_name("tables-away")
    folder.rename(away)
    folder.write_text("not a folder")
    time.sleep(run.chance.uniform(1.0, 8.0))
    folder.unlink()
    away.rename(folder)
    return Expectation()


def foreign_reassignment(run: "Run") -> Expectation:
    """Kafka's own tool moves a partition that the plan leaves alone."""
    return _reassigned_by_kafkas_tool(run, run.untouched_partition())


def foreign_reassignment_of_ours(run: "Run") -> Expectation:
    """Kafka's own tool moves a partition that the plan moves, elsewhere."""
    return _reassigned_by_kafkas_tool(run, run.moved_partition())


def topic_deleted(run: "Run") -> Expectation:
    """The topic goes in the middle of its move."""
    run.stop_producer()
    run.admin.delete_topics([run.topic])
    return Expectation(topic_gone=True)


def topic_made_again(run: "Run") -> Expectation:
    """Another topic bears the name in the middle of the move, its partitions where they were: nobody approved that."""
    run.stop_producer()
    run.admin.delete_topics([run.topic])
    until("the topic is gone", lambda: run.topic not in run.admin.list_topics())
    run.make_topic()
    return Expectation(records_gone=True, placed_by_others=tuple(run.placement.items()))


def another_cluster_answers(run: "Run") -> Expectation:
    """All brokers are killed, and a broker of another cluster listens at the address of the first one for a while.

    It has a topic with the name and the partitions of the plan's. Nothing of it may be changed.
    """
    run.stop_producer()
    ids = sorted(run.cluster.process_ids())
    for broker in ids:
        run.cluster.kill_broker(broker)
    first = run.cluster.brokers[0]
    with EmbeddedCluster(run.folder / "other", 1, ports={first.broker_id: first.port}) as other:
        admin = admin_client(KafkaSettings(bootstrap_servers=other.bootstrap_servers))
        admin.create_topics({run.topic: {"assignments": {key: [1] for key in run.placement}}})
        other_id = kafka_cluster_id(admin)
        seen = _within(NOTICED_MAX_S, lambda: other_id in run.log_text())
        run.notes.append(f"control {'has' if seen else 'has not'} looked at the other cluster")
        time.sleep(run.chance.uniform(1.0, 5.0))
        cluster = Cluster(admin)
        assert cluster.throttle_rates() == {}, "a throttle rate was set on the other cluster"
        assert cluster.throttled_replicas([run.topic]) == {}, "a list of throttled replicas was set on the other one"
        assert cluster.markers() == (), "a marker was written on the other cluster"
        assert not cluster.describe().reassigning(), "partitions of the other cluster are reassigned"
        admin.close()
    run.cluster.start_broker(*ids)
    return Expectation()


def log_dir_full(run: "Run") -> Expectation:
    """A file of others fills the volume of a log dir: Kafka takes it offline. Room is made, the broker starts again."""
    (broker,) = run.cluster.log_dirs
    cluster = Cluster(run.admin)
    rows = sorted(cluster.log_dirs([broker])[broker], key=lambda row: row.path)
    holding = [row for row in rows if any(topic == run.topic for topic, _ in row.replica_bytes)]
    path = run.chance.choice(holding or rows).path
    volume = Path(path).parent
    volumes.fill(volume, usable_bytes=0)

    def offline() -> bool:
        with suppress(RebalancerError):
            return any(row.is_offline for row in cluster.log_dirs([broker])[broker])
        return False

    run.notes.append(f"the log dir {'is' if _within(NOTICED_MAX_S, offline) else 'is not'} offline")
    time.sleep(run.chance.uniform(1.0, 8.0))
    volumes.empty(volume)
    run.cluster.kill_broker(broker)
    run.cluster.start_broker(broker)
    return Expectation()


def topic_grown(run: "Run") -> Expectation:
    """Partitions are added to a topic that is being moved."""
    wanted = {"count": len(run.placement) + 2, "assignments": [[1, 2], [2, 3]]}
    run.admin.create_partitions({run.topic: wanted})
    return Expectation()


FAULTS: dict[str, Callable[["Run"], Expectation]] = {
    fault.__name__: fault
    for fault in (
        control_killed,
        control_killed_beside_a_stand_by,
        control_frozen_beside_a_stand_by,
        second_control,
        broker_killed,
        broker_frozen,
        no_broker_answers,
        tables_unavailable,
        foreign_reassignment,
        foreign_reassignment_of_ours,
        topic_deleted,
        topic_made_again,
        topic_grown,
        another_cluster_answers,
        log_dir_full,
    )
}


def _lease_holder(run: "Run", *, other_than: str | None) -> str:
    """Who holds the lease, once somebody does who is not `other_than`."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        rows = tables.read(run.settings.storage.tables, "lease")
        if rows and rows[0]["owner"] != other_than:
            return str(rows[0]["owner"])
        assert time.monotonic() < deadline, f"nobody took the lease from {other_than}"
        time.sleep(0.2)


def _within(limit_s: float, condition: Callable[[], bool]) -> bool:
    """Whether the condition holds before the limit is over."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


def _freeze(process_ids: list[int], duration_s: float) -> None:
    for process_id in process_ids:
        os.kill(process_id, signal.SIGSTOP)
    time.sleep(duration_s)
    for process_id in process_ids:
        os.kill(process_id, signal.SIGCONT)


def _reassigned_by_kafkas_tool(run: "Run", partition: int) -> Expectation:
    old = run.placement[partition]
    new = tuple(sorted({1, 2, 3, 4} - set(old)))
    wanted = {"version": 1, "partitions": [{"topic": run.topic, "partition": partition, "replicas": list(new)}]}
    file = run.folder / "foreign.json"
    file.write_text(json.dumps(wanted))
    command = tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "--bootstrap-server", ",".join(run.cluster.bootstrap_servers), "--reassignment-json-file", str(file),
        "--execute", "--additional",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    # The tool refuses a partition that is being moved already: then nothing foreign has happened.
    started = "Successfully started" in done.stdout
    return Expectation(placed_by_others=((partition, new),) if started else ())
