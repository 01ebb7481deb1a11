"""What a process shall not import, since it costs more than all that the process does."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Absent(MetaPathFinder):
    """Finds nothing under these names, and ends the search."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for every other module; raises ModuleNotFoundError."""
        if fullname in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def leave_out(*names: str) -> None:
    """From now on these modules count as not installed in this process.

    pyarrow imports pandas, if it is there, to see whether a value is one of its: 0.3 s of CPU and 40 MiB for a process
    in which no value is. pyspark alone needs it.
    """
    sys.meta_path.insert(0, _Absent(frozenset(names)))
