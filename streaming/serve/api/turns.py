"""Turns: acts of one kind go one after the other, and only a few wait, as each that waits holds a thread of serve."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streaming.serve.api.problems import Problem

WAITING_MAX = 4
"""Acts of one kind that are done or wait; serve has 40 threads for all that is asked."""
TURN_S = 30.0
"""How long an act waits for the one before it."""
TRY_AGAIN = {"Retry-After": "5"}


class Turns:
    """Of one kind of acts."""

    def __init__(self, what: str = "act") -> None:
        self._what = what
        self._places = threading.BoundedSemaphore(WAITING_MAX)
        self._turn = threading.Lock()

    @contextmanager
    def place(self) -> Iterator[None]:
        """To be held before a thread is; raises Problem 503 at once where too many wait."""
        if not self._places.acquire(blocking=False):
            raise Problem(503, f"too many {self._what}s wait: try again", headers=TRY_AGAIN)
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the act before; raises Problem 503."""
        if not self._turn.acquire(timeout=TURN_S):
            raise Problem(503, f"another {self._what} is not done yet: try again", headers=TRY_AGAIN)
        try:
            yield
        finally:
            self._turn.release()
