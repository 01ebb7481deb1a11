"""A plan on several hours is judged on the newest windows, and on its worst hour."""

import pytest

from assignor_core.live_plans.planning import judged
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.plan import Movement, Plan
from assignor_core.planner import propose
from assignor_core.planner.policy import PlannerPolicy

POLICY = PlannerPolicy()


def cluster(*rates: tuple[float, ...]) -> ClusterState:
    """Topic t on broker 1, a partition for each row of rates, window by window; broker 2 is empty."""
    rows = tuple(
        Partition("t", number, (1,), PartitionLoad(row if len(row) > 1 else row[0], 0.0, 1.0))
        for number, row in enumerate(rates)
    )
    return ClusterState("c", 0, (Broker(1), Broker(2)), rows)


def test_a_plan_on_a_single_window_is_left_as_it_is() -> None:
    plan = Plan("c", ())
    assert judged(plan, cluster((5.0,), (5.0,)), POLICY) == (plan, None)


def test_the_figures_are_those_of_now_and_beside_them_those_of_the_worst_hour() -> None:
    hours = cluster((3.0, 1.0, 4.0), (1.0, 3.0, 0.0))
    plan = Plan("c", (Movement("t", 1, (1,), (2,), 1.0),))
    on_now, worst = judged(plan, hours, POLICY)
    assert on_now.movements == plan.movements
    assert on_now.skew_before["bytes_in"]["max_over_mean"] == 2.0
    assert on_now.skew_after["bytes_in"]["max_over_mean"] == 1.5
    assert on_now.lower_bound["bytes_in"] == 1.5, "the larger partition takes three of four bytes"
    assert (on_now.loads_before["bytes_in"], on_now.loads_after["bytes_in"]) == ({1: 4.0, 2: 0.0}, {1: 3.0, 2: 1.0})
    assert worst is not None
    assert set(worst) == {"before", "after"}
    assert worst["before"]["bytes_in"]["max_over_mean"] == 2.0
    assert worst["after"]["bytes_in"]["max_over_mean"] == 2.0, "in the third window one partition takes all"


def test_two_windows_are_several() -> None:
    hours = cluster((3.0, 1.0), (1.0, 3.0))
    plan = propose(hours, POLICY)
    _, worst = judged(plan, hours, POLICY)
    assert worst is not None
    assert worst["after"]["bytes_in"]["max_over_mean"] == pytest.approx(1.5)
