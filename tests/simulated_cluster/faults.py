"""What a client of a simulated cluster may suffer: lost requests and answers, refusals, old or partial metadata.

Faults are planned by the caller, so that a story from a seed suffers the same each time.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from assignor_core.live import PartitionKey, ReplicaKey


class RequestKind(Enum):
    """The requests that a fault can be planned for."""

    DESCRIBE = "describe"
    LOG_DIRS = "log_dirs"
    REASSIGN = "reassign"
    ELECT = "elect"
    READ_THROTTLES = "read_throttles"
    CHANGE_THROTTLES = "change_throttles"
    READ_MARKERS = "read_markers"
    WRITE_MARKER = "write_marker"
    MOVE_WITHIN_BROKERS = "move_within_brokers"
    CORDON = "cordon"


class Fate(Enum):
    """What becomes of a request that gets no answer in time."""

    LOST = "lost"
    """It is never carried out."""
    ANSWER_LOST = "answer_lost"
    """It is carried out at once."""
    LATE = "late"
    """It is carried out later, as by a broker that was frozen."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Strikes the next request of a kind, or of any kind where `request` is None."""

    fate: Fate
    request: RequestKind | None = None
    delay_ms: int = 0
    """How late a late request is carried out."""


@dataclass(slots=True)
class ClientFaults:
    """The faults of one client; change them at any time."""

    planned: deque[PlannedFault] = field(default_factory=deque)
    refused: dict[PartitionKey, str] = field(default_factory=dict)
    """Names of errors by partition: a policy, for example, refuses their reassignment."""
    elections_refused: dict[PartitionKey, str] = field(default_factory=dict)
    """The same of elections of their preferred leaders."""
    within_refused: dict[ReplicaKey, str] = field(default_factory=dict)
    """The same by replica, of movements within brokers: neither begun nor given up."""
    throttles_refused: dict[int, str] = field(default_factory=dict)
    """The same by broker, of changes of its throttle rates; the other brokers of a request take theirs."""
    hidden_topics: set[str] = field(default_factory=set)
    """Topics that the client may not describe: Kafka leaves them out without an error."""
    metadata_lag_ms: int = 0
    """Metadata is up to this old; the controller's list of reassignments is always current."""
    controller_away_until_ms: int = 0
    """Until then no request reaches a controller."""

    def take(self, request: RequestKind) -> PlannedFault | None:
        """The next planned fault if it is for this kind of request; it is used up then."""
        if self.planned and self.planned[0].request in (None, request):
            return self.planned.popleft()
        return None
