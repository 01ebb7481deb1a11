"""How many records came too late: those that fit less those that a window gained. Knows neither Spark nor tables.

Spark counts only groups, after its first partial aggregation. The writer of the windows knows how many samples
each batch added; the batch's progress, which comes after, knows how many records fitted.
"""

import threading
from collections.abc import Sequence

BATCHES_KEPT_MAX = 1_000
"""Batches kept, more than Spark keeps progress reports of."""


class CountedSamples:
    """Samples that the windows gained, by query and batch. Writers' threads note them, the reporter's reads them."""

    def __init__(self) -> None:
        self._gained: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def note(self, query_id: str, batch_id: int, gained: Sequence[int | None]) -> None:
        """Notes how many samples each table of the batch gained; None where that isn't known, as for a batch that is
        repeated.
        """
        known = [samples for samples in gained if samples is not None]
        if len(known) < len(gained):
            return
        with self._lock:
            self._gained[query_id, batch_id] = sum(known)
            while len(self._gained) > BATCHES_KEPT_MAX:
                del self._gained[next(iter(self._gained))]

    def late(self, query_id: str, batch_id: int, accepted: int) -> int | None:
        """Records of the batch that no window took; None where the batch isn't known.

        >>> counted = CountedSamples()
        >>> counted.note("q", 7, [90, 4])
        >>> counted.late("q", 7, accepted=100), counted.late("q", 8, accepted=100)
        (6, None)
        """
        with self._lock:
            gained = self._gained.get((query_id, batch_id))
        return None if gained is None else max(0, accepted - gained)
