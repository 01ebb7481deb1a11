"""Kafka's own replica placement for new topics and added partitions: by count, blind to load.

Owns the algorithm of Kafka's `AdminUtils.assignReplicasToBrokers` as observed on the class itself (4.0.2, its last
release), rack-unaware and rack-aware. The module reads no load and no cluster and draws no random number: a caller
that wants Kafka's random start draws the number and passes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assignor_core.errors import InputError, InvalidPartitions, InvalidRackInformation, InvalidReplicationFactor
from assignor_core.model import INT32_MAX
from assignor_core.ordering import utf16_order
from assignor_core.wording import counted

REPLICAS_MAX = 3_000_000
"""Partitions x replication factor in one call: a million partitions of three replicas, more than a topic ever has."""


@dataclass(frozen=True, slots=True)
class PlacementBroker:
    """A broker as placement sees it: its id and, maybe, its rack."""

    broker_id: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PlacementStart:
    """Start of the round of placement: index of the first leader and first shift of the followers, each 0 or more."""

    start_index: int
    next_replica_shift: int

    @classmethod
    def fixed(cls, index: int) -> "PlacementStart":
        """Kafka's fixed start index gives both."""
        return cls(index, index)


def place_replicas(
    brokers: Sequence[PlacementBroker],
    partitions: int,
    replication_factor: int,
    start: PlacementStart,
    start_partition_id: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas of each partition, by partition id, the preferred leader first.

    Partition ids count up from `start_partition_id` (a negative one counts as 0). Raises InvalidPartitions,
    InvalidReplicationFactor, InvalidRackInformation; InputError for a broker id given twice.

    >>> three = [PlacementBroker(0), PlacementBroker(1), PlacementBroker(2)]
    >>> place_replicas(three, 4, 2, PlacementStart.fixed(0))
    {0: (0, 1), 1: (1, 2), 2: (2, 0), 3: (0, 2)}

    Racks alternate, and no rack gets a second replica before every rack has one:

    >>> racked = [PlacementBroker(0, "a"), PlacementBroker(1, "a"), PlacementBroker(2, "b")]
    >>> place_replicas(racked, 2, 2, PlacementStart.fixed(0))
    {0: (0, 2), 1: (2, 1)}
    """
    _validate(brokers, partitions, replication_factor)
    first_id = max(0, start_partition_id)
    if first_id + partitions - 1 > INT32_MAX:
        raise InvalidPartitions(
            f"partitions is {partitions} from number {first_id} on, must end with number {INT32_MAX} at most"
        )
    if brokers[0].rack is None:  # and so have none of them
        broker_ids = [broker.broker_id for broker in brokers]
        return _place_rack_unaware(broker_ids, partitions, replication_factor, start, first_id)
    racks = {broker.broker_id: broker.rack for broker in brokers if broker.rack is not None}
    return _place_rack_aware(racks, partitions, replication_factor, start, first_id)


def rack_alternated(racks: dict[int, str]) -> list[int]:
    """Broker ids, one rack after the other in turn: racks in Java's string order, brokers of a rack by id.

    >>> rack_alternated({0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"})
    [0, 3, 1, 5, 4, 2]
    """
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    turns = [
        (turn, utf16_order(rack), broker_id) for rack, ids in by_rack.items() for turn, broker_id in enumerate(ids)
    ]
    return [broker_id for _, _, broker_id in sorted(turns)]


def _validate(brokers: Sequence[PlacementBroker], partitions: int, replication_factor: int) -> None:
    if partitions <= 0:
        raise InvalidPartitions(f"partitions is {partitions}, must be larger than 0")
    if replication_factor <= 0:
        raise InvalidReplicationFactor(f"replication_factor is {replication_factor}, must be larger than 0")
    if replication_factor > len(brokers):
        available = counted(len(brokers), "available broker", "available brokers")
        raise InvalidReplicationFactor(f"replication_factor is {replication_factor}, larger than the {available}")
    if partitions * replication_factor > REPLICAS_MAX:
        replicas = counted(replication_factor, "replica", "replicas")
        raise InvalidPartitions(f"partitions is {partitions} with {replicas}, "
                                f"at most {REPLICAS_MAX} replicas can be placed at a time")  # fmt: skip
    if len({broker.broker_id for broker in brokers}) < len(brokers):
        raise InputError("a broker_id occurs twice in brokers, each must be unique")
    without_rack = sum(broker.rack is None for broker in brokers)
    if 0 < without_rack < len(brokers):
        have = f"{without_rack} of {len(brokers)} brokers {'has' if without_rack == 1 else 'have'} no rack"
        raise InvalidRackInformation(f"{have}, must be all or none")


def _place_rack_unaware(
    broker_ids: list[int], partitions: int, replication_factor: int, start: PlacementStart, first_id: int
) -> dict[int, tuple[int, ...]]:
    count = len(broker_ids)
    shift = start.next_replica_shift
    placed = {}
    for partition in range(first_id, first_id + partitions):
        shift += partition > 0 and partition % count == 0
        first = (partition + start.start_index) % count
        followers = [_follower_index(first, shift + j, count) for j in range(replication_factor - 1)]
        placed[partition] = (broker_ids[first], *[broker_ids[index] for index in followers])
    return placed


def _place_rack_aware(
    racks: dict[int, str], partitions: int, replication_factor: int, start: PlacementStart, first_id: int
) -> dict[int, tuple[int, ...]]:
    broker_ids = rack_alternated(racks)
    count = len(broker_ids)
    rack_count = len(set(racks.values()))
    shift = start.next_replica_shift
    placed = {}
    for partition in range(first_id, first_id + partitions):
        shift += partition > 0 and partition % count == 0
        first = (partition + start.start_index) % count
        chosen = [broker_ids[first]]
        racks_used = {racks[chosen[0]]}
        # Any count - 1 steps in a row visit every other broker once, so each replica is found within them.
        steps = iter(range((count - 1) * (replication_factor - 1)))
        while len(chosen) < replication_factor:
            step = next(steps)
            broker_id = broker_ids[_follower_index(first, shift * rack_count + step, count)]
            new_rack = racks[broker_id] not in racks_used or len(racks_used) == rack_count
            if new_rack and broker_id not in chosen:
                chosen.append(broker_id)
                racks_used.add(racks[broker_id])
        placed[partition] = tuple(chosen)
    return placed


def _follower_index(first: int, shift: int, count: int) -> int:
    return (first + 1 + shift % (count - 1)) % count
