"""A sample: what it shows of the cluster, without any judgement, and its state while it is under way.

`ClusterSample` is what a sample has read; None stands for what could not be read. Two samples show what brokers'
counters grew by in between.

`SampleState` is a sample under way: which brokers are alive, which of them do not answer or refuse, and when each part
was read. Brokers are asked at the same time, each for one thing after the other. A broker that is alive but hangs costs
a request's whole timeout, so it is asked once a sample. What a broker refuses for want of a right is unknown: the
sample continues without it, and the log has one line when a refusal begins and one when it ends.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeVar

import numpy as np
import structlog
from kafka.errors import AuthorizationError, KafkaError

from assignor_core.live import PartitionKey
from streaming.cluster.answers import is_unanswered
from streaming.collect.group_table import GroupTable
from streaming.collect.partition_table import Floats, Ints, PartitionTable, SizeTable
from streaming.contract.rates import BYTES_IN, BYTES_OUT, RATES
from streaming.runtime.logs import with_log_fields

log = structlog.get_logger()
_NAMES = frozenset(row.__name__ for row in AuthorizationError.__subclasses__())
Answer = TypeVar("Answer")
Clock = Callable[[], float]
BROKERS_AT_A_TIME = 32
"""Brokers that a sample waits for at the same time, each for one answer."""
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
    """Requests of this sample that each broker refused for want of a right; one that is not named refused none."""

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


class Request(StrEnum):
    """What may be refused while the rest of a sample works; the value is its name in the log."""

    REASSIGNMENTS = "list reassignments"
    LOG_DIRS = "describe log dirs"
    GROUPS = "read groups"


MISSING = {
    Request.REASSIGNMENTS: ("DESCRIBE on the cluster", "which replicas a reassignment adds"),
    Request.LOG_DIRS: ("DESCRIBE on the cluster", "sizes of logs, bytes/s from their growth, room on disks"),
    Request.GROUPS: ("DESCRIBE on every group", "members and lag of these groups"),
}
"""The right that is needed, and what is unknown without it."""


@dataclass(slots=True)
class RefusedRequests:
    """Remembers from sample to sample what is refused. For many threads."""

    _refused: set[Request] = field(default_factory=set)
    """Kinds that are reported as refused."""
    _refused_now: dict[Request, str] = field(default_factory=dict)
    """Kinds that were refused in this sample, with the error."""
    _answered_now: set[Request] = field(default_factory=set)
    _counts: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, request: Request, broker: int | None, error: str, *, count: int = 1) -> None:
        """`broker` has refused so many of these in this sample; None: nobody knows which broker was asked."""
        with self._lock:
            self._refused_now[request] = error
            if broker is not None:
                self._counts[broker] += count

    def note_answer(self, request: Request) -> None:
        """Notes that a request of this kind was answered in this sample."""
        self._answered_now.add(request)

    def end_sample(self) -> Mapping[int, int]:
        """How many requests each broker refused in this sample; the next sample counts from 0 on. Logs what has
        changed.
        """
        with self._lock:
            for request in sorted(self._refused_now.keys() - self._refused):
                right, unknown = MISSING[request]
                log.warning(
                    "request_refused", request=request.value, error=self._refused_now[request], needs=right,
                    unknown=unknown, hint="rebalancer check shows which level of rights is reached",
                )  # fmt: skip
            ended = {row for row in self._refused & self._answered_now if row not in self._refused_now}
            for request in sorted(ended):
                log.info("request_allowed", request=request.value)
            self._refused = (self._refused | self._refused_now.keys()) - ended
            counts, self._counts = self._counts, Counter()
            self._refused_now, self._answered_now = {}, set()
        return counts


def is_refused(error: KafkaError | type[KafkaError] | str) -> bool:
    """Whether an error of the client, or its name, is a refusal for want of a right.

    >>> is_refused("GroupAuthorizationFailedError"), is_refused("CoordinatorLoadInProgressError")
    (True, False)
    """
    if isinstance(error, str):
        return error in _NAMES
    return issubclass(error if isinstance(error, type) else type(error), AuthorizationError)


@dataclass(slots=True)
class SampleState:
    """What a sample knows of itself; `monotonic` is a clock in seconds that stood at `began_s` when it began."""

    racks: dict[int, str | None]
    """Brokers that are alive, by id."""
    began_ms: int
    began_s: float
    monotonic: Clock
    brokers_at_a_time: int = BROKERS_AT_A_TIME
    read_ms: dict[tuple[Part, int], int] = field(default_factory=dict)
    silent: dict[int, KafkaError] = field(default_factory=dict)
    """Brokers that gave no answer, with the error."""
    refusals: RefusedRequests = field(default_factory=RefusedRequests)
    """What brokers refuse for want of a right, in this sample and before."""

    def now_ms(self) -> int:
        """The time by now, ms: a broker that hangs makes the brokers after it late."""
        return self.began_ms + round((self.monotonic() - self.began_s) * 1000)

    def note(self, part: Part, broker: int) -> None:
        """Notes that `part` was read from the broker just now."""
        self.read_ms[(part, broker)] = self.now_ms()

    def of_each(self, brokers: Iterable[int], read: Callable[[int], Answer]) -> dict[int, Answer]:
        """What `read` gives of each broker, all asked at the same time, as far as that many may be."""
        asked = sorted(brokers)
        if self.brokers_at_a_time == 1 or len(asked) < 2:
            return {broker: read(broker) for broker in asked}
        with ThreadPoolExecutor(min(self.brokers_at_a_time, len(asked))) as pool:
            return dict(zip(asked, pool.map(with_log_fields(read), asked), strict=True))

    def ask(self, broker: int, request: Callable[[], Answer]) -> Answer:
        """The answer to a request that goes to one broker. Raises KafkaError: at once if it gave no answer before."""
        if broker in self.silent:
            raise self.silent[broker]
        try:
            return request()
        except KafkaError as error:
            if is_unanswered(error):
                self.silent[broker] = error
            raise
