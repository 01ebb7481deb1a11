"""The clocks: the only module that reads one. Entries (a role's run.py, a command) ask it and hand the time on.

Whether an interval is over by such a time: `assignor_core/intervals.py`, which the core and all rooms may import.
"""

import time


def now_ms() -> int:
    """Wall clock, ms since 1970 UTC. It may be set, so no interval is measured with it."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """A clock that never goes back and counts time in which the process or the machine was stopped, ms."""
    clock: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000
