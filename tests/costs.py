"""How the cost of a computation grows, on machines that others use too."""

import time
from collections.abc import Callable
from typing import TypeVar

Size = TypeVar("Size")

TRIES_MAX = 5


def grows_at_most(factor: float, compute: Callable[[Size], object], small: Size, large: Size) -> bool:
    """Whether `large` takes less than `factor` times the CPU time of `small`, once in a few tries.

    Others who use caches and memory can make either slower for a while, and a cost that grows too fast shows each time.
    """
    return any(_cpu_s(compute, large) < factor * _cpu_s(compute, small) for _ in range(TRIES_MAX))


def _cpu_s(compute: Callable[[Size], object], size: Size) -> float:
    started = time.process_time()
    compute(size)
    return time.process_time() - started
