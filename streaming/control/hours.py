"""Loads of partitions by the hour of the day, from `partition_load_hourly`: read day by day, up to a bound."""

from collections.abc import Collection

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.live import PartitionKey
from assignor_core.live_plans.measured_loads import DAY_HOURS, NO_HOURS, HourlyRates, merged
from assignor_core.model import RATE_KEYS
from streaming import tables
from streaming.contract import PARTITION_LOAD_HOURLY
from streaming.settings import DAY_MS

ROWS_MAX = 10_000_000
"""Most rows read for one plan; of a larger cluster fewer days are read."""


def hourly_rates(
    root: str, kafka_cluster: str, partitions: Collection[PartitionKey], *, days: int, now_ms: int
) -> HourlyRates:
    """Mean rates of `partitions` by hour of the day over the last `days`; none where the table has none."""
    days = min(days, ROWS_MAX // (DAY_HOURS * max(1, len(partitions))))
    reader = tables.TableReader(root)
    if days < 1 or reader.version(PARTITION_LOAD_HOURLY.name) is None:
        return NO_HOURS
    rows_of = {key: row for row, key in enumerate(sorted(partitions))}
    sums = np.zeros((len(rows_of), DAY_HOURS, len(RATE_KEYS)))
    counts = np.zeros(sums.shape, dtype=np.int64)
    for day in range(days, 0, -1):
        since = tables.utc(now_ms - day * DAY_MS)
        where = (
            tables.of_cluster(kafka_cluster)
            & tables.at_least("period_start", since)
            & tables.below("period_start", tables.utc(now_ms - (day - 1) * DAY_MS))
        )
        columns = ("period_start", "topic", "partition", *RATE_KEYS)
        _add(reader.arrow(PARTITION_LOAD_HOURLY.name, columns=columns, where=where), rows_of, sums, counts)
    hours = np.flatnonzero(counts.any(axis=(0, 2)))
    rates = sums[:, hours] / np.where(counts[:, hours] > 0, counts[:, hours], np.nan)
    return merged(HourlyRates(tuple(hours.tolist()), rows_of, rates, days), len(rows_of))


def _add(
    rows: pa.Table,
    rows_of: dict[PartitionKey, int],
    sums: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> None:
    """Adds one day to the sums and counts of what is known; partitions that are gone are left out."""
    keys = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    at = np.array([rows_of.get(key, -1) for key in keys], dtype=np.int64)
    hour = pc.hour(rows["period_start"]).to_numpy().astype(np.int64)
    for index, rate in enumerate(RATE_KEYS):
        values = rows[rate].to_numpy().astype(np.float64)
        known = (at >= 0) & ~np.isnan(values)
        np.add.at(sums, (at[known], hour[known], index), values[known])
        np.add.at(counts, (at[known], hour[known], index), 1)
