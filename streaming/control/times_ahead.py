"""Times that a clock has written which was ahead: after it was set right they lie in the future, for hours maybe."""


class TimesAhead:
    """When such times were first seen, by this process: what they date had happened by then."""

    def __init__(self) -> None:
        self._seen_ms: dict[int, int] = {}

    def at_most_now(self, time_ms: int, now_ms: int) -> int:
        """The time, or when it was first seen if it lies in the future. Not just `now_ms`: that would be later at each
        read, so what happened would never be over.

        >>> ahead = TimesAhead()
        >>> ahead.at_most_now(5, 7), ahead.at_most_now(900, 7), ahead.at_most_now(900, 8), ahead.at_most_now(900, 6)
        (5, 7, 7, 6)
        """
        if time_ms <= now_ms:
            return time_ms
        return min(now_ms, self._seen_ms.setdefault(time_ms, now_ms))
