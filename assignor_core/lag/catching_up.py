"""How much of what brokers send is read by consumers that catch up: load that ends by itself.

A consumer that catches up reads what is produced, and besides what its lag falls by. Only the latter is counted. Knows
lags, leaders and record sizes; no table and no threshold.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assignor_core.live import PartitionKey


@dataclass(frozen=True, slots=True)
class LagSpan:
    """Lag of one group on one partition at the first and at the last sample of a period."""

    topic: str
    partition: int
    first_lag_records: float
    last_lag_records: float
    span_ms: float
    """Milliseconds between the first and the last sample."""


def catch_up_bytes_per_sec(
    spans: Iterable[LagSpan], record_bytes: Mapping[str, float], leaders: Mapping[PartitionKey, int]
) -> dict[int, float]:
    """Bytes/s read to catch up by broker; brokers without any are absent.

    `record_bytes` is the mean size of a record by topic. Topics without one and partitions without a leader count
    nowhere.

    >>> spans = [LagSpan("t", 0, 9_000, 4_000, 10_000), LagSpan("t", 1, 100, 900, 10_000)]
    >>> catch_up_bytes_per_sec(spans, {"t": 200.0}, {("t", 0): 1, ("t", 1): 2})
    {1: 100000.0}
    """
    rates: dict[int, float] = defaultdict(float)
    for span in spans:
        broker = leaders.get((span.topic, span.partition))
        size_bytes = record_bytes.get(span.topic)
        fallen_records = span.first_lag_records - span.last_lag_records
        if broker is not None and size_bytes is not None and fallen_records > 0 and span.span_ms > 0:
            rates[broker] += fallen_records * size_bytes * 1000 / span.span_ms
    return dict(sorted(rates.items()))
