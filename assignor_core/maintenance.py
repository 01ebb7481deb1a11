"""When a cluster may be changed: weekly windows in UTC, such as "Mon-Fri 01:00-05:00".

Pure arithmetic on milliseconds since the epoch: no clock, no calendar, no time zone but UTC.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from assignor_core.errors import InputError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MINUTE_MS = 60_000
DAY_MINUTES = 1440
WEEK_MINUTES = 7 * DAY_MINUTES
EPOCH_DAY = 3
"""1 January 1970 was a Thursday."""

FORM = re.compile(
    r"(?:(?P<first>[A-Z][a-z]{2})(?:-(?P<last>[A-Z][a-z]{2}))? )?"
    r"(?P<from_hour>\d\d):(?P<from_minute>\d\d)-(?P<to_hour>\d\d):(?P<to_minute>\d\d)",
    re.ASCII,
)
_DAY, _TIME = f"({'|'.join(DAYS)})", "([01][0-9]|2[0-3]):[0-5][0-9]"
WINDOW_PATTERN = f"^({_DAY}(-{_DAY})? )?{_TIME}-({_TIME}|24:00)$"
"""What a window looks like, for JSON schemas: all that `window_of` allows, and windows that end as they begin."""


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A window of the same hours on some days of the week; one that ends before it begins ends on the next day."""

    days: frozenset[int]
    """Days on which the window begins; 0 is Monday."""
    begin_minute: int
    """Minute of the day."""
    length_minutes: int
    text: str
    """Text of the maintenance window, as the settings have it."""

    def is_open(self, now_ms: int) -> bool:
        """Whether `now_ms` lies in the window.

        >>> night = window_of("Fri 23:00-01:00")
        >>> friday_ms = 1 * 86_400_000  # 2 January 1970
        >>> [night.is_open(friday_ms + minute * 60_000) for minute in (1379, 1380, 1499, 1500)]
        [False, True, True, False]
        """
        return any((_minute_of_week(now_ms) - start) % WEEK_MINUTES < self.length_minutes for start in self._starts())

    def opens_in_ms(self, now_ms: int) -> int:
        """Time until the window opens next, more than 0 (also while it is open)."""
        into_minute_ms = now_ms % MINUTE_MS
        minutes = min((start - _minute_of_week(now_ms) - 1) % WEEK_MINUTES + 1 for start in self._starts())
        return minutes * MINUTE_MS - into_minute_ms

    def newest_opening(self, now_ms: int) -> tuple[int, int]:
        """Returns when the window opened last, now or before, and when that opening ends or has ended.

        >>> night = window_of("Fri 23:00-01:00")
        >>> friday_ms = 1 * 86_400_000
        >>> [at_ms - friday_ms for at_ms in night.newest_opening(friday_ms + 1_440 * 60_000)]
        [82800000, 90000000]
        """
        minutes = min((_minute_of_week(now_ms) - start) % WEEK_MINUTES for start in self._starts())
        began_ms = now_ms - now_ms % MINUTE_MS - minutes * MINUTE_MS
        return began_ms, began_ms + self.length_minutes * MINUTE_MS

    def _starts(self) -> tuple[int, ...]:
        """Minutes of the week at which it begins."""
        return tuple(day * DAY_MINUTES + self.begin_minute for day in sorted(self.days))


def window_of(text: str) -> MaintenanceWindow:
    """The window of a text like "Sat 02:00-04:00", "Mon-Fri 22:00-05:00" or "01:00-05:00"; raises InputError.

    >>> window = window_of("Sat-Mon 01:00-05:00")
    >>> sorted(window.days), window.begin_minute, window.length_minutes
    ([0, 5, 6], 60, 240)
    """
    match = FORM.fullmatch(text)
    if match is None:
        raise InputError(f"maintenance window {text!r}: allowed is a form like 'Mon-Fri 01:00-05:00' (UTC)")
    begin = _minute(text, match["from_hour"], match["from_minute"])
    end = _minute(text, match["to_hour"], match["to_minute"])
    if begin == DAY_MINUTES:
        raise InputError(f"maintenance window {text!r}: begins at 24:00, write 00:00 and the day after")
    if begin == end:
        raise InputError(f"maintenance window {text!r}: begins and ends at the same time")
    return MaintenanceWindow(
        _days(text, match["first"], match["last"]),
        begin,
        (end - begin) % DAY_MINUTES or DAY_MINUTES,
        text,
    )


def open_window(windows: Sequence[MaintenanceWindow], now_ms: int) -> MaintenanceWindow | None:
    """The first of `windows` that is open now."""
    return next((window for window in windows if window.is_open(now_ms)), None)


def next_window(windows: Sequence[MaintenanceWindow], now_ms: int) -> tuple[MaintenanceWindow, int]:
    """The one of `windows` (not empty) that begins next, and when, ms since the epoch."""
    soonest = min(windows, key=lambda window: window.opens_in_ms(now_ms))
    return soonest, now_ms + soonest.opens_in_ms(now_ms)


def may_act(windows: Sequence[MaintenanceWindow], now_ms: int) -> bool:
    """Whether the cluster may be changed now: inside one of `windows`, or where there is none."""
    return not windows or open_window(windows, now_ms) is not None


def next_opening(windows: Sequence[MaintenanceWindow], now_ms: int) -> str:
    """The window that begins next and the time until then, in words; `windows` is not empty."""
    window, opens_ms = next_window(windows, now_ms)
    return f"maintenance window {window.text}, which opens in {(opens_ms - now_ms) / 3_600_000:.1f} h"


def _minute_of_week(now_ms: int) -> int:
    return (now_ms // MINUTE_MS + EPOCH_DAY * DAY_MINUTES) % WEEK_MINUTES


def _minute(text: str, hour: str, minute: str) -> int:
    minute_of_day = int(hour) * 60 + int(minute)
    if int(minute) > 59 or minute_of_day > DAY_MINUTES:
        raise InputError(f"maintenance window {text!r}: found time {hour}:{minute}, allowed are 00:00 to 24:00")
    return minute_of_day


def _days(text: str, first: str | None, last: str | None) -> frozenset[int]:
    """Both ends included; a range may run over the end of the week."""
    unknown = next((day for day in (first, last) if day is not None and day not in DAYS), None)
    if unknown is not None:
        raise InputError(f"maintenance window {text!r}: found day {unknown!r}, allowed are {', '.join(DAYS)}")
    if first is None:
        return frozenset(range(7))
    begin, end = DAYS.index(first), DAYS.index(last or first)
    return frozenset((begin + offset) % 7 for offset in range((end - begin) % 7 + 1))
