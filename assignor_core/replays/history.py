"""What a replay of a placed cluster starts from: brokers, placement, sizes, and each partition's load by the hour.

Hours that nobody recorded are left out. A generated trace of brokers becomes a history by `history_of`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assignor_core.errors import InputError
from assignor_core.live import PartitionKey
from assignor_core.load import Floats
from assignor_core.model import RATE_KEYS
from assignor_core.replays.traces import WINDOW_MS, Trace
from assignor_core.resources import Resource

HOUR_MS = 3_600_000
BYTES_IN_AT = RATE_KEYS.index("bytes_in_per_sec")
BYTES_OUT_AT = RATE_KEYS.index("bytes_out_per_sec")
GENERATED_TOPIC = "generated"
GENERATED_PER_BROKER = 40
"""Partitions of a generated history by broker: a plan can move 2.5 % of a broker's load at once."""
GENERATED_KEPT_S = 3_600
"""Seconds of writes that the log of a generated partition holds."""
Ints64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HistoryBroker:
    """One broker, with what is known of its disks."""

    broker_id: int
    rack: str | None = None
    total_bytes: int | None = None
    """Size of its volumes; None where nobody knows."""
    usable_bytes: int | None = None
    """What is free on them at the start; None where nobody knows, which is taken as enough."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedHistory:
    """A cluster, and its loads over H hours; P partitions in the order of their keys."""

    cluster_name: str
    brokers: tuple[HistoryBroker, ...]
    """In order of their ids."""
    partitions: tuple[PartitionKey, ...]
    replicas: tuple[tuple[int, ...], ...]
    """Broker ids by partition, preferred leader first."""
    size_bytes: Floats
    """P: bytes of one replica."""
    hour_start_ms: tuple[int, ...]
    """Start of each hour, ascending."""
    rates: Floats
    """H x P x rates of the leader, in the order of RATE_KEYS, per second; nothing is NaN."""
    unknown_count: int = 0
    """Partitions without a known load in any hour; in `rates` they have the mean of all."""
    wander: Mapping[Resource, Floats] = field(default_factory=dict)
    """Resource: H x windows of an hour x B factors on a broker's load within the hour; 1 where nothing is known."""
    drained: frozenset[int] = frozenset()
    """Brokers that must end empty."""
    silent: tuple[int, ...] = ()
    """Brokers that sent nothing in the newest window: they and their replicas are left out."""

    def __post_init__(self) -> None:
        if not self.hour_start_ms:
            raise InputError("history: found no recorded hour, at least one is needed")
        if not self.brokers or not self.partitions:
            raise InputError("history: found no broker or no partition, at least one of each is needed")
        shape = (len(self.hour_start_ms), len(self.partitions), len(RATE_KEYS))
        if self.rates.shape != shape:
            raise InputError(f"history: rates have shape {self.rates.shape}, must have {shape}")
        if list(self.partitions) != sorted(set(self.partitions)):
            raise InputError("history: partitions are not in order of their keys")
        known = {broker.broker_id for broker in self.brokers}
        for key, replicas in zip(self.partitions, self.replicas, strict=True):
            if not replicas or not known.issuperset(replicas):
                raise InputError(f"history: {key[0]}-{key[1]} has replicas {list(replicas)}, known brokers are needed")

    @property
    def topics(self) -> frozenset[str]:
        """Names of the topics."""
        return frozenset(topic for topic, _ in self.partitions)

    @property
    def total_bytes_in(self) -> Floats:
        """H: bytes/s that clients write to all partitions."""
        total: Floats = self.rates[:, :, BYTES_IN_AT].sum(axis=1)
        return total


def known_sums(values: Floats, axis: int) -> tuple[Floats, Ints64]:
    """Sums along an axis of the values that are known, which are not NaN, and how many these are.

    >>> [row.tolist() for row in known_sums(np.array([[1.0, np.nan], [2.0, np.nan]]), axis=0)]
    [[3.0, 0.0], [2, 0]]
    """
    known = ~np.isnan(values)
    return np.where(known, values, 0.0).sum(axis=axis), known.sum(axis=axis)


def filled(rates: Floats) -> tuple[Floats, int]:
    """H x P x rates without NaN, and the number of partitions of which nothing is known.

    An unknown hour of a partition counts at the mean of its known hours. A partition whose bytes in are never known
    counts at the mean of all others; any other rate that is never known, such as bytes out without consumers, as none.

    >>> first, second = [[1.0, np.nan], [np.nan, np.nan]], [[3.0, np.nan], [np.nan, 9.0]]
    >>> rates, unknown = filled(np.array([first, second]))
    >>> rates.tolist(), unknown
    ([[[1.0, 0.0], [2.0, 0.0]], [[3.0, 0.0], [2.0, 0.0]]], 1)
    """
    known = ~np.isnan(rates)
    sums, counts = known_sums(rates, axis=0)
    means = sums / np.maximum(counts, 1)
    is_unknown = counts[:, BYTES_IN_AT] == 0
    if not is_unknown.all():
        means[is_unknown] = means[~is_unknown].mean(axis=0)
    result: Floats = np.where(known & ~is_unknown[:, None], rates, means)
    return result, int(is_unknown.sum())


def history_of(trace: Trace) -> RecordedHistory:
    """The hours of a trace that begins with a whole hour, with each broker's load shared out to partitions.

    Each partition has one replica, so that a broker's load is the trace's until a plan moves something. Bytes out are
    as many as bytes in. A broker's silent windows count at the mean of its hour. An hour in which it never reports
    counts at its mean of all hours; hours without any window are left out.

    >>> from assignor_core.replays.traces import generate
    >>> history = history_of(generate("diurnal", seed=1, windows=120))
    >>> len(history.brokers), len(history.partitions), history.rates.shape, history.hour_start_ms
    (6, 240, (2, 240, 2), (0, 3600000))
    """
    starts = np.asarray(trace.window_end_ms) - WINDOW_MS
    hour_start_ms, rows = np.unique(starts // HOUR_MS * HOUR_MS, return_inverse=True)
    windows = np.full((len(hour_start_ms), HOUR_MS // WINDOW_MS, len(trace.brokers)), np.nan)
    windows[rows, starts % HOUR_MS // WINDOW_MS] = trace.loads[Resource.BYTES_IN.value]
    sums, counts = known_sums(windows, axis=1)
    overall = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), overall)
    led_by = np.repeat(np.arange(len(trace.brokers)), GENERATED_PER_BROKER)
    rates = np.repeat(means[:, led_by, None] / GENERATED_PER_BROKER, len(RATE_KEYS), axis=2)
    return RecordedHistory(
        trace.name,
        tuple(HistoryBroker(broker) for broker in trace.brokers),
        tuple((GENERATED_TOPIC, number) for number in range(len(led_by))),
        tuple((trace.brokers[broker],) for broker in led_by),
        rates[:, :, BYTES_IN_AT].mean(axis=0) * GENERATED_KEPT_S,
        tuple(hour_start_ms.tolist()),
        rates,
        wander={Resource.BYTES_IN: np.where(np.isnan(windows), 1.0, windows / means[:, None, :])},
    )
