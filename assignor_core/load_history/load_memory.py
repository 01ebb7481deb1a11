"""What past windows show of the brokers' loads: level and noise of each broker, and how long skews last.

`LoadMemory` is made of closed windows alone, so any process can make it again. It has two parts for each resource.

`Levels`: level and noise of each broker's share of the load, and the evidence that the share has risen. A share is a
broker's load over the mean. It is taken as a logarithm, in which noise of any level has one size. The level follows
slowly. The noise is what is left: its standard deviation and its correlation from one window to the next, both as
slowly moving averages in which a single window counts for little. The evidence is a one-sided CUSUM (E. S. Page,
Continuous Inspection Schemes, Biometrika 41, 1954): the sum of what the shares exceed a reference by, never below 0.
The reference lies midway between the level that is accepted and the one that is to be detected. The sum is compared
with what noise of this size and correlation would add up to.

`Episodes`: how long skews of this cluster last if no plan removes them. Batch jobs end by themselves, growth does not.
An episode is a time in which one broker is above the threshold. It ends by itself, or replicas are moved meanwhile.
Then the next windows show whether it had ended anyway: the broker is as far below the mean as it had been above.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import median
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.load import Floats
from assignor_core.load_history.windows import SkewWindow

Longs = NDArray[np.int64]
Values = TypeVar("Values", Longs, Floats)

LEVEL_WINDOWS = 60
"""Windows over which the level follows."""
NOISE_WINDOWS = 600
"""Windows over which the noise follows."""
KNOWN_AFTER_WINDOWS = 60
"""Least number of a broker's windows from which its noise is estimated."""
SETTLING_WINDOWS = 5
"""The first windows after a change show where the level is, and count as no noise."""
UNCLIPPED_WINDOWS = 10
CLIP_SIGMAS = 2.5
"""Largest distance of a share from its level that the noise counts: a burst is no noise."""
NOISE_MIN = 0.015
"""Standard deviation of a share below which nothing counts as more certain."""
CORRELATION_MAX = 0.9
SHARE_MIN = 0.05
"""Least share that is used: smaller shares count as this one, because 0 has no logarithm."""
SUM_SIGMAS = 3.0
"""Standard deviations of the CUSUM from which the CUSUM is no noise."""
LASTING_SIGMAS = 6.0
"""Standard deviations of a lasting rise from which the CUSUM is no noise, however many windows it took."""
KEPT_MS = 86_400_000
"""A broker that has sent nothing for longer is forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Level, noise and evidence of B brokers, one number each; logarithms of shares where nothing else is named."""

    brokers: tuple[int, ...]
    """Broker ids, ascending."""
    windows: Longs
    """Windows seen of the broker."""
    settled: Longs
    """Windows seen of the broker since replicas were last moved."""
    level: Floats
    variance: Floats
    covariance: Floats
    """Covariance of what the level leaves of a share in one window and in the next."""
    residual: Floats
    """Share less level in the newest window."""
    excess: Floats
    """Evidence (CUSUM) that the broker's share has risen."""
    excess_windows: Longs
    """Windows that the CUSUM has taken since it was 0."""
    excess_since_ms: Longs
    """End of the first window that the CUSUM has taken since it was 0."""
    seen_ms: Longs
    """End of the newest window with a known share."""
    first_level: Floats
    """The level after the first `LEVEL_WINDOWS` windows since replicas were last moved, or after fewer."""

    @classmethod
    def none(cls) -> "Levels":
        """Returns levels without any broker."""
        ints, floats = np.zeros(0, np.int64), np.zeros(0)
        return cls((), ints, ints, floats, floats, floats, floats, floats, ints, ints, ints, floats)

    def changed(self) -> "Levels":
        """Returns the levels after replicas were moved: level and evidence start again, the noise stays."""
        zeros = np.zeros(len(self.brokers), np.int64)
        nothing = np.zeros(len(self.brokers))
        return replace(
            self, settled=zeros, residual=nothing, excess=nothing, excess_windows=zeros, excess_since_ms=zeros
        )

    def after(self, shares: Mapping[int, float], *, end_ms: int, reference: float) -> "Levels":
        """Returns the levels with a further window that ended at `end_ms`; brokers without a known share don't change.

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
        """Level of each broker that is above `ratio`, and has grown by this factor since replicas were last moved.

        The first windows after a move show the level from which growth is counted.
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
        """Standard deviation of the broker's mean share over this many consecutive windows."""
        return self.noise(broker) * math.sqrt(_sum_variance(windows, self._correlation(broker))) / max(1, windows)

    def typical_mean_noise(self, windows: int) -> float | None:
        """Median over known brokers of `mean_noise`; None if no broker is known."""
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
        """Returns the levels with a row for each broker of `shares`, and none for brokers that are forgotten."""
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
    """Limits values to `least` and `most` as `np.clip` does, which takes three times as long on a few values."""
    return np.minimum(np.maximum(values, least), most)


def _sum_variance(windows: int, correlation: float) -> float:
    """Variance of a sum of values of variance 1 whose correlation falls by this factor from each value to the next.

    >>> _sum_variance(3, 0.0), round(_sum_variance(2, 0.5), 6)
    (3.0, 3.0)
    """
    if windows < 1:
        return 0.0
    apart = windows - (1 - correlation**windows) / (1 - correlation)
    return windows + 2 * correlation / (1 - correlation) * apart


ENDED_AFTER_WINDOWS = 2
"""An episode has ended once the broker was below the threshold for this many windows in a row."""
JUDGED_AFTER_WINDOWS = 4
"""Windows after a move that show whether an episode had ended."""
KEPT = 64
"""The newest episodes that count."""
HORIZON_WINDOWS = 30
"""Windows within which a skew must end to be not worth a plan."""
LASTING = 1_000_000
"""Length of an episode that has not ended: more windows than any horizon."""
ENOUGH = 2
"""Least number of episodes that ended within the horizon from which a chance is estimated."""


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """A broker is, or was when replicas were moved, above the threshold."""

    windows: int = 0
    """Windows from the first above the threshold to the newest."""
    windows_since_over: int = 0
    highest: float = 0.0
    """Highest share in the episode, as a logarithm."""
    shares_since_moved: tuple[float, ...] | None = None
    """Logarithms of the broker's shares since replicas were moved; None where none were."""
    grown_to: float = 0.0
    """The level that the broker's share had grown to before the episode, as a logarithm; 0 where it had not grown."""
    total_over: float = 0.0
    """Sum of the logarithms of the shares that were above the threshold."""
    windows_over: int = 0
    """Number of the broker's shares above the threshold."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes of one resource: by broker, episodes that go on; and how long each episode was that has ended."""

    open: tuple[tuple[int, OpenEpisode], ...] = ()
    ended: tuple[int, ...] = ()
    """Windows that each lasted, oldest first; `LASTING` for one that had not ended when replicas were moved."""

    def changed(self) -> "Episodes":
        """Returns the episodes after replicas were moved."""
        moved = tuple((broker, replace(episode, shares_since_moved=())) for broker, episode in self.open)
        return replace(self, open=moved)

    def after(
        self,
        shares: Mapping[int, float],
        *,
        threshold: float,
        windows_min: int,
        grown: Mapping[int, float] = MappingProxyType({}),
    ) -> "Episodes":
        """Returns the episodes with one more window, without those shorter than `windows_min`, which need no plan.

        `grown` has the levels before this window of brokers whose load has grown slowly, as logarithms.
        """
        going, ended = dict(self.open), list(self.ended)
        for broker, share in shares.items():
            episode = going.get(broker)
            if episode is None and share <= threshold:
                continue
            episode = _followed(episode or OpenEpisode(grown_to=grown.get(broker, 0.0)), share, threshold)
            lasted = _lasted(episode)
            going[broker] = episode
            if lasted is not None:
                del going[broker]
                if lasted >= windows_min:
                    ended.append(lasted)
        still = tuple(sorted((broker, episode) for broker, episode in going.items() if broker in shares))
        return Episodes(still, tuple(ended[-KEPT:]))

    def as_dict(self) -> dict[str, Any]:
        """For JSON; see `from_dict`."""
        return {"open": [[broker, asdict(episode)] for broker, episode in self.open], "ended": list(self.ended)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Episodes":
        """Makes episodes from the result of `as_dict`; raises KeyError, TypeError and ValueError on anything else."""
        going = []
        for broker, values_of in values["open"]:
            shares = values_of["shares_since_moved"]
            moved = None if shares is None else tuple(float(share) for share in shares)
            going.append((int(broker), OpenEpisode(**{**values_of, "shares_since_moved": moved})))
        return cls(tuple(going), tuple(int(windows) for windows in values["ended"]))

    def windows_of(self, broker: int) -> int:
        """Windows that the broker's episode has lasted; 0 where there is none."""
        return next((episode.windows for other, episode in self.open if other == broker), 0)

    def grown_to(self, broker: int) -> float:
        """The level that the broker had grown to before its episode, as a logarithm; 0 where it had not grown."""
        return next((episode.grown_to for other, episode in self.open if other == broker), 0.0)

    def mean_over(self, broker: int) -> float:
        """The mean of the broker's shares above the threshold in its episode, as a logarithm; 0 where it has none."""
        episode = dict(self.open).get(broker)
        return episode.total_over / episode.windows_over if episode and episode.windows_over else 0.0

    def lasts(self, windows: int) -> bool:
        """Whether an episode that has lasted for so many windows is likely to outlast the horizon.

        Of earlier ones that lasted as long: at most one more of them ended within the horizon than did not.

        >>> Episodes(ended=(5, 8, 9)).lasts(3), Episodes(ended=(5, 8, 9)).lasts(10), Episodes().lasts(3)
        (False, True, True)
        """
        soon = sum(windows <= length < windows + HORIZON_WINDOWS for length in self.ended)
        later = sum(length >= windows + HORIZON_WINDOWS for length in self.ended)
        return soon < ENOUGH or soon <= later + 1


def _followed(episode: OpenEpisode, share: float, threshold: float) -> OpenEpisode:
    """The episode with one more window."""
    value = math.log(max(share, SHARE_MIN))
    if episode.shares_since_moved is not None:
        return replace(episode, shares_since_moved=(*episode.shares_since_moved, value))
    is_over = share > threshold
    return replace(
        episode,
        windows=episode.windows + 1,
        windows_since_over=0 if is_over else episode.windows_since_over + 1,
        highest=max(episode.highest, value),
        total_over=episode.total_over + value * is_over,
        windows_over=episode.windows_over + is_over,
    )


def _lasted(episode: OpenEpisode) -> int | None:
    """Windows that the episode lasted, if it has ended; `LASTING` if only a move of replicas hides it."""
    windows, shares = episode.windows - episode.windows_since_over, episode.shares_since_moved
    if shares is None:
        return windows if episode.windows_since_over >= ENDED_AFTER_WINDOWS else None
    if len(shares) < JUDGED_AFTER_WINDOWS:
        return None
    return windows if sum(shares) / len(shares) < -episode.highest / 2 else LASTING


@dataclass(frozen=True, slots=True)
class SkewLimits:
    """What counts as skew, and how complete a window must be to count."""

    enter_ratio: float
    exit_ratio: float
    windows_over: int
    completeness_min: float

    @property
    def reference(self) -> float:
        """Midway between the level that is accepted and the one that is to be detected, as factors."""
        return math.sqrt(self.enter_ratio * self.exit_ratio)


@dataclass(frozen=True, slots=True, eq=False)
class LoadMemory:
    """Levels and episodes by resource, after the window that ended at `newest_ms`."""

    newest_ms: int = 0
    changed_ms: int = 0
    """Time of the newest move of replicas or leaders before the windows read so far, ms."""
    levels: Mapping[str, Levels] = field(default_factory=lambda: MappingProxyType({}))
    episodes: Mapping[str, Episodes] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, windows: Sequence[SkewWindow], watched: SkewLimits, *, changed_ms: int) -> "LoadMemory":
        """With those of `windows`, oldest first, that are new; replicas or leaders were last moved at `changed_ms`."""
        memory = self
        for window in windows:
            if window.window_end_ms > memory.newest_ms:
                memory = memory._with(window, watched, changed_ms)
        return memory

    def _with(self, window: SkewWindow, watched: SkewLimits, changed_ms: int) -> "LoadMemory":
        if window.completeness < watched.completeness_min:
            return replace(self, newest_ms=window.window_end_ms)
        memory = self
        if changed_ms > self.changed_ms and window.window_start_ms >= changed_ms:
            memory = replace(
                self,
                changed_ms=changed_ms,
                levels={resource: levels.changed() for resource, levels in self.levels.items()},
                episodes={resource: episodes.changed() for resource, episodes in self.episodes.items()},
            )
        levels, episodes = dict(memory.levels), dict(memory.episodes)
        for resource, shares in window.ratios.items():
            before = levels.get(resource) or Levels.none()
            levels[resource] = before.after(shares, end_ms=window.window_end_ms, reference=watched.reference)
            episodes[resource] = episodes.get(resource, Episodes()).after(
                shares,
                threshold=watched.enter_ratio,
                windows_min=watched.windows_over,
                grown=before.grown(watched.exit_ratio),
            )
        return LoadMemory(window.window_end_ms, memory.changed_ms, levels, episodes)


NOTHING_REMEMBERED = LoadMemory()
