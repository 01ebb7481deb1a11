"""Loads of partitions by the hour of the day, beside those of the newest windows: what a plan must be even in.

A plan on the newest windows alone follows the hour in which it is made: made by day it lets the topics of the night
meet on one broker. So each hour of the day of the last days is a column of the model, and the worst column counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assignor_core.live import PartitionKey
from assignor_core.load import NEGLIGIBLE, Floats
from assignor_core.model import RATE_KEYS

DAY_HOURS = 24
CELLS_MAX = 500_000
"""Most partitions times columns: 20,000 partitions with 25 columns take eight times the CPU time of one."""


@dataclass(frozen=True, slots=True, eq=False)
class HourlyRates:
    """Mean rates of partitions by hour of the day (UTC), over some days; N partitions, H hours."""

    hours: tuple[int, ...]
    """The H hours of which anything is known, ascending."""
    partitions: Mapping[PartitionKey, int]
    """The row of each partition."""
    rates: Floats
    """N x H x rates in the order of RATE_KEYS, per second; NaN where unknown."""
    days: int = 0
    """Over how many days at most."""


NO_HOURS = HourlyRates((), {}, np.zeros((0, 0, len(RATE_KEYS))))


def merged(hourly: HourlyRates, partitions: int, cells_max: int = CELLS_MAX) -> HourlyRates:
    """`hourly` with neighbouring hours as one, their mean, so that `partitions` stay below `cells_max` cells.

    Empty where a day would be one column: it shows no hour.

    >>> hourly = HourlyRates((0, 1, 7), {("t", 0): 0}, np.array([[[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]]]))
    >>> merged(hourly, 1) is hourly
    True
    >>> half = merged(hourly, 41_000)  # columns of three hours
    >>> half.hours, half.rates[0, :, 0].tolist()
    ((0, 6), [2.0, 5.0])
    >>> merged(hourly, 400_000).hours
    ()
    """
    columns_max = cells_max // max(1, partitions) - 1
    length = next((hours for hours in (1, 2, 3, 4, 6, 8, 12) if DAY_HOURS // hours <= columns_max), None)
    if length is None:
        return NO_HOURS
    if length == 1:
        return hourly
    blocks = np.array(hourly.hours, dtype=np.int64) // length
    starts = np.unique(blocks)
    rows = [_known_mean(hourly.rates[:, blocks == block]) for block in starts]
    rates = np.stack(rows, axis=1) if rows else hourly.rates
    return HourlyRates(tuple(int(start) * length for start in starts), hourly.partitions, rates, hourly.days)


def with_hours(keys: Sequence[PartitionKey], newest: Floats, hourly: HourlyRates) -> Floats:
    """P x (1 + H) x rates: the `newest` rates (P x rates, all known) of `keys`, then those of each hour.

    What is not known of an hour, as the partition is new, is its newest rate, times what all partitions that are known
    have in that hour over what they have now.

    >>> hourly = HourlyRates((3,), {("t", 0): 0}, np.array([[[2.0, 8.0]]]))
    >>> with_hours([("t", 0), ("t", 1)], np.array([[1.0, 4.0], [5.0, 1.0]]), hourly)[:, 1].tolist()
    [[2.0, 8.0], [10.0, 2.0]]
    """
    rows: NDArray[np.int64] = np.array([hourly.partitions.get(key, -1) for key in keys], dtype=np.int64)
    by_hour = np.full((len(keys), len(hourly.hours), newest.shape[1]), np.nan)
    by_hour[rows >= 0] = hourly.rates[rows[rows >= 0]]
    now = newest[:, None, :]
    known = ~np.isnan(by_hour)
    then, today = np.where(known, by_hour, 0.0).sum(axis=0), np.where(known, now, 0.0).sum(axis=0)
    factor = np.where(today > NEGLIGIBLE, then / np.where(today > NEGLIGIBLE, today, 1.0), 1.0)
    return np.concatenate([now, np.where(known, by_hour, now * factor)], axis=1)


def _known_mean(rates: Floats) -> Floats:
    """N x rates: the mean over the hours of N x H x rates in which it is known; NaN where it never is."""
    counts = (~np.isnan(rates)).sum(axis=1)
    mean: Floats = np.nansum(rates, axis=1) / np.where(counts > 0, counts, np.nan)
    return mean
