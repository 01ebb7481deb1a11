"""Real groups for comparing with simulated ones: Java consumers told what to do, and what they and the brokers tell."""

import re
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import ElectionNotNeededError

from streaming.cluster.admin import PREFERRED
from streaming.demo.brokers import EmbeddedCluster
from tests.java_programs import program
from tests.waiting import DEADLINE_S, until

SESSION_MS, HEARTBEAT_MS = 6_000, 1_000
LOGGER = "root"
"""The coordinator's own logger exists only once a group does, which is too late to see the group's beginning."""
ELECTED = frozenset({0, ElectionNotNeededError.errno})
"""Error codes of partitions that their preferred replica leads."""
TIME_CHARACTERS = len("2026-11-26T09:11:23,123")
ASSIGNORS = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor", "consumer": "consumer"}
"""Words of `GroupMembers.java`; `consumer` is the protocol of KIP-848, in which brokers assign."""

GroupMove = tuple[str, int]
"""State and generation, as the trace of a simulation has them."""
WRITTEN = frozenset({"Stable", "Empty"})
"""A coordinator writes a group's generation to `__consumer_offsets` when it comes to these states."""


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """One line of a member."""

    at_ms: int
    group: str
    name: str
    what: str
    generation_id: int
    partitions: tuple[int, ...]


class JavaProcess:
    """A program of one source file that is told what to do by lines; a context manager that ends it."""

    def __init__(self, source: str, *arguments: str, **how: Any) -> None:
        """`how` are arguments of `program`."""
        self._process = subprocess.Popen(
            program(Path(__file__).with_name(source), *arguments, **how),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def send(self, *words: str) -> None:
        """One line."""
        assert self._process.stdin is not None
        assert self._process.poll() is None, "the JVM has ended"
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    @property
    def lines(self) -> IO[str]:
        """Its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout

    def kill(self) -> None:
        """It crashes."""
        self._process.kill()
        self._finish()

    def close(self) -> None:
        """It ends by itself, with all that it does."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(DEADLINE_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


class JavaMembers(JavaProcess):
    """A JVM with members of any groups."""

    def __init__(self, servers: list[str], events: list[MemberEvent]) -> None:
        super().__init__("GroupMembers.java", servers[0])
        self._events = events
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def start(self, group: str, name: str, topic: str, strategy: str, instance: str | None, *settings: str) -> None:
        """`settings`: NAME=VALUE of the consumer, or commit=true, or revoke.ms=N."""
        words = (group, name, topic, instance or "-", ASSIGNORS[strategy], SESSION_MS, HEARTBEAT_MS, *settings)
        self.send("start", *map(str, words))

    def trouble(self, kind: str, group: str, name: str) -> None:
        """Of a member that commits: `hang`, `slow` or `rewind`."""
        self.send(kind, group, name)

    def subscribe(self, group: str, name: str, topic: str) -> None:
        """Read this topic instead of the one before."""
        self.send("subscribe", group, name, topic)

    def stop(self, group: str, name: str) -> None:
        self.send("stop", group, name)

    def _finish(self) -> None:
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        super()._finish()

    def _read(self) -> None:
        for line in self.lines:
            if not line[:1].isdigit() or "T" in line[:20]:
                continue  # log4j says on standard output that it has no configuration
            at_ms, group, name, what, generation, *partitions = line.split()
            self._events.append(
                MemberEvent(int(at_ms), group, name, what, int(generation), tuple(map(int, partitions)))
            )


@contextmanager
def coordinators_that_log(cluster: EmbeddedCluster, logger: str = LOGGER, level: str = "INFO") -> Iterator[None]:
    """Brokers log every step of their groups meanwhile."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        _set_log_level(admin, cluster, logger, level)
        yield
        _set_log_level(admin, cluster, logger, "WARN")
    finally:
        admin.close()


def lead_as_preferred(admin: KafkaAdminClient) -> None:
    """Brokers coordinate the groups again that they should, once they are in sync.

    After a broker was away Kafka does so by itself, up to five minutes later: in the middle of a story.
    """

    def all_lead() -> bool:
        answer = admin.elect_leaders(PREFERRED, raise_errors=False)
        return not answer.error_code and all(
            partition.error_code in ELECTED
            for row in answer.replica_election_results
            if row.topic == "__consumer_offsets"
            for partition in row.partition_result
        )

    until("the preferred coordinators of all groups", all_lead)


def log_lines(cluster: EmbeddedCluster, group: str) -> list[str]:
    """What the brokers have logged about a group, oldest first: its coordinator may have moved."""
    lines = [
        line
        for broker in cluster.brokers
        for line in (broker.folder / "broker.log").read_text(encoding="utf-8", errors="replace").splitlines()
        if re.search(rf"\b{re.escape(group)}\b", line)
    ]
    return sorted(lines, key=lambda line: line[:TIME_CHARACTERS])


def group_moves(log: Iterable[str]) -> list[GroupMove]:
    """The states a group went through, from what brokers logged, in the words of a simulation's trace.

    Where its coordinator moved in the middle of a rebalance, only what was written counts: the broker that coordinates
    it now knows nothing of the rebalance, and members begin it again, from the same generation.
    """
    moves: list[GroupMove] = []
    for line in log:
        if "Unloading group metadata for generation" in line:
            while moves and moves[-1][0] not in WRITTEN:
                moves.pop()
        moves += _moves_of(line)
    return moves


def _moves_of(line: str) -> Iterator[GroupMove]:
    preparing = re.search(r"Preparing to rebalance group .* with old generation (\d+)", line)
    completing = re.search(r"Stabilized group \S+ generation (\d+)", line)
    stable = re.search(r"Assignment received from leader .* for generation (\d+)", line)
    empty = re.search(r"Group \S+ with generation (\d+) is now empty", line)
    for matches, state in (
        (preparing, "PreparingRebalance"), (completing, "CompletingRebalance"), (stable, "Stable"), (empty, "Empty"),
    ):  # fmt: skip
        if matches:
            yield state, int(matches[1])


def _set_log_level(admin: KafkaAdminClient, cluster: EmbeddedCluster, logger: str, level: str) -> None:
    level_of = {logger: level}
    loggers = [
        ConfigResource(ConfigResourceType.BROKER_LOGGER, str(broker.broker_id), level_of) for broker in cluster.brokers
    ]
    admin.alter_configs(loggers, raise_on_unknown=False, incremental=True)
