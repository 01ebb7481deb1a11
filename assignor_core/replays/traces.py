"""Load of brokers, window by window: what the trigger is tried on.

Every generated trace is a daily curve with noise, and one thing more: bursts, gaps, a swing, steps, a drift. The same
name and seed give the same trace. It knows no trigger.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from assignor_core.errors import InputError
from assignor_core.load import Floats

WINDOW_MS = 60_000
DAY_WINDOWS = 1440
WEEK_WINDOWS = 7 * DAY_WINDOWS

BROKERS = 6
MEAN_BYTES_PER_SEC = 20e6
DAILY_SWING = 0.6
WEEKEND_LEVEL = 0.7
NOISE = 0.06
"""Standard deviation of a broker's load about its curve, as a fraction of it."""
NOISE_MEMORY = 0.6
"""How much of a window's noise is left in the next: real load wanders, it doesn't jitter."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Loads of W windows by B brokers; NaN where a broker sent nothing, and a window that is missing has no row."""

    name: str
    window_end_ms: tuple[int, ...]
    brokers: tuple[int, ...]
    loads: Mapping[str, Floats]
    """resource: W x B, bytes/s."""
    steps_at: tuple[int, ...] = ()
    """Rows at which a lasting skew begins, where that is known."""

    def __post_init__(self) -> None:
        shape = (len(self.window_end_ms), len(self.brokers))
        for resource, loads in self.loads.items():
            if loads.shape != shape:
                raise InputError(f"trace {self.name}: {resource} has shape {loads.shape}, must have {shape}")
        if list(self.window_end_ms) != sorted(set(self.window_end_ms)):
            raise InputError(f"trace {self.name}: windows are not in order of time")


def generate(scenario: str, *, seed: int, windows: int = WEEK_WINDOWS, noise: float = NOISE) -> Trace:
    """A trace of `SCENARIOS`; raises InputError on another name.

    >>> trace = generate("diurnal", seed=1, windows=3)
    >>> trace.loads["bytes_in"].shape, trace.window_end_ms
    ((3, 6), (60000, 120000, 180000))
    """
    change = SCENARIOS.get(scenario)
    if change is None:
        raise InputError(f"scenario {scenario!r}: unknown, allowed are {', '.join(SCENARIOS)}")
    chance = random.Random(f"{scenario}/{seed}")  # noqa: S311 - load, not secrets
    ends = tuple(WINDOW_MS * (index + 1) for index in range(windows))
    loads = _curve(windows)[:, None] * _wander(chance, windows, noise)
    trace = Trace(scenario, ends, tuple(range(1, BROKERS + 1)), MappingProxyType({"bytes_in": loads}))
    return change(trace, chance)


def _curve(windows: int) -> Floats:
    """Mean load of a broker by window: one peak a day, less at the weekend."""
    index = np.arange(windows)
    weekend = (index // DAY_WINDOWS) % 7 >= 5
    level = np.where(weekend, WEEKEND_LEVEL, 1.0)
    curve: Floats = MEAN_BYTES_PER_SEC * level * (1.0 + DAILY_SWING * np.sin(2 * math.pi * index / DAY_WINDOWS))
    return curve


def _wander(chance: random.Random, windows: int, noise: float) -> Floats:
    """W x B factors about 1: a first-order autoregression, never below a tenth."""
    fresh = noise * math.sqrt(1.0 - NOISE_MEMORY**2)
    factors = np.empty((windows, BROKERS))
    for broker in range(BROKERS):
        away = chance.gauss(0.0, noise)
        for window in range(windows):
            factors[window, broker] = max(0.1, 1.0 + away)
            away = NOISE_MEMORY * away + chance.gauss(0.0, fresh)
    return factors


def _unchanged(trace: Trace, _chance: random.Random) -> Trace:
    return trace


def _bursts(lengths: tuple[int, int], per_day: int) -> Callable[[Trace, random.Random], Trace]:
    """Bursts of one broker to 1.5 to 3 times its load, `lengths` windows long."""

    def change(trace: Trace, chance: random.Random) -> Trace:
        loads = trace.loads["bytes_in"].copy()
        for _ in range(max(1, per_day * len(loads) // DAY_WINDOWS)):
            start, broker = chance.randrange(len(loads)), chance.randrange(BROKERS)
            loads[start : start + chance.randint(*lengths), broker] *= chance.uniform(1.5, 3.0)
        return replace(trace, loads=MappingProxyType({"bytes_in": loads}))

    return change


def _gaps(trace: Trace, chance: random.Random) -> Trace:
    """Six times a day a broker is silent for some windows; twice a day whole windows are missing."""
    loads = trace.loads["bytes_in"].copy()
    days = max(1, len(loads) // DAY_WINDOWS)
    for _ in range(6 * days):
        start, broker = chance.randrange(len(loads)), chance.randrange(BROKERS)
        loads[start : start + chance.randint(1, 10), broker] = np.nan
    kept = np.ones(len(loads), dtype=np.bool_)
    for _ in range(2 * days):
        start = chance.randrange(1, len(loads))
        kept[start : start + chance.randint(2, 15)] = False
    ends = tuple(end for end, keep in zip(trace.window_end_ms, kept, strict=True) if keep)
    return replace(trace, window_end_ms=ends, loads=MappingProxyType({"bytes_in": loads[kept]}))


DAILY_BURST_STARTS = (120, 840)
DAILY_BURST_WINDOWS = 50


def _daily_bursts(trace: Trace, chance: random.Random) -> Trace:
    """Each day one broker has twice its load from 02:00 to 02:50, another from 14:00, give or take five minutes."""
    loads = trace.loads["bytes_in"].copy()
    for midnight in range(0, len(loads), DAY_WINDOWS):
        for broker, minute in enumerate(DAILY_BURST_STARTS):
            start = midnight + minute + chance.randint(-5, 5)
            loads[start : start + DAILY_BURST_WINDOWS, broker] *= chance.uniform(1.8, 2.2)
    return replace(trace, loads=MappingProxyType({"bytes_in": loads}))


SWING_WINDOWS = 40


def _swing(trace: Trace, _chance: random.Random) -> Trace:
    """One broker swings between even and 1.35 times the mean: near the threshold, again and again."""
    loads = trace.loads["bytes_in"].copy()
    phase = np.sin(2 * math.pi * np.arange(len(loads)) / SWING_WINDOWS)
    loads[:, 0] *= 1.21 + 0.21 * phase
    return replace(trace, loads=MappingProxyType({"bytes_in": loads}))


STEP_FACTORS = (1.9, 1.7, 2.2)


def _steps(trace: Trace, _chance: random.Random) -> Trace:
    """Three times in the week a broker's load rises for good, on one broker after another."""
    loads = trace.loads["bytes_in"].copy()
    starts = tuple(len(loads) * part // 7 for part in (1, 3, 5))
    for broker, (start, factor) in enumerate(zip(starts, STEP_FACTORS, strict=True)):
        loads[start:, broker] *= factor
    return replace(trace, loads=MappingProxyType({"bytes_in": loads}), steps_at=starts)


DRIFT_TO = 2.0


def _drift(trace: Trace, _chance: random.Random) -> Trace:
    """One broker's load grows to twice the others' over the time of the trace."""
    loads = trace.loads["bytes_in"].copy()
    loads[:, 0] *= np.linspace(1.0, DRIFT_TO, len(loads))
    return replace(trace, loads=MappingProxyType({"bytes_in": loads}))


SCENARIOS: Mapping[str, Callable[[Trace, random.Random], Trace]] = MappingProxyType(
    {
        "diurnal": _unchanged,
        "bursts": _bursts((1, 2), per_day=12),
        "long bursts": _bursts((4, 10), per_day=4),
        "daily bursts": _daily_bursts,
        "gaps": _gaps,
        "swing": _swing,
        "steps": _steps,
        "drift": _drift,
    }
)
"""What is added to the daily curve."""
