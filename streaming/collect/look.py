"""One sample under way: which brokers are alive, which of them don't answer, and when each part was read.

Brokers are asked at the same time, each for one thing after the other.
A broker that is alive but hangs costs a request's whole timeout each time it is asked, so it is asked once a sample.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from kafka.errors import KafkaError

from streaming.cluster.answers import is_unanswered
from streaming.collect.observation import Part
from streaming.collect.refusals import Refusals

Answer = TypeVar("Answer")
Clock = Callable[[], float]
BROKERS_AT_A_TIME = 32
"""Brokers that a look waits for at the same time, each for one answer."""


@dataclass(slots=True)
class Look:
    """What a sample knows of itself; `monotonic` is a clock in seconds that stood at `began_s` when it began."""

    racks: dict[int, str | None]
    """Brokers that are alive, by id."""
    began_ms: int
    began_s: float
    monotonic: Clock
    brokers_at_a_time: int = BROKERS_AT_A_TIME
    read_ms: dict[tuple[Part, int], int] = field(default_factory=dict)
    silent: dict[int, KafkaError] = field(default_factory=dict)
    """Brokers that gave no answer, with the error."""
    refusals: Refusals = field(default_factory=Refusals)
    """What brokers refuse for want of a right, in this look and before."""

    def now_ms(self) -> int:
        """The time by now, ms: a broker that hangs makes the brokers after it late."""
        return self.began_ms + round((self.monotonic() - self.began_s) * 1000)

    def note(self, part: Part, broker: int) -> None:
        """Notes that `part` was read from the broker just now."""
        self.read_ms[(part, broker)] = self.now_ms()

    def of_each(self, brokers: Iterable[int], read: Callable[[int], Answer]) -> dict[int, Answer]:
        """What `read` gives of each broker, all asked at the same time, as far as that many may be."""
        asked = sorted(brokers)
        if self.brokers_at_a_time == 1 or len(asked) < 2:
            return {broker: read(broker) for broker in asked}
        with ThreadPoolExecutor(min(self.brokers_at_a_time, len(asked))) as pool:
            return dict(zip(asked, pool.map(read, asked), strict=True))

    def ask(self, broker: int, request: Callable[[], Answer]) -> Answer:
        """The answer to a request that goes to one broker. Raises KafkaError: at once if it gave no answer before."""
        if broker in self.silent:
            raise self.silent[broker]
        try:
            return request()
        except KafkaError as error:
            if is_unanswered(error):
                self.silent[broker] = error
            raise
