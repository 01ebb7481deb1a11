"""What a module of requests offers to the wire, and error codes that several of them use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    NoError,
    NotControllerError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)

from tests.fleet.fleet import Fleet

OK: int = NoError.errno
UNKNOWN_PARTITION: int = UnknownTopicOrPartitionError.errno
NOT_LEADER: int = NotLeaderForPartitionError.errno
NOT_CONTROLLER: int = NotControllerError.errno
LOADING: int = CoordinatorLoadInProgressError.errno
NOT_AUTHORIZED: int = ClusterAuthorizationFailedError.errno

Answer = Callable[[Fleet, int, Any], Any]
"""(Fleet, id of the broker that is asked, request): kafka-python's response, or its encoded body."""


@dataclass(frozen=True, slots=True)
class Api:
    """One request of Kafka's protocol; `request` is kafka-python's class of it.

    `refusal` gives an answer with one of Kafka's errors. Requests without one are never refused.
    """

    request: Any
    versions: tuple[int, int]
    answer: Answer
    refusal: Answer | None = None
