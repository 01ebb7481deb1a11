"""Requests that brokers refuse for want of a right: one line when that begins, one when it ends, a count for each look.

What a refused request would have shown is unknown; the rest of the look goes on without it.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import structlog
from kafka.errors import AuthorizationError, KafkaError

log = structlog.get_logger()


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
class Refusals:
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


_NAMES = frozenset(row.__name__ for row in AuthorizationError.__subclasses__())
