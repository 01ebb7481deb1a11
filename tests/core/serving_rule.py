"""Kafka's rule of which replica serves whom, replica by replica: what `assignor_core.load` is held to."""

from collections.abc import Sequence

from assignor_core.model import Rack, ReaderRacks


def served_parts(racks: Sequence[Rack], readers: ReaderRacks) -> tuple[float, ...]:
    """The part of a partition's bytes out that each replica serves; `racks` are those of its brokers, leader first."""
    parts = [0.0] * len(racks)
    to_leader = 1.0
    for rack, part in readers:
        if rack == racks[0] or rack not in racks:
            continue
        to_leader -= part
        followers = [slot for slot, other in enumerate(racks) if other == rack]
        for slot in followers:
            parts[slot] += part / len(followers)
    return (max(0.0, to_leader), *parts[1:])
