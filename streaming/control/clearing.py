"""Removal of a throttle that Kafka may refuse: tried again a tick later, until the execution has tried too often."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from streaming.errors import ClusterRequestFailed

CLEAR_TRIES_MAX = 60
"""Most tries, a tick apart, to remove a throttle that Kafka refuses to remove; then the execution ends without it."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of a throttle that was to be removed."""

    brokers: tuple[int, ...]
    """Brokers that keep their rate."""
    refused: str | None = None
    """Why Kafka refuses; None if the brokers are only down."""


class Clearing:
    """Counts the tries that Kafka has refused, one after the other, of one execution."""

    def __init__(self) -> None:
        self._refused = 0

    def remains(self, clear: Callable[[], Iterable[int]], left: Callable[[], Iterable[int]]) -> Remains:
        """What is left after `clear`, which removes the throttle and returns the brokers that keep their rate.

        Raises ClusterRequestFailed if Kafka refuses, until it has refused too often: then brokers `left` are what
        remains.
        """
        try:
            brokers = clear()
        except ClusterRequestFailed as error:
            self._refused += 1
            if self._refused < CLEAR_TRIES_MAX:
                raise
            return Remains(tuple(left()), str(error))
        self._refused = 0
        return Remains(tuple(brokers))
