"""When something that is done every few seconds is due again, by a clock that may be set back. Imports nothing."""


def is_due(last_ms: int | None, interval_ms: int, now_ms: int) -> bool:
    """Whether `interval_ms` are over since `last_ms`, or nothing was done yet.

    A last time in the future shows that the clock was set back: it is due, and not only once the clock has caught up.
    So the last time is what callers keep, not the next one, of which this does not show.

    >>> is_due(None, 10, 7), is_due(100, 10, 109), is_due(100, 10, 110), is_due(100, 10, 99)
    (True, False, True, True)
    """
    return last_ms is None or not 0 <= now_ms - last_ms < interval_ms
