"""How a rebalancer holds back: clients that suffer while it moves, throttles below the headroom, lost trust.

Pure arithmetic on figures that the caller has measured. It knows neither where lag and load come from nor how a
throttle is set.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from assignor_core.policies import knob

THROTTLE_BACK_OFF = 0.5
THROTTLE_RECOVERY = 1.25
HEADROOM_SHARE = 0.8
"""Copying may take this share of what a broker has left below its capacity."""
GAIN_KEPT_MIN = 0.5
"""A plan delivered if at least this share of the gain it promised was measured."""
GAIN_JUDGED_MIN = 0.02
"""A promised gain in max/mean smaller than this drowns in noise and isn't judged."""


@dataclass(frozen=True, slots=True)
class LagBound:
    """A group has fallen behind above `records_min` records of lag and `growth_max` times its lag at the start."""

    growth_max: float = knob(
        2.0, "Movements wait while the lag of a group is above this many times its lag at the start.", ge=1.0
    )
    records_min: int = knob(100_000, "A group whose lag is below this holds nothing back.", unit="records", ge=0)


@dataclass(frozen=True, slots=True)
class LatencyBound:
    """A broker is too slow above `ms_min` and `growth_max` times what the slowest broker took at the start, ms."""

    growth_max: float = knob(
        2.0,
        "Movements wait while the p99 of a broker's produce requests is above this many times the slowest broker's at "
        "the start, and above latency_min_ms.",
        ge=1.0,
    )
    ms_min: float = knob(
        100.0,
        "A broker whose p99 of produce requests is below this holds nothing back; needs collect.jmx_endpoints.",
        unit="ms",
        ge=0,
    )


@dataclass(frozen=True, slots=True)
class SkewOutcome:
    """max/mean of one resource before a plan, as the plan promised it, and as it was measured after."""

    before: float
    predicted: float
    measured: float


def groups_falling_behind(
    before: Mapping[str, int], now: Mapping[str, int], bound: LagBound
) -> tuple[tuple[str, int, int], ...]:
    """(group, lag before, lag now) in records of groups that fell behind, worst first.

    A group that has no lag in `before` is new and has nothing to be compared with.

    >>> groups_falling_behind({"a": 10, "b": 5_000}, {"a": 900, "b": 20_000, "new": 10**6}, LagBound(2.0, 10_000))
    (('b', 5000, 20000),)
    """
    behind = [
        (group, before[group], lag)
        for group, lag in now.items()
        if group in before and lag > max(bound.records_min, bound.growth_max * before[group])
    ]
    return tuple(sorted(behind, key=lambda row: (row[1] - row[2], row[0])))


def brokers_too_slow(
    before_ms: float, now_ms: Mapping[int, float], bound: LatencyBound
) -> tuple[tuple[int, float], ...]:
    """(broker, latency in ms) of those that are too slow now, slowest first; `before_ms` is the slowest's at the start.

    >>> brokers_too_slow(40.0, {1: 90.0, 2: 450.0, 3: 130.0}, LatencyBound(2.0, 100.0))
    ((2, 450.0), (3, 130.0))
    """
    slow = [row for row in now_ms.items() if row[1] > max(bound.ms_min, bound.growth_max * before_ms)]
    return tuple(sorted(slow, key=lambda row: (-row[1], row[0])))


def next_throttle_factor(factor: float, *, pressed: bool, factor_min: float) -> float:
    """Share of the full throttle from now on: halved under pressure, back a quarter at a time (AIMD's shape).

    >>> next_throttle_factor(1.0, pressed=True, factor_min=0.1)
    0.5
    >>> next_throttle_factor(0.5, pressed=False, factor_min=0.1)
    0.625
    """
    if pressed:
        return max(factor_min, factor * THROTTLE_BACK_OFF)
    return min(1.0, factor * THROTTLE_RECOVERY)


def throttle_rates(
    brokers: Iterable[int], headrooms: Mapping[int, float], *, rate_max: int, rate_min: int, factor: float
) -> dict[int, int]:
    """Throttle by broker, bytes/s: a share of its headroom where that is known, within [rate_min, rate_max].

    >>> throttle_rates([1, 2, 3], {1: 1e6, 2: 1e9}, rate_max=50_000_000, rate_min=100_000, factor=1.0)
    {1: 800000, 2: 50000000, 3: 50000000}
    """
    return {
        broker: round(max(rate_min, factor * min(rate_max, HEADROOM_SHARE * headrooms.get(broker, inf))))
        for broker in sorted(brokers)
    }


def delivered(outcome: SkewOutcome) -> bool | None:
    """Whether a plan did what it promised; None where it promised too little to judge.

    >>> delivered(SkewOutcome(before=1.5, predicted=1.1, measured=1.2)), delivered(SkewOutcome(1.5, 1.1, 1.45))
    (True, False)
    """
    promised = outcome.before - outcome.predicted
    if promised < GAIN_JUDGED_MIN:
        return None
    return outcome.before - outcome.measured >= GAIN_KEPT_MIN * promised


def judged_by(outcomes: Mapping[str, SkewOutcome]) -> SkewOutcome | None:
    """Returns a plan's outcome for the resource that it was made for: the largest promised gain. None without any.

    >>> judged_by({"bytes_in": SkewOutcome(1.5, 1.1, 1.2), "disk": SkewOutcome(1.2, 1.1, 1.3)}).measured
    1.2
    """
    return max(outcomes.values(), key=lambda outcome: outcome.before - outcome.predicted, default=None)


def bad_plans_in_a_row(outcomes: Sequence[SkewOutcome]) -> int:
    """How many of the newest plans (oldest first) did not deliver, one after the other.

    >>> bad_plans_in_a_row([SkewOutcome(1.5, 1.1, 1.1), SkewOutcome(1.5, 1.1, 1.5), SkewOutcome(1.5, 1.1, 1.6)])
    2
    """
    count = 0
    for verdict in map(delivered, reversed(outcomes)):
        if verdict:
            break
        count += verdict is False
    return count
