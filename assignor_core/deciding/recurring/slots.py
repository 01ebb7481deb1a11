"""Slots of ten minutes: the times of a day that are compared with one another. UTC, counted from the epoch."""

from assignor_core.deciding.maintenance import DAY_MINUTES, DAYS, EPOCH_DAY, MINUTE_MS

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
    """0 is Monday; `day` is counted from the epoch."""
    return (day + EPOCH_DAY) % len(DAYS)


def time_of_day(slot: int) -> str:
    """Hours and minutes at which a slot begins.

    >>> time_of_day(17), time_of_day(DAY_SLOTS + 1)
    ('02:50', '00:10')
    """
    minutes = slot % DAY_SLOTS * (SLOT_MS // MINUTE_MS)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
