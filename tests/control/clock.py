"""A clock of tests."""


class Clock:
    """Moves only where a test lets it."""

    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms
