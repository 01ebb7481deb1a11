"""Level and noise of each broker's share of one load, and the evidence that it has risen.

A share is a broker's load over the mean; here it is taken as a logarithm, in which noise of any level has one size. The
level follows slowly. The noise is what is left: its standard deviation and its correlation from one window to the next,
both as slowly moving averages in which a single window counts for little.

The evidence is a one-sided CUSUM (E. S. Page, Continuous Inspection Schemes, Biometrika 41, 1954): the sum of what the
shares exceed a reference by, never below 0. The reference lies midway between the level that is accepted and the one
that is to be detected. The sum is compared with what noise of this size and correlation would add up to.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.load import Floats

Longs = NDArray[np.int64]
Values = TypeVar("Values", Longs, Floats)

LEVEL_WINDOWS = 60
"""Windows over which the level follows."""
NOISE_WINDOWS = 600
"""Windows over which the noise follows."""
KNOWN_AFTER_WINDOWS = 60
"""Fewer windows of a broker than this say too little of its noise."""
SETTLING_WINDOWS = 5
"""The first windows after a change show where the level is, and count as no noise."""
UNCLIPPED_WINDOWS = 10
CLIP_SIGMAS = 2.5
"""What is further from the level counts as this far: a burst is no noise."""
NOISE_MIN = 0.015
"""Standard deviation of a share below which nothing counts as more certain."""
CORRELATION_MAX = 0.9
SHARE_MIN = 0.05
"""Shares below count as this: the logarithm of 0 is no number."""
SUM_SIGMAS = 3.0
"""A sum of so many times its own standard deviation is no noise ..."""
LASTING_SIGMAS = 6.0
"""... nor is one of so many times the standard deviation of what lasts, however many windows it took."""
KEPT_MS = 86_400_000
"""A broker that has sent nothing for longer is forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Of B brokers one number each; logarithms of shares where nothing else is named."""

    brokers: tuple[int, ...]
    """Ascending."""
    windows: Longs
    """Windows seen of the broker."""
    settled: Longs
    """Those since replicas were last moved."""
    level: Floats
    variance: Floats
    covariance: Floats
    """Of what is left in one window and in the next."""
    residual: Floats
    """What was left in the newest window."""
    excess: Floats
    """The CUSUM."""
    excess_windows: Longs
    """Windows that it has taken since it was 0."""
    excess_since_ms: Longs
    """End of the first of them."""
    seen_ms: Longs
    """End of the newest window with a known share."""
    first_level: Floats
    """The level after the first `LEVEL_WINDOWS` windows since replicas were last moved, or after fewer."""

    @classmethod
    def none(cls) -> "Levels":
        """Of no broker."""
        ints, floats = np.zeros(0, np.int64), np.zeros(0)
        return cls((), ints, ints, floats, floats, floats, floats, floats, ints, ints, ints, floats)

    def changed(self) -> "Levels":
        """After replicas were moved: levels and evidence begin anew, the noise stays."""
        zeros = np.zeros(len(self.brokers), np.int64)
        nothing = np.zeros(len(self.brokers))
        return replace(
            self, settled=zeros, residual=nothing, excess=nothing, excess_windows=zeros, excess_since_ms=zeros
        )

    def after(self, shares: Mapping[int, float], *, end_ms: int, reference: float) -> "Levels":
        """With one more window that ended at `end_ms`; brokers without a known share stay as they are.

        >>> levels = Levels.none()
        >>> for minute in range(120):
        ...     levels = levels.after({1: 1.0, 2: 1.0 + 0.2 * (minute % 2)}, end_ms=60_000 * minute, reference=1.2)
        >>> round(levels.noise(1), 3), round(levels.noise(2), 3)
        (0.015, 0.091)
        """
        rows = self._with(shares, end_ms)
        known = np.array([broker in shares for broker in rows.brokers], np.bool_)
        given = np.array([max(shares.get(broker, 1.0), SHARE_MIN) for broker in rows.brokers])
        share = np.log(given)
        settled = rows.settled + known
        level = np.where(known & (settled == 1), share, rows.level)
        left = share - level
        sigma = np.sqrt(rows.variance)
        limit = np.where((rows.windows >= UNCLIPPED_WINDOWS) & (sigma > 0), CLIP_SIGMAS * sigma, np.inf)
        clipped = _within(left, -limit, limit)
        noise_weight = known * (settled > SETTLING_WINDOWS) / _within(rows.windows + 1, 1, NOISE_WINDOWS)
        level_weight = known / _within(settled, 1, LEVEL_WINDOWS)
        level = level + level_weight * np.where(settled < UNCLIPPED_WINDOWS, left, clipped)
        excess = np.maximum(rows.excess + share - math.log(reference), 0.0)
        counted = np.where(excess > 0, rows.excess_windows + 1, 0)
        return Levels(
            rows.brokers,
            rows.windows + known,
            settled,
            level,
            rows.variance + noise_weight * (clipped**2 - rows.variance),
            rows.covariance + noise_weight * (clipped * rows.residual - rows.covariance),
            np.where(known, clipped, rows.residual),
            np.where(known, excess, rows.excess),
            np.where(known, counted, rows.excess_windows),
            np.where(known & (counted == 1), end_ms, np.where(known & (counted == 0), 0, rows.excess_since_ms)),
            np.where(known, end_ms, rows.seen_ms),
            np.where(settled <= LEVEL_WINDOWS, level, rows.first_level),
        )

    def as_dict(self) -> dict[str, list[float]]:
        """All numbers as lists, for JSON; see `from_dict`."""
        arrays = {column.name: getattr(self, column.name).tolist() for column in fields(self)[1:]}
        return {"brokers": list(self.brokers), **arrays}

    @classmethod
    def from_dict(cls, values: Mapping[str, list[float]]) -> "Levels":
        """The levels of `as_dict`; raises KeyError and ValueError on anything else.

        Tables of earlier versions have no first level: growth then counts from the level of now.
        """
        values = {"first_level": values["level"], **values}
        types = {column.name: getattr(cls.none(), column.name).dtype for column in fields(cls)[1:]}
        arrays = {name: np.array(values[name], dtype) for name, dtype in types.items()}
        if any(len(array) != len(values["brokers"]) for array in arrays.values()):
            raise ValueError("levels: lists of different lengths")
        return cls(tuple(int(broker) for broker in values["brokers"]), **arrays)

    def grown(self, ratio: float) -> dict[int, float]:
        """The level of each broker that is above `ratio`, and has grown by as much since replicas were last moved.

        After a move the first windows show the level that it grows from.
        """
        least = math.log(ratio)
        has_grown = (self.settled > LEVEL_WINDOWS) & (self.level > least) & (self.level - self.first_level > least)
        return {self.brokers[row]: float(self.level[row]) for row in np.flatnonzero(has_grown)}

    def is_known(self, broker: int) -> bool:
        """Whether enough windows of the broker were seen to know its noise."""
        row = self._row(broker)
        return row is not None and bool(self.windows[row] >= KNOWN_AFTER_WINDOWS)

    def noise(self, broker: int) -> float:
        """Standard deviation of the broker's share in one window, as a fraction of it; the broker must be known."""
        return max(NOISE_MIN, math.sqrt(self.variance[self._known_row(broker)]))

    def mean_noise(self, broker: int, windows: int) -> float:
        """Standard deviation of the mean over so many windows in a row."""
        return self.noise(broker) * math.sqrt(_sum_variance(windows, self._correlation(broker))) / max(1, windows)

    def typical_mean_noise(self, windows: int) -> float | None:
        """`mean_noise` of the middle one of the brokers that are known; None where none is."""
        known = [self.mean_noise(broker, windows) for broker in self.brokers if self.is_known(broker)]
        return median(known) if known else None

    def has_risen(self, broker: int, lasting_sigmas: float = LASTING_SIGMAS) -> bool:
        """Whether the evidence is more than noise adds up to, or than `lasting_sigmas` of what lasts."""
        row = self._known_row(broker)
        correlation = self._correlation(broker)
        summed = SUM_SIGMAS * math.sqrt(_sum_variance(int(self.excess_windows[row]), correlation))
        lasting = lasting_sigmas * math.sqrt((1 + correlation) / (1 - correlation))
        return bool(self.excess[row] > self.noise(broker) * min(summed, lasting))

    def risen_since_ms(self, broker: int) -> int:
        """End of the first window of the evidence; 0 where there is none."""
        return int(self.excess_since_ms[self._known_row(broker)])

    def _correlation(self, broker: int) -> float:
        row = self._known_row(broker)
        variance = float(self.variance[row])
        return min(CORRELATION_MAX, max(0.0, float(self.covariance[row]) / variance)) if variance > 0 else 0.0

    def _row(self, broker: int) -> int | None:
        row = int(np.searchsorted(self.brokers, broker))
        return row if row < len(self.brokers) and self.brokers[row] == broker else None

    def _known_row(self, broker: int) -> int:
        row = self._row(broker)
        if row is None:
            raise KeyError(broker)
        return row

    def _with(self, shares: Mapping[int, float], end_ms: int) -> "Levels":
        """With a row for each broker of `shares`, and none for those that are forgotten."""
        kept = {
            broker for broker, seen_ms in zip(self.brokers, self.seen_ms, strict=True) if end_ms - seen_ms <= KEPT_MS
        }
        brokers = tuple(sorted(kept | shares.keys()))
        if brokers == self.brokers:
            return self
        old = [self._row(broker) for broker in brokers]
        taken = np.array([0 if row is None else row + 1 for row in old], np.int64)
        columns = {}
        for column in fields(self)[1:]:
            values = getattr(self, column.name)
            columns[column.name] = np.concatenate((np.zeros(1, values.dtype), values))[taken]
        return Levels(brokers, **columns)


def _within(values: Values, least: Values | int, most: Values | int) -> Values:
    """As `np.clip`, which takes three times as long on a few values."""
    return np.minimum(np.maximum(values, least), most)


def _sum_variance(windows: int, correlation: float) -> float:
    """Variance of the sum of so many values of variance 1 whose correlation falls by this factor from one to the next.

    >>> _sum_variance(3, 0.0), round(_sum_variance(2, 0.5), 6)
    (3.0, 3.0)
    """
    if windows < 1:
        return 0.0
    apart = windows - (1 - correlation**windows) / (1 - correlation)
    return windows + 2 * correlation / (1 - correlation) * apart
