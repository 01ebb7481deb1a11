"""How far an execution has come: movements made, bytes copied, time left, and what Kafka refused.

Kafka answers for each partition of a request, so one that is refused keeps no other from moving. Errors are names as
clients show them. Which partitions are requested again, and which are skipped, one process counts for itself: a process
that starts requests once more, and learns the same (`tests/simulation/test_kills.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import Progress
from assignor_core.execution.seen_movements import MADE
from assignor_core.live import PartitionKey, partition_name
from assignor_core.plan import Plan
from assignor_core.wording import counted, first_named

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


NO_REFUSALS: Mapping[PartitionKey, str] = MappingProxyType({})
_ON_THE_WAY = (Progress.MOVING, Progress.PENDING)


def movements_done(progress: Mapping[PartitionKey, Progress]) -> int:
    """Partitions that have reached their new replicas, whoever leads them."""
    return sum(state in MADE for state in progress.values())


def bytes_moved(
    plan: Plan, progress: Mapping[PartitionKey, Progress], replica_bytes: Mapping[tuple[int, PartitionKey], int]
) -> int:
    """Bytes of finished movements, and what receiving brokers hold so far of those under way.

    `replica_bytes` is the size of a replica by (broker, partition); a replica that is not in it holds nothing. A
    partition that moves by one replica at a time is pending between two steps, so pending ones count, too.
    """
    total = 0
    for movement in plan.movements:
        key = (movement.topic, movement.partition)
        if progress[key] in MADE:
            total += round(movement.bytes_to_move)
        elif progress[key] in _ON_THE_WAY:
            receiving = set(movement.new_replicas) - set(movement.old_replicas)
            held = sum(replica_bytes.get((broker, key), 0) for broker in receiving)
            total += min(round(movement.bytes_to_move), held)
    return total


def what_was_made(
    progress: Mapping[PartitionKey, Progress],
    refusals: Mapping[PartitionKey, str] = NO_REFUSALS,
    election_refusals: Mapping[PartitionKey, str] = NO_REFUSALS,
) -> str:
    """What was made of a plan in the end, in words. The refusals, Kafka's errors, are those of `progress`.

    >>> what_was_made({("t", 0): Progress.DONE, ("t", 1): Progress.GONE})
    '1 movement made, 1 partition is gone'
    >>> what_was_made({("t", 0): Progress.DONE, ("t", 1): Progress.SKIPPED}, {("t", 1): "PolicyViolationError"})
    '1 movement made, 1 skipped: t-1 (PolicyViolationError)'
    >>> what_was_made({("t", 0): Progress.NOT_ELECTED}, {}, {("t", 0): "PreferredLeaderNotAvailableError"})
    '1 movement made, 1 keeps its leader, as Kafka refuses the election: t-0 (PreferredLeaderNotAvailableError)'
    """
    gone = sum(state is Progress.GONE for state in progress.values())
    skipped = {key: refusals[key] for key, state in progress.items() if state is Progress.SKIPPED}
    kept = {key: election_refusals[key] for key, state in progress.items() if state is Progress.NOT_ELECTED}
    if not gone and not skipped and not kept:
        return "every movement has been made"
    parts = [counted(len(progress) - gone - len(skipped), "movement made", "movements made")]
    parts += [counted(gone, "partition is gone", "partitions are gone")] if gone else []
    parts += [f"{len(skipped)} skipped: {refusals_text(skipped)}"] if skipped else []
    if kept:
        keep = counted(len(kept), "keeps its leader", "keep their leader")
        parts.append(f"{keep}, as Kafka refuses the election: {refusals_text(kept)}")
    return ", ".join(parts)


def remaining(execution: Execution) -> str:
    """How much has been copied, and about how long the rest takes at the pace so far; empty before this
    execution has copied anything.

    Time after the newest copied byte doesn't count: while an execution waits, what is left to do doesn't grow. Once all
    is copied no time is named: the execution waits for something other than bytes.
    """
    moved, total = execution.figures.bytes_moved, execution.figures.bytes_total
    elapsed_ms, copied = execution.worked_ms(execution.copied_ms), moved - _made_before(execution)
    if copied <= 0 or not total or elapsed_ms <= 0:
        return ""
    if moved >= total:
        return f"all of {total:,} bytes copied"
    left_s = (total - moved) * elapsed_ms / copied / 1000
    return f"{moved / total:.0%} of {total:,} bytes, about {left_s:,.0f} s left"


def _made_before(execution: Execution) -> int:
    """Bytes of the plan that were copied before this execution asked for anything: by an earlier one, for example."""
    first = (record for record in execution.events if record.event is Event.SUBMITTED)
    return next((record.figures.bytes_moved for record in first), 0)
