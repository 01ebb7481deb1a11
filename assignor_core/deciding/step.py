"""One decision, whole: waiting plan -> trigger, else placement -> plan -> worth it? -> now or in the maintenance hours.

`step` is pure: the same state, observation and policy give the same decision, and `backtest` replays this very
function. It carries nothing out and writes nothing; what a plan is made of comes from `Evidence`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assignor_core.deciding.budget import DayBudget
from assignor_core.deciding.entering import Surroundings, entering
from assignor_core.deciding.futile import noted, paused, without
from assignor_core.deciding.health import obstacle, with_lagging
from assignor_core.deciding.lasting import (
    lasting_reasons,
    not_mended,
    placement_states,
    with_lasting,
)
from assignor_core.deciding.log_dirs import full_in_words
from assignor_core.deciding.maintenance import may_act, next_opening
from assignor_core.deciding.observation import DecisionPolicy, Evidence, Mode, Observation
from assignor_core.deciding.plan_requests import plan_request
from assignor_core.deciding.reasons import LEAVES_PLACEMENT, OWN_PLANS, Reason, Verdict
from assignor_core.deciding.trigger import (
    Evaluation,
    TriggerState,
    after_plan,
    brokers_failed,
    complete_windows,
    may_be_urgent,
    settled_windows,
    without_times_ahead,
)
from assignor_core.deciding.trigger import step as trigger_step
from assignor_core.deciding.waiting import DroppedPlan, due_in_words, outdated, waiting_for_nothing
from assignor_core.deciding.windows import ClosedWindow, SkewWindow, skew_window, without_catch_up
from assignor_core.deciding.worth import attempt_of, gain_of_noise, not_worth_it
from assignor_core.errors import LoadsDisagree, NothingToPlanOn
from assignor_core.live import too_many_away
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource


@dataclass(frozen=True, slots=True)
class Decision:
    """What one evaluation came to."""

    evaluation: Evaluation
    window: SkewWindow
    """The newest closed window, which was judged."""
    proposed: ProposedPlan | None
    """The plan that was made, or that waited and is due."""
    may_act: bool
    """Whether mode `apply` carries `proposed` out now."""
    dropped: tuple[DroppedPlan, ...]


def step(
    state: TriggerState, observation: Observation, policy: DecisionPolicy, evidence: Evidence
) -> tuple[TriggerState, Decision]:
    """The new state and the decision on the newest window of `observation`."""
    made = _Deciding(state, observation, policy, evidence)
    evaluation, proposed, may_act = made.due() or made.relieved() or made.evaluated()
    if made.unrelieved is not None:
        evaluation = replace(evaluation, detail=f"{evaluation.detail}; {made.unrelieved}")
    return made.state, Decision(evaluation, observation.skews[-1], proposed, may_act, tuple(made.dropped))


DELETED_AFTER_MS = 120_000
"""Until then bytes that have left a log dir may fill it still: Kafka's `log.segment.delete.delay.ms` is a minute."""
Conclusion = tuple[Evaluation, ProposedPlan | None, bool]
"""What was decided, the plan if there is one, and whether it may be carried out now."""


class _Deciding:
    """One decision while it is made: holds the state as it changes."""

    def __init__(
        self, state: TriggerState, observation: Observation, policy: DecisionPolicy, evidence: Evidence
    ) -> None:
        state = without_times_ahead(policy.trigger, state, observation.now_ms)
        state = with_lagging(policy.trigger, state, observation.live, observation.now_ms)
        self._placement = placement_states(
            observation.live,
            observation.windows[-1],
            policy.lasting,
            counted=observation.counted,
            excluded_topics=policy.planner.excluded_topics,
        )
        self.state = with_lasting(policy.trigger, state, self._placement, observation.now_ms)
        self.dropped: list[DroppedPlan] = []
        self._observation = observation
        self._policy = policy
        self._evidence = evidence
        self._missing_brokers = observation.missing_brokers  # a walk over all partitions
        self._waits_on: tuple[Reason, str] | None = None
        """Why a waiting plan that is due waits on."""
        self.unrelieved: str | None = None
        """Full log dirs that no plan is made for, and why."""

    def due(self) -> Conclusion | None:
        """The plan that waited, if its hours have come and it still fits the cluster; None otherwise."""
        self._drop(outdated(self.state, self._observation, self._missing_brokers, self._evidence))
        waiting = self.state.waiting_plan_id
        if waiting is None or not self._hours_are_open() or self._observation.live.reassigning():
            return None
        failed = self.state.waiting_failed
        if failed and self._too_many_away():
            return None
        if self._policy.mode is Mode.APPLY:
            self._waits_on = self._why_due_waits(waiting, relieves=bool(failed))
            if self._waits_on is not None:
                return None
        lasting = self.state.waiting_reason
        self.state = waiting_for_nothing(self.state)
        if self._policy.mode is not Mode.APPLY:
            return None
        kept = self._evidence.kept_plan(waiting)
        misfits = ("is unknown",) if kept is None else kept.misfits(self._observation.live)
        if kept is None or misfits:
            self._drop(DroppedPlan(waiting, "; ".join(misfits[:5])))
            return None
        now_ms = self._observation.now_ms
        self.state = after_plan(self._policy.trigger, self.state, now_ms)
        detail = due_in_words(kept, self._policy.maintenance, now_ms)
        if lasting:
            return Evaluation(Verdict.PLAN, Reason(lasting), detail, None, None), kept.proposed, True
        resource = self.state.breached_resource
        ratio = self._observation.skews[-1].max_over_mean(resource) if resource else None
        reason = Reason.BROKER_FAILED if failed else Reason.SKEWED
        return Evaluation(Verdict.PLAN, reason, detail, resource, ratio), kept.proposed, True

    def relieved(self) -> Conclusion | None:
        """The plan for log dirs that are too full; None where there is none. It comes before one for skew, which lasts
        for hours, and after one for failed brokers.
        """
        words, now_ms = full_in_words(self._observation.log_dirs, self._policy.fill), self._observation.now_ms
        waits = self._observation.live.reassigning() or now_ms < self.state.cooldown_end_ms
        waits = waits or 0 <= now_ms - self._observation.changed_ms < DELETED_AFTER_MS
        if words is None or waits or brokers_failed(self._policy.trigger, self.state, now_ms):
            return None
        conclusion = self._followed(Evaluation(Verdict.PLAN, Reason.LOG_DIR_FULL, words, None, None))
        if conclusion[1] is None:
            self.unrelieved = conclusion[0].detail
        return None if conclusion[1] is None else conclusion

    def evaluated(self) -> Conclusion:
        """The trigger's verdict, and the plan that follows from it. That a waiting plan waits on comes first."""
        conclusion = self._evaluated()
        evaluation, waiting = conclusion[0], (self.state.waiting_plan_id or "")[:12]
        if self._waits_on is None or evaluation.verdict is Verdict.PLAN or evaluation.reason is Reason.UNHEALTHY:
            return conclusion
        reason, why = self._waits_on
        return _held(evaluation, reason, f"plan {waiting} waits: {why}; {evaluation.detail}")

    def _why_due_waits(self, plan_id: str, *, relieves: bool) -> tuple[Reason, str] | None:
        """Why the waiting plan would have to wait for long, or copies more than is left of the day's budget."""
        problem = self._obstacle(relieves=relieves)
        if problem is not None:
            return Reason.UNHEALTHY, problem
        budget = None if relieves else self._day_budget()
        kept = None if budget is None else self._evidence.kept_plan(plan_id)
        is_over = budget is not None and kept is not None and kept.plan.bytes_to_move > budget.left_bytes
        return (Reason.DAY_BUDGET, budget.in_words()) if budget is not None and is_over else None

    def _day_budget(self) -> DayBudget | None:
        """What plans may copy that nobody is asked about; None where that has no limit."""
        bytes_max = self._policy.bytes_per_day_max
        if bytes_max is None or self._policy.mode is not Mode.APPLY:
            return None
        return DayBudget(bytes_max, self._evidence.copied_bytes_of_day())

    def _evaluated(self) -> Conclusion:
        conclusion = self._of_load()
        if conclusion[0].verdict is Verdict.PLAN or conclusion[0].reason not in LEAVES_PLACEMENT:
            return conclusion
        return self._of_placement(conclusion)

    def _of_load(self) -> Conclusion:
        """What the trigger says of load and failed brokers, and the plan that follows from it."""
        observation = self._observation
        around = Surroundings(
            reassigning_count=len(observation.live.reassigning() - observation.live.waiting_for_brokers()),
            missing_brokers=self._missing_brokers,
            alive_count=len(observation.live.broker_racks),
            changed_ms=observation.changed_ms,
            away_since_ms=observation.away_since_ms,
            memory=observation.memory,
            recurring=observation.recurring,
            recurring_planned_ms=dict(self.state.recurring_planned_ms),
        )
        behind = self._groups_behind(around)
        if behind:
            around = replace(around, behind=behind)
        self.state, evaluation = trigger_step(
            self._policy.trigger, self.state, observation.skews, around, now_ms=observation.now_ms
        )
        if evaluation.verdict is not Verdict.PLAN:
            return evaluation, None, False
        evaluation = self._without_catch_up(evaluation, around)
        if evaluation.verdict is not Verdict.PLAN:
            return evaluation, None, False
        return self._followed(evaluation)

    def _of_placement(self, conclusion: Conclusion) -> Conclusion:
        """The first plan for what lasts of the placement; `conclusion`, that of the load, where there is none.

        While brokers are away any plan would make their replicas anew.
        """
        now_ms = self._observation.now_ms
        lasting = lasting_reasons(self._policy.lasting, self.state, now_ms)
        if not lasting or self._missing_brokers or self._observation.live.reassigning():
            return conclusion
        held = []
        for reason, lasted_ms in lasting:
            words = self._placement.in_words(reason, lasted_ms)
            if now_ms < self.state.cooldown_end_ms:
                left_s = (self.state.cooldown_end_ms - now_ms) / 1000
                detail = f"cooldown after the last plan runs for {left_s:.0f} s more; {words}"
                return _held(conclusion[0], Reason.COOLDOWN, detail)
            evaluation, proposed, may_act = self._followed(Evaluation(Verdict.PLAN, reason, words, None, None))
            if evaluation.verdict is Verdict.PLAN or evaluation.reason not in LEAVES_PLACEMENT:
                return evaluation, proposed, may_act
            held.append(evaluation)
        return held[0], None, False

    def _followed(self, evaluation: Evaluation) -> Conclusion:
        """The plan that `evaluation` asks for, unless the mode, the cluster or a plan that waits forbids one."""
        if self._policy.mode is Mode.OBSERVE:
            return _held(evaluation, Reason.DRY_RUN, f"mode is observe; {evaluation.detail}")
        may_pause = self._policy.mode is Mode.APPLY and evaluation.reason is not Reason.BROKER_FAILED
        pause = self._evidence.given_up().reason(self._observation.now_ms) if may_pause else None
        if pause is not None:
            return _held(evaluation, Reason.GIVEN_UP, f"{pause}; {evaluation.detail}")
        relieves = evaluation.reason is Reason.BROKER_FAILED
        problem = None if evaluation.reason is Reason.LOG_DIR_FULL else self._obstacle(relieves=relieves)
        if problem is not None and self._policy.mode is Mode.PROPOSE:
            evaluation = replace(evaluation, detail=f"{evaluation.detail}; it would have to wait: {problem}")
        elif problem is not None and self._hours_are_open():
            return _held(evaluation, Reason.UNHEALTHY, f"{problem}; {evaluation.detail}")
        return self._waits_for_longer(evaluation) or self._planned(evaluation)

    def _obstacle(self, *, relieves: bool) -> str | None:
        """Why an execution that starts now would have to wait for long; None if it would not."""
        return obstacle(self.state, self._observation.live, self._observation.now_ms, relieves=relieves)

    def _too_many_away(self) -> bool:
        alive, max_share = len(self._observation.live.broker_racks), self._policy.trigger.relief_max_away_share
        return too_many_away(len(self._missing_brokers), alive, max_share) is not None

    def _groups_behind(self, around: Surroundings) -> Mapping[int, str]:
        """Asked only while it can decide something; `around` is all else that is known."""
        hot = may_be_urgent(self._policy.trigger, self.state, self._observation.skews, around)
        return self._evidence.groups_behind(hot) if hot else {}

    def _without_catch_up(self, evaluation: Evaluation, around: Surroundings) -> Evaluation:
        """Consumers that catch up are no lasting load: a skew of bytes out must stand without what they read."""
        if evaluation.reason is not Reason.SKEWED or evaluation.resource != Resource.BYTES_OUT:
            return evaluation
        considered = self._observation.windows[-self._policy.trigger.windows_considered :]
        catch_up = self._evidence.catch_up_bytes_per_sec(considered)
        if not catch_up:
            return evaluation
        lasting = (self._skew(without_catch_up(window, catch_up)) for window in considered)
        settled = settled_windows(self.state, complete_windows(self._policy.trigger, lasting))
        if entering(self._policy.trigger, settled, around) is not None:
            return evaluation
        broker = self.state.breached_broker
        read = 0.0 if broker is None else catch_up.get(broker, 0.0)
        detail = f"{evaluation.detail}; {read / 1e6:,.1f} MB/s of that is read by consumers that catch up"
        return replace(evaluation, verdict=Verdict.HOLD, reason=Reason.CATCHING_UP, detail=detail)

    def _skew(self, window: ClosedWindow) -> SkewWindow:
        return skew_window(window, self._policy.resources, self._policy.capacities, self._observation.counted)

    def _planned(self, evaluation: Evaluation) -> Conclusion:
        """Plan for skew, failed brokers or the placement; a plan that gains too little becomes a decision to hold."""
        now_ms = self._observation.now_ms
        failed = evaluation.reason is Reason.BROKER_FAILED
        partial = failed or evaluation.reason is Reason.LOG_DIR_FULL
        lost = frozenset(brokers_failed(self._policy.trigger, self.state, now_ms)) if failed else frozenset()
        attempt = attempt_of(evaluation, self.state, self._observation)
        if not partial and (pause := paused(self.state.futile, attempt)):
            return _held(evaluation, Reason.MIN_GAIN, pause)
        budget = None if partial else self._day_budget()
        base = self._policy.planner if budget is None else budget.limited(self._policy.planner)
        try:
            asked = plan_request(
                evaluation.reason, base, self.state, self._observation, self._policy, self._placement, lost
            )
            noise = gain_of_noise(self._policy, self.state, self._observation, evaluation, len(asked.windows))
            if not failed and evaluation.reason not in OWN_PLANS:
                asked = asked.needing(evaluation.resource, max(self._policy.gain_min, noise))
            proposed = self._evidence.propose(asked)
        except LoadsDisagree as error:
            return _held(evaluation, Reason.LOADS_DISAGREE, str(error))
        except NothingToPlanOn as error:
            return _held(evaluation, Reason.INCOMPLETE, str(error))
        if evaluation.reason in OWN_PLANS:
            useless = not_mended(evaluation.reason, self._placement, proposed.plan)
            useless = None if useless is None else f"{evaluation.detail}; {useless}"
        else:
            useless = not_worth_it(proposed, evaluation, self._policy.gain_min, noise)
        if useless is not None:
            if budget is not None and budget.binds(self._policy.planner):
                return _held(evaluation, Reason.DAY_BUDGET, f"{budget.in_words()}; {useless}")
            if partial:
                return _held(evaluation, Reason.NO_ROOM if proposed.plan.problems else Reason.MIN_GAIN, useless)
            self.state = replace(self.state, futile=noted(self.state.futile, attempt, useless))
            return _held(evaluation, Reason.MIN_GAIN, useless)
        self.state = replace(self.state, futile=without(self.state.futile, attempt))
        if partial and proposed.plan.problems:
            # What is left out is a matter for people: the plan helps as far as it goes.
            evaluation = replace(evaluation, detail=f"{evaluation.detail}; {'; '.join(proposed.plan.problems)}")
        self.state = after_plan(self._policy.trigger, self.state, now_ms, evaluation.recurring_broker)
        return self._now_or_later(evaluation, proposed, lost)

    def _now_or_later(self, evaluation: Evaluation, proposed: ProposedPlan, lost: frozenset[int]) -> Conclusion:
        """In mode apply a plan made outside the maintenance windows waits for the next one."""
        if self._policy.mode is not Mode.APPLY or self._hours_are_open():
            self.state = waiting_for_nothing(self.state)
            return evaluation, proposed, True
        self.state = replace(
            self.state,
            waiting_plan_id=proposed.plan.plan_id,
            waiting_load=self._load(evaluation),
            waiting_failed=tuple(sorted(lost)),
            waiting_reason=evaluation.reason.value if evaluation.reason in OWN_PLANS else "",
        )
        detail = f"{evaluation.detail}; the plan waits for {self._next_opening()}"
        return replace(evaluation, reason=Reason.MAINTENANCE_WINDOW, detail=detail), proposed, False

    def _waits_for_longer(self, evaluation: Evaluation) -> Conclusion | None:
        """Of the plans made before a maintenance window the one made at the highest load waits: nights are not days.

        One for the placement waits only while no other does, and gives way to one for skew.
        """
        waiting = self.state.waiting_plan_id
        if waiting is None or self._hours_are_open() or evaluation.reason is Reason.BROKER_FAILED:
            return None
        if evaluation.reason in OWN_PLANS:
            detail = f"plan {waiting[:12]} waits for {self._next_opening()}; {evaluation.detail}"
            return _held(evaluation, Reason.MAINTENANCE_WINDOW, detail)
        if self.state.waiting_reason or self._load(evaluation) > self.state.waiting_load:
            return None
        detail = f"plan {waiting[:12]}, made at a higher load, waits for {self._next_opening()}; {evaluation.detail}"
        return _held(evaluation, Reason.MAINTENANCE_WINDOW, detail)

    def _drop(self, dropped: DroppedPlan | None) -> None:
        if dropped is not None:
            self.dropped.append(dropped)
            self.state = waiting_for_nothing(self.state)

    def _hours_are_open(self) -> bool:
        return may_act(self._policy.maintenance, self._observation.now_ms)

    def _next_opening(self) -> str:
        return next_opening(self._policy.maintenance, self._observation.now_ms)

    def _load(self, evaluation: Evaluation) -> float:
        """Mean load of the resource that decided; of bytes in where none did."""
        return self._observation.skews[-1].mean_load.get(evaluation.resource or Resource.BYTES_IN, 0.0)


def _held(evaluation: Evaluation, reason: Reason, detail: str) -> Conclusion:
    return replace(evaluation, verdict=Verdict.HOLD, reason=reason, detail=detail), None, False
