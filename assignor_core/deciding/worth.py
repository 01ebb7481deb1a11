"""Whether a plan for skew or failed brokers is worth carrying out."""

from assignor_core.deciding.doubt import remembered_noise
from assignor_core.deciding.futile import Attempt, Wanted
from assignor_core.deciding.observation import DecisionPolicy, Observation
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.trigger import Evaluation, TriggerState, settled_windows
from assignor_core.deciding.trigger_policy import Detector
from assignor_core.deciding.windows import load_noise
from assignor_core.plan import TAKE_NONE
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource


def not_worth_it(proposed: ProposedPlan, evaluation: Evaluation, gain_min: float, gain_of_noise: float) -> str | None:
    """Why the plan is not worth carrying out, or None. A gain below `gain_of_noise` may be one on paper only."""
    plan = proposed.plan
    if evaluation.reason is Reason.BROKER_FAILED:
        problems = "; ".join(plan.problems) or "they hold nothing that may move"
        return None if plan.movements else f"nothing can be made anew: {problems}"
    resource = evaluation.resource or Resource.BYTES_IN
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


def attempt_of(evaluation: Evaluation, state: TriggerState, observation: Observation) -> Attempt:
    """The plan that `evaluation` asks for, as `deciding.futile` remembers it."""
    live, by_load, newest = observation.live, evaluation.resource is not None, observation.skews[-1]
    wanted = Wanted(
        evaluation.reason.value,
        evaluation.resource or "",
        state.breached_broker if by_load and state.breached_broker is not None else -1,
        len(live.broker_racks.keys() - observation.drained),
        len(live.partitions),
        observation.changed_ms,
    )
    excess = max(0.0, (evaluation.max_over_mean or 1.0) - 1.0) if by_load else 0.0
    return Attempt(wanted, excess, newest.length_ms, observation.now_ms)


def gain_of_noise(
    policy: DecisionPolicy, state: TriggerState, observation: Observation, evaluation: Evaluation, windows: int
) -> float:
    """The gain in max/mean that a plan on so many windows could promise for noise alone."""
    resource = evaluation.resource or Resource.BYTES_IN
    if policy.trigger.detector is Detector.NOISE:
        known = remembered_noise(observation.memory, resource, windows)
        if known is not None:
            return known
    newest = observation.skews[-max(policy.trigger.windows_considered, policy.planner_windows) :]
    return policy.gain_over_noise_min * load_noise(settled_windows(state, newest), resource)
