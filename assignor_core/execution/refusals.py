"""Reassignments and elections that Kafka refused: which are asked for again, and which are skipped.

Kafka answers for each partition of a request, so one that is refused keeps no other from moving. Errors are names as
clients show them. One process counts for itself: a process that starts asks once more, and learns the same
(`tests/simulation/test_kills.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from assignor_core.live import PartitionKey, partition_name
from assignor_core.wording import first_named

PERMANENT = frozenset(
    {
        "ClusterAuthorizationFailedError",
        "InvalidRequestError",
        "InvalidTopicError",
        "PolicyViolationError",
        "TopicAuthorizationFailedError",
        "UnknownTopicOrPartitionError",
    }
)
"""Errors that asking again doesn't change, by kafka-python's names. InvalidReplicationAssignmentError is none of them:
Kafka 4.4 refuses a cordoned broker with it, and learns of the end of a cordon a heartbeat after the broker shows it.
"""
TRIES_MAX = 60
"""How often a request is repeated after any other error: tries are a second apart."""
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Refusals:
    """Partitions whose reassignment, or election, Kafka refused when it was last asked for: error, tries in a row."""

    errors: Mapping[PartitionKey, str] = field(default_factory=dict)
    tries: Mapping[PartitionKey, int] = field(default_factory=dict)

    def after(self, asked: Iterable[PartitionKey], refused: Mapping[PartitionKey, str]) -> Self:
        """What is known after a request for the partitions `asked`.

        >>> Refusals().after([("t", 0), ("t", 1)], {("t", 1): "PolicyViolationError"}).skipped
        {('t', 1): 'PolicyViolationError'}
        """
        kept = self.errors.keys() - set(asked)
        return type(self)(
            {key: self.errors[key] for key in sorted(kept)} | dict(sorted(refused.items())),
            {key: self.tries[key] for key in sorted(kept)} | {key: self.tries.get(key, 0) + 1 for key in refused},
        )

    @property
    def skipped(self) -> dict[PartitionKey, str]:
        """Partitions that are not asked for any more, with the error."""
        return {key: error for key, error in self.errors.items() if error in PERMANENT or self.tries[key] >= TRIES_MAX}


def refusals_text(refusals: Mapping[PartitionKey, str]) -> str:
    """Partitions with their errors, for people; the first few of many.

    >>> refusals_text({("t", 0): "PolicyViolationError"})
    't-0 (PolicyViolationError)'
    """
    return first_named(sorted(refusals), NAMED_MAX, lambda key: f"{partition_name(key)} ({refusals[key]})")
