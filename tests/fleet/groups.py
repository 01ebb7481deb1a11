"""Consumer groups of a fleet, as their coordinators know them. Data, and how far each group has read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignor_core.live import PartitionKey

STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"
CONSUMER, SHARE = "consumer", "share"


@dataclass(frozen=True, slots=True)
class FleetMember:
    """A member; the two byte strings are what it sent when it joined, and what the leader gave it."""

    member_id: str
    client_id: str
    metadata: bytes = b""
    assignment: bytes = b""
    group_instance_id: str | None = None
    client_host: str = "/127.0.0.1"
    owned: Mapping[str, list[int]] = field(default_factory=dict)
    """Partitions by topic, of members of the newer protocols."""


@dataclass(frozen=True, slots=True)
class FleetGroup:
    """A group. What it has committed: the offsets of `committed`, or a share of what the log of `reads` holds."""

    group_id: str
    coordinator: int
    state: str = EMPTY
    group_type: str = "classic"
    protocol_type: str = CONSUMER
    protocol: str = ""
    members: tuple[FleetMember, ...] = ()
    committed: Mapping[PartitionKey, int] = field(default_factory=dict)
    reads: tuple[PartitionKey, ...] = ()
    read_share: float = 1.0
    """1 has read all; below that, the lag grows with the log."""
    epoch: int = 1
    """Of groups of the newer protocols."""


def member_of(
    member_id: str, client_id: str, assigned: Mapping[str, list[int]], *, generation_id: int = -1
) -> FleetMember:
    """A member of the classic protocol that rejoined after `generation_id`, with what it was assigned."""
    topics = sorted(assigned)
    joined = ConsumerProtocolSubscription(
        version=3, topics=topics, user_data=None, owned_partitions=[], generation_id=generation_id, rack_id=None
    )
    given = ConsumerProtocolAssignment(
        version=3, assigned_partitions=[(topic, assigned[topic]) for topic in topics], user_data=None
    )
    return FleetMember(member_id, client_id, bytes(joined.encode()), bytes(given.encode()))
