"""Rebalances of real groups, derived from what a monitor sees of them now and then.

Owns the comparing of one look at a group with the next, and what that shows of membership. Knows no table, no client.
A look every window misses what came and went between two looks: counts are at least, never at most.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.states import GroupState

UUID_CHARS = 36
FLAPS_MIN = 3
"""So many comings and goings of one member in the look-back are called flapping."""


class Cause(Enum):
    """Why a rebalance took place, as far as it can be known."""

    FORMED = "group formed"
    EMPTIED = "group emptied"
    RESTARTED = "members restarted"
    JOINED = "members joined"
    LEFT = "members left"
    CHANGED = "members joined and left"
    PARTITIONS_ADDED = "partitions added"
    REASSIGNED = "partitions reassigned"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupLook:
    """One look at a group. `owners`: member id by partition, None where nobody owns it."""

    at_ms: int
    state: str | None
    owners: Mapping[TopicPartition, str | None]
    generation_id: int | None = None

    @property
    def members(self) -> frozenset[str]:
        """Members that own something: a monitor of partitions does not see idle ones."""
        return frozenset(owner for owner in self.owners.values() if owner is not None)


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """A rebalance seen between two looks. Members are member ids; partitions are counts.

    `restarted`: identities (member id without its random part) that are in both `members_in` and `members_out`.
    `stopped_if_eager` is how many partitions an eager group had to stop, whatever moved.
    """

    after_ms: int
    until_ms: int
    cause: Cause
    rebalances: int
    members_in: tuple[str, ...] = ()
    members_out: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    partitions_moved: int = 0
    partitions_unowned: int = 0
    stopped_if_eager: int = 0


@dataclass(frozen=True, slots=True)
class GroupAdvice:
    """What a group's events show of its membership. `flapping`: identity and how often it came or went.

    `restarts`: rebalances in which nobody but returning members came or went: static membership would have spared
    them, if the session timeout is longer than a restart. `moved_ratio`: partitions that changed hands of those that
    an eager group stops; a cooperative one stops only these.
    """

    rebalances: int
    flapping: tuple[tuple[str, int], ...]
    restarts: int
    partitions_moved: int
    stopped_if_eager: int
    hints: tuple[str, ...] = field(default=())

    @property
    def moved_ratio(self) -> float | None:
        """None without a rebalance of owned partitions."""
        return self.partitions_moved / self.stopped_if_eager if self.stopped_if_eager else None


def identity(member_id: str) -> str:
    """A member id without the random part that the coordinator appends: client id, or group instance id.

    >>> identity("billing-1-0b0ee2f6-3e2d-4b58-9d0a-0d9c1f1d6c1e"), identity("odd")
    ('billing-1', 'odd')
    """
    head, dash, tail = member_id[: -UUID_CHARS - 1], member_id[-UUID_CHARS - 1 : -UUID_CHARS], member_id[-UUID_CHARS:]
    return head if dash == "-" and head and tail.count("-") == 4 else member_id


def group_events(looks: Sequence[GroupLook]) -> tuple[GroupEvent, ...]:
    """The rebalances between looks, which are in order of time.

    >>> a, b = "a-0b0ee2f6-3e2d-4b58-9d0a-0d9c1f1d6c1e", "b-1b0ee2f6-3e2d-4b58-9d0a-0d9c1f1d6c1e"
    >>> alone = GroupLook(0, "Stable", {("t", 0): a, ("t", 1): a})
    >>> both = GroupLook(60_000, "Stable", {("t", 0): a, ("t", 1): b})
    >>> [(event.cause.value, len(event.members_in), event.partitions_moved) for event in group_events([alone, both])]
    [('members joined', 1, 1)]
    """
    return tuple(event for before, after in pairwise(looks) for event in _between(before, after))


def advice(events: Iterable[GroupEvent]) -> GroupAdvice:
    """What these events show of how the group is set up."""
    events = tuple(events)
    flaps: Counter[str] = Counter()
    for event in events:
        flaps.update({*map(identity, event.members_in), *map(identity, event.members_out)})
    flapping = tuple(sorted((name, count) for name, count in flaps.items() if count >= FLAPS_MIN))
    restarts = sum(event.rebalances for event in events if event.cause is Cause.RESTARTED)
    counts = GroupAdvice(
        rebalances=sum(event.rebalances for event in events),
        flapping=flapping,
        restarts=restarts,
        partitions_moved=sum(event.partitions_moved for event in events),
        stopped_if_eager=sum(event.stopped_if_eager for event in events),
    )
    return GroupAdvice(
        counts.rebalances,
        flapping,
        restarts,
        counts.partitions_moved,
        counts.stopped_if_eager,
        tuple(_hints(counts)),
    )


def _between(before: GroupLook, after: GroupLook) -> Iterator[GroupEvent]:
    generations = _generations(before, after)
    came = tuple(sorted(after.members - before.members))
    went = tuple(sorted(before.members - after.members))
    shared = before.owners.keys() & after.owners.keys()
    moved = [tp for tp in shared if before.owners[tp] is not None and _moved(before.owners[tp], after.owners[tp])]
    rebalancing = after.state in (GroupState.PREPARING_REBALANCE.value, GroupState.COMPLETING_REBALANCE.value)
    added = [tp for tp in after.owners.keys() - before.owners.keys() if after.owners[tp] is not None]
    # At the same generation only a static member's process can have changed: nobody else noticed.
    same_generation = generations == 0 and not rebalancing
    if same_generation or not (came or went or moved or added or generations or rebalancing):
        return
    restarted = tuple(sorted({identity(one) for one in came} & {identity(one) for one in went}))
    yield GroupEvent(
        after_ms=before.at_ms,
        until_ms=after.at_ms,
        cause=_cause(before, after, came, went, restarted),
        rebalances=max(1, generations or 0),
        members_in=came,
        members_out=went,
        restarted=restarted,
        partitions_moved=len(moved),
        partitions_unowned=sum(owner is None for owner in after.owners.values()),
        stopped_if_eager=sum(owner is not None for owner in before.owners.values()),
    )


def _generations(before: GroupLook, after: GroupLook) -> int | None:
    """Generations gone by; None where one is unknown, or the group was deleted between and began again at 0."""
    if before.generation_id is None or after.generation_id is None or after.generation_id < before.generation_id:
        return None
    return after.generation_id - before.generation_id


def _moved(before: str | None, after: str | None) -> bool:
    """Whether a partition went to another member, not to a new process of the same."""
    return after is not None and before is not None and identity(before) != identity(after)


def _cause(
    before: GroupLook, after: GroupLook, came: Sequence[str], went: Sequence[str], restarted: Sequence[str]
) -> Cause:
    if not before.members and after.members:
        return Cause.FORMED
    if before.members and not after.members:
        return Cause.EMPTIED if after.state in (GroupState.EMPTY.value, GroupState.DEAD.value) else Cause.UNKNOWN
    if restarted and len(restarted) == len(came) == len(went):
        return Cause.RESTARTED
    if came or went:
        return Cause.CHANGED if came and went else Cause.JOINED if came else Cause.LEFT
    if any(after.owners[tp] is not None for tp in after.owners.keys() - before.owners.keys()):
        return Cause.PARTITIONS_ADDED
    return Cause.REASSIGNED if before.members else Cause.UNKNOWN


def _hints(counts: GroupAdvice) -> Iterator[str]:
    for name, count in counts.flapping:
        yield f"{name} came or went {count} times: find out why it does not stay"
    if counts.restarts:
        yield (
            f"{counts.restarts} of {counts.rebalances} rebalances were members that came back: group.instance.id with "
            "a session.timeout.ms longer than a restart would have spared them"
        )
    ratio = counts.moved_ratio
    if ratio is not None and counts.rebalances > 1 and ratio < 0.5:
        yield (
            f"{counts.partitions_moved} of {counts.stopped_if_eager} partitions changed hands: cooperative-sticky "
            "would have stopped only these, an eager strategy stops all"
        )
