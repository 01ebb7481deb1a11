"""The plan that a decision asks for, and whether the plan that comes back is worth carrying out."""

from dataclasses import replace

from assignor_core.deciding.needs import Need, PlacementStates
from assignor_core.deciding.observation import Observation, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, Detector
from assignor_core.deciding.reasons import LASTING_REASONS, Reason
from assignor_core.deciding.skewed import plan_windows, remembered_noise, settled_windows
from assignor_core.deciding.state import Attempt, TriggerState, Wanted
from assignor_core.load_history.windows import load_noise
from assignor_core.plan import TAKE_NONE, Plan
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource


def plan_request(
    reason: Reason,
    base: PlannerPolicy,
    state: TriggerState,
    observation: Observation,
    policy: DecisionPolicy,
    placement: PlacementStates,
    lost: frozenset[int],
) -> PlanRequest:
    """The plan for `reason`, within the limits of `base`; `lost` are the brokers that have failed."""

    windows_max = policy.planner_windows
    if policy.trigger.detector is Detector.NOISE and state.breached_resource and state.breached_broker is not None:
        windows_max = plan_windows(observation.memory, state.breached_resource, state.breached_broker, windows_max)

    newest = observation.windows[-windows_max:]
    if lost:
        return PlanRequest(base.for_relief(lost), newest, observation.drained)
    if reason is Reason.LOG_DIR_FULL:
        return PlanRequest(base, observation.windows[-1:], fill=policy.fill)
    # With windows from before a move, or before its broker was over, a plan would remove the skew twice, or half of it.
    settled = tuple(row for row in newest if row.start_ms >= state.changed_ms)
    if reason not in LASTING_REASONS:
        since_ms = state.skewed_since_ms
        windows = newest if since_ms is None else tuple(row for row in settled if row.end_ms >= since_ms)
        return PlanRequest(base, windows, observation.drained)
    if reason is Reason.UNPREFERRED_LEADERS:
        return PlanRequest(base, settled, observation.drained, placement.unpreferred[: base.movements_max])
    small = small_policy(reason, placement, base, len(observation.counted))
    return PlanRequest(small, settled, observation.drained)


def small_policy(reason: Reason, states: PlacementStates, base: PlannerPolicy, brokers: int) -> PlannerPolicy:
    """The policy of a plan that fixes `reason` and nothing else; `brokers` is how many are in use."""
    if reason in (Reason.OUTSIDE_SET, Reason.CROWDED_RACKS):
        return replace(base, rules_only=True)
    if reason is Reason.DRAINED_BROKER:
        drained = frozenset(states.drained)
        return replace(
            base.for_relief(drained), drain=drained,
            movements_max=base.movements_max, bytes_max=base.bytes_max, inflow_max=base.inflow_max,
        )  # fmt: skip
    return base.to_fill(frozenset(states.empty), brokers)


def attempt_of(need: Need, state: TriggerState, observation: Observation) -> Attempt:
    """The plan that `need` asks for, as `state.Futile` remembers it."""
    live, by_load, newest = observation.live, need.resource is not None, observation.skews[-1]
    wanted = Wanted(
        need.reason.value,
        need.resource or "",
        state.breached_broker if by_load and state.breached_broker is not None else -1,
        len(observation.counted),
        len(live.partitions),
        observation.changed_ms,
    )
    excess = max(0.0, (need.max_over_mean or 1.0) - 1.0) if by_load else 0.0
    return Attempt(wanted, excess, newest.length_ms, observation.now_ms)


def gain_of_noise(
    policy: DecisionPolicy, state: TriggerState, observation: Observation, need: Need, windows: int
) -> float:
    """The gain in max/mean that a plan on so many windows could promise for noise alone."""
    resource = need.resource or Resource.BYTES_IN
    if policy.trigger.detector is Detector.NOISE:
        known = remembered_noise(observation.memory, resource, windows)
        if known is not None:
            return known
    newest = observation.skews[-max(policy.trigger.windows_considered, policy.planner_windows) :]
    return policy.gain_over_noise_min * load_noise(settled_windows(state, newest), resource)


def not_worth_it(proposed: ProposedPlan, need: Need, gain_min: float, gain_of_noise: float) -> str | None:
    """Why the plan is not worth carrying out, or None. A gain below `gain_of_noise` may be one on paper only."""
    plan = proposed.plan
    if need.reason is Reason.BROKER_FAILED:
        problems = "; ".join(plan.problems) or "they hold nothing that may move"
        return None if plan.movements else f"nothing can be re-created: {problems}"
    resource = need.resource or Resource.BYTES_IN
    if resource not in plan.skew_before:
        return f"max/mean of {resource} is not known: no broker shows the sizes of its logs"
    before, after = (skew[resource]["max_over_mean"] for skew in (plan.skew_before, plan.skew_after))
    if plan.movements and before - after >= max(gain_min, gain_of_noise):
        return None
    if plan.movements and before - after >= gain_min:
        return (
            f"a plan lowers max/mean of {resource} by {before - after:.2f}; brokers' loads change so much from window "
            f"to window that less than {gain_of_noise:.2f} may be noise"
        )
    bound = plan.lower_bound.get(resource)
    causes = [line for line in plan.diagnosis if line.startswith(TAKE_NONE)]
    needed = (
        f"{gain_min} or more" if gain_of_noise <= gain_min else f"{gain_of_noise:.2f} or more, and less may be noise"
    )
    useless = f"no plan lowers max/mean of {resource} by {needed}; its lower bound is {bound}"
    return "; ".join((useless, *causes))


def not_mended(reason: Reason, states: PlacementStates, plan: Plan) -> str | None:
    """Why `plan` fixes nothing of `reason`, in words; None if it does."""
    if plan.within_brokers:
        return None
    moved = {movement.key for movement in plan.movements}
    taking = {
        broker for movement in plan.movements for broker in set(movement.new_replicas) - set(movement.old_replicas)
    }
    fixed = {Reason.OUTSIDE_SET: states.misplaced, Reason.CROWDED_RACKS: states.crowded}
    if moved.intersection(fixed.get(reason, states.unpreferred)):
        return None
    giving = {broker for row in plan.movements for broker in set(row.old_replicas) - set(row.new_replicas)}
    if reason is Reason.DRAINED_BROKER and giving.intersection(states.drained):
        return None
    if reason is Reason.EMPTY_BROKER and taking.intersection(states.empty):
        return None
    causes = [*plan.problems, *(line for line in plan.diagnosis if line.startswith(TAKE_NONE))]
    return "; ".join(("no plan changes that", *causes))
