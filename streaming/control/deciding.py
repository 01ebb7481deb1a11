"""One evaluation: newest closed windows -> trigger -> plan, and the rows that tell why.

Evaluated once per closed window. In mode `observe` no plan is made, in `propose` it waits for `rebalancer apply`, in
`apply` the control loop carries it out, inside the maintenance windows if there are any.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from assignor_core.deciding.maintenance import open_window
from assignor_core.deciding.trigger import (
    Evaluation,
    Reason,
    SkewWindow,
    Surroundings,
    TriggerState,
    Verdict,
    after_plan,
    brokers_failed,
    brokers_over,
    step,
)
from assignor_core.execution.reconcile import observed
from assignor_core.live import LiveCluster
from assignor_core.plan import Plan, plan_to_json
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.resources import Resource
from streaming.cluster.ports import ClusterReader
from streaming.control.cluster_model import Model, build_model, missing_brokers
from streaming.control.intents import drained_brokers
from streaming.control.journal import Journal, decision_id
from streaming.control.policies import (
    maintenance_windows,
    may_act,
    next_opening,
    planner_policy,
    relief_policy,
    trigger_policy,
)
from streaming.control.urgency import groups_behind
from streaming.control.windows import ClosedWindow, closed_windows, skew_figures, skew_window
from streaming.errors import RebalancerError, UsageProblem
from streaming.settings import Settings

log = structlog.get_logger()

GAIN_MIN = 0.01
"""A plan that improves the worst max/mean by less than this is not worth a movement."""
UNKNOWN_SHARE_MAX = 0.10
"""With more partitions than this without a known rate a plan would rest on guesses."""


class NothingToPlanOn(RebalancerError):
    """There is no closed window, or too little of the load is known."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan with the JSON that is shown, stored and approved, and the windows it rests on."""

    plan: Plan
    json: dict[str, Any]
    windows: tuple[ClosedWindow, ...]


def propose_now(
    cluster: ClusterReader,
    live: LiveCluster,
    settings: Settings,
    *,
    now_ms: int,
    policy: PlannerPolicy | None = None,
    since_ms: int = 0,
    drained: frozenset[int] | None = None,
) -> Proposal:
    """A plan from the newest closed windows and the live placement; raises NothingToPlanOn.

    `policy` and `drained` stand in for what settings and tables say where a person asks for something special. Windows
    that ended before `since_ms` are left out: from before a breach, they would make the plan mend half of it.
    """
    found = closed_windows(settings, now_ms=now_ms)[-settings.planner.windows :]
    windows = tuple(window for window in found if window.end_ms >= since_ms)
    if not windows:
        raise NothingToPlanOn("no closed window in the tables yet: is the pipeline running?")
    drained = drained_brokers(settings) if drained is None else drained
    model = build_model(live, cluster.replica_sizes(), windows, settings, drained=drained, now_ms=now_ms)
    _check_known(model)
    chosen = policy or planner_policy(settings, {topic for topic, _ in live.partitions})
    began = time.perf_counter()
    plan = propose(model.cluster, chosen)
    elapsed_ms = (time.perf_counter() - began) * 1000
    content = {**plan_to_json(plan), "observed": observed(plan, live), "elapsed_ms": elapsed_ms}
    return Proposal(plan, content, windows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one evaluation came to: the decision, the plan if one was made, and whether it may be carried out now."""

    evaluation: Evaluation
    proposal: Proposal | None = None
    may_act: bool = False


class Decider:
    """Evaluates each closed window once; what it must remember across restarts it reads from the journal."""

    def __init__(self, cluster: ClusterReader, journal: Journal, settings: Settings) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._policy = trigger_policy(settings)
        self._state = journal.trigger_state()
        self._evaluated_ms = 0

    def tick(self, *, now_ms: int) -> Proposal | None:
        """Evaluate if a window has closed since the last tick; returns a plan that may be carried out now."""
        windows = closed_windows(self._settings, now_ms=now_ms)
        if not windows or windows[-1].end_ms <= self._evaluated_ms:
            return None
        live = self._cluster.describe()
        counted = brokers_counted(live, self._settings)
        skews = tuple(skew_window(window, self._settings, counted) for window in windows)
        found = self._due(live, skews[-1], now_ms) or self._evaluate(live, skews, now_ms)
        skew = skew_figures(windows[-1], self._settings, counted)
        self._write(found, skews[-1], skew, now_ms)
        self._evaluated_ms = windows[-1].end_ms
        return found.proposal if found.may_act else None

    def _evaluate(self, live: LiveCluster, skews: tuple[SkewWindow, ...], now_ms: int) -> "Outcome":
        around = Surroundings(
            reassigning_count=len(live.reassigning()),
            missing_brokers=missing_brokers(live),
            behind=self._behind(live, skews[-1], now_ms),
        )
        self._state, evaluation = step(self._policy, self._state, skews, around, now_ms=now_ms)
        if evaluation.verdict is not Verdict.PLAN:
            return Outcome(evaluation)
        if self._settings.control.mode == "observe":
            return _held(evaluation, Reason.DRY_RUN, f"mode is observe; {evaluation.detail}")
        waiting = self._waiting_for_longer(evaluation, skews[-1], now_ms)
        return waiting or self._plan(live, evaluation, skews[-1], now_ms)

    def _behind(self, live: LiveCluster, newest: SkewWindow, now_ms: int) -> dict[int, str]:
        """Asked only while it can decide something: a broker is over the threshold, and not yet for long enough."""
        if self._state.breached_since_ms is not None:
            return {}
        stale_after_ms = self._policy.stale_after_ms
        hot = brokers_over(self._policy, newest)
        return groups_behind(self._settings, live, hot, now_ms=now_ms, stale_after_ms=stale_after_ms) if hot else {}

    def _plan(self, live: LiveCluster, evaluation: Evaluation, window: SkewWindow, now_ms: int) -> "Outcome":
        """Plan for a breach or a failed broker; a plan that gains too little becomes a decision to hold."""
        failed = evaluation.reason is Reason.BROKER_FAILED
        lost = frozenset(brokers_failed(self._policy, self._state, now_ms)) if failed else frozenset()
        try:
            proposal = propose_now(
                self._cluster,
                live,
                self._settings,
                now_ms=now_ms,
                policy=relief_policy(lost, drain=False) if failed else None,
                since_ms=0 if failed else self._state.breached_since_ms or 0,
            )
        except NothingToPlanOn as error:
            return _held(evaluation, Reason.INCOMPLETE, str(error))
        useless = _not_worth_it(proposal, evaluation)
        if useless is not None:
            return _held(evaluation, Reason.MIN_GAIN, useless)
        self._state = after_plan(self._policy, self._state, now_ms)
        span = (proposal.windows[0].start_ms, proposal.windows[-1].end_ms)
        self._journal.write_plan(proposal.json, decision=self._decision_id(window), window=span, now_ms=now_ms)
        return self._now_or_later(Outcome(evaluation, proposal, may_act=True), window, lost, now_ms)

    def _now_or_later(self, planned: "Outcome", window: SkewWindow, lost: frozenset[int], now_ms: int) -> "Outcome":
        """In mode apply a plan made outside the maintenance windows waits for the next one."""
        assert planned.proposal is not None
        if self._settings.control.mode != "apply" or may_act(self._settings, now_ms):
            self._state = _waiting_for_nothing(self._state)
            return planned
        self._state = replace(
            self._state,
            waiting_plan_id=planned.proposal.plan.plan_id,
            waiting_load=_load(window, planned.evaluation),
            waiting_failed=tuple(sorted(lost)),
        )
        evaluation = planned.evaluation
        detail = f"{evaluation.detail}; the plan waits for {next_opening(self._settings, now_ms)}"
        return Outcome(replace(evaluation, reason=Reason.MAINTENANCE_WINDOW, detail=detail), planned.proposal)

    def _waiting_for_longer(self, evaluation: Evaluation, window: SkewWindow, now_ms: int) -> "Outcome | None":
        """Of the plans made before a maintenance window the one made at the highest load waits: nights are not days."""
        waiting = self._state.waiting_plan_id
        if waiting is None or may_act(self._settings, now_ms) or evaluation.reason is Reason.BROKER_FAILED:
            return None
        if _load(window, evaluation) > self._state.waiting_load:
            return None
        opening = next_opening(self._settings, now_ms)
        detail = f"plan {waiting[:12]}, made at a higher load, waits for {opening}; {evaluation.detail}"
        return _held(evaluation, Reason.MAINTENANCE_WINDOW, detail)

    def _due(self, live: LiveCluster, window: SkewWindow, now_ms: int) -> "Outcome | None":
        """The plan that waited, once its time has come and it still fits the cluster; None otherwise."""
        self._drop_if_back(live)
        waiting, failed = self._state.waiting_plan_id, self._state.waiting_failed
        if waiting is None or not may_act(self._settings, now_ms) or live.reassigning():
            return None
        self._state = _waiting_for_nothing(self._state)
        if self._settings.control.mode != "apply":
            return None
        try:
            kept = self._journal.plan(waiting)
            problem = "; ".join(kept.misfits(live)[:5])
        except UsageProblem as error:
            problem = str(error)
        if problem:
            log.info("waiting_plan_dropped", plan_id=waiting[:12], reason=problem)
            return None
        # Written again it lives anew: its time of expiry counts from when it may be carried out.
        content = dict(kept.json)
        self._journal.write_plan(content, decision=self._decision_id(window), window=None, now_ms=now_ms)
        self._state = after_plan(self._policy, self._state, now_ms)
        opened = open_window(maintenance_windows(self._settings), now_ms)
        name = f"maintenance window {opened.text} is open" if opened else "there are no maintenance windows any more"
        detail = f"{name}: plan {waiting[:12]}, made {(now_ms - kept.created_ms) / 3_600_000:.1f} h ago, is carried out"
        resource = self._state.breached_resource
        ratio = window.max_over_mean(resource) if resource else None
        reason = Reason.BROKER_FAILED if failed else Reason.SKEWED
        evaluation = Evaluation(Verdict.PLAN, reason, detail, resource, ratio)
        return Outcome(evaluation, Proposal(kept.plan, content, ()), may_act=True)

    def _drop_if_back(self, live: LiveCluster) -> None:
        """Drop a plan that waits to replace failed brokers once one of them is back: it would empty a sound broker.

        Its replicas still lie where they lay, so that nothing else tells that the plan no longer fits. If others are
        still away the trigger plans for those anew.
        """
        back = sorted(set(self._state.waiting_failed) - missing_brokers(live))
        if back:
            waiting, self._state = self._state.waiting_plan_id or "", _waiting_for_nothing(self._state)
            log.info("waiting_plan_dropped", plan_id=waiting[:12], reason=f"broker {back[0]} is no longer missing")

    def _decision_id(self, window: SkewWindow) -> str:
        return decision_id(self._settings.kafka.cluster_name, window.window_end_ms)

    def _write(self, found: "Outcome", window: SkewWindow, skew: Mapping[str, Any], now_ms: int) -> None:
        evaluation = found.evaluation
        plan_id = found.proposal.plan.plan_id if found.proposal else None
        self._journal.write_decision(
            evaluation, self._state, self._policy, window, skew, plan_id=plan_id, now_ms=now_ms
        )
        log.info(
            "decision", verdict=evaluation.verdict.value, reason=evaluation.reason.value, detail=evaluation.detail,
            plan_id=plan_id[:12] if plan_id else None,
        )  # fmt: skip

    @property
    def state(self) -> TriggerState:
        """State after the newest evaluation."""
        return self._state


def brokers_counted(live: LiveCluster, settings: Settings) -> frozenset[int]:
    """Brokers whose balance counts: those that are alive and not being drained."""
    return frozenset(live.broker_racks) - drained_brokers(settings)


def _waiting_for_nothing(state: TriggerState) -> TriggerState:
    return replace(state, waiting_plan_id=None, waiting_load=0.0, waiting_failed=())


def _check_known(model: Model) -> None:
    share = len(model.unknown) / max(1, len(model.cluster.partitions))
    if share > UNKNOWN_SHARE_MAX:
        raise NothingToPlanOn(f"the load of {len(model.unknown)} partitions ({share:.0%}) is unknown in these windows")


def _gain(plan: Mapping[str, Any], resource: str | None) -> float:
    """By how much the plan lowers max/mean of `resource`."""
    name = resource or Resource.BYTES_IN
    return float(plan["skew_before"][name]["max_over_mean"]) - float(plan["skew_after"][name]["max_over_mean"])


def _not_worth_it(proposal: Proposal, evaluation: Evaluation) -> str | None:
    """Why the plan is not worth carrying out, or None."""
    if evaluation.reason is Reason.BROKER_FAILED:
        problems = "; ".join(proposal.json["problems"]) or "they hold nothing that may move"
        return None if proposal.plan.movements else f"nothing can be made anew: {problems}"
    if proposal.plan.movements and _gain(proposal.json, evaluation.resource) >= GAIN_MIN:
        return None
    bound = proposal.json["lower_bound"].get(evaluation.resource)
    return f"no plan lowers max/mean of {evaluation.resource} by {GAIN_MIN} or more; its lower bound is {bound}"


def _load(window: SkewWindow, evaluation: Evaluation) -> float:
    """Mean load of the resource that decided; of bytes in where none did."""
    return window.mean_load.get(evaluation.resource or Resource.BYTES_IN, 0.0)


def _held(evaluation: Evaluation, reason: Reason, detail: str) -> Outcome:
    return Outcome(replace(evaluation, verdict=Verdict.HOLD, reason=reason, detail=detail))
