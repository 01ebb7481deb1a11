"""Rebalances of real groups, derived from what a monitor sees of them now and then.

Owns the comparing of one sample of a group with the next, and what that shows of membership. Knows no table, no client.
A sample every window misses what came and went between two samples: counts are at least, never at most.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from assignor_core.group.states import GroupState
from assignor_core.wording import counted

if TYPE_CHECKING:  # not all assignors, for who reads lag
    from assignor_core.assignors.contract import TopicPartition

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Kafka's types of groups."""
CLASSIC_REBALANCING = (GroupState.PREPARING_REBALANCE.value, GroupState.COMPLETING_REBALANCE.value)
EPOCH_REBALANCING = ("NotReady", "Assigning", "Reconciling")
REBALANCING = (*CLASSIC_REBALANCING, *EPOCH_REBALANCING)
"""States of the newer protocols (KIP-848, KIP-1071): here the epoch rises first, and members follow one by one."""
UUID_CHARS = 36
SESSION_TIMEOUTS = {CLASSIC: "session.timeout.ms", CONSUMER: "group.consumer.session.timeout.ms (of the brokers)"}
"""The setting that decides, by type of the groups that have static members."""
FLAPS_MIN = 3
"""A member flaps if it joined and left at least so many times in the look-back."""


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
class GroupSample:
    """One sample of a group. `owners`: member id by partition, None where nobody owns it.

    `names`: group instance id, else client id, by member id, as far as they are known. `member_count`: all members,
    those that own nothing too; None where it is unknown.
    """

    at_ms: int
    state: str | None
    owners: "Mapping[TopicPartition, str | None]"
    generation_id: int | None = None
    group_type: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    member_count: int | None = None

    @property
    def members(self) -> frozenset[str]:
        """Members that own something: a monitor of partitions does not see idle ones."""
        return frozenset(owner for owner in self.owners.values() if owner is not None)

    @property
    def is_blind(self) -> bool:
        """Whether the group has members and none of them was seen: such a sample shows of members nothing at all.

        Brokers describe a classic group that rebalances without what its members own and without its generation.
        """
        if self.members or self.state in (GroupState.EMPTY.value, GroupState.DEAD.value):
            return False
        return self.member_count != 0 if self.state in CLASSIC_REBALANCING else self.member_count is None

    def name(self, member_id: str) -> str:
        """Identity of a member that survives a restart of its process."""
        return self.names.get(member_id) or identity(member_id)


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """A rebalance seen between two samples. Members are member ids; partitions are counts.

    `names_in` and `names_out` are their names (`GroupSample.name`), each once; `restarted`: those that are in both.
    `rebalances` is 0 where one that was counted before goes on. `stopped_if_eager` is how many partitions an eager
    group had to stop, whatever moved.
    """

    after_ms: int
    until_ms: int
    cause: Cause
    rebalances: int
    members_in: tuple[str, ...] = ()
    members_out: tuple[str, ...] = ()
    names_in: tuple[str, ...] = ()
    names_out: tuple[str, ...] = ()
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
        """Partitions that moved as a share of `stopped_if_eager`; None without a rebalance of owned partitions."""
        return self.partitions_moved / self.stopped_if_eager if self.stopped_if_eager else None


def identity(member_id: str) -> str:
    """A member id without the random part that the coordinator appends: client id, or group instance id.

    >>> identity("billing-1-0b0ee2f6-3e2d-4b58-9d0a-0d9c1f1d6c1e"), identity("odd")
    ('billing-1', 'odd')
    """
    head, dash, tail = member_id[: -UUID_CHARS - 1], member_id[-UUID_CHARS - 1 : -UUID_CHARS], member_id[-UUID_CHARS:]
    return head if dash == "-" and head and tail.count("-") == 4 else member_id


def group_events(samples: Sequence[GroupSample]) -> tuple[GroupEvent, ...]:
    """The rebalances between samples, which are in order of time.

    >>> a, b = "a-0b0ee2f6-3e2d-4b58-9d0a-0d9c1f1d6c1e", "b-1b0ee2f6-3e2d-4b58-9d0a-0d9c1f1d6c1e"
    >>> alone = GroupSample(0, "Stable", {("t", 0): a, ("t", 1): a})
    >>> both = GroupSample(60_000, "Stable", {("t", 0): a, ("t", 1): b})
    >>> [(event.cause.value, len(event.members_in), event.partitions_moved) for event in group_events([alone, both])]
    [('members joined', 1, 1)]
    """
    seen = (sample for sample in samples if not sample.is_blind)
    return tuple(event for before, after in pairwise(seen) for event in _between(before, after))


def advice(events: Iterable[GroupEvent], group_type: str | None = None) -> GroupAdvice:
    """What these events show of how the group, which is of this type now, is set up."""
    events = tuple(events)
    flaps: Counter[str] = Counter()
    for event in events:
        flaps.update({*event.names_in, *event.names_out})
    counts = GroupAdvice(
        rebalances=sum(event.rebalances for event in events),
        flapping=tuple(sorted((name, count) for name, count in flaps.items() if count >= FLAPS_MIN)),
        restarts=sum(event.rebalances for event in events if event.cause is Cause.RESTARTED),
        partitions_moved=sum(event.partitions_moved for event in events),
        stopped_if_eager=sum(event.stopped_if_eager for event in events),
    )
    return replace(counts, hints=tuple(_hints(counts, group_type)))


def _between(before: GroupSample, after: GroupSample) -> Iterator[GroupEvent]:
    generations = _generations(before, after)
    came = tuple(sorted(after.members - before.members))
    went = tuple(sorted(before.members - after.members))
    moved = _moved(before, after)
    rebalancing = after.state in REBALANCING
    added = [tp for tp in after.owners.keys() - before.owners.keys() if after.owners[tp] is not None]
    names_in, names_out = {after.name(one) for one in came}, {before.name(one) for one in went}
    goes_on = _goes_on(before, generations)
    if generations == 0:
        # A group of the consumer protocol is unsettled while a static member is away, though nobody else notices.
        is_quiet = names_in == names_out and not moved and not added
        # At the same generation only a static member's process can have changed.
        if after.state not in CLASSIC_REBALANCING and (is_quiet or not goes_on):
            return
    elif not (came or went or moved or added or generations or rebalancing):
        return
    restarted = tuple(sorted(names_in & names_out))
    yield GroupEvent(
        after_ms=before.at_ms,
        until_ms=after.at_ms,
        cause=_cause(before, after, came, went, restarted),
        rebalances=0 if goes_on else max(1, generations or 0),
        members_in=came,
        members_out=went,
        names_in=tuple(sorted(names_in)),
        names_out=tuple(sorted(names_out)),
        restarted=restarted,
        partitions_moved=moved,
        partitions_unowned=sum(owner is None for owner in after.owners.values()),
        stopped_if_eager=sum(owner is not None for owner in before.owners.values()),
    )


def _goes_on(before: GroupSample, generations: int | None) -> bool:
    """Whether what is seen may all be of the rebalance that was under way, and was counted, at the sample before."""
    # Members follow an epoch that was counted before. In the classic protocol a generation comes last instead.
    return before.state in (EPOCH_REBALANCING if generations == 0 else () if generations else CLASSIC_REBALANCING)


def _generations(before: GroupSample, after: GroupSample) -> int | None:
    """Generations gone by; None where one is unknown, or the group was deleted between and began again at 0."""
    if before.generation_id is None or after.generation_id is None or after.generation_id < before.generation_id:
        return None
    return after.generation_id - before.generation_id


def _moved(before: GroupSample, after: GroupSample) -> int:
    """How many partitions went to another member, not to a new process of the same."""
    stayed = before.members & after.members
    return sum(
        _is_another(before, owner, after, after.owners[tp], stayed)
        for tp, owner in before.owners.items()
        if owner is not None and tp in after.owners
    )


def _is_another(
    before: GroupSample, owner: str, after: GroupSample, owner_after: str | None, stayed: AbstractSet[str]
) -> bool:
    if owner_after is None or owner_after == owner:
        return False
    return owner in stayed or owner_after in stayed or before.name(owner) != after.name(owner_after)


def _cause(
    before: GroupSample, after: GroupSample, came: Sequence[str], went: Sequence[str], restarted: Sequence[str]
) -> Cause:
    if not before.members and not after.members:
        return _cause_by_count(before.member_count, after.member_count)
    if not before.members and not before.member_count:
        return Cause.FORMED
    if before.members and not after.members and not after.member_count:
        return Cause.EMPTIED if after.state in (GroupState.EMPTY.value, GroupState.DEAD.value) else Cause.UNKNOWN
    if restarted and len(restarted) == len(came) == len(went):
        return Cause.RESTARTED
    if came or went:
        return Cause.CHANGED if came and went else Cause.JOINED if came else Cause.LEFT
    if any(after.owners[tp] is not None for tp in after.owners.keys() - before.owners.keys()):
        return Cause.PARTITIONS_ADDED
    if before.member_count is not None and after.member_count is not None and before.member_count != after.member_count:
        return _cause_by_count(before.member_count, after.member_count)
    return Cause.REASSIGNED if before.members else Cause.UNKNOWN


def _cause_by_count(before: int | None, after: int | None) -> Cause:
    """Returns the cause by member counts: nobody owns a partition alone, as in share groups, or who came owns none."""
    if before is None or after is None or before == after:
        return Cause.UNKNOWN
    if not before or not after:
        return Cause.EMPTIED if before else Cause.FORMED
    return Cause.JOINED if after > before else Cause.LEFT


def _hints(counts: GroupAdvice, group_type: str | None) -> Iterator[str]:
    for name, count in counts.flapping:
        yield f"{name} came or went {count} times: find out why it does not stay"
    session = SESSION_TIMEOUTS.get(group_type or CLASSIC)
    if counts.restarts and session is not None:
        of_all = counted(
            counts.rebalances, "rebalance was a member that came back", "rebalances were members that came back"
        )
        yield (
            f"{counts.restarts} of {of_all}: group.instance.id with a {session} longer than a restart would have "
            "spared them"
        )
    ratio = counts.moved_ratio
    is_classic = (group_type or CLASSIC) == CLASSIC
    if is_classic and ratio is not None and counts.rebalances > 1 and ratio < 0.5:
        yield (
            f"{counts.partitions_moved} of {counts.stopped_if_eager} partitions changed hands: cooperative-sticky "
            "would have stopped only these, an eager strategy stops all"
        )
