"""Settings as policies of the core."""

from dataclasses import replace

import pytest

from assignor_core.deciding.observation import DecisionPolicy, Mode
from assignor_core.execution.reconcile import Limits
from assignor_core.planner.policy import PlannerPolicy
from streaming.control.policies import decision_policy, limits
from streaming.settings import ControlSettings, PlannerSettings, Settings


def test_without_settings_the_core_decides_and_executes_by_its_own_defaults() -> None:
    """Simulations and backtests of the core thus show what a cluster without settings would get."""
    assert decision_policy(Settings(), ()) == DecisionPolicy()
    assert limits(ControlSettings()) == Limits()


def test_the_cap_of_a_topic_is_that_of_all_unless_it_is_set() -> None:
    assert limits(ControlSettings(movements_in_flight_max=7)).movements_per_topic_max == 7
    assert limits(ControlSettings(movements_in_flight_max=7, movements_per_topic_max=3)).movements_per_topic_max == 3


def test_topics_that_match_are_excluded() -> None:
    settings = Settings(planner=PlannerSettings(excluded_topics="^_|tmp"))
    planner = decision_policy(settings, ("_a", "orders", "a.tmp")).planner
    assert planner == replace(PlannerPolicy(), excluded_topics=frozenset({"_a", "a.tmp"}))


@pytest.mark.parametrize("mode", Mode)
def test_each_mode_can_be_set(mode: Mode) -> None:
    settings = Settings.model_validate({"control": {"mode": str(mode)}})
    assert decision_policy(settings, ()).mode is mode
    assert mode in ("observe", "propose", "apply")
