"""A stack of calls that can stop in its middle while others act: what freezes one control in a turn of its own.

Each has a thread, but one of them runs at a time: who goes on gives the turn away and waits until it comes back. So a
story depends on no scheduler.
"""

import threading
from collections.abc import Callable


class Stack:
    """Runs one action at a time, which may `pause` anywhere."""

    def __init__(self) -> None:
        # Held locks that the other side releases: a semaphore takes several times as long.
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._action: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None

    @property
    def paused(self) -> bool:
        """Whether its action waits in the middle."""
        return self._action is not None

    def run(self, action: Callable[[], None]) -> None:
        """Returns once `action` has ended or paused; it must not raise."""
        assert not self.paused, "an action waits in the middle"
        self._action = action
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()
        self.go_on()

    def go_on(self) -> None:
        """Let the paused action go on; returns once it has ended or paused again."""
        self._turn.release()
        self._back.acquire()

    def pause(self) -> None:
        """Called by the action: gives the turn back, and returns once it may go on."""
        self._back.release()
        self._turn.acquire()

    def end(self) -> None:
        """End the thread; no action may be paused."""
        assert not self.paused, "an action waits in the middle"
        if self._thread is not None:
            self._turn.release()
            self._thread.join()
            self._thread = None

    def _loop(self) -> None:
        while True:
            self._turn.acquire()
            if self._action is None:
                return
            self._action()
            self._action = None
            self._back.release()
