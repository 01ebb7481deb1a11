"""Load that comes back at the same time each day, each working day or each week.

Times of a day are compared in slots of ten minutes (UTC, counted from the epoch). `RecurringLoad` holds what the last
weeks have shown, slot by slot: the mean load, and which brokers were far above it. It is made of closed windows and of
the times at which replicas were moved, so any process can make it again. What comes back on another broker after a move
is learned again.

A plan for a nightly job must not hide when that job ends. A plan that evens out a skew makes the rest of the skew
invisible. So shares after a move are multiplied by what the move has changed, until the broker falls as far below its
new share as it had been above: then the job has ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nlargest
from statistics import median
from types import MappingProxyType
from typing import Any

from assignor_core.load_history.load_memory import SkewLimits
from assignor_core.load_history.windows import SIGMA_PER_MEDIAN, SkewWindow
from assignor_core.maintenance import DAY_MINUTES, DAYS, EPOCH_DAY, MINUTE_MS

SLOT_MS = 600_000
DAY_MS = DAY_MINUTES * MINUTE_MS
DAY_SLOTS = DAY_MS // SLOT_MS


def slots_of(start_ms: int, end_ms: int) -> range:
    """Slots that a window counts to: the one that holds its middle, and all whose own middle it holds.

    >>> minute = 60_000
    >>> [list(slots_of(start * minute, end * minute)) for start, end in ((9, 10), (0, 15), (15, 30), (0, 60))]
    [[0], [0], [1, 2], [0, 1, 2, 3, 4, 5]]
    """
    half_ms = SLOT_MS // 2
    first, last = (start_ms + half_ms - 1) // SLOT_MS, (end_ms + half_ms - 1) // SLOT_MS
    if first == last:
        first = (start_ms + end_ms) // 2 // SLOT_MS
        last = first + 1
    return range(first, last)


def weekday(day: int) -> int:
    """Weekday of a day counted from the epoch; 0 is Monday."""
    return (day + EPOCH_DAY) % len(DAYS)


def time_of_day(slot: int) -> str:
    """Hours and minutes at which a slot begins.

    >>> time_of_day(17), time_of_day(DAY_SLOTS + 1)
    ('02:50', '00:10')
    """
    minutes = slot % DAY_SLOTS * (SLOT_MS // MINUTE_MS)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


ENDED_AFTER_WINDOWS = 2
"""Windows in a row below the threshold after which a skew has ended."""
COMPARED_WINDOWS = 3
"""Windows after a move that show what it has changed."""
FOLLOWED_MS = 3 * 3_600_000
"""No skew is followed for longer after a move: what still goes on then is lasting load, which the plan was for."""


@dataclass(frozen=True, slots=True)
class FollowedSkew:
    """One broker that is above the threshold, or was when replicas were moved."""

    total: float = 0.0
    """Sum of the broker's shares while it was above the threshold."""
    windows: int = 0
    """Windows whose shares `total` is the sum of."""
    low_windows: int = 0
    """Windows in a row in which the broker was not above the threshold."""
    moved_ms: int | None = None
    """When replicas were moved; None: not since the skew began."""
    shares_after: tuple[float, ...] = ()
    """First shares of the broker after the move."""

    @property
    def before(self) -> float:
        """Mean share of the broker while it was above the threshold, before replicas were moved."""
        return self.total / self.windows

    def after(self, share: float, *, threshold: float, may_be_moving: bool) -> "tuple[FollowedSkew, float]":
        """Returns the skew with one more window, and the share that the broker would have if nothing had been moved.

        >>> skew = FollowedSkew(total=4.0, windows=2, moved_ms=0)
        >>> for share in (1.0, 1.0, 1.0, 1.1, 0.5):
        ...     skew, unmended = skew.after(share, threshold=1.3, may_be_moving=False)
        ...     print(unmended, skew.low_windows)
        2.0 0
        2.0 0
        2.0 0
        2.2 0
        1.0 1
        """
        if self.moved_ms is None:
            if share > threshold:
                return replace(self, total=self.total + share, windows=self.windows + 1, low_windows=0), share
            return replace(self, low_windows=self.low_windows + (not may_be_moving)), share
        compared = self.shares_after
        if len(compared) < COMPARED_WINDOWS:
            if share <= self.before**-0.5:
                # The plan took the skew for the level: without it the broker is now as far below the mean.
                return replace(self, low_windows=self.low_windows + 1), share
            compared = (*compared, share)
        unmended = share * max(1.0, self.before / (sum(compared) / len(compared)))
        low_windows = 0 if unmended > threshold else self.low_windows + 1
        return replace(self, shares_after=compared, low_windows=low_windows), unmended


def unmended(
    followed: Mapping[int, FollowedSkew],
    shares: Mapping[int, float],
    *,
    threshold: float,
    start_ms: int,
    may_be_moving: bool,
) -> tuple[dict[int, FollowedSkew], dict[int, float]]:
    """Skews to follow after one more window, and each broker's share had nothing been moved."""
    going, result = {}, dict(shares)
    for broker, share in shares.items():
        skew = followed.get(broker)
        if skew is None and share <= threshold:
            continue
        skew, result[broker] = (skew or FollowedSkew()).after(share, threshold=threshold, may_be_moving=may_be_moving)
        is_over = skew.low_windows >= ENDED_AFTER_WINDOWS
        is_old = skew.moved_ms is not None and start_ms - skew.moved_ms >= FOLLOWED_MS
        if not is_over and not is_old:
            going[broker] = skew
    return going, result


def moved(followed: Mapping[int, FollowedSkew], moved_ms: int) -> dict[int, FollowedSkew]:
    """Returns the followed skews after replicas were moved; a skew that was moved before is no longer followed."""
    return {broker: replace(skew, moved_ms=moved_ms) for broker, skew in followed.items() if skew.moved_ms is None}


KEPT_DAYS = 56
"""Eight weeks: older days are forgotten."""
BROKERS_MAX = 16
"""Most brokers of which a slot keeps the share, the highest."""
DECIMALS = 3


@dataclass(frozen=True, slots=True)
class DayLoad:
    """One resource on one day (UTC), by slot of the day, 0 to 143."""

    mean_load: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mean load of a broker by slot, for slots with known loads."""
    shares: Mapping[int, Mapping[int, float]] = field(default_factory=lambda: MappingProxyType({}))
    """High loads per mean load, by broker and slot."""

    def with_slot(self, slot: int, mean_load: float, high: Mapping[int, float]) -> "DayLoad":
        """Returns the day with the loads of one slot, which replace earlier loads of the slot."""
        shares = dict(self.shares)
        if slot in self.mean_load:
            without = {broker: {at: row[at] for at in row if at != slot} for broker, row in shares.items()}
            shares = {broker: row for broker, row in without.items() if row}
        for broker, share in high.items():
            shares[broker] = {**shares.get(broker, {}), slot: round(share, DECIMALS)}
        return DayLoad({**self.mean_load, slot: round(mean_load, DECIMALS)}, shares)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; see `from_dict`."""
        shares = {str(broker): _text_keys(row) for broker, row in sorted(self.shares.items())}
        return {"mean_load": _text_keys(self.mean_load), "shares": shares}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DayLoad":
        """The day of `as_dict`; raises AttributeError, KeyError, TypeError and ValueError on anything else."""
        shares = {int(broker): _by_slot(row) for broker, row in values["shares"].items()}
        return cls(_by_slot(values["mean_load"]), shares)


@dataclass(frozen=True, slots=True)
class OpenSlot:
    """Sums over the windows of the slot that goes on, for one resource."""

    windows: int = 0
    mean_load: float = 0.0
    shares: Mapping[int, tuple[float, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Sum of a broker's shares and number of windows, by broker."""

    def after(self, mean_load: float, shares: Mapping[int, float]) -> "OpenSlot":
        """Returns the slot with one more window."""
        sums = dict(self.shares)
        for broker, share in shares.items():
            total, windows = sums.get(broker, (0.0, 0))
            sums[broker] = total + share, windows + 1
        return OpenSlot(self.windows + 1, self.mean_load + mean_load, sums)

    def high(self, above: float) -> dict[int, float]:
        """Brokers whose mean share is above, at most `BROKERS_MAX`."""
        means = {broker: total / windows for broker, (total, windows) in self.shares.items()}
        rows = ((share, -broker) for broker, share in means.items() if share > above)
        return {-minus_broker: share for share, minus_broker in nlargest(BROKERS_MAX, rows)}


@dataclass(frozen=True, slots=True, eq=False)
class RecurringLoad:
    """Loads by slot, after the window that ended at `newest_ms`."""

    newest_ms: int = 0
    days: Mapping[str, Mapping[int, DayLoad]] = field(default_factory=lambda: MappingProxyType({}))
    """Slots that are over, by resource and day since the epoch."""
    slot: int = -1
    """The slot that goes on, counted from the epoch."""
    open: Mapping[str, OpenSlot] = field(default_factory=lambda: MappingProxyType({}))
    changed_ms: int = 0
    """Time of the newest move of replicas or leaders before the windows read so far, ms."""
    followed: Mapping[str, Mapping[int, FollowedSkew]] = field(default_factory=lambda: MappingProxyType({}))
    """Skews that have not ended, by resource and broker. A restart forgets them."""

    def after(self, windows: Sequence[SkewWindow], watched: SkewLimits, *, changed_ms: int = 0) -> "RecurringLoad":
        """With those of `windows`, oldest first, that are new; replicas or leaders were last moved at `changed_ms`."""
        history = self
        for window in windows:
            if window.window_end_ms > history.newest_ms:
                history = history._with(window, watched, changed_ms)
        return history

    def kept_until_ms(self) -> int:
        """End of the newest slot that is over: windows that began later must be seen again after a restart."""
        return max(0, self.slot) * SLOT_MS

    def share(self, resource: str, broker: int, slot: int) -> float | None:
        """The broker's load over the mean in a slot counted from the epoch, 1 where it was not high; None: unknown."""
        day, at = self.days.get(resource, {}).get(slot // DAY_SLOTS), slot % DAY_SLOTS
        if day is None or at not in day.mean_load:
            return None
        return day.shares.get(broker, {}).get(at, 1.0)

    def _with(self, window: SkewWindow, watched: SkewLimits, changed_ms: int) -> "RecurringLoad":
        if window.completeness < watched.completeness_min:
            return replace(self, newest_ms=window.window_end_ms)
        history, by_resource = self._unmended(window, watched.enter_ratio, changed_ms)
        for slot in slots_of(window.window_start_ms, window.window_end_ms):
            if slot != history.slot:
                history = replace(history._closed(watched.reference), slot=slot, open={})
            sums = {
                resource: history.open.get(resource, OpenSlot()).after(window.mean_load.get(resource, 0.0), shares)
                for resource, shares in by_resource.items()
            }
            history = replace(history, open={**history.open, **sums})
        return history

    def _unmended(
        self, window: SkewWindow, threshold: float, changed_ms: int
    ) -> tuple["RecurringLoad", dict[str, dict[int, float]]]:
        """Returns the history after `window` with skews that go on, and by resource each broker's share with none
        removed.
        """
        start_ms, followed = window.window_start_ms, self.followed
        is_new = changed_ms > self.changed_ms
        if is_new and start_ms >= changed_ms:
            followed = {resource: moved(rows, changed_ms) for resource, rows in followed.items()}
        may_be_moving = is_new and 0 < changed_ms - start_ms <= FOLLOWED_MS
        going, by_resource = {}, {}
        for resource, shares in window.ratios.items():
            going[resource], by_resource[resource] = unmended(
                followed.get(resource, {}), shares, threshold=threshold, start_ms=start_ms, may_be_moving=may_be_moving
            )
        newest_ms = changed_ms if is_new and start_ms >= changed_ms else self.changed_ms
        return RecurringLoad(window.window_end_ms, self.days, self.slot, self.open, newest_ms, going), by_resource

    def _closed(self, above: float) -> "RecurringLoad":
        """Returns the history with its current slot closed, and without days that are too old."""
        if self.slot < 0:
            return self
        days = {resource: dict(rows) for resource, rows in self.days.items()}
        day, at = divmod(self.slot, DAY_SLOTS)
        for resource, sums in self.open.items():
            rows = days.setdefault(resource, {})
            mean_load = sums.mean_load / sums.windows
            rows[day] = rows.get(day, DayLoad()).with_slot(at, mean_load, sums.high(above))
            if day not in self.days.get(resource, {}):
                days[resource] = {number: row for number, row in rows.items() if day - number <= KEPT_DAYS}
        return replace(self, days=days)


NO_HISTORY = RecurringLoad()


def _text_keys(row: Mapping[int, float]) -> dict[str, float]:
    return {str(slot): value for slot, value in sorted(row.items())}


def _by_slot(row: Mapping[str, Any]) -> dict[int, float]:
    return {int(slot): float(value) for slot, value in row.items()}


RECENT_DAYS = 4
"""How many of the newest days of a kind are searched for a skew that comes back."""
RECURRENCES_MIN = 3
"""A skew comes back if so many of `RECENT_DAYS` days have had it: once is chance, and so is twice."""
SLOTS_MAX = DAY_SLOTS // 2
"""What lasts for longer than half a day is no burst that comes and goes."""
TOLERANCE_SLOTS = 1
"""A skew may begin or end so many slots sooner or later than on earlier days."""
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
    """Slot in which the skew begins today, counted from the epoch."""
    end_slot: int
    """The slot after its last one."""
    days: int
    """Days on which the skew came."""
    height: float
    """Highest load over the mean that the broker has."""

    @property
    def lasts_ms(self) -> int:
        """How long the skew lasts, ms."""
        return (self.end_slot - self.first_slot) * SLOT_MS

    def in_words(self) -> str:
        """Returns in words when the skew comes, and from how many days that is known.

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
