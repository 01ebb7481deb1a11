"""One look at the cluster: what was read, without any judgement. None stands for what could not be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PartitionKey = tuple[str, int]
ReplicaKey = tuple[int, PartitionKey]
"""(broker, (topic, partition))."""
Part = Literal["offsets", "sizes", "counters"]
"""What is read from each broker: offsets of what it leads, log sizes, JMX counters."""

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Metadata and offsets of one partition; `topic_id` changes when a topic is deleted and made again."""

    topic_id: str
    leader: int
    replicas: tuple[int, ...]
    adding_replicas: frozenset[int] = frozenset()
    log_start_offset: int | None = None
    log_end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class LogDirs:
    """Disks of one broker, bytes; usable is None on brokers before 3.3."""

    used_bytes: int
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class BrokerCounters:
    """Counters of one broker since its start, from JMX: all of `contract.rates` by stem, and bytes out by topic."""

    totals: Mapping[str, float]
    topic_bytes_out: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Owner:
    """The member that owns a partition."""

    member_id: str
    client_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_regex: str | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of any kind: state, owners and committed offsets by partition.

    Of a share group `committed` has the start offsets, and nobody owns a partition alone.
    """

    state: str
    committed: Mapping[PartitionKey, int]
    owners: Mapping[PartitionKey, Owner]
    generation_id: int | None = None
    group_type: str | None = None
    members: int | None = None
    """Those that own nothing too; None where the group was not described."""
    targets: Mapping[PartitionKey, str] = field(default_factory=dict)
    """Member id of who shall own a partition."""
    assignor: str | None = None
    topology_epoch: int | None = None
    lags: Mapping[PartitionKey, int | None] = field(default_factory=dict)
    """Lags that the coordinator sends itself, and None where it does not know one."""
    read_ms: int | None = field(default=None, compare=False)
    """When the offsets were fetched: of an idle group, some looks ago."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that was read in one sample, which began at `time_ms`."""

    time_ms: int
    racks: Mapping[int, str | None]
    partitions: Mapping[PartitionKey, PartitionView]
    sizes: Mapping[ReplicaKey, int]
    log_dirs: Mapping[int, LogDirs]
    counters: Mapping[int, BrokerCounters]
    groups: Mapping[str, GroupView]
    groups_left_out: Mapping[int, int] = field(default_factory=dict)
    """Groups that were not read since there are more than `collect.groups_max`, by the broker that coordinates them."""
    read_ms: Mapping[tuple[Part, int], int] = field(default_factory=dict)
    """When a part was read from a broker."""

    def when_ms(self, part: Part, broker: int) -> int:
        """When this part was read from the broker; when the sample began, where that isn't known."""
        return self.read_ms.get((part, broker), self.time_ms)
