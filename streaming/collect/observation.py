"""What a sample of the cluster shows, without any judgement, and what brokers' counters grew by between two samples.

None stands for what could not be read. Pure.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from assignor_core.live import PartitionKey
from streaming.collect.group_table import GroupTable
from streaming.collect.partition_table import Floats, Ints, PartitionTable, SizeTable
from streaming.contract.rates import BYTES_IN, BYTES_OUT, RATES

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

    @classmethod
    def of(cls, series: Iterable[tuple[str, str | None, float]]) -> "BrokerCounters | None":
        """Counters of (stem, topic, value); the series of a stem without a topic is the broker's total.

        None without the broker's bytes in, and where a value is no number: it would pass for a counter that the broker
        does not have.
        """
        totals: dict[str, float] = {}
        by_topic: dict[str, dict[str, float]] = {BYTES_IN.stem: {}, BYTES_OUT.stem: {}}
        for stem, topic, value in series:
            if not math.isfinite(value):
                return None
            if not topic:
                totals[stem] = value
            elif stem in by_topic:
                by_topic[stem][topic] = value
        if BYTES_IN.stem not in totals:
            return None
        # Brokers without any follower or reassignment never made those meters: their count is zero.
        complete = {rate.stem: totals.get(rate.stem, 0.0) for rate in RATES}
        return cls(complete, by_topic[BYTES_OUT.stem], by_topic[BYTES_IN.stem])

    def restarted_before(self, later: "BrokerCounters") -> bool:
        """Whether the counters started again in between."""
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
class ClusterSample:
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

    def counters_since(self, before: "ClusterSample", broker: int) -> CounterPair | None:
        """Counters of a broker at two moments; None without any, without time in between, and after a restart."""
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


def counted_by_place(
    before: ClusterSample, after: ClusterSample, places: Ints, counter: Callable[[BrokerCounters], Mapping[str, float]]
) -> Floats:
    """Bytes/s of each place by the leader's `counter` of the topic; NaN where it can't tell.

    A place is broker x topics + topic; `places` are in order. A broker has no counter of a topic until that is used,
    and none after a restart.
    """
    totals = np.full(len(places), np.nan)
    names = after.partitions.names.topics
    topics = max(1, len(names))
    for broker in sorted(after.counters.keys() | after.counter_pairs.keys()):
        pair = after.counters_since(before, broker)
        if pair is None:
            continue
        own = slice(*np.searchsorted(places, (broker * topics, (broker + 1) * topics)))
        own_names = [names[topic] for topic in (places[own] % topics).tolist()]
        first, last = counter(pair.earlier), counter(pair.later)
        grown = np.array([last.get(name, 0.0) - first.get(name, 0.0) for name in own_names], dtype=np.float64)
        totals[own] = np.where(grown >= 0, grown * 1000 / pair.passed_ms, np.nan)
    return totals


def bytes_in_per_sec(before: ClusterSample, after: ClusterSample, messages: Floats) -> Floats:
    """Bytes/s that clients wrote to each partition of `after`, by the leader's counter of its topic, in proportion to
    the records/s of the partition; NaN where either is unknown.

    An estimate: records of the partitions of one topic count as equally large.
    """
    names = after.partitions.names
    keys = after.partitions.leader * max(1, len(names.topics)) + names.topic
    places, place = np.unique(keys, return_inverse=True)
    # A broker that counts no topics would pass for one whose topics are not written.
    totals = counted_by_place(before, after, places, lambda counters: counters.topic_bytes_in)
    sums = np.bincount(place, messages, len(places))  # NaN where one of them is
    share = sums[place]
    is_known = ~np.isnan(share) & (share > 0) & (totals[place] > 0)
    return np.where(is_known, totals[place] * messages / np.where(is_known, share, 1), np.nan)
