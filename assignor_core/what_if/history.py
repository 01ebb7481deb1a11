"""What a replay starts from: brokers, placement, sizes, and each partition's load in each recorded hour, as arrays.

Holds no opinion on what is done with them. Hours that nobody recorded are left out; the loop goes from one to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from assignor_core.errors import InputError
from assignor_core.live import PartitionKey
from assignor_core.load import Floats
from assignor_core.model import RATE_KEYS
from assignor_core.resources import Resource

HOUR_MS = 3_600_000
BYTES_IN_AT = RATE_KEYS.index("bytes_in_per_sec")
BYTES_OUT_AT = RATE_KEYS.index("bytes_out_per_sec")


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
class History:
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
    counts = known.sum(axis=0)
    means = np.where(known, rates, 0.0).sum(axis=0) / np.maximum(counts, 1)
    is_unknown = counts[:, BYTES_IN_AT] == 0
    if not is_unknown.all():
        means[is_unknown] = means[~is_unknown].mean(axis=0)
    result: Floats = np.where(known & ~is_unknown[:, None], rates, means)
    return result, int(is_unknown.sum())
