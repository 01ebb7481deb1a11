"""What a broker's share would be had its skew not been mended: a plan for a nightly job must not hide when that ends.

A plan that evens out a skew makes the rest of it invisible. So the shares after the move are taken times what the move
has changed, until the broker falls as far below its new share as it had been above: then the job has ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

ENDED_AFTER_WINDOWS = 2
"""A skew has ended once the broker was not above the threshold for so many windows in a row."""
COMPARED_WINDOWS = 3
"""Windows after a move that show what it has changed."""
FOLLOWED_MS = 3 * 3_600_000
"""No skew is followed for longer after a move: what still goes on then is lasting load, which the plan was for."""


@dataclass(frozen=True, slots=True)
class FollowedSkew:
    """One broker that is above the threshold, or was when replicas were moved."""

    total: float = 0.0
    """Sum of its shares while it was above ..."""
    windows: int = 0
    """... over so many windows."""
    low_windows: int = 0
    """Windows in a row in which it was not above."""
    moved_ms: int | None = None
    """When replicas were moved; None: not since the skew began."""
    shares_after: tuple[float, ...] = ()
    """The first shares after the move."""

    @property
    def before(self) -> float:
        """Its mean share while it was above, before replicas were moved."""
        return self.total / self.windows

    def after(self, share: float, *, threshold: float, may_be_moving: bool) -> "tuple[FollowedSkew, float]":
        """With one more window, and the share that it would have if nothing had been moved.

        >>> skew = FollowedSkew(total=4.0, windows=2, moved_ms=0)
        >>> for share in (1.0, 1.0, 1.0, 1.1, 0.5):
        ...     skew, unmended = skew.after(share, threshold=1.3, may_be_moving=False)
        ...     print(unmended, skew.low_windows)
        2.0 0
        2.0 0
        2.0 0
        2.2 0
        1.0 1
        """
        if self.moved_ms is None:
            if share > threshold:
                return replace(self, total=self.total + share, windows=self.windows + 1, low_windows=0), share
            return replace(self, low_windows=self.low_windows + (not may_be_moving)), share
        compared = self.shares_after
        if len(compared) < COMPARED_WINDOWS:
            if share <= self.before**-0.5:
                # The plan took the skew for the level: without it the broker is now as far below the mean.
                return replace(self, low_windows=self.low_windows + 1), share
            compared = (*compared, share)
        unmended = share * max(1.0, self.before / (sum(compared) / len(compared)))
        low_windows = 0 if unmended > threshold else self.low_windows + 1
        return replace(self, shares_after=compared, low_windows=low_windows), unmended


def unmended(
    followed: Mapping[int, FollowedSkew],
    shares: Mapping[int, float],
    *,
    threshold: float,
    start_ms: int,
    may_be_moving: bool,
) -> tuple[dict[int, FollowedSkew], dict[int, float]]:
    """Skews to follow after one more window, and each broker's share had nothing been moved."""
    going, result = {}, dict(shares)
    for broker, share in shares.items():
        skew = followed.get(broker)
        if skew is None and share <= threshold:
            continue
        skew, result[broker] = (skew or FollowedSkew()).after(share, threshold=threshold, may_be_moving=may_be_moving)
        is_over = skew.low_windows >= ENDED_AFTER_WINDOWS
        is_old = skew.moved_ms is not None and start_ms - skew.moved_ms >= FOLLOWED_MS
        if not is_over and not is_old:
            going[broker] = skew
    return going, result


def moved(followed: Mapping[int, FollowedSkew], moved_ms: int) -> dict[int, FollowedSkew]:
    """After replicas were moved; a skew that was moved before is no longer followed."""
    return {broker: replace(skew, moved_ms=moved_ms) for broker, skew in followed.items() if skew.moved_ms is None}
