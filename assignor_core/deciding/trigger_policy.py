"""Thresholds of the trigger."""

import math
from dataclasses import dataclass
from enum import StrEnum

from assignor_core.deciding.load_memory import Watched
from assignor_core.errors import InputError


class Detector(StrEnum):
    """What must hold of the windows in which a broker is over the threshold."""

    NOISE = "noise"
    """Also that the brokers' noise does not explain them, and that such skews don't end by themselves here."""
    WINDOWS = "windows"
    """Only that there are enough of them."""


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """Thresholds are ratios to the mean (1 = even), times ms, load bytes/s per broker."""

    enter_ratio: float = 1.30
    exit_ratio: float = 1.15
    windows_over: int = 3
    windows_considered: int = 5
    detector: Detector = Detector.NOISE
    recurring_load: bool = True
    """Whether a skew that comes at the same time each day or week makes no plan of its own; not without `NOISE`."""
    recurring_plan_min_ms: int = 3_600_000
    """One that lasts for so long each time is planned for all the same, once in a while."""
    cooldown_ms: int = 600_000
    completeness_min: float = 0.95
    load_min_bytes_per_sec: float = 100_000.0
    stale_after_ms: int = 360_000
    broker_failure_grace_ms: int = 1_800_000
    """A broker that is away for longer has failed; a restart or an upgrade takes less."""
    relief_max_away_share: float = 0.40
    """With a larger share of the brokers away their replicas are not made anew: that is an outage, and its end brings
    them back; the rest can't carry them all. Cruise Control's `fixable.failed.broker.percentage.threshold`."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.relief_max_away_share <= 1.0:
            raise InputError(f"relief_max_away_share must be 0 to 1, found {self.relief_max_away_share}")
        if not 1.0 <= self.exit_ratio < self.enter_ratio:
            raise InputError(f"thresholds must be 1 <= exit < enter, found {self.exit_ratio} and {self.enter_ratio}")
        if not 1 <= self.windows_over <= self.windows_considered:
            raise InputError(f"windows must be 1 <= k <= n, found {self.windows_over} and {self.windows_considered}")
        if self.recurring_plan_min_ms < 0:
            raise InputError(f"recurring_plan_min_ms must be 0 or more, found {self.recurring_plan_min_ms}")

    @property
    def windows_over_urgent(self) -> int:
        """Instead of `windows_over`, where groups that read from the hot broker fall behind: two thirds of them, and at
        least two, as one window may be anything.

        >>> [TriggerPolicy(windows_over=k).windows_over_urgent for k in (1, 2, 3, 5)]
        [1, 2, 2, 4]
        """
        return min(self.windows_over, max(2, math.ceil(2 * self.windows_over / 3)))

    @property
    def watched(self) -> Watched:
        """What the memory of past windows needs to know of it."""
        return Watched(self.enter_ratio, self.exit_ratio, self.windows_over, self.completeness_min)
