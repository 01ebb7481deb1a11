"""What lies between consumers and coordinator: messages take their time, drawn from the scenario's seed.

Owns the draws; knows no message. The same seed gives the same delays.
"""

import random
from collections.abc import Callable

from assignor_core.group.event_queue import EventQueue
from assignor_core.group.scenario import Scenario


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
