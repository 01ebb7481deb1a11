"""What is left of a day's budget of bytes, and whether it binds a plan."""

import pytest

from assignor_core.deciding.policy import DayBudget
from assignor_core.planner.policy import PlannerPolicy


@pytest.mark.parametrize(
    ("copied", "asked", "binds"),
    [(0, None, False), (1, None, True), (40, 60, False), (40, 59, False), (40, 61, True), (200, 1, True)],
)
def test_a_budget_binds_where_less_is_left_of_it_than_the_plan_may_copy(
    copied: int, asked: int | None, binds: bool
) -> None:
    assert DayBudget(100, copied).binds(PlannerPolicy(bytes_max=asked)) == binds
