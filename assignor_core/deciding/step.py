"""One decision: needs in the order of their urgency, each against the gates that may hold it back.

`step` is pure: the same state, observation and policy give the same decision, and `backtest` replays this very
function. It carries nothing out and writes nothing; what a plan is made of comes from `Evidence`. `gates` has the needs
and the gates. First comes a plan that waited, if its hours have come.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assignor_core.deciding.gates import GATES, NEEDS, Gate, NeedKind, day_budget, mean_load
from assignor_core.deciding.needs import Hold, Need, NeedContext, placement_states
from assignor_core.deciding.observation import Evidence, Observation, Surroundings
from assignor_core.deciding.plan_requests import attempt_of, gain_of_noise, plan_request
from assignor_core.deciding.policy import DecisionPolicy, Mode
from assignor_core.deciding.reasons import LASTING_REASONS, LEAVES_PLACEMENT, OWN_PLANS, Evaluation, Reason, Verdict
from assignor_core.deciding.skewed import judged, may_be_urgent, with_breach
from assignor_core.deciding.state import (
    TriggerState,
    WaitingPlan,
    after_plan,
    brokers_failed,
    last_change_ms,
    noted,
    with_lagging,
    with_lasting,
    with_surroundings,
    without,
    without_times_ahead,
)
from assignor_core.deciding.trace import Traced
from assignor_core.deciding.waiting import DroppedPlan, Due, due
from assignor_core.errors import LoadsDisagree, NothingToPlanOn
from assignor_core.load_history.windows import SkewWindow
from assignor_core.proposed_plan import ProposedPlan

PARTIAL = (Reason.BROKER_FAILED, Reason.LOG_DIR_FULL)
"""Needs that can't wait: their plans help as far as they go, and no pause or budget holds them back."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of one evaluation."""

    evaluation: Evaluation
    window: SkewWindow
    """The newest closed window, which was judged."""
    proposed: ProposedPlan | None
    """The plan that was made, or a waiting plan whose maintenance window opened."""
    may_act: bool
    """Whether mode `apply` carries `proposed` out now."""
    dropped: tuple[DroppedPlan, ...]
    trace: tuple[Traced, ...] = ()
    """Needs that the evaluation examined, the most urgent first."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of the gates for one kind of need."""

    context: NeedContext
    """Context with the state after the try, and the plan if one was made."""
    need: Need | None = None
    gate: Gate | None = None
    """The gate that holds the need back; None if every gate lets it pass."""
    hold: Hold | None = None
    passed: tuple[str, ...] = ()
    """Names of the gates that let the need pass."""

    @property
    def is_plan(self) -> bool:
        """Whether there is a plan, for now or for later."""
        return self.need is not None and (self.gate is None or self.gate.delays)

    @property
    def evaluation(self) -> Evaluation:
        """Row of the decision if this need decides."""
        need, hold = self.need, self.hold
        if self.is_plan and need is not None:
            reason, text = (need.reason, need.text) if hold is None else (hold.reason, hold.sentence)
            return Evaluation(Verdict.PLAN, reason, text, need.resource, need.max_over_mean)
        assert hold is not None
        figures = (hold.resource, hold.max_over_mean) if need is None else (need.resource, need.max_over_mean)
        return Evaluation(Verdict.HOLD, hold.reason, hold.sentence, *figures)


def step(
    state: TriggerState, observation: Observation, policy: DecisionPolicy, evidence: Evidence
) -> tuple[TriggerState, Decision]:
    """The new state and the decision on the newest window of `observation`."""
    context = _first_context(state, observation, policy, evidence)
    waited = due(context)
    context = replace(context, state=waited.state)
    if waited.carried_out is not None:
        kept, evaluation = waited.carried_out
        return context.state, _decision(context, waited, evaluation, kept.proposed, may_act=True)
    tried, unrelieved, trace = first_plan(second_context(context, _groups_behind(context)))
    evaluation, plan = tried.evaluation, tried.context.proposed if tried.is_plan else None
    if plan is None:
        evaluation = waited.instead_of(evaluation)
    if unrelieved is not None:
        evaluation = replace(evaluation, detail=f"{evaluation.detail}; {unrelieved}")
    may_act = plan is not None and tried.gate is None
    return tried.context.state, _decision(tried.context, waited, evaluation, plan, trace, may_act=may_act)


def _decision(
    context: NeedContext,
    waited: Due,
    evaluation: Evaluation,
    proposed: ProposedPlan | None,
    trace: tuple[Traced, ...] = (),
    *,
    may_act: bool,
) -> Decision:
    traced = (*waited.traced, *trace)
    return Decision(evaluation, context.observation.skews[-1], proposed, may_act, waited.dropped, traced)


def _first_context(
    state: TriggerState, observation: Observation, policy: DecisionPolicy, evidence: Evidence
) -> NeedContext:
    """Returns the state with under-replicated partitions and states of the placement brought up to now."""
    live, now_ms = observation.live, observation.now_ms
    placement = placement_states(
        live,
        observation.windows[-1] if observation.windows else None,
        policy.lasting,
        counted=observation.counted,
        planner=policy.planner,
        drained=observation.drained,
    )
    state = without_times_ahead(policy.trigger, state, now_ms)
    state = with_lagging(policy.trigger, state, live, now_ms)
    state = with_lasting(policy.trigger, state, filter(placement.holds, LASTING_REASONS), now_ms)
    around = Surroundings(
        reassigning_count=len(live.reassigning() - live.waiting_for_brokers()),
        missing_brokers=observation.missing_brokers,  # a walk over all partitions
        alive_count=len(live.broker_racks),
        changed_ms=observation.changed_ms,
        away_since_ms=observation.away_since_ms,
        memory=observation.memory,
        recurring=observation.recurring,
        recurring_planned_ms=dict(state.recurring_planned_ms),
    )
    return NeedContext(state, observation, policy, evidence, around, placement)


def _groups_behind(context: NeedContext) -> Mapping[int, str]:
    """Groups that fall behind on hot brokers, by broker; read only while they can decide something."""
    hot = may_be_urgent(context.trigger, context.state, context.observation.skews, context.around)
    return context.evidence.groups_behind(hot) if hot else {}


def second_context(context: NeedContext, behind: Mapping[int, str]) -> NeedContext:
    """With what the windows show of load, and brokers that are offline carried on to now."""
    policy, state, around, now_ms = context.trigger, context.state, context.around, context.now_ms
    around = replace(around, behind=behind, changed_ms=last_change_ms(state, around.changed_ms, now_ms))
    state = with_surroundings(policy, state, around, now_ms)
    of_load = judged(policy, state, context.skews, around, now_ms)
    if of_load is not None:
        state = with_breach(policy, state, of_load, around)
    return replace(context, state=state, around=around, judged=of_load)


def first_plan(
    context: NeedContext, needs: tuple[NeedKind, ...] = NEEDS
) -> tuple[Tried, str | None, tuple[Traced, ...]]:
    """The most urgent need that gets a plan, or what holds the most urgent one; full log dirs without a plan, in words;
    and all needs that were considered.

    A need of the placement comes after one of load, if load asks for no plan or no plan would help the load.
    """
    load: Tried | None = None
    placement: Tried | None = None
    unrelieved, trace = None, []
    for kind in needs:
        tried = _tried(kind, context)
        trace.append(_traced(kind, tried))
        context = replace(tried.context, proposed=None)
        if tried.is_plan:
            return tried, unrelieved, tuple(trace)
        if tried.hold is None or (tried.gate is not None and tried.gate.is_silent):
            continue
        if kind.reason is Reason.BROKER_FAILED:
            return tried, unrelieved, tuple(trace)
        if kind.reason is Reason.LOG_DIR_FULL:
            unrelieved = tried.hold.sentence
            continue
        if kind.reason is Reason.SKEWED:
            load = tried
        else:
            placement = placement or tried
        if tried.hold.reason not in LEAVES_PLACEMENT:
            return _with_figures_of(load, tried), unrelieved, tuple(trace)
    last = placement or load
    assert last is not None
    return replace(last, context=context), unrelieved, tuple(trace)


def _traced(kind: NeedKind, tried: Tried) -> Traced:
    need, gate, why = tried.need, tried.gate, "" if tried.hold is None else tried.hold.why
    if need is None:
        return Traced(kind.reason.value, is_found=False, why=why)
    held_by = None if gate is None else gate.name
    return Traced(kind.reason.value, is_found=True, text=need.text, passed=tried.passed, held_by=held_by, why=why)


def _with_figures_of(load: Tried | None, tried: Tried) -> Tried:
    """During a cooldown the row of a decision shows the figures of load, whatever needs the plan."""
    if load is None or load is tried or tried.hold is None or tried.hold.reason is not Reason.COOLDOWN:
        return tried
    shown = load.evaluation
    need = (
        None if tried.need is None else replace(tried.need, resource=shown.resource, max_over_mean=shown.max_over_mean)
    )
    return replace(tried, need=need)


def _tried(kind: NeedKind, context: NeedContext) -> Tried:
    """Whether the cluster has this need, and the plan for it or the first gate that holds."""
    need = kind.find(context)
    if need is None or isinstance(need, Hold):
        return Tried(context, hold=need)
    tried = _held(Tried(context, need), after_plan=False)
    if tried.hold is not None or tried.need is None:
        return tried
    tried = _held(replace(tried, context=_planned(tried.need, context)), after_plan=True)
    return _accepted(tried) if tried.is_plan else _remembered(tried)


def _held(tried: Tried, *, after_plan: bool) -> Tried:
    """Returns the try with the first gate that holds, names of gates that let pass, and notes of gates only noted."""
    need, context, passed = tried.need, tried.context, list(tried.passed)
    assert need is not None
    for gate in GATES:
        if gate.after_plan is not after_plan or need.reason not in gate.needs:
            continue
        hold = gate.judge(need, context)
        if hold is not None and gate.only_noted and context.policy.mode is Mode.PROPOSE:
            need, hold = replace(need, text=f"{need.text}; it would have to wait: {hold.why}"), None
        if hold is not None:
            return replace(tried, need=need, gate=gate, hold=hold, passed=tuple(passed))
        passed.append(gate.name)
    return replace(tried, need=need, passed=tuple(passed))


def _planned(need: Need, context: NeedContext) -> NeedContext:
    """Returns the context with the plan for `need`, or why none can be made."""
    policy, state, observation = context.policy, context.state, context.observation
    failed = need.reason is Reason.BROKER_FAILED
    lost = frozenset(brokers_failed(policy.trigger, state, context.now_ms)) if failed else frozenset()
    budget = None if need.reason in PARTIAL else day_budget(policy, context.evidence)
    base = policy.planner if budget is None else budget.limited(policy.planner)
    try:
        request = plan_request(need.reason, base, state, observation, policy, context.placement, lost)
        noise = gain_of_noise(policy, state, observation, need, len(request.windows))
        if not failed and need.reason not in OWN_PLANS:
            request = request.needing(need.resource, max(policy.gain_min, noise))
        proposed = context.evidence.propose(request)
    except (LoadsDisagree, NothingToPlanOn) as error:
        return replace(context, proposed=None, refusal=error, budget=budget)
    return replace(context, proposed=proposed, refusal=None, budget=budget, gain_of_noise=noise)


def _remembered(tried: Tried) -> Tried:
    """Remembers a plan that gained too little, so that the next try is later."""
    context, need, hold = tried.context, tried.need, tried.hold
    if need is None or hold is None or need.reason in PARTIAL or hold.reason is not Reason.MIN_GAIN:
        return tried
    attempt = attempt_of(need, context.state, context.observation)
    state = replace(context.state, futile=noted(context.state.futile, attempt, hold.why))
    return replace(tried, context=replace(context, state=state))


def _accepted(tried: Tried) -> Tried:
    """The plan is made: it is carried out now, or waits for its maintenance window in the place of another one."""
    context, need = tried.context, tried.need
    assert need is not None
    assert context.proposed is not None
    state, plan, later = context.state, context.proposed.plan, tried.gate is not None
    state = replace(state, futile=without(state.futile, attempt_of(need, state, context.observation)))
    hold = tried.hold
    if need.reason in PARTIAL and plan.problems:
        # What is left out is a matter for people: the plan helps as far as it goes.
        need = replace(need, text=f"{need.text}; {'; '.join(plan.problems)}")
        hold = None if hold is None else replace(hold, detail=f"{need.text}; {hold.why}")
    state = after_plan(context.trigger, state, context.now_ms, need.recurring_broker)
    if not later:
        return replace(tried, context=replace(context, state=replace(state, waiting=None)), need=need)
    waiting = WaitingPlan(
        plan.plan_id,
        mean_load(need, context),
        brokers_failed(context.trigger, state, context.now_ms) if need.reason is Reason.BROKER_FAILED else (),
        need.reason.value if need.reason in OWN_PLANS else "",
    )
    state = replace(state, waiting=waiting)
    return replace(tried, context=replace(context, state=state), need=need, hold=hold)
