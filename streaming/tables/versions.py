"""Versions of transactions that are times."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AtTime:
    """The version of a transaction that is written again and again: when it is, by a clock that may be set back."""

    now_ms: int

    def after(self, written: int | None) -> int:
        """The version, of which `written` is the last one.

        A later one is of a clock that was ahead. Were its time waited for, nothing would be written until then, so each
        of these writes has the version after the last. The same time again is the same write.

        >>> AtTime(50).after(None), AtTime(50).after(40), AtTime(50).after(50), AtTime(50).after(90)
        (50, 50, 50, 91)
        """
        return self.now_ms if written is None or written <= self.now_ms else written + 1
