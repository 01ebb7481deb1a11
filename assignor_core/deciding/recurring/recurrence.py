"""Whether a skew is one that comes at this time each day, each working day or each week."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

from assignor_core.deciding.maintenance import DAYS
from assignor_core.deciding.noise import SIGMA_PER_MEDIAN
from assignor_core.deciding.recurring.history import KEPT_DAYS, RecurringLoad
from assignor_core.deciding.recurring.slots import DAY_SLOTS, SLOT_MS, time_of_day, weekday

RECENT_DAYS = 4
"""Of so many days, the newest of their kind ..."""
RECURRENCES_MIN = 3
"""... so many must have had it: once is chance, and so is twice."""
SLOTS_MAX = DAY_SLOTS // 2
"""What lasts for longer than half a day is no burst that comes and goes."""
TOLERANCE_SLOTS = 1
"""It may begin or end so much sooner or later."""
HEIGHT_RATIO = 1.2
HEIGHT_SIGMAS = 3.0
"""Higher than usual is what exceeds the median height by more than this ratio, and by so many of its deviations."""
WORKING_DAYS = 5


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A skew of one broker that comes back."""

    when: str
    """On which days, in words."""
    first_slot: int
    """Of today, counted from the epoch."""
    end_slot: int
    """The slot after its last one."""
    days: int
    """Days on which it came."""
    height: float
    """Load over the mean that it has at most."""

    @property
    def lasts_ms(self) -> int:
        """From its begin to its end."""
        return (self.end_slot - self.first_slot) * SLOT_MS

    def in_words(self) -> str:
        """When it comes, and since when that is known.

        >>> Recurrence("each day", 12, 17, 7, 1.8).in_words()
        'comes each day 02:00 to 02:50 UTC, known from 7 days'
        """
        begin, end = time_of_day(self.first_slot), time_of_day(self.end_slot)
        return f"comes {self.when} {begin} to {end} UTC, known from {self.days} days"


def recurrence_of(history: RecurringLoad, resource: str, broker: int, *, at_ms: int, above: float) -> Recurrence | None:
    """What brings the broker above this share of the mean at this time, the most frequent first; None if unknown."""
    slot = at_ms // SLOT_MS
    for when, days in _calendars(slot // DAY_SLOTS):
        shares = partial(_earlier_shares, history, resource, broker, days)
        near = (slot, *(slot + sign * far for far in range(1, TOLERANCE_SLOTS + 1) for sign in (1, -1)))
        known = next((at for at in near if _comes(shares(at), above)), None)
        if known is None:
            continue
        first, end = _run(shares, known, above)
        if end - first > SLOTS_MAX:
            continue
        came = sum(share > above for share in shares(known))
        return Recurrence(when, first, end, came, _height(shares, first, end, above))
    return None


def _calendars(today: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Kinds of days that today is one of, with the earlier ones as days before today, newest first."""
    before = range(1, KEPT_DAYS + 1)
    yield "each day", tuple(before)
    day = weekday(today)
    if day < WORKING_DAYS:
        yield "Monday to Friday", tuple(back for back in before if weekday(today - back) < WORKING_DAYS)
    yield f"each {DAYS[day]}", tuple(back for back in before if weekday(today - back) == day)


def _earlier_shares(
    history: RecurringLoad, resource: str, broker: int, days: tuple[int, ...], slot: int
) -> list[float]:
    """Shares at the time of `slot` on earlier days, newest first, where known."""
    shares = (history.share(resource, broker, slot - back * DAY_SLOTS) for back in days)
    return [share for share in shares if share is not None]


def _comes(shares: list[float], above: float) -> bool:
    return sum(share > above for share in shares[:RECENT_DAYS]) >= RECURRENCES_MIN


def _run(shares: Callable[[int], list[float]], known: int, above: float) -> tuple[int, int]:
    """First slot and the one after the last of those that recur without a break around `known`."""
    first, end = known, known + 1
    while end - first <= SLOTS_MAX and _comes(shares(first - 1), above):
        first -= 1
    while end - first <= SLOTS_MAX and _comes(shares(end), above):
        end += 1
    return first, end


def _height(shares: Callable[[int], list[float]], first: int, end: int, above: float) -> float:
    """The highest share that is usual: the median of days, in its highest slot, and what days differ by."""
    heights = []
    for slot in range(first, end):
        came = [share for share in shares(slot) if share > above]
        middle = median(came)
        spread = SIGMA_PER_MEDIAN * median(abs(share - middle) for share in came)
        heights.append(max(HEIGHT_RATIO * middle, middle + HEIGHT_SIGMAS * spread))
    return max(heights)
