"""What controls of two clusters in one process have in common in memory, found by walking all that each of them holds.

The stories of `clusters` see what crosses by a request, a row or a lease. Two clusters that share what is only
remembered, such as since when a broker is offline, seldom show it in a trace.
"""

import dataclasses
import gc
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import pytest

from streaming.control import lease, run, wiring
from tests.simulation.clusters import _story
from tests.simulation.control import SimulatedControl
from tests.simulation.crossings import _made_once

SEED = 3
OWN = ("streaming.", "assignor_core.")
SETTINGS_MODEL = "model_config"
"""What pydantic is told about a class of settings."""
UNCHANGING = (str, bytes, int, float, type(None), type, ModuleType, re.Pattern)
CONTAINERS = (dict, list, set, bytearray)


def reached_from(root: object) -> dict[int, object]:
    """All that `root` holds, by id; nothing behind the simulation's own parts, which stand for brokers and tables."""
    found: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        is_of_tests = (getattr(one, "__module__", None) or "").startswith("tests.")
        if id(one) not in found and not is_of_tests and not isinstance(one, UNCHANGING):
            found[id(one)] = one
            waiting += parts_of(one)
    return found


def parts_of(one: object) -> Iterator[object]:
    """What one object holds: of a function its closure, not the module; of an object of ours what its class has too."""
    if isinstance(one, FunctionType):
        yield from (*(one.__closure__ or ()), *(one.__defaults__ or ()))
        return
    yield from gc.get_referents(one)
    if type(one).__module__.startswith(OWN):
        of_class = {name: value for name, value in vars(type(one)).items() if isinstance(value, CONTAINERS)}
        yield from (value for name, value in of_class.items() if not name.startswith("__") and name != SETTINGS_MODEL)


def may_change(one: object) -> bool:
    """Whether it may carry something from one cluster to another. An empty container has carried nothing."""
    if isinstance(one, CONTAINERS):
        return bool(one)
    parameters: Any = getattr(type(one), "__dataclass_params__", None)
    is_frozen = dataclasses.is_dataclass(one) and parameters.frozen
    return type(one).__module__.startswith(OWN) and not is_frozen


def shared_of_two_clusters() -> set[str]:
    """Names of the types of what the controls of two clusters share, once both have played their stories."""
    reached = []
    for number in range(2):
        story = _story(SEED, number)
        try:
            with story.bounded_values():
                story.tell()
            turns = [actor._turns for actor in story.world.actors if isinstance(actor, SimulatedControl)]
            assert any(one._loop is not None for one in turns), "no control has held the lease"
            reached.append(reached_from(turns))
        finally:
            story.world.end()
    first, second = reached
    return {type(first[key]).__name__ for key in first.keys() & second.keys() if may_change(first[key])}


@pytest.mark.long
def test_controls_of_two_clusters_share_nothing_that_changes() -> None:
    assert shared_of_two_clusters() == set()


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "name", "shown"),
    [
        (run, "Sweeper", "Sweeper"),
        (run, "absences_of", "Absences"),
        (run, "AutomaticPlans", "AutomaticPlans"),
        (lease, "SnapshotAge", "SnapshotAge"),
        (wiring, "DiskAnswers", "DiskAnswers"),
    ],
)
def test_what_two_clusters_share_by_mistake_is_seen(where: Any, name: str, shown: str) -> None:
    with mock.patch.object(where, name, _made_once(getattr(where, name))):
        assert shown in shared_of_two_clusters()
