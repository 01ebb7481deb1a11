"""Racks of members and of replicas, and when Kafka's assignors look at them (KIP-881)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from assignor_core.assignors.indexed import IndexedGroup

Racks = frozenset[str]
PartitionRacks = Mapping[str, Sequence[Sequence[str | None]]]


def member_racks(group: IndexedGroup) -> list[str | None]:
    """Rack of every member; an empty rack id counts as none."""
    return [member.rack_id or None for member in group.members]


def topic_racks(group: IndexedGroup, racks: PartitionRacks, topic: int) -> list[Racks]:
    """Racks of the replicas of each partition of a topic; nulls are ignored, what is missing is empty."""
    count = int(group.index.starts[topic + 1] - group.index.starts[topic])
    given = racks.get(group.index.topics[topic], ())[:count]
    known = [frozenset(rack for rack in replicas if rack is not None) for replicas in given]
    return known + [frozenset()] * (count - len(known))


def racks_matter(readers: Iterable[str | None], partitions: Sequence[Racks]) -> bool:
    """Whether readers' racks meet replicas' racks and some partition lacks a rack that others have."""
    of_readers = {rack for rack in readers if rack is not None}
    of_partitions = frozenset(chain.from_iterable(partitions))
    return not of_readers.isdisjoint(of_partitions) and any(racks != of_partitions for racks in partitions)


def matches(reader: str | None, replicas: Racks) -> bool:
    """Whether a reader can read from its own rack; one without a rack reads anywhere."""
    return reader is None or reader in replicas
