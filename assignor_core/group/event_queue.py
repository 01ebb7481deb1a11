"""What happens when, in logical ms: a queue that is the same in every run.

The queue owns the order: by time, and at one time in the order of adding. The network lies between consumers and
coordinator: it draws from the seed of the scenario how long a message takes. Neither knows what it carries.
"""

import heapq
import random
from collections.abc import Callable
from typing import Any

from assignor_core.group.scenario import Scenario

Call = tuple[Callable[..., None], tuple[Any, ...]]


class EventQueue:
    """Calls by the ms at which they are due. One list a ms keeps a burst of a thousand answers off the heap.

    >>> queue, seen = EventQueue(), []
    >>> queue.add(5, seen.append, "late"); queue.add(1, seen.append, "early"); queue.add(5, seen.append, "later")
    >>> queue.run_until(10), seen, queue.now_ms
    (True, ['early', 'late', 'later'], 5)
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self._moments: list[int] = []
        self._due: dict[int, list[Call]] = {}

    def add(self, at_ms: int, call: Callable[..., None], *arguments: Any) -> None:
        """Let `call(*arguments)` happen at `at_ms`, or now if that is past."""
        at_ms = max(at_ms, self.now_ms)
        due = self._due.get(at_ms)
        if due is None:
            self._due[at_ms] = [(call, arguments)]
            heapq.heappush(self._moments, at_ms)
        else:
            due.append((call, arguments))

    def run_until(self, end_ms: int) -> bool:
        """Let everything happen up to `end_ms`; True if nothing is left."""
        while self._moments and self._moments[0] <= end_ms:
            self.now_ms = self._moments[0]
            due = self._due[self.now_ms]
            for call, arguments in due:  # grows while it runs: what is added for this ms comes last
                call(*arguments)
            heapq.heappop(self._moments)
            del self._due[self.now_ms]
        return not self._moments


class Network:
    """Delays of one run, over its queue of events."""

    def __init__(self, scenario: Scenario, queue: EventQueue) -> None:
        self._network_ms, self._jitter_ms = scenario.network_ms, scenario.network_jitter_ms
        self._queue = queue
        self._draws = random.Random(scenario.seed)  # noqa: S311 - no secret

    def send(self, call: Callable[..., None], *arguments: object, not_before_ms: int = 0) -> int:
        """Let `call(*arguments)` happen when the message arrives; at what ms that is."""
        delay_ms = self._network_ms
        if self._jitter_ms:
            delay_ms += int(self._draws.random() * (self._jitter_ms + 1))
        at_ms = max(self._queue.now_ms + delay_ms, not_before_ms)
        self._queue.add(at_ms, call, *arguments)
        return at_ms

    def up_to(self, most: int) -> int:
        """A whole number from 0 to `most`, all as likely; `randint` would take five times as long."""
        return int(self._draws.random() * (most + 1)) if most else 0
