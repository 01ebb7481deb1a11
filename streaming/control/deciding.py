"""One evaluation: newest closed windows -> trigger -> plan, and the rows that tell why.

Evaluated once per closed window. In mode `observe` no plan is made, in `propose` it waits for `rebalancer apply`, in
`apply` the control loop carries it out.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from assignor_core.live import LiveCluster
from assignor_core.plan import Plan, plan_to_json
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.skew import skew_of
from assignor_core.trigger import Evaluation, Reason, SkewWindow, TriggerState, Verdict, after_plan, step
from streaming.cluster import Cluster
from streaming.control.cluster_model import Model, build_model
from streaming.control.journal import Journal, decision_id
from streaming.control.policies import planner_policy, trigger_policy
from streaming.control.windows import RESOURCES, ClosedWindow, capacities, closed_windows, skew_window
from streaming.errors import RebalancerError
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
    cluster: Cluster, live: LiveCluster, settings: Settings, *, now_ms: int, policy: PlannerPolicy | None = None
) -> Proposal:
    """A plan from the newest closed windows and the live placement; raises NothingToPlanOn.

    `policy` stands in for the settings' where a person asks for something special.
    """
    windows = closed_windows(settings, now_ms=now_ms)[-settings.planner.windows :]
    if not windows:
        raise NothingToPlanOn("no closed window in the tables yet: is the pipeline running?")
    model = build_model(live, cluster.replica_sizes(), windows, settings, now_ms=now_ms)
    _check_known(model)
    chosen = policy or planner_policy(settings, {topic for topic, _ in live.partitions})
    began = time.perf_counter()
    plan = propose(model.cluster, chosen)
    elapsed_ms = (time.perf_counter() - began) * 1000
    return Proposal(plan, {**plan_to_json(plan), "elapsed_ms": elapsed_ms}, windows)


class Decider:
    """Evaluates each closed window once; what it must remember across restarts it reads from the journal."""

    def __init__(self, cluster: Cluster, journal: Journal, settings: Settings) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._policy = trigger_policy(settings)
        self._state = journal.trigger_state()
        self._evaluated_ms = 0

    def tick(self, *, now_ms: int) -> Proposal | None:
        """Evaluate if a window has closed since the last tick; returns the plan if one was made."""
        windows = closed_windows(self._settings, now_ms=now_ms)
        if not windows or windows[-1].end_ms <= self._evaluated_ms:
            return None
        live = self._cluster.describe()
        alive = frozenset(live.broker_racks)
        skews = tuple(skew_window(window, self._settings, alive) for window in windows)
        self._state, evaluation = step(
            self._policy, self._state, skews, reassigning_count=len(live.reassigning()), now_ms=now_ms
        )
        proposal = None
        if evaluation.verdict is Verdict.PLAN:
            evaluation, proposal = self._plan(live, evaluation, skews[-1], now_ms)
        skew = _skew_figures(windows[-1], self._settings, alive)
        self._write(evaluation, skews[-1], skew, proposal, now_ms)
        self._evaluated_ms = windows[-1].end_ms
        return proposal

    def _plan(
        self, live: LiveCluster, evaluation: Evaluation, window: SkewWindow, now_ms: int
    ) -> tuple[Evaluation, Proposal | None]:
        """Plan for a breach; a plan that gains too little becomes a decision to hold, with the reason."""
        if self._settings.control.mode == "observe":
            return _held(evaluation, Reason.DRY_RUN, f"mode is observe; {evaluation.detail}"), None
        try:
            proposal = propose_now(self._cluster, live, self._settings, now_ms=now_ms)
        except NothingToPlanOn as error:
            return _held(evaluation, Reason.INCOMPLETE, str(error)), None
        gain = _gain(proposal.json, evaluation.resource)
        if not proposal.plan.movements or gain < GAIN_MIN:
            bound = proposal.json["lower_bound"].get(evaluation.resource)
            detail = (
                f"no plan lowers max/mean of {evaluation.resource} by {GAIN_MIN} or more; its lower bound is {bound}"
            )
            return _held(evaluation, Reason.MIN_GAIN, detail), None
        self._state = after_plan(self._policy, self._state, now_ms)
        span = (proposal.windows[0].start_ms, proposal.windows[-1].end_ms)
        decision = decision_id(self._settings.kafka.cluster_name, window.window_end_ms)
        self._journal.write_plan(proposal.json, decision=decision, window=span, now_ms=now_ms)
        return evaluation, proposal

    def _write(
        self,
        evaluation: Evaluation,
        window: SkewWindow,
        skew: Mapping[str, Any],
        proposal: Proposal | None,
        now_ms: int,
    ) -> None:
        plan_id = proposal.plan.plan_id if proposal else None
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


def measured_ratio(windows: tuple[ClosedWindow, ...], settings: Settings, alive: frozenset[int]) -> float | None:
    """max/mean of bytes in over the mean of `windows`, as the brokers measured it; None where nothing is known."""
    totals: dict[int, list[float]] = {}
    for window in windows:
        for broker, value in window.values("bytes_in").items():
            if broker in alive:
                totals.setdefault(broker, []).append(value)
    means = {broker: sum(values) / len(values) for broker, values in totals.items()}
    return skew_of(means, capacities(settings, "bytes_in", alive)).max_over_mean if means else None


def _check_known(model: Model) -> None:
    share = len(model.unknown) / max(1, len(model.cluster.partitions))
    if share > UNKNOWN_SHARE_MAX:
        raise NothingToPlanOn(f"the load of {len(model.unknown)} partitions ({share:.0%}) is unknown in these windows")


def _skew_figures(window: ClosedWindow, settings: Settings, alive: frozenset[int]) -> dict[str, Any]:
    """All figures of one window by resource, for the decision's row."""
    figures = {}
    for resource in RESOURCES:
        values = {broker: value for broker, value in window.values(resource).items() if broker in alive}
        if values:
            skew = skew_of(values, capacities(settings, resource, alive))
            figures[resource] = {
                "max_over_mean": skew.max_over_mean,
                "coefficient_of_variation": skew.coefficient_of_variation,
                "deviation": {str(broker): ratio for broker, ratio in sorted(skew.deviation.items())},
            }
    return figures


def _gain(plan: Mapping[str, Any], resource: str | None) -> float:
    """By how much the plan lowers max/mean of `resource`."""
    name = resource or "bytes_in"
    return float(plan["skew_before"][name]["max_over_mean"]) - float(plan["skew_after"][name]["max_over_mean"])


def _held(evaluation: Evaluation, reason: Reason, detail: str) -> Evaluation:
    return replace(evaluation, verdict=Verdict.HOLD, reason=reason, detail=detail)
