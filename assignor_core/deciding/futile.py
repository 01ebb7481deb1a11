"""Plans that gained too little are not made again in every window: the tries come ever more seldom.

Where moving can't help, as where one partition takes more than a broker's fair share, the skew stays, and each window
would ask for a plan again. On large clusters one takes minutes. So the first tries follow at once, as a step becomes
clear within some windows; then each pause is twice as long as the last one, up to an hour. It ends early once brokers,
partitions or the placement change, or the skew is half as large again. Reasons that can't wait are never paused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

TRIES_AT_ONCE = 4
"""So many tries follow one another without a pause."""
PAUSE_MAX_MS = 3_600_000
RISE = 1.5
"""Times what was above the mean then."""
REMEMBERED_MAX = 8
"""So many are remembered of one reason: brokers may take turns as the worst, since noise decides between them."""


class Wanted(NamedTuple):
    """What a plan is wanted for, and the cluster that it would be for."""

    reason: str
    resource: str
    """Empty where no resource decided."""
    broker: int
    """The one above the threshold; -1 where none is."""
    brokers: int
    """How many may hold replicas."""
    partitions: int
    """How many there are."""
    changed_ms: int
    """When replicas or leaders were last moved."""


class Attempt(NamedTuple):
    """A plan that is about to be made."""

    wanted: Wanted
    excess: float
    """Max over mean less 1; 0 where no resource decided."""
    window_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Futile:
    """The newest plan for one reason gained too little."""

    wanted: Wanted
    excess: float
    tries: int
    planned_ms: int
    pause_ms: int
    detail: str
    """Why it gained too little."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", Wanted(*self.wanted))  # JSON, in which the state is kept, knows lists only

    def is_about(self, attempt: Attempt) -> bool:
        """Whether nothing has changed since that would promise more."""
        return self.wanted == attempt.wanted and attempt.excess <= self.excess * RISE

    def left_ms(self, now_ms: int) -> int:
        """How long the pause goes on."""
        return self.planned_ms + self.pause_ms - now_ms


def paused(futile: Iterable[Futile], attempt: Attempt) -> str | None:
    """Why the plan need not be tried yet, in words; None where it is to be tried.

    >>> wanted = Wanted("skewed", "bytes_in", 1, 3, 12, 0)
    >>> paused([Futile(wanted, 0.4, 12, 0, 240_000, "no plan helps")], Attempt(wanted, 0.5, 60_000, now_ms=60_000))
    'no plan helps; the next try is in 3 min, or once the cluster changes'
    """
    for row in futile:
        left_ms = row.left_ms(attempt.now_ms)
        if row.is_about(attempt) and 0 < left_ms <= row.pause_ms:
            return f"{row.detail}; the next try is in {-(-left_ms // 60_000)} min, or once the cluster changes"
    return None


def noted(futile: Iterable[Futile], attempt: Attempt, detail: str) -> tuple[Futile, ...]:
    """With one more try, which gained too little. What was wanted for another placement of the same reason is gone.

    >>> rows, wanted = (), Wanted("skewed", "bytes_in", 1, 3, 12, 0)
    >>> for window in range(6):
    ...     rows = noted(rows, Attempt(wanted, 0.4, 60_000, now_ms=window * 60_000), "")
    >>> [(row.tries, row.pause_ms) for row in rows]
    [(6, 240000)]
    """
    rows = tuple(futile)
    before = next((row for row in rows if row.is_about(attempt)), None)
    tries = 1 if before is None else before.tries + 1
    doublings = max(0, tries - TRIES_AT_ONCE)
    pause_ms = min(PAUSE_MAX_MS, attempt.window_ms * 2**doublings) if doublings else 0
    newest = Futile(attempt.wanted, attempt.excess, tries, attempt.now_ms, pause_ms, detail)
    beside = [row for row in rows if _is_beside(row.wanted, attempt.wanted)]
    return (*without(rows, attempt), *beside[1 - REMEMBERED_MAX :], newest)


def _is_beside(wanted: Wanted, other: Wanted) -> bool:
    """Whether both are about the same placement, and about different brokers or resources of it."""
    return wanted != other and other == wanted._replace(resource=other.resource, broker=other.broker)


def without(futile: Iterable[Futile], attempt: Attempt) -> tuple[Futile, ...]:
    """Once a plan for the same reason was worth it."""
    return tuple(row for row in futile if row.wanted.reason != attempt.wanted.reason)
