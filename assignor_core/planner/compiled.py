"""Functions in machine code, by numba: on plain arrays, for what numpy can't do in whole matrices.

numba compiles a function when it is first called, which takes half a minute for all of them, and keeps the result where
it may write. Set-ups and images do that beforehand (`python -m assignor_core.planner`). Who needs such functions
imports their modules late: numba alone takes a tenth of a second to load.

Invariants: no `fastmath`, so sums are in the order of the code on every machine. A function keeps to what it is handed:
numba knows nothing of constants that change in other modules.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import config
from numba.core.caching import InTreeCacheLocator

F = TypeVar("F", bound=Callable[..., Any])
Task = TypeVar("Task", bound=tuple[Any, ...])


class InstalledCacheLocator(InTreeCacheLocator):
    """What was compiled at set-up or when an image was built, also in folders that may not be written any more.

    numba itself would pass over such folders. For an image `NUMBA_CPU_NAME` must be the same at its build and wherever
    it runs, as numba compiles anew for another processor.
    """

    def ensure_cache_path(self) -> None:
        """Raises OSError if nothing is there to be read."""
        if not any(Path(self.get_cache_path()).glob("*.nbi")):  # type: ignore[no-untyped-call]
            super().ensure_cache_path()  # type: ignore[no-untyped-call]


options_of_numba = cast(Any, config)
options_of_numba.CACHE_LOCATOR_CLASSES = options_of_numba.CACHE_LOCATOR_CLASSES or ",".join(
    ("UserProvidedCacheLocator", f"{__name__}.{InstalledCacheLocator.__name__}", "UserWideCacheLocator")
)


def as_compiled_reads(task: Task) -> Task:
    """The named tuple `task` with arrays as functions were compiled for them: in C order, and free to be written.

    numba compiles anew for arrays of another layout, or for arrays that can't be written.
    """
    made: Task = cast(Any, task)._make(np.array(field, order="C") for field in task)
    return made


def compiled(function: F) -> F:
    """`function` in machine code, which is kept for the next process where a folder for it can be written.

    Calls become part of their callers, and arrays are not counted as references (`_nrt`): so no function may make an
    array or keep one. With both a trial of `trials` takes 0.1 us, without 1 us (2026-11-28).
    """
    return _kept(function, {"_nrt": False, "forceinline": True})


def compiled_apart(function: F) -> F:
    """Returns `function` in machine code, as `compiled` does, but not as part of its callers. It is for what most plans
    never call: as part of its callers that would make their code longer, and their compilation take minutes.
    """
    return _kept(function, {"_nrt": False})


def _kept(function: F, options: Any) -> F:
    try:
        dispatcher = njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no such folder
        return cast(F, njit(**options)(function))
    if (cache := getattr(dispatcher, "_cache", None)) is not None:  # none where numba is switched off
        keep = cache.save_overload

        def keep_if_possible(*arguments: Any) -> None:
            with suppress(OSError):  # an installed folder is there to be read
                keep(*arguments)

        cache.save_overload = keep_if_possible
    return cast(F, dispatcher)
