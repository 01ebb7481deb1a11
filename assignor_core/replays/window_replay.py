"""Runs whole decisions over a trace and counts what an operator would mind.

Each window goes through `assignor_core.deciding.step`, the function that control calls: trigger, gain floor,
maintenance hours and waiting plans included. A plan is taken to even out the mean load of the windows that it rests on,
up to the band of its policy, a few windows after it may be carried out: a plan made on a burst thus leaves a new skew
behind, as it does in life.
Judged in hindsight, by the same trace: was there still anything to mend?
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan

import numpy as np
from numpy.typing import NDArray

from assignor_core.deciding.observation import GivenUp, Observation, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, Mode, TriggerPolicy
from assignor_core.deciding.skewed import PLAN_WINDOWS_MAX
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import step
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import LiveCluster
from assignor_core.load import Floats
from assignor_core.load_history.load_memory import LoadMemory
from assignor_core.load_history.recurring import RecurringLoad
from assignor_core.load_history.windows import ClosedWindow, SkewWindow, skew_window
from assignor_core.plan import Movement, Plan
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.replays.traces import Trace

CARRYING_SHARE = 0.05
"""A broker with less of the mean load takes nothing from others: a multiple of next to nothing is no load of theirs."""
EVEN_BAND = PlannerPolicy().band
"""A plan with this band or a narrower one counts as one that ends even."""
UNDER_WAY = "under way"
Change = Mapping[str, Floats]
"""resource: factor on each broker's load."""


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
    flapped_ms: tuple[int, ...]
    """By flap the end of the window in which it counted as skewed again."""
    reversals: int
    """Plans that gave load back to a broker that an earlier plan had relieved."""
    windows_in_skew: int
    skewed_by_reason: Mapping[str, int]
    """The same by what was decided then, `UNDER_WAY` while a plan was carried out."""
    found_after_windows: tuple[int | None, ...]
    """By step of the trace: closed windows of the new load until a plan was asked for; None where none was."""
    load_moved: float
    """Sum over plans of the share of the cluster's load that changed its broker."""


def simulate(trace: Trace, policy: DecisionPolicy | TriggerPolicy, world: World | None = None) -> Report:
    """Run `policy` over `trace`, acting on each plan; of a trigger's policy alone, without maintenance hours.

    >>> from assignor_core.replays.traces import generate
    >>> report = simulate(generate("steps", seed=1, windows=700), TriggerPolicy())
    >>> report.triggers, report.false_triggers, report.flaps, report.found_after_windows
    (3, 0, 0, (3, 3, 3))
    """
    world = world or World()
    decides = policy if isinstance(policy, DecisionPolicy) else DecisionPolicy(trigger=policy)
    known = tuple(resource for resource in decides.resources if resource in trace.loads)
    # A trace holds loads by capacity already, and what would have been proposed is what is judged.
    decides = replace(decides, mode=Mode.APPLY, resources=known, capacities={}, planner_windows=world.planner_windows)
    run = _Run(trace, decides, world)
    for row in range(len(trace.window_end_ms)):
        run.window(row)
    return run.report()


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


def _max_over_mean(loads: Floats) -> float:
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


class EvenPlans:
    """Evidence of a replay: plans that even out the mean of their windows. No groups are known."""

    def __init__(self, brokers: tuple[int, ...], resources: tuple[str, ...]) -> None:
        self._brokers = brokers
        self._resources = resources
        self._kept: dict[str, KeptPlan] = {}
        self.changes: dict[str, Change] = {}
        """By plan: the factors that it puts on each broker's load."""
        self.means: dict[str, Change] = {}
        """By plan: the loads that it rests on."""

    def groups_behind(self, _brokers: frozenset[int]) -> Mapping[int, str]:
        """None are known."""
        return {}

    def catch_up_bytes_per_sec(self, _windows: tuple[ClosedWindow, ...]) -> Mapping[int, float]:
        """None are known."""
        return {}

    def copied_bytes_of_day(self) -> int:
        """Windows hold no bytes of partitions."""
        return 0

    def kept_plan(self, plan_id: str) -> KeptPlan | None:
        """A plan of this replay."""
        return self._kept.get(plan_id)

    def given_up(self) -> GivenUp:
        """None: each plan of a replay is carried out."""
        return GivenUp()

    def propose(self, request: PlanRequest) -> ProposedPlan:
        """A plan after which no broker is above the band; its one movement stands for all that moves."""
        if not request.windows:
            raise NothingToPlanOn("no closed window since the last change")
        means = {resource: self._mean(request.windows, resource) for resource in self._resources}
        left = max(0.0, request.policy.band - EVEN_BAND)
        targets = {resource: self.target(mean, left) for resource, mean in means.items()}
        changes = {
            resource: np.where(mean > 0, targets[resource] / np.where(mean > 0, mean, 1.0), 1.0)
            for resource, mean in means.items()
        }
        ratios = {resource: _max_over_mean(mean) for resource, mean in means.items()}
        worst = max(self._resources, key=lambda resource: ratios[resource])
        hot, cool = (self._brokers[int(pick(means[worst]))] for pick in (np.argmax, np.argmin))
        newest_ms = request.windows[-1].end_ms
        plan = Plan(
            "replay",
            (Movement("load", newest_ms, (hot,), (cool,), 0.0),),
            {resource: {"max_over_mean": ratio} for resource, ratio in ratios.items()},
            {resource: {"max_over_mean": _max_over_mean(target)} for resource, target in targets.items()},
        )
        proposed = ProposedPlan(plan)
        self.changes[plan.plan_id], self.means[plan.plan_id] = changes, means
        self._kept[plan.plan_id] = KeptPlan(proposed, newest_ms, newest_ms)
        return proposed

    def target(self, loads: Floats, band: float) -> Floats:
        """`evened` for brokers whose load can be a multiple of what it is; others keep theirs, so that none is lost."""
        carries = loads > CARRYING_SHARE * loads.mean()
        target = loads.copy()
        if carries.any():
            target[carries] = evened(loads[carries], band)
        return target

    def _mean(self, windows: tuple[ClosedWindow, ...], resource: str) -> Floats:
        rows = [[window.values(resource).get(broker, np.nan) for broker in self._brokers] for window in windows]
        return _known_mean(np.array(rows, dtype=np.float64))


class _Run:
    """One pass; holds what has been changed so far and what has been counted."""

    def __init__(self, trace: Trace, policy: DecisionPolicy, world: World) -> None:
        self._trace = trace
        self._policy = policy
        self._world = world
        self._state = TriggerState()
        kept = max(policy.trigger.windows_considered, policy.planner_windows, PLAN_WINDOWS_MAX)
        self._memory = LoadMemory()
        self._recurring = RecurringLoad()
        self._windows: deque[ClosedWindow] = deque(maxlen=kept)
        self._skews: deque[SkewWindow] = deque(maxlen=kept)
        self._under_way: tuple[int, Change] | None = None
        self._changed_ms = 0
        self._plans = EvenPlans(trace.brokers, tuple(trace.loads))
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
        half = world.skew_span_windows // 2
        self._nearby = {name: _moving_mean(loads, half, half) for name, loads in trace.loads.items()}
        self._ahead = {name: _moving_mean(loads, -1, world.hindsight_windows) for name, loads in trace.loads.items()}
        self._place({resource: np.ones(len(trace.brokers)) for resource in trace.loads})

    def window(self, row: int) -> None:
        """One closed window: what is under way, else one decision."""
        live = self._live[row]
        self._windows.append(self._closed_window(row))
        self._skews.append(skew_window(self._windows[-1], self._policy.resources, {}, live.broker_racks))
        is_skewed = self._in_skew[row]
        now_ms = self._trace.window_end_ms[row]
        self._recurring = self._recurring.after(
            (self._skews[-1],),
            self._policy.trigger.watched,
            changed_ms=max(self._changed_ms, self._state.changed_ms),
        )
        if self._under_way is not None:
            self._skewed[UNDER_WAY] += is_skewed
            until, factors = self._under_way
            if row >= until:
                self._place(factors)
                self._under_way, self._changed_ms = None, now_ms
            return
        before = self._state
        self._memory = self._memory.after(
            tuple(self._skews), self._policy.trigger.watched, changed_ms=max(self._changed_ms, before.changed_ms)
        )
        observation = Observation(
            now_ms,
            live,
            tuple(self._windows),
            tuple(self._skews),
            changed_ms=self._changed_ms,
            memory=self._memory,
            recurring=self._recurring,
        )
        self._state, decision = step(before, observation, self._policy, self._plans)
        self._skewed[decision.evaluation.reason.value] += is_skewed
        self._note_flap(before, now_ms)
        if decision.may_act and decision.proposed is not None:
            self._act(row, decision.proposed.plan.plan_id, now_ms)

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
            found_after_windows=tuple(self._detected_after(start) for start in self._trace.steps_at),
            load_moved=self._moved,
        )

    def _place(self, factors: Change) -> None:
        """Another placement is in force: under it each broker has its load of the trace times its factor."""
        self._factors = dict(factors)
        ratios = self._ratios(self._nearby, slice(None))
        self._in_skew: list[bool] = (ratios > self._world.skewed_above_ratio).tolist()

    def _closed_window(self, row: int) -> ClosedWindow:
        """The loads of one row under the placement of now, where they are known."""
        by_resource = {}
        for resource, loads in self._trace.loads.items():
            effective = (loads[row] * self._factors[resource]).tolist()
            by_resource[resource] = {
                broker: load for broker, load in zip(self._trace.brokers, effective, strict=True) if not isnan(load)
            }
        end_ms = self._trace.window_end_ms[row]
        brokers = frozenset().union(*by_resource.values())
        return ClosedWindow(end_ms - self._window_ms, end_ms, brokers, by_resource)

    def _note_flap(self, before: TriggerState, now_ms: int) -> None:
        if before.breached_since_ms is not None and self._state.breached_since_ms is None:
            self._even_since_ms = now_ms
        begins = before.breached_since_ms is None and self._state.breached_since_ms is not None
        if begins and self._even_since_ms is not None and now_ms - self._even_since_ms < self._world.flap_ms:
            self._flapped_ms.append(now_ms)

    def _act(self, row: int, plan_id: str, now_ms: int) -> None:
        """A plan begins to be carried out; it is in force some windows later."""
        self._triggers.append(row)
        self._counts["false"] += bool(self._ratios(self._ahead, slice(row, row + 1))[0] < self._world.false_below_ratio)
        planned, reversed_, moved = {}, False, 0.0
        for resource, change in self._plans.changes[plan_id].items():
            mean = self._plans.means[plan_id][resource]
            planned[resource] = self._factors[resource] * change
            reversed_ |= self._is_reversal(resource, change, now_ms)
            moved = max(moved, float(np.abs(mean * (change - 1.0)).sum() / max(2.0 * mean.sum(), 1e-9)))
        self._counts["reversals"] += reversed_
        self._moved += moved
        self._under_way = (row + self._world.execution_windows, planned)

    def _is_reversal(self, resource: str, change: Floats, now_ms: int) -> bool:
        given = change > 1.0 + self._world.reversal_share
        back = given & (now_ms - self._relieved_ms[resource] < self._world.reversal_ms)
        self._relieved_ms[resource][change < 1.0 - self._world.reversal_share] = now_ms
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

    def _detected_after(self, start: int) -> int | None:
        return next((row - start + 1 for row in self._triggers if row >= start), None)


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
