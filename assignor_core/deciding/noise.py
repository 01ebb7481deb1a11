"""How much brokers' loads change from one window to the next by themselves: what a plan gains must be more than that.

A plan rests on few windows. It takes their noise for load and moves it, so each plan leaves a skew of the size of the
noise behind, and the next broker that noise lifts asks for another one. Knows no plan and no threshold.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from assignor_core.deciding.skew_windows import SkewWindow

SIGMA_PER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


def load_noise(windows: Sequence[SkewWindow], resource: str) -> float:
    """Standard deviation of the change of a broker's share of the load from window to window, as a fraction of it.

    Taken from the median, so a broker whose load has just risen for good does not count as noise. 0 of fewer than two
    windows.

    >>> loads = ((1.0, 1.0, 1.0), (1.1, 1.0, 0.9), (1.0, 1.0, 1.0))
    >>> windows = [SkewWindow(10, {"bytes_in": dict(enumerate(row))}, {}, 3, 3) for row in loads]
    >>> round(load_noise(windows, "bytes_in"), 3)
    0.141
    """
    changes = [
        2 * abs(after[broker] - before[broker]) / (after[broker] + before[broker])
        for before, after in pairwise(window.ratios.get(resource, {}) for window in windows)
        for broker in sorted(before.keys() & after.keys())
        if before[broker] > 0 and after[broker] > 0
    ]
    return SIGMA_PER_MEDIAN * median(changes) if changes else 0.0
