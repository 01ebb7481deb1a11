"""Room on disks right before movements are submitted: what fits, what waits, and what is given up.

The plan was proven on an earlier snapshot. Since then producers have written, others have moved replicas, a log dir may
have failed. So each submit rests on a fresh snapshot of the log dirs of the brokers that receive. A movement that does
not fit waits: retention may make room, and Kafka deletes what has left a broker after a minute. One that has not fitted
for `PATIENCE_MS` is skipped by name, so that the rest goes on. One process counts for itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from assignor_core.disks import LogDirs, catching_up, lacking_bytes, largest_replicas
from assignor_core.live import LiveCluster, PartitionKey, partition_name
from assignor_core.wording import counted

PATIENCE_MS = 600_000
"""Twice Kafka's `log.retention.check.interval.ms`: what retention and deletions make room for has had its chance."""
SNAPSHOTS_APART_MAX_MS = 120_000
"""Snapshots that are further apart don't follow each other: snapshots come every 10 s, and take a minute where brokers
hang.
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """For how long each snapshot has shown that something can't be begun."""

    since_ms: int
    seen_ms: int
    """The newest of these snapshots."""

    @property
    def is_too_long(self) -> bool:
        return self.seen_ms - self.since_ms >= PATIENCE_MS


def seen_waiting(before: Waiting | None, now_ms: int) -> Waiting:
    """What one more snapshot shows. Time without snapshots does not count, nor does any if the clock was set back.

    >>> seen_waiting(Waiting(0, 590_000), 600_000).is_too_long, seen_waiting(Waiting(0, 10_000), 600_000).is_too_long
    (True, False)
    """
    if before is None or not 0 <= now_ms - before.seen_ms <= SNAPSHOTS_APART_MAX_MS:
        return Waiting(now_ms, now_ms)
    return Waiting(before.since_ms, now_ms)


@dataclass(frozen=True, slots=True)
class RoomLeft:
    """Room on the disks of the brokers that receive, as one read shows it."""

    broker_bytes: Mapping[int, float | None]
    """Bytes that may still be copied to each broker; None where it does not show what is free."""
    replica_bytes: Mapping[PartitionKey, int]
    """What a new replica of each partition will hold."""
    silent: frozenset[int] = frozenset()
    """Brokers that were asked and did not answer: nothing is copied to them, nor from them."""

    def lacking(
        self, key: PartitionKey, receiving: Collection[int], taken: Mapping[int, float], *, leader: int | None = None
    ) -> str | None:
        """Why a new replica of the partition does not fit on one of the brokers `receiving`, in words; None if it does.

        `taken` are bytes that others of the same request take, by broker. `leader` sends the copies.

        >>> RoomLeft({1: 100.0}, {("t", 0): 60}).lacking(("t", 0), [1], {1: 50.0})
        'needs 60 bytes on broker 1, whose disks have room for 50'
        """
        silent = self.silent.intersection((*receiving, leader))
        if receiving and silent:
            return f"broker {min(silent)} did not answer a request for its log dirs"
        needed = self.replica_bytes.get(key, 0)
        for broker in sorted(receiving):
            room = self.broker_bytes.get(broker)
            if room is None:
                return f"broker {broker} does not show what is free on its disks"
            left = room - taken.get(broker, 0.0)
            # A disk at its ceiling takes nothing, not even what is empty still.
            if needed > left or left <= 0:
                return f"needs {needed:,} bytes on broker {broker}, whose disks have room for {max(0.0, left):,.0f}"
        return None


@dataclass(frozen=True, slots=True)
class WaitsForRoom:
    """Movements that did not fit when they were last read, and for how long; and those that were given up."""

    waiting: Mapping[PartitionKey, Waiting] = field(default_factory=dict)
    given_up: Mapping[PartitionKey, str] = field(default_factory=dict)
    """Movements that have not fitted for too long, with the reason; they stay so."""

    def after(self, lacking: Mapping[PartitionKey, str], now_ms: int) -> Self:
        """What is known after a snapshot. Only snapshots count: what was held back meanwhile may fit by now.

        >>> lacking, waits = {("t", 0): "needs 60 bytes"}, WaitsForRoom()
        >>> for snapshot in range(6):
        ...     waits = waits.after(lacking, snapshot * 100_000)
        >>> waits.given_up, waits.after(lacking, PATIENCE_MS).given_up
        ({}, {('t', 0): 'needs 60 bytes'})
        """
        waiting = {key: seen_waiting(self.waiting.get(key), now_ms) for key in lacking}
        too_long = {key: reason for key, reason in lacking.items() if waiting[key].is_too_long}
        return type(self)(waiting, {**too_long, **self.given_up})

    def without(self, keys: Collection[PartitionKey]) -> Self:
        """What is known after these were seen to fit."""
        return type(self)({key: row for key, row in self.waiting.items() if key not in keys}, self.given_up)


def waiting_text(lacking: Mapping[PartitionKey, str]) -> str:
    """Movements that wait for room, for people.

    >>> waiting_text({("t", 0): "needs 60 bytes on broker 1, whose disks have room for 50"})
    '1 movement waits for room on disks, first t-0: needs 60 bytes on broker 1, whose disks have room for 50'
    """
    key, reason = min(lacking.items())
    waiting = counted(len(lacking), "movement waits", "movements wait")
    return f"{waiting} for room on disks, first {partition_name(key)}: {reason}"


def to_give_up(
    left_bytes: Mapping[PartitionKey, int], ours: Collection[PartitionKey], usable_bytes: int | None
) -> list[PartitionKey]:
    """Copies into one log dir that no longer fit there together: of `ours` those with most left to copy, until the
    others fit. None where the broker does not show what is free (`usable_bytes`).

    >>> to_give_up({("t", 0): 60, ("t", 1): 30, ("t", 2): 90}, [("t", 0), ("t", 1)], 130)
    [('t', 0)]
    """
    too_much = 0 if usable_bytes is None else sum(left_bytes.values()) - usable_bytes
    chosen = []
    for key in sorted(ours, key=lambda one: (-left_bytes[one], one)):
        if too_much > 0 and left_bytes[key] > 0:
            chosen.append(key)
            too_much -= left_bytes[key]
    return chosen


def overflowing(live: LiveCluster, log_dirs: LogDirs, moving: Collection[PartitionKey]) -> list[PartitionKey]:
    """Returns the reassignments of `moving` whose new replicas would fill their log dir, sorted: others have written
    there since the reassignments began. `log_dirs` must show the leaders of what catches up, too.
    """
    largest, chosen, asked_for = largest_replicas(log_dirs), set[PartitionKey](), frozenset(moving)
    for broker, behind in catching_up(live, log_dirs.keys()).items():
        sizes = {key: size for row in log_dirs[broker] for key, size in row.replica_bytes.items()}
        full_bytes = {key: largest.get(key, 0) for key in behind}
        for row in log_dirs[broker]:
            left = lacking_bytes(row, sizes, full_bytes)
            ours = [key for key in left if key in asked_for and broker in live.partitions[key].adding_replicas]
            chosen.update(to_give_up(left, ours, row.usable_bytes))
    return sorted(chosen)
