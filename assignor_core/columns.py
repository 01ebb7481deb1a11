"""Which resource each column of a load matrix holds, so that nobody counts columns.

A measured load may change over time and has one column per window. A count does not, and has a single column that
stands for every window. The columns of a resource lie side by side, in the order of `PLANNED` and then of windows.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assignor_core.resources import PLANNED, Resource


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The C columns of a load matrix over `windows` windows.

    >>> columns = Columns(windows=2)
    >>> columns.of(Resource.DISK).tolist(), columns.of(Resource.LEADERS).tolist()
    ([4, 5], [8])
    >>> columns.of(Resource.DISK, Resource.LEADERS).tolist()
    [4, 5, 8]
    >>> columns.resources[5].words
    'disk'
    """

    windows: int
    resources: tuple[Resource, ...] = field(init=False)
    """Resource of each column."""
    counts: NDArray[np.bool_] = field(init=False)
    """C: the column counts leaders or replicas and measures no load."""

    def __post_init__(self) -> None:
        resources = tuple(r for r in PLANNED for _ in range(1 if r.is_count else self.windows))
        object.__setattr__(self, "resources", resources)
        object.__setattr__(self, "counts", np.array([resource.is_count for resource in resources]))

    def __len__(self) -> int:
        return len(self.resources)

    def of(self, *resources: Resource) -> NDArray[np.int64]:
        """Indices of the columns of these resources, ascending."""
        return np.flatnonzero([resource in resources for resource in self.resources])
