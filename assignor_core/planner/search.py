"""What a search works on: the rules of a plan, and the placement that becomes it."""

from typing import NamedTuple

from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem


class Search(NamedTuple):
    """One search over one placement."""

    problem: Problem
    placement: Placement
    """The best placement so far; mutable."""
