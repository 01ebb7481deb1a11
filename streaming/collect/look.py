"""One sample under way: which brokers are alive, which of them don't answer, and when each part was read.

A broker that is alive but hangs costs a request's whole timeout each time it is asked, so it is asked once a sample.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.cluster.answers import brokers_alive, is_unanswered
from streaming.collect.observation import Part

Answer = TypeVar("Answer")
Clock = Callable[[], float]


@dataclass(slots=True)
class Look:
    """What a sample knows of itself; `monotonic` is a clock in seconds that stood at `began_s` when it began."""

    racks: dict[int, str | None]
    """Brokers that are alive, by id."""
    began_ms: int
    began_s: float
    monotonic: Clock
    read_ms: dict[tuple[Part, int], int] = field(default_factory=dict)
    _silent: dict[int, KafkaError] = field(default_factory=dict)

    @classmethod
    def begin(cls, admin: KafkaAdminClient, *, now_ms: int = 0, monotonic: Clock = time.monotonic) -> "Look":
        """Reads which brokers are alive; raises KafkaError."""
        began_s = monotonic()
        return cls(brokers_alive(admin), now_ms, began_s, monotonic)

    def now_ms(self) -> int:
        """The time by now, ms: a broker that hangs makes the brokers after it late."""
        return self.began_ms + round((self.monotonic() - self.began_s) * 1000)

    def note(self, part: Part, broker: int) -> None:
        """That this part was read from the broker just now."""
        self.read_ms[(part, broker)] = self.now_ms()

    def ask(self, broker: int, request: Callable[[], Answer]) -> Answer:
        """The answer to a request that goes to one broker. Raises KafkaError: at once if it gave no answer before."""
        if broker in self._silent:
            raise self._silent[broker]
        try:
            return request()
        except KafkaError as error:
            if is_unanswered(error):
                self._silent[broker] = error
            raise
