"""The needs of failed brokers and of load, judged by windows and surroundings alone, without a cluster."""

from collections.abc import Mapping
from dataclasses import replace

from assignor_core.deciding.gates import NEEDS
from assignor_core.deciding.needs import NeedContext, PlacementStates
from assignor_core.deciding.observation import NOTHING_ELSE, GivenUp, Observation, PlanRequest, Surroundings
from assignor_core.deciding.policy import DecisionPolicy, TriggerPolicy
from assignor_core.deciding.reasons import Evaluation, Reason
from assignor_core.deciding.state import TriggerState, without_times_ahead
from assignor_core.deciding.step import Tried, first_plan, second_context
from assignor_core.live import LiveCluster
from assignor_core.load_history.windows import ClosedWindow, SkewWindow
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, ProposedPlan

OF_TRIGGER = tuple(kind for kind in NEEDS if kind.reason in (Reason.BROKER_FAILED, Reason.SKEWED))
RESOURCES = ("bytes_in", "bytes_out", "disk")


class NothingKnown:
    """Evidence without groups that fall behind or catch up, without copied bytes, kept plans or given-up executions."""

    def groups_behind(self, _brokers: frozenset[int]) -> Mapping[int, str]:
        return {}

    def catch_up_bytes_per_sec(self, _windows: tuple[ClosedWindow, ...]) -> Mapping[int, float]:
        return {}

    def copied_bytes_of_day(self) -> int:
        return 0

    def kept_plan(self, _plan_id: str) -> KeptPlan | None:
        return None

    def given_up(self) -> GivenUp:
        return GivenUp()


class GoodPlans(NothingKnown):
    """Evidence in which groups fall behind as the surroundings say, and every plan gains enough."""

    def __init__(self, behind: Mapping[int, str]) -> None:
        self._behind = behind

    def groups_behind(self, _brokers: frozenset[int]) -> Mapping[int, str]:
        return self._behind

    def propose(self, _request: PlanRequest) -> ProposedPlan:
        before, after = ({name: {"max_over_mean": ratio} for name in RESOURCES} for ratio in (99.0, 1.0))
        return ProposedPlan(Plan("c", (Movement("t", 0, (1,), (2,), 0.0),), before, after))


def step(
    policy: TriggerPolicy,
    state: TriggerState,
    windows: tuple[SkewWindow, ...],
    around: Surroundings = NOTHING_ELSE,
    *,
    now_ms: int,
) -> tuple[TriggerState, Evaluation]:
    """The state as the windows leave it, without what a plan changes of it, and what follows."""
    seen, outcome = tried(policy, state, windows, around, now_ms=now_ms)
    return seen, outcome.evaluation


def tried(
    policy: TriggerPolicy, state: TriggerState, windows: tuple[SkewWindow, ...], around: Surroundings, *, now_ms: int
) -> tuple[TriggerState, Tried]:
    """The same with the need that decided, and the state after its plan."""
    state = without_times_ahead(policy, state, now_ms)
    if around.recurring_planned_ms:
        state = replace(state, recurring_planned_ms=tuple(around.recurring_planned_ms.items()))
    observation = Observation(now_ms, LiveCluster("c", {}, {}), (), windows, changed_ms=around.changed_ms)
    decides, evidence = DecisionPolicy(trigger=policy), GoodPlans(around.behind)
    context = NeedContext(state, observation, decides, evidence, around, PlacementStates())
    seen = second_context(context, around.behind)
    return seen.state, first_plan(seen, OF_TRIGGER)[0]
