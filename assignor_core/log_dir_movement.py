"""One replica that goes from one log dir of its broker to another (KIP-113), as plans hold it.

The controller knows nothing of it: brokers carry it out by themselves, and show it in DescribeLogDirs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assignor_core.live import PartitionKey, ReplicaKey, replica_name


@dataclass(frozen=True, slots=True)
class LogDirMovement:
    """Log dirs by their paths, as the broker shows them."""

    broker: int
    topic: str
    partition: int
    old_log_dir: str
    new_log_dir: str
    bytes_to_move: float
    """Log size of the replica: all of it is copied."""
    reason: str = ""

    @property
    def key(self) -> PartitionKey:
        """(topic, partition)."""
        return (self.topic, self.partition)

    @property
    def replica(self) -> ReplicaKey:
        """(broker, (topic, partition))."""
        return (self.broker, self.key)

    @property
    def content(self) -> list[Any]:
        """What of it is hashed: what would be executed."""
        return [self.broker, self.topic, self.partition, self.old_log_dir, self.new_log_dir]

    def to_json(self) -> dict[str, Any]:
        """Returns the movement as a plan's JSON has it."""
        return {
            "broker": self.broker,
            "topic": self.topic,
            "partition": self.partition,
            "old_log_dir": self.old_log_dir,
            "new_log_dir": self.new_log_dir,
            "bytes_to_move": self.bytes_to_move,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "LogDirMovement":
        """Reads what `to_json` wrote; raises KeyError, TypeError, ValueError on a misfit."""
        return cls(
            int(entry["broker"]),
            str(entry["topic"]),
            int(entry["partition"]),
            str(entry["old_log_dir"]),
            str(entry["new_log_dir"]),
            float(entry["bytes_to_move"]),
            str(entry["reason"]),
        )


def misplanned(movements: Iterable[LogDirMovement]) -> list[str]:
    """What is wrong with movements of one plan, whatever the cluster looks like; empty if nothing is.

    >>> there, back = (LogDirMovement(1, "t", 0, "/a", path, 5.0) for path in ("/b", "/a"))
    >>> misplanned([there]), misplanned([back])
    ([], ['t-0 on broker 1: would stay in /a'])
    """
    problems, seen = [], set()
    for movement in movements:
        if movement.replica in seen:
            problems.append(f"{replica_name(movement.replica)}: planned twice")
        if movement.old_log_dir == movement.new_log_dir:
            problems.append(f"{replica_name(movement.replica)}: would stay in {movement.new_log_dir}")
        seen.add(movement.replica)
    return problems
