"""How long skews of this cluster last that nobody mends: batch jobs end by themselves, growth doesn't.

An episode is a time in which one broker is above the threshold. It ends by itself, or replicas are moved meanwhile.
Then the next windows show whether it had ended anyway: the broker is as far below the mean as it had been above.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from assignor_core.deciding.load_memory.levels import SHARE_MIN

ENDED_AFTER_WINDOWS = 2
"""An episode has ended once the broker was not above the threshold for so many windows in a row."""
JUDGED_AFTER_WINDOWS = 4
"""Windows after a move that show whether an episode had ended."""
KEPT = 64
"""The newest episodes that count."""
HORIZON_WINDOWS = 30
"""A skew that ends within so many windows is not worth a plan."""
LASTING = 1_000_000
"""More windows than any horizon: of an episode that goes on."""
ENOUGH = 2
"""Fewer episodes that ended within the horizon say nothing."""


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """A broker is, or was when replicas were moved, above the threshold."""

    windows: int = 0
    """Windows from the first above the threshold to the newest."""
    windows_since_over: int = 0
    highest: float = 0.0
    """The highest share, as a logarithm."""
    shares_since_moved: tuple[float, ...] | None = None
    """Logarithms of the broker's shares since replicas were moved; None where none were."""
    grown_to: float = 0.0
    """The level that the broker's share had grown to before the episode, as a logarithm; 0 where it had not grown."""
    total_over: float = 0.0
    """Sum of the logarithms of the shares that were above the threshold ..."""
    windows_over: int = 0
    """... and how many these are."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Of one resource: episodes that go on, by broker, and how long those were that have ended."""

    open: tuple[tuple[int, OpenEpisode], ...] = ()
    ended: tuple[int, ...] = ()
    """Windows that each lasted, oldest first; `LASTING` for one that had not ended when replicas were moved."""

    def changed(self) -> "Episodes":
        """After replicas were moved."""
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
        """With one more window; episodes shorter than `windows_min` are not kept, as they ask for no plan.

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
        """The episodes of `as_dict`; raises KeyError, TypeError and ValueError on anything else."""
        going = []
        for broker, fields in values["open"]:
            shares = fields["shares_since_moved"]
            moved = None if shares is None else tuple(float(share) for share in shares)
            going.append((int(broker), OpenEpisode(**{**fields, "shares_since_moved": moved})))
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
    """Windows that it lasted, if it has ended; `LASTING` where it goes on and only a move made it invisible."""
    windows, shares = episode.windows - episode.windows_since_over, episode.shares_since_moved
    if shares is None:
        return windows if episode.windows_since_over >= ENDED_AFTER_WINDOWS else None
    if len(shares) < JUDGED_AFTER_WINDOWS:
        return None
    return windows if sum(shares) / len(shares) < -episode.highest / 2 else LASTING
