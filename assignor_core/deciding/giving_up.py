"""How long mode `apply` makes no plan after executions of its own that it gave up, at their deadline for example.

What kept one from its end mostly keeps the next one, too: each plan would copy, and be cancelled, all over again. Lost
replicas are made anew without a pause.
"""

from dataclasses import dataclass

PAUSE_MIN_MS = 900_000
PAUSE_MAX_MS = 6 * 3_600_000
"""As long as an execution may last by default."""

AHEAD_MAX_MS = 60_000
"""An execution that ended later than this from now was dated by a clock that was ahead: it would hold back plans until
real time is there, so it makes no pause.
"""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Executions of mode `apply` that ended as aborted, one after the other: how many, and when the last one did.

    Those that a person stopped don't count; one that is done ends the row.
    """

    count: int = 0
    last_ms: int = 0

    @property
    def pause_ms(self) -> int:
        """The pause after the last of them: each one doubles it.

        >>> [GivenUp(count).pause_ms // 60_000 for count in (0, 1, 2, 3, 50)]
        [0, 15, 30, 60, 360]
        """
        return min(PAUSE_MAX_MS, PAUSE_MIN_MS << min(self.count - 1, 16)) if self.count else 0

    def reason(self, now_ms: int) -> str | None:
        """Why no plan is made now, in words; None if one may be.

        >>> GivenUp(2, last_ms=0).reason(1_000_000)
        'mode apply gave up the last 2 executions and makes no plan for 800 s more'
        """
        left_ms = self.last_ms + self.pause_ms - now_ms
        if not 0 < left_ms <= self.pause_ms + AHEAD_MAX_MS:
            return None
        last = "execution" if self.count == 1 else f"{self.count} executions"
        return f"mode apply gave up the last {last} and makes no plan for {left_ms / 1000:.0f} s more"
