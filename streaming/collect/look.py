"""One sample under way: which brokers are alive, which of them do not answer or refuse, and when each part was read.

Brokers are asked at the same time, each for one thing after the other. A broker that is alive but hangs costs a
request's whole timeout, so it is asked once a sample. What a broker refuses for want of a right is unknown: the sample
continues without it, and the log has one line when a refusal begins and one when it ends.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

import structlog
from kafka.errors import AuthorizationError, KafkaError

from streaming.cluster.answers import is_unanswered
from streaming.collect.observation import Part
from streaming.runtime.logs import with_log_fields

log = structlog.get_logger()
_NAMES = frozenset(row.__name__ for row in AuthorizationError.__subclasses__())
Answer = TypeVar("Answer")
Clock = Callable[[], float]
BROKERS_AT_A_TIME = 32
"""Brokers that a look waits for at the same time, each for one answer."""


class Request(StrEnum):
    """What may be refused while the rest of a look works; the value is its name in the log."""

    REASSIGNMENTS = "list reassignments"
    LOG_DIRS = "describe log dirs"
    GROUPS = "read groups"


MISSING = {
    Request.REASSIGNMENTS: ("DESCRIBE on the cluster", "which replicas a reassignment adds"),
    Request.LOG_DIRS: ("DESCRIBE on the cluster", "sizes of logs, bytes/s from their growth, room on disks"),
    Request.GROUPS: ("DESCRIBE on every group", "members and lag of these groups"),
}
"""The right that is needed, and what is unknown without it."""


@dataclass(slots=True)
class RefusedRequests:
    """Remembers from look to look what is refused. For many threads."""

    _refused: set[Request] = field(default_factory=set)
    """Kinds that are reported as refused."""
    _refused_now: dict[Request, str] = field(default_factory=dict)
    """Kinds that were refused in this look, with the error."""
    _answered_now: set[Request] = field(default_factory=set)
    _counts: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, request: Request, broker: int | None, error: str, *, count: int = 1) -> None:
        """`broker` has refused so many of these in this look; None: nobody knows which broker was asked."""
        with self._lock:
            self._refused_now[request] = error
            if broker is not None:
                self._counts[broker] += count

    def note_answer(self, request: Request) -> None:
        """Notes that a request of this kind was answered in this look."""
        self._answered_now.add(request)

    def end_look(self) -> Mapping[int, int]:
        """How many requests each broker refused in this look; the next look counts from 0 on. Logs what has changed."""
        with self._lock:
            for request in sorted(self._refused_now.keys() - self._refused):
                right, unknown = MISSING[request]
                log.warning(
                    "request_refused", request=request.value, error=self._refused_now[request], needs=right,
                    unknown=unknown, hint="rebalancer check shows which level of rights is reached",
                )  # fmt: skip
            ended = {row for row in self._refused & self._answered_now if row not in self._refused_now}
            for request in sorted(ended):
                log.info("request_allowed", request=request.value)
            self._refused = (self._refused | self._refused_now.keys()) - ended
            counts, self._counts = self._counts, Counter()
            self._refused_now, self._answered_now = {}, set()
        return counts


def is_refused(error: KafkaError | type[KafkaError] | str) -> bool:
    """Whether an error of the client, or its name, is a refusal for want of a right.

    >>> is_refused("GroupAuthorizationFailedError"), is_refused("CoordinatorLoadInProgressError")
    (True, False)
    """
    if isinstance(error, str):
        return error in _NAMES
    return issubclass(error if isinstance(error, type) else type(error), AuthorizationError)


@dataclass(slots=True)
class SampleState:
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
    refusals: RefusedRequests = field(default_factory=RefusedRequests)
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
            return dict(zip(asked, pool.map(with_log_fields(read), asked), strict=True))

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
