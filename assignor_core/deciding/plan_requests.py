"""What plan a decision asks for: the policy and the windows that fit its reason."""

from assignor_core.deciding.doubt import plan_windows
from assignor_core.deciding.lasting import PlacementStates, small_policy
from assignor_core.deciding.observation import DecisionPolicy, Observation, PlanRequest
from assignor_core.deciding.reasons import LASTING_REASONS, Reason
from assignor_core.deciding.trigger import TriggerState
from assignor_core.deciding.trigger_policy import Detector
from assignor_core.planner.policy import PlannerPolicy


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
    # With windows from before a move, or before its broker was over, a plan would mend the skew twice, or half of it.
    settled = tuple(row for row in newest if row.start_ms >= state.changed_ms)
    if reason not in LASTING_REASONS:
        since_ms = state.skewed_since_ms
        windows = newest if since_ms is None else tuple(row for row in settled if row.end_ms >= since_ms)
        return PlanRequest(base, windows, observation.drained)
    if reason is Reason.UNPREFERRED_LEADERS:
        return PlanRequest(base, settled, observation.drained, placement.unpreferred[: base.movements_max])
    small = small_policy(reason, placement, base, len(observation.counted))
    return PlanRequest(small, settled, observation.drained)
