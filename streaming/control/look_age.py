"""The age of the look at the cluster that a request rests on, judged right before the request is sent.

Kafka takes reassignments and elections without conditions. A process that stops between its look and its request would
ask for what no longer fits: others have begun copies, or have made a topic again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming.errors import LookTooOld

LOOK_AGE_MAX_MS = 10_000
"""Several times what a look and its questions take."""


class LookAge:
    """One per process that changes a cluster: its lease asks `check` last before each change. Not for two threads.

    A look ages by the clock that ran further since. One clock goes on while the process is stopped; the other is set
    right after the whole machine was paused. Nothing shows a pause after which neither clock is. Without clocks, where
    no lease asks, no look ages.
    """

    def __init__(self, clock: Callable[[], int] = lambda: 0, wall_clock: Callable[[], int] = lambda: 0) -> None:
        self._clocks = (clock, wall_clock)
        self._began_ms = self._read()
        self._last_age_ms = 0
        self._limited = False

    def begin(self) -> None:
        """The next requests rest on what is asked for from now on. Counted from here, not from the answer: the process
        may stop between an answer and its arrival.
        """
        self._began_ms = self._read()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Changes that are asked for in here rest on the look that began last."""
        self._limited = True
        try:
            yield
        finally:
            self._limited = False

    def check(self) -> None:
        """Raises LookTooOld where a limited request rests on a look that is too old: look again, then ask again.

        A look may be twice as old as the one before it was. So where each look takes long, because a broker hangs, the
        second one is used: a limit that never grows would let nothing be sent.
        """
        if not self._limited:
            return
        age_ms = max(now_ms - began_ms for now_ms, began_ms in zip(self._read(), self._began_ms, strict=True))
        allowed_ms = max(LOOK_AGE_MAX_MS, 2 * self._last_age_ms)
        self._last_age_ms = age_ms
        if age_ms > allowed_ms:
            raise LookTooOld(
                f"the look at the cluster is {age_ms / 1000:.0f} s old, at most {allowed_ms / 1000:.0f} s are allowed: "
                "nothing was sent"
            )

    def _read(self) -> tuple[int, int]:
        clock, wall_clock = self._clocks
        return clock(), wall_clock()
