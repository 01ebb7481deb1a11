"""Goes through recorded hours window by window: load, decision, plan, moves at the throttle, and the loads after them.

Each window is judged by `assignor_core.deciding.step`, each plan made by the real planner, as mode `apply` would; only
the cluster is simulated. Partitions have the load that was recorded; brokers have what lies on them by then. Pure: the
same history, changes and policy give the same result.
"""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from assignor_core.deciding.observation import Observation, brokers_counted
from assignor_core.deciding.policy import DecisionPolicy, Mode
from assignor_core.deciding.skewed import PLAN_WINDOWS_MAX
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import Decision, step
from assignor_core.live import NO_LEADER
from assignor_core.load import Floats
from assignor_core.load_history.load_memory import LoadMemory
from assignor_core.load_history.recurring import RecurringLoad
from assignor_core.load_history.windows import ClosedWindow, SkewWindow, skew_window
from assignor_core.maintenance import may_act
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource
from assignor_core.what_if.copying import Copying, Pace
from assignor_core.what_if.evidence import Planning, ReplayEvidence
from assignor_core.what_if.history import HOUR_MS, History
from assignor_core.what_if.placed import PlacedCluster

SHOWN = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.DISK)
"""Resources whose skew is followed, whether or not it may make a plan."""
HOLDS_MAX = 50
"""Most kinds of holds that are counted."""


@dataclass(frozen=True, slots=True)
class ReplayedPlan:
    """One plan of a replay, and how it was carried out. Times are those of the history."""

    plan_id: str
    begun_ms: int
    reason: str
    detail: str
    movements: int
    bytes_to_move: float
    max_over_mean: dict[str, tuple[float, float]]
    """Resource: before, and as the plan promises."""
    ended_ms: int | None = None
    """None where the history ended first."""
    copied_bytes: float = 0.0
    given_up: bool = False
    duration_ms: int | None = None
    """How long it took without its pauses and hours that nobody recorded, as executions are measured; None where it had
    not ended.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What came of it. H hours, B brokers in the order of their ids; brokers that are away have NaN."""

    hour_start_ms: tuple[int, ...]
    broker_ids: tuple[int, ...]
    max_over_mean: dict[str, Floats]
    """Resource: H means over the windows of each hour, of the brokers that count."""
    broker_load: dict[str, Floats]
    """Resource: H x B, as at the end of each hour."""
    plans: tuple[ReplayedPlan, ...]
    holds: dict[str, int]
    """Reason: windows in which the decision was to hold for it."""
    windows: int
    windows_in_skew: int
    """Windows in which a resource that may make a plan was above `enter_ratio`."""
    even_after_ms: int | None
    """From the start to the end of the last such window; 0 where there was none, None where the last one was one."""
    offline_count: int
    """Partitions without a leader."""
    final_replicas: tuple[tuple[int, ...], ...]
    """Broker ids by partition of the history, at the end."""

    @property
    def copied_bytes(self) -> float:
        """Bytes that movements have copied which ended."""
        return sum(plan.copied_bytes for plan in self.plans)


def replay(
    history: History,
    policy: DecisionPolicy,
    *,
    pace: Pace,
    planning: Planning | None = None,
    window_ms: int = 60_000,
    away: frozenset[int] = frozenset(),
) -> Replay:
    """Replays `history` under `policy`; `window_ms` must divide an hour. Brokers `away` are down throughout."""
    run = _Run(history, policy, pace, planning or Planning(), window_ms, away)
    for hour in range(len(history.hour_start_ms)):
        run.hour(hour)
    return run.result()


class _Run:
    """One pass: the cluster as it is by now, the state of the decisions, and what has been counted."""

    def __init__(
        self,
        history: History,
        policy: DecisionPolicy,
        pace: Pace,
        planning: Planning,
        window_ms: int,
        away: frozenset[int],
    ) -> None:
        throttled = replace(policy.planner, throttle_bytes_per_sec=pace.throttle_bytes_per_sec)
        self._policy = replace(policy, mode=Mode.APPLY, fill=None, planner=throttled)
        self._history, self._pace, self._window_ms = history, pace, window_ms
        self._cluster = PlacedCluster(history, away)
        self._evidence = ReplayEvidence(history, self._cluster, self._policy, planning)
        kept = max(policy.trigger.windows_considered, policy.planner_windows, PLAN_WINDOWS_MAX)
        self._windows: deque[ClosedWindow] = deque(maxlen=kept)
        self._skews: deque[SkewWindow] = deque(maxlen=kept)
        self._memory = LoadMemory()
        self._recurring = RecurringLoad()
        self._state = TriggerState()
        self._changed_ms = 0
        self._copying: Copying | None = None
        self._hour = 0
        self._plans: list[ReplayedPlan] = []
        self._holds: dict[str, int] = {}
        self._skewed_until_ms = 0
        self._counts = {"windows": 0, "skewed": 0}
        hours = len(history.hour_start_ms)
        self._ratios = {resource.value: np.ones(hours) for resource in SHOWN}
        self._loads = {resource.value: np.full((hours, len(history.brokers)), np.nan) for resource in SHOWN}

    def hour(self, hour: int) -> None:
        """All windows of one hour."""
        self._hour = hour
        start_ms = self._history.hour_start_ms[hour]
        numbers = range(HOUR_MS // self._window_ms)
        ratios: dict[str, list[float]] = {resource.value: [] for resource in SHOWN}
        for number in numbers:
            begun_ms = start_ms + number * self._window_ms
            skew = self._window(number, begun_ms)
            for name, values in ratios.items():
                values.append(skew.max_over_mean(name))
        for name, values in ratios.items():
            self._ratios[name][hour] = sum(values) / len(values)
            alive = [broker in self._cluster.live.broker_racks for broker in self._cluster.broker_ids]
            self._loads[name][hour] = np.where(alive, self._cluster.loads(hour)[name], np.nan)

    def result(self) -> Replay:
        """What came of it so far."""
        starts = self._history.hour_start_ms
        end_ms = starts[-1] + HOUR_MS
        even = 0 if not self._skewed_until_ms else self._skewed_until_ms - starts[0]
        live = self._cluster.live
        return Replay(
            hour_start_ms=starts,
            broker_ids=self._cluster.broker_ids,
            max_over_mean=self._ratios,
            broker_load=self._loads,
            plans=tuple(self._plans),
            holds=dict(sorted(self._holds.items())),
            windows=self._counts["windows"],
            windows_in_skew=self._counts["skewed"],
            even_after_ms=None if self._skewed_until_ms == end_ms else even,
            offline_count=sum(row.leader == NO_LEADER for row in live.partitions.values()),
            final_replicas=self._cluster.replicas,
        )

    def _window(self, number: int, start_ms: int) -> SkewWindow:
        """One window: bytes move, it closes, and what is not under way is decided on. Returns its skew."""
        now_ms = start_ms + self._window_ms
        self._evidence.now_ms = now_ms
        window = self._cluster.window(self._hour, number, start_ms, now_ms)
        counted = brokers_counted(self._cluster.live, self._history.drained)
        skew = skew_window(window, SHOWN, self._policy.capacities, counted)
        self._windows.append(window)
        self._skews.append(self._judged(skew))
        changed_ms = max(self._changed_ms, self._state.changed_ms)
        self._recurring = self._recurring.after((self._skews[-1],), self._policy.trigger.watched, changed_ms=changed_ms)
        self._count(skew, now_ms)
        if self._copying is not None:
            self._carry_on(self._copying, now_ms)
        else:
            self._decide(now_ms)
        return skew

    def _judged(self, skew: SkewWindow) -> SkewWindow:
        """Only the resources that may make a plan."""
        resources = self._policy.resources
        return replace(
            skew,
            ratios={name: row for name, row in skew.ratios.items() if name in resources},
            mean_load={name: load for name, load in skew.mean_load.items() if name in resources},
        )

    def _count(self, skew: SkewWindow, now_ms: int) -> None:
        self._counts["windows"] += 1
        trigger = self._policy.trigger
        loaded = [
            row for row in self._policy.resources if skew.mean_load.get(row, 0.0) >= trigger.load_min_bytes_per_sec
        ]
        if any(skew.max_over_mean(resource) > trigger.enter_ratio for resource in loaded):
            self._counts["skewed"] += 1
            self._skewed_until_ms = now_ms

    def _carry_on(self, copying: Copying, now_ms: int) -> None:
        """What is under way goes on for a window; while it does, nothing is decided, as in control."""
        before_ms = copying.elapsed_ms
        ended = copying.advance(self._window_ms, may_begin=may_act(self._policy.maintenance, now_ms))
        if ended:
            self._cluster.move(ended)
        if copying.is_over:
            took_ms = round(copying.elapsed_ms - before_ms)
            self._end(copying, now_ms - self._window_ms + took_ms)

    def _end(self, copying: Copying, ended_ms: int) -> None:
        self._plans[-1] = replace(
            self._plans[-1],
            ended_ms=ended_ms,
            copied_bytes=copying.copied_bytes,
            given_up=copying.given_up,
            duration_ms=round(copying.worked_ms),
        )
        self._evidence.note_end(copying.copied_bytes, given_up=copying.given_up)
        self._changed_ms, self._copying = ended_ms, None

    def _decide(self, now_ms: int) -> None:
        self._memory = self._memory.after(
            tuple(self._skews), self._policy.trigger.watched, changed_ms=max(self._changed_ms, self._state.changed_ms)
        )
        observation = Observation(
            now_ms,
            self._cluster.live,
            tuple(self._windows),
            tuple(self._skews),
            drained=self._history.drained,
            changed_ms=self._changed_ms,
            memory=self._memory,
            recurring=self._recurring,
        )
        self._state, decision = step(self._state, observation, self._policy, self._evidence)
        waiting = self._state.waiting
        self._evidence.forget_all_but(None if waiting is None else waiting.plan_id)
        if decision.may_act and decision.proposed is not None:
            self._begin(decision, decision.proposed, now_ms)
            return
        reason = decision.evaluation.reason.value
        if reason in self._holds or len(self._holds) < HOLDS_MAX:
            self._holds[reason] = self._holds.get(reason, 0) + 1

    def _begin(self, decision: Decision, proposed: ProposedPlan, now_ms: int) -> None:
        plan, live, hour = proposed.plan, self._cluster.live, self._hour
        self._plans.append(
            ReplayedPlan(
                plan_id=plan.plan_id,
                begun_ms=now_ms,
                reason=decision.evaluation.reason.value,
                detail=decision.evaluation.detail,
                movements=plan.movement_count,
                bytes_to_move=plan.bytes_to_move,
                max_over_mean={
                    name: (before["max_over_mean"], plan.skew_after[name]["max_over_mean"])
                    for name, before in plan.skew_before.items()
                },
            )
        )
        self._copying = Copying(
            plan,
            self._pace,
            leader_of=lambda key: live.partitions[key].leader,
            bytes_of=self._cluster.size_bytes,
            produced_of=lambda key: self._cluster.bytes_in_per_sec(key, hour),
        )
