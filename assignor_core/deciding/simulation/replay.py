"""Runs the trigger over a trace and counts what an operator would mind.

When the trigger asks for a plan, the plan is taken to even out the mean load of the windows that the planner looks at,
a few windows later: a plan made on a burst thus leaves a new skew behind, as it does in life. Judged in hindsight, by
the same trace: was there still anything to mend?
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

import numpy as np
from numpy.typing import NDArray

from assignor_core.deciding.simulation.loads import Trace
from assignor_core.deciding.trigger import SkewWindow, TriggerPolicy, TriggerState, Verdict, after_plan, step
from assignor_core.load import Floats


@dataclass(frozen=True, slots=True)
class World:
    """What surrounds the trigger, and how it is judged."""

    planner_windows: int = 5
    """A plan evens the mean of at most this many newest windows, none of them from before the breach."""
    execution_windows: int = 5
    """So long a plan takes; nothing is evaluated meanwhile, as control does."""
    hindsight_windows: int = 30
    """A trigger was right if the mean of so many windows after it would have been skewed."""
    false_below_ratio: float = 1.15
    """Max/mean below which there was nothing to mend."""
    skewed_above_ratio: float = 1.30
    """Max/mean above which time counts as time in skew."""
    skew_span_windows: int = 11
    """Time in skew is judged on the mean of so many windows around, so that noise doesn't count."""
    flap_ms: int = 3_600_000
    """Skewed again so soon after it was even is a flap."""
    reversal_ms: int = 86_400_000
    """Load given back so soon to a broker that it was taken from is a reversal."""
    reversal_share: float = 0.05
    """Changes of a broker's load by less than this don't count as either."""


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of one run."""

    windows: int
    triggers: int
    false_triggers: int
    flaps: int
    """Times that the cluster counted as skewed again soon after it had counted as even."""
    reversals: int
    """Plans that gave load back to a broker that an earlier plan had relieved."""
    windows_in_skew: int
    found_after_windows: tuple[int | None, ...]
    """By step of the trace: closed windows of the new load until a plan was asked for; None where none was."""
    load_moved: float
    """Sum over plans of the share of the cluster's load that changed its broker."""


def simulate(trace: Trace, policy: TriggerPolicy, world: World | None = None) -> Report:
    """Run `policy` over `trace`, acting on each plan.

    >>> from assignor_core.deciding.simulation.loads import generate
    >>> report = simulate(generate("steps", seed=1, windows=700), TriggerPolicy())
    >>> report.triggers, report.false_triggers, report.flaps, report.found_after_windows
    (3, 0, 0, (3, 3, 3))
    """
    run = _Run(trace, policy, world or World())
    for row in range(len(trace.window_end_ms)):
        run.window(row)
    return run.report()


class _Run:
    """One pass; holds what has been changed so far and what has been counted."""

    def __init__(self, trace: Trace, policy: TriggerPolicy, world: World) -> None:
        self._trace = trace
        self._policy = policy
        self._world = world
        self._state = TriggerState()
        self._considered: deque[SkewWindow] = deque(maxlen=policy.windows_considered)
        self._factors = {resource: np.ones(len(trace.brokers)) for resource in trace.loads}
        self._planned: tuple[int, Mapping[str, Floats]] | None = None
        self._even_since_ms: int | None = None
        self._relieved_ms = {resource: np.full(len(trace.brokers), -np.inf) for resource in trace.loads}
        self._triggers: list[int] = []
        self._counts = {"false": 0, "flaps": 0, "reversals": 0, "skewed": 0}
        self._moved = 0.0
        self._present = {name: _present(loads) for name, loads in trace.loads.items()}
        half = world.skew_span_windows // 2
        self._around = {name: _moving_mean(loads, half, half) for name, loads in trace.loads.items()}
        self._ahead = {name: _moving_mean(loads, -1, world.hindsight_windows) for name, loads in trace.loads.items()}

    def window(self, row: int) -> None:
        """One closed window: what is under way, else one evaluation."""
        self._considered.append(self._skew_window(row))
        self._counts["skewed"] += self._ratio(self._around, row) > self._world.skewed_above_ratio
        if self._planned is not None:
            if row >= self._planned[0]:
                self._factors = dict(self._planned[1])
                self._planned = None
            return
        now_ms = self._trace.window_end_ms[row]
        before = self._state
        self._state, found = step(self._policy, before, tuple(self._considered), now_ms=now_ms)
        self._note_flap(before, now_ms)
        if found.verdict is Verdict.PLAN:
            self._act(row, now_ms)

    def report(self) -> Report:
        """Figures so far."""
        return Report(
            windows=len(self._trace.window_end_ms),
            triggers=len(self._triggers),
            false_triggers=self._counts["false"],
            flaps=self._counts["flaps"],
            reversals=self._counts["reversals"],
            windows_in_skew=self._counts["skewed"],
            found_after_windows=tuple(self._found_after(start) for start in self._trace.steps_at),
            load_moved=self._moved,
        )

    def _skew_window(self, row: int) -> SkewWindow:
        ratios: dict[str, dict[int, float]] = {}
        means: dict[str, float] = {}
        reporting = 0
        for resource, loads in self._trace.loads.items():
            effective = (loads[row] * self._factors[resource]).tolist()
            known = {
                broker: load for broker, load in zip(self._trace.brokers, effective, strict=True) if not isnan(load)
            }
            reporting = len(known)
            if reporting:
                means[resource] = mean = sum(known.values()) / reporting
                ratios[resource] = {broker: load / mean if mean > 0 else 1.0 for broker, load in known.items()}
        expected = max((int(present[row].sum()) for present in self._present.values()), default=0)
        return SkewWindow(self._trace.window_end_ms[row], ratios, means, expected, reporting)

    def _note_flap(self, before: TriggerState, now_ms: int) -> None:
        if before.breached_since_ms is not None and self._state.breached_since_ms is None:
            self._even_since_ms = now_ms
        if before.breached_since_ms is None and self._state.breached_since_ms is not None:
            recent = self._even_since_ms is not None and now_ms - self._even_since_ms < self._world.flap_ms
            self._counts["flaps"] += recent

    def _act(self, row: int, now_ms: int) -> None:
        """A plan for what the planner sees now, in force once it is carried out."""
        self._triggers.append(row)
        self._counts["false"] += self._ratio(self._ahead, row) < self._world.false_below_ratio
        self._state = after_plan(self._policy, self._state, now_ms)
        planned, reversed_, moved = {}, False, 0.0
        first = self._first_planned_on(row)
        for resource, loads in self._trace.loads.items():
            mean = _known_mean(loads[first : row + 1] * self._factors[resource])
            change = np.where(mean > 0, mean.mean() / np.where(mean > 0, mean, 1.0), 1.0)
            planned[resource] = self._factors[resource] * change
            reversed_ |= self._is_reversal(resource, change, now_ms)
            moved = max(moved, float(np.abs(mean * (change - 1.0)).sum() / max(2.0 * mean.sum(), 1e-9)))
        self._counts["reversals"] += reversed_
        self._moved += moved
        self._planned = (row + self._world.execution_windows, planned)

    def _first_planned_on(self, row: int) -> int:
        """Row of the oldest window that the plan rests on."""
        since_ms = self._state.breached_since_ms or 0
        first = max(0, row + 1 - self._world.planner_windows)
        return next(index for index in range(first, row + 1) if self._trace.window_end_ms[index] >= since_ms)

    def _is_reversal(self, resource: str, change: Floats, now_ms: int) -> bool:
        given = change > 1.0 + self._world.reversal_share
        back = given & (now_ms - self._relieved_ms[resource] < self._world.reversal_ms)
        self._relieved_ms[resource][change < 1.0 - self._world.reversal_share] = now_ms
        return bool(back.any())

    def _ratio(self, means: Mapping[str, Floats], row: int) -> float:
        """Worst max/mean of a moving mean under the placement of now."""
        worst = 1.0
        for resource, values in means.items():
            present = self._present[resource][row]
            loads = (values[row] * self._factors[resource])[present]
            mean = loads.mean() if present.any() else 0.0
            worst = max(worst, float(loads.max() / mean)) if mean > 0 else worst
        return worst

    def _found_after(self, start: int) -> int | None:
        return next((row - start + 1 for row in self._triggers if row >= start), None)


def _present(loads: Floats) -> NDArray[np.bool_]:
    """W x B: from a broker's first known load to its last; before and after it was not there, in between it was silent.

    >>> _present(np.array([[1.0, np.nan], [np.nan, 1.0], [1.0, np.nan]])).tolist()
    [[True, False], [True, True], [True, False]]
    """
    known = ~np.isnan(loads)
    begun = np.logical_or.accumulate(known, axis=0)
    left: NDArray[np.bool_] = np.logical_or.accumulate(known[::-1], axis=0)[::-1]
    return begun & left


def _known_mean(loads: Floats) -> Floats:
    """Mean of each column over the rows in which it is known; of all that is known where it never is."""
    counts = (~np.isnan(loads)).sum(axis=0)
    sums = np.nansum(loads, axis=0)
    overall = sums.sum() / max(1, counts.sum())
    mean: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), overall)
    return mean


def _moving_mean(loads: Floats, before: int, after: int) -> Floats:
    """W x B mean over the rows from `before` above to `after` below each; at the end what there is.

    >>> _moving_mean(np.array([[1.0], [2.0], [np.nan], [4.0]]), 1, 1)[:, 0].tolist()
    [1.5, 1.5, 3.0, 4.0]
    """
    known = ~np.isnan(loads)
    sums = np.vstack((np.zeros(loads.shape[1]), np.cumsum(np.where(known, loads, 0.0), axis=0)))
    counts = np.vstack((np.zeros(loads.shape[1]), np.cumsum(known, axis=0)))
    rows = np.arange(len(loads))
    first = np.clip(rows - before, 0, len(loads) - 1)
    last = np.clip(rows + after + 1, 1, len(loads))
    mean: Floats = (sums[last] - sums[first]) / np.maximum(counts[last] - counts[first], 1)
    return mean
