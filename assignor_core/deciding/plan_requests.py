"""What plan a decision asks for: the policy and the windows that fit its reason."""

from assignor_core.deciding.doubt import plan_windows
from assignor_core.deciding.lasting import PlacementStates, small_policy
from assignor_core.deciding.observation import DecisionPolicy, Observation, PlanRequest
from assignor_core.deciding.reasons import LASTING_REASONS, Reason
from assignor_core.deciding.trigger import TriggerState
from assignor_core.deciding.trigger_policy import Detector
from assignor_core.deciding.windows import ClosedWindow
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

    def windows_since(since_ms: int) -> tuple[ClosedWindow, ...]:
        """The newest windows since then. Older ones would make a plan mend half of a new skew, or mend it twice."""
        since_change_ms = state.changed_ms if since_ms else 0
        newest = observation.windows[-windows_max:]
        return tuple(row for row in newest if row.end_ms >= since_ms and row.start_ms >= since_change_ms)

    if lost:
        return PlanRequest(base.for_relief(lost), windows_since(0), observation.drained)
    if reason is Reason.LOG_DIR_FULL:
        return PlanRequest(base, observation.windows[-1:], fill=policy.fill)
    if reason not in LASTING_REASONS:
        return PlanRequest(base, windows_since(state.breached_since_ms or 0), observation.drained)
    windows = windows_since(max(1, state.changed_ms))
    if reason is Reason.UNPREFERRED_LEADERS:
        return PlanRequest(base, windows, observation.drained, placement.unpreferred[: base.movements_max])
    small = small_policy(reason, placement, base, len(observation.counted))
    return PlanRequest(small, windows, observation.drained)
