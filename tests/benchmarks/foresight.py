"""How many hours in skew a drift costs with so many plans: mended by somebody who knows each load without its noise.

A policy sees noisy loads alone. This is a yardstick, no strict bound: a plan in a bump of noise may save hours. That
a window counts as in skew is judged on the noisy loads, as in `assignor_core.replays`.
"""

from collections.abc import Sequence

import numpy as np

from assignor_core.load import Floats
from assignor_core.replays.recorded_windows import EXECUTION_WINDOWS, SKEW_SPAN_WINDOWS, SKEWED_ABOVE_RATIO, evened
from assignor_core.replays.traces import WEEK_WINDOWS, generate

SHARES = (1.15, 1.17, 1.19, 1.21, 1.23, 1.25, 1.30)


def drift_with_foresight(
    share: float, *, noise: float, seeds: Sequence[int], windows: int = WEEK_WINDOWS
) -> tuple[int, int]:
    """(plans, windows in skew) over a drift for each seed, where a plan evens the loads as soon as a broker has really
    `share` times the mean.
    """
    rows = [_drift(share, noise, seed, windows) for seed in seeds]
    return sum(plans for plans, _ in rows), sum(skewed for _, skewed in rows)


def foresight_row(share: float, *, noise: float, seeds: Sequence[int]) -> str:
    """One line of the table: share, plans, hours in skew."""
    plans, windows_in_skew = drift_with_foresight(share, noise=noise, seeds=seeds)
    return f"| {share:.2f} | {plans} | {windows_in_skew / 60:.1f} |"


def _drift(share: float, noise: float, seed: int, windows: int) -> tuple[int, int]:
    true, noisy = (generate("drift", seed=seed, noise=size, windows=windows).loads["bytes_in"] for size in (0.0, noise))
    nearby = _moving_mean(noisy, SKEW_SPAN_WINDOWS)
    factors: Floats = np.ones(true.shape[1])
    plans = skewed = 0
    planned: tuple[int, Floats] | None = None
    for row, loads in enumerate(true):
        if planned is not None and row > planned[0]:
            factors, planned = planned[1], None
        skewed += _max_over_mean(nearby[row] * factors) > SKEWED_ABOVE_RATIO
        if planned is None and _max_over_mean(loads * factors) >= share:
            plans += 1
            planned = row + EXECUTION_WINDOWS, factors * evened(loads * factors, 0.0) / (loads * factors)
    return plans, skewed


def _max_over_mean(loads: Floats) -> float:
    return float(loads.max() / loads.mean())


def _moving_mean(loads: Floats, span: int) -> Floats:
    """W x B mean over the `span` rows around each; the first and the last have fewer."""
    counts = np.convolve(np.ones(len(loads)), np.ones(span), "same")
    mean: Floats = np.stack([np.convolve(column, np.ones(span), "same") / counts for column in loads.T], axis=1)
    return mean
