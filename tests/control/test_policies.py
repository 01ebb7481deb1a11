"""Settings as policies of the core."""

from dataclasses import replace

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.state import TriggerState
from assignor_core.execution.reconcile import Limits
from assignor_core.load_history.windows import ClosedWindow, skew_window
from assignor_core.planner.policy import PlannerPolicy
from streaming.control.policies import decision_policy, limits, planner_policy, relief_policy
from streaming.demo.prepare import SHORT_STORY
from streaming.settings import ControlSettings, PlannerSettings, Settings
from tests.core.judging import step


def test_without_settings_the_core_decides_and_executes_by_its_own_defaults() -> None:
    """Simulations and backtests of the core thus show what a cluster without settings would get."""
    planner = replace(PlannerPolicy(), throttle_bytes_per_sec=ControlSettings().throttle_bytes_per_sec)
    assert decision_policy(Settings(), ()) == DecisionPolicy(planner=planner)
    assert limits(ControlSettings()) == Limits()


def test_the_cap_of_a_topic_is_that_of_all_unless_it_is_set() -> None:
    assert limits(ControlSettings(movements_in_flight_max=7)).topic_max == 7
    assert limits(ControlSettings(movements_in_flight_max=7, movements_per_topic_max=3)).topic_max == 3


def test_topics_that_match_are_excluded() -> None:
    settings = Settings(planner=PlannerSettings(excluded_topics="^_|tmp"))
    planner = decision_policy(settings, ("_a", "orders", "a.tmp")).planner
    assert planner.excluded_topics == {"_a", "a.tmp"}


def test_what_is_set_of_the_planner_reaches_plans() -> None:
    given = {
        "band": 0.1, "leader_band": 0.2, "headroom": 0.3, "movements_max": 4, "bytes_max": 5,
        "inflow_max": 6, "wave_movements_max": 7, "throttle_bytes_per_sec": 8_000,
    }  # fmt: skip
    planner = decision_policy(Settings(planner=PlannerSettings(**given)), ()).planner
    assert {name: getattr(planner, name) for name in given} == given


def test_durations_are_those_of_the_throttle_that_control_sets_unless_another_is_given() -> None:
    control = ControlSettings(throttle_bytes_per_sec=7_000)
    assert decision_policy(Settings(control=control), ()).planner.throttle_bytes_per_sec == 7_000
    other = Settings(control=control, planner=PlannerSettings(throttle_bytes_per_sec=9_000))
    assert decision_policy(other, ()).planner.throttle_bytes_per_sec == 9_000


def test_budgets_and_headroom_hold_back_no_plan_that_empties_a_broker() -> None:
    settings = PlannerSettings(band=0.1, headroom=0.5, bytes_max=1, inflow_max=1, movements_max=1)
    policy = relief_policy(frozenset({3}), drain=True, settings=planner_policy(settings, ("__offsets",)))
    assert policy == PlannerPolicy(band=0.1, only_brokers=frozenset({3}), drain=frozenset({3}))


def test_a_demo_that_reads_all_its_records_again_makes_no_second_plan() -> None:
    """The loads of a run on a slow machine, where reading 30 MB again lasted longer than a window."""
    settings = Settings.model_validate(SHORT_STORY)
    policy = decision_policy(settings, ())
    reading = {"bytes_in": {1: 59e3, 2: 56e3, 3: 59e3}, "bytes_out": {1: 42e3, 2: 191e3, 3: 53e3}}
    closed = [ClosedWindow(end - 10_000, end, frozenset({1, 2, 3}), reading) for end in (10_000, 20_000, 30_000)]
    windows = tuple(skew_window(window, policy.resources, {}, {1, 2, 3}) for window in closed)
    _, evaluation = step(policy.trigger, TriggerState(), windows, now_ms=31_000)
    assert evaluation.reason is Reason.BALANCED
