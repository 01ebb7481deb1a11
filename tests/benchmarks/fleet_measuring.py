"""What one action of the product costs on a fleet: seconds, CPU of its own process and of the brokers', requests."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess

Result = TypeVar("Result")
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one action."""

    wall_s: float
    cpu_s: float
    fleet_cpu_s: float
    requests: Counter[str]


def measured(fleet: FleetProcess, action: Callable[[], Result]) -> tuple[Result, Cost]:
    """The result of an action, and what it cost."""
    fleet.run(Fleet.forget_requests)
    fleet_cpu_s = fleet.usage().cpu_s
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    result = action()
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    return result, Cost(wall_s, cpu_s, fleet.usage().cpu_s - fleet_cpu_s, fleet.run(_requests))


def _requests(fleet: Fleet) -> Counter[str]:
    return fleet.requests
