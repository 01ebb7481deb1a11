"""Functions in machine code, by numba: on plain arrays, for what numpy can't do in whole matrices.

numba compiles a function when it is first called, which takes some seconds, and keeps the result where it may write.
Who needs such functions imports their modules late, as few plans do: numba alone takes a tenth of a second to load.

Invariants: no `fastmath`, so sums are in the order of the code on every machine. A function keeps to what it is handed:
numba knows nothing of constants that change in other modules.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`function` in machine code, which is kept for the next process where a folder for it can be written.

    Calls become part of their callers, and arrays are not counted as references (`_nrt`): so no function may make an
    array or keep one. With both a trial of `trials` takes 0.1 us, without 1 us (2026-11-28).
    """
    options: Any = {"_nrt": False, "forceinline": True}
    try:
        return cast(F, njit(cache=True, **options)(function))
    except RuntimeError:  # numba found no such folder
        return cast(F, njit(**options)(function))
