"""What happened in a run, as data: one entry for everything that a reader of the group could see.

Owns the entries and their text; measures nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.consumer_protocol.messages import ConsumerGroupState
from assignor_core.group.states import GroupState


class What(Enum):
    """Kinds of entries; the values are the words of the text."""

    GROUP = "is"
    STARTED = "started"
    STOPPED = "stopped"
    CRASHED = "crashed"
    PAUSED = "paused"
    RESUMED = "resumed"
    JOINS = "joins"
    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"
    PUT_OUT = "put out"
    EPOCH = "is at"
    FAILED = "failed"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: who is a member, the group or a topic. Entries of the group have its state and generation.

    In the consumer protocol `generation_id` is the group epoch, or the member epoch of an entry EPOCH.
    """

    at_ms: int
    what: What
    who: str
    detail: str = ""
    partitions: Sequence[TopicPartition] = ()
    state: GroupState | ConsumerGroupState | None = None
    generation_id: int = -1

    def __str__(self) -> str:
        number = "epoch" if isinstance(self.state, ConsumerGroupState) else "generation"
        group = f"{self.state.value}, {number} {self.generation_id}:" if self.state else ""
        listed = " ".join(f"{topic}-{partition}" for topic, partition in self.partitions)
        parts = (f"{self.at_ms:>9}", self.who, self.what.value, group, self.detail, listed)
        return " ".join(part for part in parts if part)


def trace_text(trace: Iterable[Entry]) -> str:
    """The whole trace, a line an entry.

    >>> print(trace_text([Entry(12, What.REVOKED, "c-1", partitions=(("t", 0),))]), end="")
           12 c-1 revoked t-0
    """
    return "".join(f"{entry}\n" for entry in trace)
