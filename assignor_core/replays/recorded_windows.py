"""Windows of brokers' loads as recorded or generated, and what an operator would mind of the decisions on them.

A plan is taken to even out the mean load of the windows that it rests on, up to the band of its policy, a few windows
after it may be carried out: a plan made on a burst thus leaves a new skew behind, as it does in life. The same trace
shows in hindsight whether a plan was right: was there still anything to fix?
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isnan

import numpy as np
from numpy.typing import NDArray

from assignor_core.deciding.observation import PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, Mode, TriggerPolicy
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import LiveCluster
from assignor_core.load import Floats
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.plan import Movement, Plan
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.replays.history import known_sums
from assignor_core.replays.replay import Replay, Tick, TickOutcome, WorldEvidence
from assignor_core.replays.traces import Trace
from assignor_core.resources import Resource

CARRYING_SHARE = 0.05
"""A broker with less of the mean load takes nothing from others: a multiple of next to nothing is no load of theirs."""
EVEN_BAND = PlannerPolicy().band
"""A plan with this band or a narrower one counts as one that ends even."""
UNDER_WAY = "under way"
Change = Mapping[str, Floats]
"""resource: factor on each broker's load."""

# What is assumed of plans, and how decisions are judged.

PLANNER_WINDOWS = 5
"""A plan evens the mean of at most so many of the newest windows, none of them from before the breach."""
EXECUTION_WINDOWS = 5
"""How many windows a plan takes; nothing is evaluated meanwhile, as in control."""
HINDSIGHT_WINDOWS = 30
"""A trigger was right if the mean of so many windows after it would have been skewed."""
FALSE_BELOW_RATIO = 1.15
"""Max/mean below which there was nothing to fix."""
SKEWED_ABOVE_RATIO = 1.30
"""Max/mean above which time counts as time in skew."""
SKEW_SPAN_WINDOWS = 11
"""Time in skew is judged on the mean of so many windows around, so that noise doesn't count."""
FLAP_MS = 3_600_000
"""Skewed again so soon after it was even is a flap."""
REVERSAL_MS = 86_400_000
"""Load given back so soon to a broker that it was taken from is a reversal."""
REVERSAL_SHARE = 0.05
"""Changes of a broker's load by less than this don't count as either."""


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of one run."""

    windows: int
    triggers: int
    false_triggers: int
    flaps: int
    """Times that the cluster counted as skewed again soon after it had counted as even."""
    flapped_ms: tuple[int, ...]
    """By flap the end of the window in which it counted as skewed again."""
    reversals: int
    """Plans that gave load back to a broker that an earlier plan had relieved."""
    windows_in_skew: int
    skewed_by_reason: Mapping[str, int]
    """Windows in skew by what was decided then, `UNDER_WAY` while a plan was carried out."""
    found_after_windows: tuple[int | None, ...]
    """By step of the trace: closed windows of the new load until a plan was asked for; None where none was."""
    load_moved: float
    """Sum over plans of the share of the cluster's load that changed its broker."""


def simulate(trace: Trace, policy: DecisionPolicy | TriggerPolicy, planner_windows: int = PLANNER_WINDOWS) -> Report:
    """Run `policy` over `trace`, acting on each plan; of a trigger's policy alone, without maintenance hours.

    >>> from assignor_core.replays.traces import generate
    >>> report = simulate(generate("steps", seed=1, windows=700), TriggerPolicy())
    >>> report.triggers, report.false_triggers, report.flaps, report.found_after_windows
    (3, 0, 0, (3, 3, 3))
    """
    decides = policy if isinstance(policy, DecisionPolicy) else DecisionPolicy(trigger=policy)
    known = tuple(resource for resource in decides.resources if resource in trace.loads)
    # A trace holds loads by capacity already, and what would have been proposed is what is judged.
    decides = replace(decides, mode=Mode.APPLY, resources=known, capacities={}, planner_windows=planner_windows)
    world = RecordedWindows(trace)
    Replay(world, decides).run()
    return world.report()


def evened(loads: Floats, band: float) -> Floats:
    """B loads after a plan that lowers brokers to 1 + `band` times the mean; those below the mean take what is shed.

    >>> evened(np.array([6.0, 2.0, 1.0]), 0.0).tolist(), evened(np.array([6.0, 2.0, 1.0]), 0.5).tolist()
    ([3.0, 3.0, 3.0], [4.5, 2.5, 2.0])
    """
    mean = loads.mean()
    over = np.maximum(loads - (1.0 + band) * mean, 0.0)
    room = np.maximum(mean - loads, 0.0)
    if not over.any() or not room.any():  # the mean of equal loads may be below each of them by a rounding error
        return loads
    target: Floats = loads - over + over.sum() * room / room.sum()
    return target


class EvenPlans(WorldEvidence):
    """Plans that even out the mean of their windows."""

    def __init__(self, brokers: tuple[int, ...], resources: tuple[str, ...]) -> None:
        super().__init__()
        self._brokers, self._resources = brokers, resources
        self.means: dict[str, Mapping[str, Floats]] = {}
        """plan: resource: the loads of brokers that it rests on."""
        self.changes: dict[str, Change] = {}
        """plan: what it changes."""

    def propose(self, request: PlanRequest) -> ProposedPlan:
        """A plan after which no broker is above the band; its one movement stands for all that moves."""
        if not request.windows:
            raise NothingToPlanOn("no closed window since the last change")
        means = {resource: self._mean(request.windows, resource) for resource in self._resources}
        left = max(0.0, request.policy.band - EVEN_BAND)
        targets = {resource: self.target(mean, left) for resource, mean in means.items()}
        before, after = (
            {resource: {"max_over_mean": _max_over_mean(row)} for resource, row in rows.items()}
            for rows in (means, targets)
        )
        worst = max(self._resources, key=lambda resource: before[resource]["max_over_mean"])
        hot, cool = (self._brokers[int(pick(means[worst]))] for pick in (np.argmax, np.argmin))
        newest_ms = request.windows[-1].end_ms
        plan = Plan("replay", (Movement("load", newest_ms, (hot,), (cool,), 0.0),), before, after)
        proposed = ProposedPlan(plan)
        self.means[plan.plan_id] = means
        self.changes[plan.plan_id] = {
            resource: np.where(mean > 0, targets[resource] / np.where(mean > 0, mean, 1.0), 1.0)
            for resource, mean in means.items()
        }
        self.keep(proposed, newest_ms)
        return proposed

    def target(self, loads: Floats, band: float) -> Floats:
        """`evened` for brokers whose load can be a multiple of what it is; others keep theirs, so that none is lost."""
        carries = loads > CARRYING_SHARE * loads.mean()
        target = loads.copy()
        if carries.any():
            target[carries] = evened(loads[carries], band)
        return target

    def _mean(self, windows: tuple[ClosedWindow, ...], resource: str) -> Floats:
        """B: mean load over the windows in which it is known; of all that is known where it never is."""
        rows = [[window.values(resource).get(broker, np.nan) for broker in self._brokers] for window in windows]
        sums, counts = known_sums(np.array(rows, dtype=np.float64), axis=0)
        mean: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), sums.sum() / max(1, counts.sum()))
        return mean


class RecordedWindows:
    """The world of a trace: its windows under the factors of the plan in force, and counts of what was decided."""

    measured: tuple[Resource, ...] = ()

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.evidence: EvenPlans = EvenPlans(trace.brokers, tuple(trace.loads))
        self._row = 0
        self._under_way: tuple[int, Change] | None = None
        self._changed_ms = 0
        self._even_since_ms: int | None = None
        self._relieved_ms = {resource: np.full(len(trace.brokers), -np.inf) for resource in trace.loads}
        self._triggers: list[int] = []
        self._counts = {"false": 0, "reversals": 0}
        self._flapped_ms: list[int] = []
        self._skewed: Counter[str] = Counter()
        self._moved = 0.0
        self._window_ms = int(np.diff(trace.window_end_ms).min()) if len(trace.window_end_ms) > 1 else 1
        self._present = {name: _present(loads) for name, loads in trace.loads.items()}
        self._live = _clusters(trace.brokers, np.logical_or.reduce(list(self._present.values())))
        half, ahead = SKEW_SPAN_WINDOWS // 2, HINDSIGHT_WINDOWS
        self._nearby = {name: _moving_mean(loads, half, half) for name, loads in trace.loads.items()}
        self._ahead = {name: _moving_mean(loads, -1, ahead) for name, loads in trace.loads.items()}
        self._place({resource: np.ones(len(trace.brokers)) for resource in trace.loads})

    def ticks(self) -> Iterator[Tick]:
        """One for each window."""
        for row, end_ms in enumerate(self._trace.window_end_ms):
            self._row = row
            window, is_executing = self._closed_window(row, end_ms), self._under_way is not None
            yield Tick(end_ms, self._live[row], (window,), changed_ms=self._changed_ms, is_executing=is_executing)

    def note(self, tick: Tick, outcome: TickOutcome) -> None:
        """Count the window; a plan begins to be carried out, or is in force from now on."""
        is_skewed = self._in_skew[self._row]
        if outcome.decision is not None:
            self._skewed[outcome.decision.evaluation.reason.value] += is_skewed
            self._note_flap(outcome, tick.now_ms)
            if outcome.acted_on is not None:
                self._act(outcome.acted_on.plan.plan_id, tick.now_ms)
        elif self._under_way is not None:
            self._skewed[UNDER_WAY] += is_skewed
            until, factors = self._under_way
            if self._row >= until:
                self._place(factors)
                self._under_way, self._changed_ms = None, tick.now_ms

    def report(self) -> Report:
        """Figures so far."""
        return Report(
            windows=len(self._trace.window_end_ms),
            triggers=len(self._triggers),
            false_triggers=self._counts["false"],
            flaps=len(self._flapped_ms),
            flapped_ms=tuple(self._flapped_ms),
            reversals=self._counts["reversals"],
            windows_in_skew=self._skewed.total(),
            skewed_by_reason={reason: windows for reason, windows in sorted(self._skewed.items()) if windows},
            found_after_windows=tuple(self._found_after(start) for start in self._trace.steps_at),
            load_moved=self._moved,
        )

    def _place(self, factors: Change) -> None:
        """Another placement is in force: under it each broker has its load of the trace times its factor."""
        self._factors = dict(factors)
        ratios = self._ratios(self._nearby, slice(None))
        self._in_skew: list[bool] = (ratios > SKEWED_ABOVE_RATIO).tolist()

    def _closed_window(self, row: int, end_ms: int) -> ClosedWindow:
        """The loads of one row under the placement of now, where they are known."""
        by_resource = {}
        for resource, loads in self._trace.loads.items():
            effective = (loads[row] * self._factors[resource]).tolist()
            by_resource[resource] = {
                broker: load for broker, load in zip(self._trace.brokers, effective, strict=True) if not isnan(load)
            }
        brokers = frozenset().union(*by_resource.values())
        return ClosedWindow(end_ms - self._window_ms, end_ms, brokers, by_resource)

    def _note_flap(self, outcome: TickOutcome, now_ms: int) -> None:
        before, after = outcome.before.breached_since_ms, outcome.after.breached_since_ms
        if before is not None and after is None:
            self._even_since_ms = now_ms
        begins = before is None and after is not None
        if begins and self._even_since_ms is not None and now_ms - self._even_since_ms < FLAP_MS:
            self._flapped_ms.append(now_ms)

    def _act(self, plan_id: str, now_ms: int) -> None:
        """A plan begins to be carried out; it is in force some windows later."""
        row = self._row
        self._triggers.append(row)
        ahead = self._ratios(self._ahead, slice(row, row + 1))[0]
        self._counts["false"] += bool(ahead < FALSE_BELOW_RATIO)
        planned, is_reversal, moved = {}, False, 0.0
        for resource, change in self.evidence.changes[plan_id].items():
            mean = self.evidence.means[plan_id][resource]
            planned[resource] = self._factors[resource] * change
            is_reversal |= self._is_reversal(resource, change, now_ms)
            moved = max(moved, float(np.abs(mean * (change - 1.0)).sum() / max(2.0 * mean.sum(), 1e-9)))
        self._counts["reversals"] += is_reversal
        self._moved += moved
        self._under_way = (row + EXECUTION_WINDOWS, planned)

    def _is_reversal(self, resource: str, change: Floats, now_ms: int) -> bool:
        given = change > 1.0 + REVERSAL_SHARE
        back = given & (now_ms - self._relieved_ms[resource] < REVERSAL_MS)
        self._relieved_ms[resource][change < 1.0 - REVERSAL_SHARE] = now_ms
        return bool(back.any())

    def _ratios(self, means: Mapping[str, Floats], rows: slice) -> Floats:
        """Worst max/mean of moving means under the placement of now, by row of `rows`."""
        worst: Floats = np.ones(len(self._live[rows]))
        for resource, values in means.items():
            present = self._present[resource][rows]
            loads = np.where(present, values[rows] * self._factors[resource], 0.0)
            mean = loads.sum(axis=1) / np.maximum(present.sum(axis=1), 1)
            worst = np.maximum(worst, np.where(mean > 0, loads.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0))
        return worst

    def _found_after(self, start: int) -> int | None:
        return next((row - start + 1 for row in self._triggers if row >= start), None)


def _max_over_mean(loads: Floats) -> float:
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


def _clusters(brokers: tuple[int, ...], present: NDArray[np.bool_]) -> list[LiveCluster]:
    """By row the cluster of the brokers that are part of it, whether or not they sent anything; few of them differ."""
    by_row = [
        tuple(broker for broker, is_there in zip(brokers, row, strict=True) if is_there) for row in present.tolist()
    ]
    clusters = {ids: LiveCluster("replay", dict.fromkeys(ids), {}) for ids in set(by_row)}
    return [clusters[ids] for ids in by_row]


def _present(loads: Floats) -> NDArray[np.bool_]:
    """W x B: from a broker's first known load to its last; before and after it was not there, in between it was silent.

    >>> _present(np.array([[1.0, np.nan], [np.nan, 1.0], [1.0, np.nan]])).tolist()
    [[True, False], [True, True], [True, False]]
    """
    known = ~np.isnan(loads)
    begun = np.logical_or.accumulate(known, axis=0)
    left: NDArray[np.bool_] = np.logical_or.accumulate(known[::-1], axis=0)[::-1]
    return begun & left


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
