"""What an assignor is given and what it gives back. Owns the shapes and their validation; knows no strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assignor_core.errors import InvalidGroup

TopicPartition = tuple[str, int]
"""(topic, partition)."""

NO_GENERATION = -1
"""The generation of a member that reports none."""

PARTITIONS_MAX = 10_000_000
MEMBERS_MAX = 1_000_000
WEIGHT_MAX = 1e100
CAPACITY_MIN, CAPACITY_MAX = 1e-50, 1e50
"""Within these, shares and their products are numbers above 0 in floats."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member, as it joins: what it reads, what it claims to own and since which generation.

    `capacity` is relative to the other members' and counts for the load-aware strategy only. An empty rack id is none.
    """

    topics: Sequence[str]
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    rack_id: str | None = None
    capacity: float = 1.0


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group at a rebalance. Raises InvalidGroup where its parts don't fit together.

    `partition_racks`: racks of the replicas of each partition of a topic, in partition order; None is an unknown rack.
    `partition_weights`: load of each partition of a topic, in partition order; NaN is an unknown one, and topics and
    partitions may be missing.
    """

    partitions_per_topic: Mapping[str, int]
    members: Mapping[str, MemberSpec]
    partition_racks: Mapping[str, Sequence[Sequence[str | None]]] = field(default_factory=dict)
    partition_weights: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.members) > MEMBERS_MAX:
            raise InvalidGroup(f"members are {len(self.members)}, at most {MEMBERS_MAX} can be served")
        self._validate_partitions()
        self._validate_weights()

    def _validate_partitions(self) -> None:
        for topic, count in self.partitions_per_topic.items():
            if count < 0:
                raise InvalidGroup(f"partitions_per_topic of {topic!r} is {count}, must be 0 or more")
        total = sum(self.partitions_per_topic.values())
        if total > PARTITIONS_MAX:
            raise InvalidGroup(f"partitions_per_topic sums to {total}, at most {PARTITIONS_MAX} can be assigned")

    def _validate_weights(self) -> None:
        for topic, weights in self.partition_weights.items():
            wrong = next((weight for weight in weights if weight < 0 or weight > WEIGHT_MAX), None)
            if wrong is not None:
                raise InvalidGroup(f"partition_weights of {topic!r} holds {wrong}, must be between 0 and {WEIGHT_MAX}")
        for member_id, member in self.members.items():
            if not CAPACITY_MIN <= member.capacity <= CAPACITY_MAX:
                raise InvalidGroup(
                    f"capacity of {member_id!r} is {member.capacity}, must be between {CAPACITY_MIN} and {CAPACITY_MAX}"
                )


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """Partitions of every member (an idle one has none), in the order of the members' ids.

    `transferring`: partitions nobody gets in this rebalance because a live member has yet to give them up; always
    empty for the eager strategies.
    """

    assignment: Mapping[str, Sequence[TopicPartition]]
    transferring: Sequence[TopicPartition] = ()


def balance_score(sizes: Sequence[int]) -> int:
    """Sum over pairs of members of the difference in partitions; 0 is perfect.

    >>> balance_score([3, 2, 2])
    2
    """
    last = len(sizes) - 1
    return sum((2 * rank - last) * size for rank, size in enumerate(sorted(sizes)))
