"""Replays control over a world: the one fold of `deciding.step` over closed windows.

A `World` holds what surrounds control: which windows close, which brokers there are, and what a plan changes. `Replay`
holds what control remembers from one decision to the next. There are three worlds:

- `recorded_windows`: loads of brokers, recorded or generated. A plan multiplies them by factors.
- `recorded_decisions`: decisions of the past, made again on the windows of that time. Nothing is moved.
- `placed_cluster`: recorded loads of partitions on a placement. The real planner makes plans, and they change it.

Pure: the same world and the same policy give the same decisions.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from assignor_core.deciding.observation import GivenUp, Observation, PlanRequest, brokers_counted
from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.deciding.state import TriggerState, after_plan
from assignor_core.deciding.step import Decision, step
from assignor_core.live import LiveCluster
from assignor_core.load_history.load_memory import LoadMemory
from assignor_core.load_history.recurring import RecurringLoad
from assignor_core.load_history.windows import ClosedWindow, SkewWindow, skew_window
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.resources import Resource


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of control in a world."""

    now_ms: int
    live: LiveCluster
    windows: tuple[ClosedWindow, ...]
    """Windows that have closed since the tick before, oldest first."""
    drained: frozenset[int] = frozenset()
    """Brokers that must end empty."""
    changed_ms: int = 0
    """End of the newest execution that changed the cluster; 0 where there was none."""
    is_executing: bool = False
    """Whether an execution is under way: then control decides nothing."""


@dataclass(frozen=True, slots=True)
class PlanMade:
    """A plan was made for a reason that windows don't show: only its cooldown is replayed."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class TickOutcome:
    """What came of one tick."""

    skew: SkewWindow
    """Skew of the newest window, of the policy's resources and of those that the world measures besides."""
    before: TriggerState
    after: TriggerState
    decision: Decision | None
    """None while an execution is under way."""

    @property
    def acted_on(self) -> ProposedPlan | None:
        """The plan that is carried out from now on, if there is one."""
        return self.decision.proposed if self.decision is not None and self.decision.may_act else None


class WorldEvidence(ABC):
    """Evidence of a world: plans that were made in it. No consumer group is known, and no execution is given up."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptPlan] = {}

    @abstractmethod
    def propose(self, request: PlanRequest) -> ProposedPlan:
        """A plan for the cluster of now; raises NothingToPlanOn and LoadsDisagree."""

    def groups_behind(self, _brokers: frozenset[int]) -> Mapping[int, str]:
        """No group is known."""
        return {}

    def catch_up_bytes_per_sec(self, _windows: tuple[ClosedWindow, ...]) -> Mapping[int, float]:
        """No group is known."""
        return {}

    def copied_bytes_of_day(self) -> int:
        """Bytes that executions of the last 24 hours have copied."""
        return 0

    def given_up(self) -> GivenUp:
        """Executions that were given up since one was done."""
        return GivenUp()

    def kept_plan(self, plan_id: str) -> KeptPlan | None:
        """A plan of this replay."""
        return self._kept.get(plan_id)

    def keep(self, proposed: ProposedPlan, made_ms: int, *, ttl_ms: int = 0) -> None:
        """A plan was made."""
        self._kept[proposed.plan.plan_id] = KeptPlan(proposed, made_ms, made_ms + ttl_ms)

    def forget_all_but(self, plan_id: str | None) -> None:
        """Only the plan that waits is read again, and a long replay makes thousands of plans."""
        self._kept = {kept: plan for kept, plan in self._kept.items() if kept == plan_id}


class World(Protocol):
    """What surrounds control in a replay."""

    @property
    def evidence(self) -> WorldEvidence:
        """Who makes the plans."""

    @property
    def measured(self) -> tuple[Resource, ...]:
        """Resources whose skew the world follows, whether or not they may make a plan; none: those of the policy."""

    def ticks(self) -> Iterable[Tick | PlanMade]:
        """All ticks, oldest first. Each one follows from what `note` was given of those before."""

    def note(self, tick: Tick, outcome: TickOutcome) -> None:
        """Take in what came of a tick."""


class Replay:
    """Control in `world` under `policy`: what it remembers, tick by tick."""

    def __init__(self, world: World, policy: DecisionPolicy) -> None:
        self._world, self._policy = world, policy
        self._state = TriggerState()
        self._memory, self._recurring = LoadMemory(), RecurringLoad()
        self._windows: deque[ClosedWindow] = deque(maxlen=policy.lookback_windows)
        self._skews: deque[SkewWindow] = deque(maxlen=policy.lookback_windows)
        self._counted: frozenset[int] = frozenset()

    def run(self) -> None:
        """Go through all ticks of the world."""
        for tick in self._world.ticks():
            if isinstance(tick, PlanMade):
                self._state = after_plan(self._policy.trigger, self._state, tick.at_ms)
                continue
            self._world.note(tick, self._outcome(tick))
            waiting = self._state.waiting
            self._world.evidence.forget_all_but(None if waiting is None else waiting.plan_id)

    def _outcome(self, tick: Tick) -> TickOutcome:
        trigger, before = self._policy.trigger, self._state
        moved_ms = max(tick.changed_ms, before.changed_ms)
        measured = self._closed(tick)
        judged = tuple(map(self._judged, measured))
        self._windows.extend(tick.windows)
        self._skews.extend(judged)
        kept = tuple(self._skews)
        skews = max(kept, judged, key=len)  # a decision may be the first one for many windows
        if trigger.recurring_load:
            self._recurring = self._recurring.after(skews, trigger.watched, changed_ms=moved_ms)
        newest = measured[-1] if measured else skews[-1]
        if tick.is_executing:
            return TickOutcome(newest, before, before, None)
        self._memory = self._memory.after(skews, trigger.watched, changed_ms=moved_ms)
        observation = Observation(
            tick.now_ms,
            tick.live,
            tuple(self._windows),
            kept,
            drained=tick.drained,
            changed_ms=tick.changed_ms,
            memory=self._memory,
            recurring=self._recurring,
        )
        self._state, decision = step(before, observation, self._policy, self._world.evidence)
        return TickOutcome(newest, before, self._state, decision)

    def _closed(self, tick: Tick) -> list[SkewWindow]:
        """Skew of the windows that have closed. Control judges earlier ones, too, by the brokers that count now."""
        counted = brokers_counted(tick.live, tick.drained)
        if counted != self._counted:
            self._counted = counted
            self._skews = deque(map(self._judged, map(self._skew, self._windows)), self._windows.maxlen)
        return [self._skew(window) for window in tick.windows]

    def _skew(self, window: ClosedWindow) -> SkewWindow:
        resources = self._world.measured or self._policy.resources
        return skew_window(window, resources, self._policy.capacities, self._counted)

    def _judged(self, skew: SkewWindow) -> SkewWindow:
        """The skew of the resources that may make a plan."""
        if not self._world.measured:
            return skew
        ratios = {name: row for name, row in skew.ratios.items() if name in self._policy.resources}
        means = {name: load for name, load in skew.mean_load.items() if name in self._policy.resources}
        return replace(skew, ratios=ratios, mean_load=means)
