"""One look at the cluster: what was read, without any judgement. None stands for what could not be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streaming.collect.group_table import GroupTable
from streaming.collect.partition_table import PartitionKey, PartitionTable, SizeTable

Part = Literal["offsets", "sizes", "counters"]
"""What is read from each broker: offsets of what it leads, log sizes, JMX counters."""


@dataclass(frozen=True, slots=True)
class LogDirs:
    """Disks of one broker, bytes; usable is None on brokers before 3.3."""

    used_bytes: int
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class BrokerCounters:
    """Counters of one broker since its start: all of `contract.rates` by stem, and clients' bytes by topic."""

    totals: Mapping[str, float]
    topic_bytes_out: Mapping[str, float] = field(default_factory=dict)
    topic_bytes_in: Mapping[str, float] = field(default_factory=dict)

    def restarted_before(self, later: "BrokerCounters") -> bool:
        """Whether the counters began anew in between."""
        return any(count < self.totals[stem] for stem, count in later.totals.items())


@dataclass(frozen=True, slots=True)
class CounterPair:
    """Counters of one broker at two moments."""

    earlier: BrokerCounters
    later: BrokerCounters
    first_ms: int
    last_ms: int

    @property
    def passed_ms(self) -> int:
        """Time between them."""
        return self.last_ms - self.first_ms


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that was read in one sample, which began at `time_ms`."""

    time_ms: int
    racks: Mapping[int, str | None]
    partitions: PartitionTable
    sizes: SizeTable
    log_dirs: Mapping[int, LogDirs]
    counters: Mapping[int, BrokerCounters]
    groups: GroupTable
    groups_left_out: Mapping[int, int] = field(default_factory=dict)
    """Groups that were not read since there are more than `collect.groups_max`, by the broker that coordinates them."""
    read_ms: Mapping[tuple[Part, int], int] = field(default_factory=dict)
    """When a part was read from a broker."""
    unanswering: frozenset[int] = frozenset()
    """Brokers that gave no answer."""
    requests_refused: Mapping[int, int] = field(default_factory=dict)
    """Requests of this look that each broker refused for want of a right; one that is not named refused none."""

    group_partitions_left_out: Mapping[int, int] = field(default_factory=dict)
    """Partitions that groups name and that are not reported, by the broker that coordinates these groups."""
    last_stable: Mapping[PartitionKey, int] = field(default_factory=dict)
    """Last stable offset by partition that a group reads, where an open transaction keeps it below the log end."""
    counter_pairs: Mapping[int, CounterPair] = field(default_factory=dict)
    """Two scrapes, with their own times, of each broker whose counters Prometheus has scraped."""
    addresses: Mapping[int, str] = field(default_factory=dict)
    """Addresses of the brokers that are alive, host:port."""
    cleanup_policies: Mapping[str, str] = field(default_factory=dict)
    """Cleanup policies of compacted topics that groups read, by topic."""

    def counters_since(self, before: "Observation", broker: int) -> CounterPair | None:
        """Counters of a broker at two moments, these looks or two scrapes; None without any, without time between them,
        and after a restart, which resets them.
        """
        pair = self.counter_pairs.get(broker)
        earlier, later = before.counters.get(broker), self.counters.get(broker)
        if earlier is not None and later is not None:
            pair = CounterPair(earlier, later, before.when_ms("counters", broker), self.when_ms("counters", broker))
        if pair is None or pair.passed_ms <= 0 or pair.earlier.restarted_before(pair.later):
            return None
        return pair

    def when_ms(self, part: Part, broker: int) -> int:
        """When this part was read from the broker; when the sample began, where that isn't known."""
        return self.read_ms.get((part, broker), self.time_ms)
