"""Progress of each movement of a plan, read from the cluster, and the replica lists on its way.

A partition that is neither at its old replicas, nor on its way, nor at its new ones was changed by somebody else. The
way is a list that this execution asks for, and no other: a reassignment to other replicas belongs to somebody else,
even if these lie between the old and the new ones. One snapshot can be wrong: a broker's metadata may be a moment
behind the controller's. So what would be an alarm, or an end, is believed after several snapshots in a row
(`PastSnapshots`).

A staged plan moves a partition by one new replica at a time (`next_replicas`). Kafka drops a replica only once those
that are added are in sync, so a list in which one replica is exchanged keeps the replication factor, and is one above
it while it copies. The next list follows from the present one alone, wherever on the way that is.

A read of everything costs by the size of the cluster. The controller's list of reassignments is short and shows when a
copy has ended, so few partitions need a request of their own (`topics_in_play`): those whose next step depends on
leader and in-sync replicas, and those that hold everything back.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from typing import Self

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey, Reassignment
from assignor_core.plan import Movement, Plan

MISSING_SNAPSHOTS_MIN = 10
"""A partition counts as gone once this many snapshots in a row miss it: a single snapshot may show wrong metadata."""
UNLISTED_SNAPSHOTS_MAX = 60
"""Metadata is seconds behind the controller, not minutes: snapshots are a second apart."""

UNSHOWN_SNAPSHOTS_MAX = 10
"""After so many snapshots in a row that don't show the target of a partition's newest reassignment, metadata is
believed.

Metadata may show the replicas of before a reassignment because it is behind, or because somebody cancelled it.
"""


class Progress(StrEnum):
    """Progress of one movement."""

    PENDING = auto()
    MOVING = auto()
    PLACED = auto()
    DONE = auto()
    FOREIGN = auto()
    MISSING = auto()
    """Metadata doesn't show the partition, and has not missed it often enough for the partition to be gone."""
    GONE = auto()
    SKIPPED = auto()
    """Kafka refuses to move the partition."""
    NOT_ELECTED = auto()
    """The partition has reached its new replicas, and Kafka refuses to elect the first of them."""


FINISHED = frozenset({Progress.DONE, Progress.GONE, Progress.SKIPPED, Progress.NOT_ELECTED})
"""Progress of a movement for which nothing is left to do: what waits for the movement may begin."""


@dataclass(frozen=True, slots=True)
class PastSnapshots:
    """How many snapshots in a row have shown a partition in a state that can last for a moment only.

    Each process counts on its own; a process that starts begins at 0.
    """

    unlisted: Mapping[PartitionKey, int] = field(default_factory=dict)
    """Snapshots in a row in which a partition had the replicas of a reassignment under way, and the controller listed
    none.
    """
    missing: Mapping[PartitionKey, int] = field(default_factory=dict)
    """Snapshots in a row in which metadata did not show a partition."""
    unshown: Mapping[PartitionKey, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """Target of a partition's newest reassignment, which is over and not shown by metadata, and the snapshots since.

    To ask again meanwhile could undo what others have done, and begin a wave before the one that it waits for is made.
    """

    def taken(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> Self:
        """What is known after Kafka has taken these reassignments: one that copies nothing is over at once."""
        return replace(self, unshown={**self.unshown, **{key: (target, 0) for key, target in targets.items()}})

    def after(
        self, plan: Plan, cluster: LiveCluster, *, staged: bool = False, among: Sequence[Movement] | None = None
    ) -> Self:
        """The counts with one more snapshot. With `among`, all other movements are settled (see `is_settled`)."""
        movements = plan.movements if among is None else among
        unlisted = [row.key for row in movements if _is_unlisted(row, cluster.partitions.get(row.key), staged)]
        missing = [movement.key for movement in movements if movement.key not in cluster.partitions]
        return type(self)(
            {key: self.unlisted.get(key, 0) + 1 for key in unlisted},
            # No snapshot shows whether a topic is gone that may not be described: its count stays at 1.
            {key: 1 if key[0] in cluster.hidden_topics else self.missing.get(key, 0) + 1 for key in missing},
            dict(self._unshown_after(movements, cluster)),
        )

    def counts(self, key: PartitionKey) -> bool:
        """Whether any snapshot is counted of the partition `key`."""
        return key in self.unshown or key in self.unlisted or key in self.missing

    def _unshown_after(
        self, movements: Iterable[Movement], cluster: LiveCluster
    ) -> Iterator[tuple[PartitionKey, tuple[tuple[int, ...], int]]]:
        for key in (movement.key for movement in movements):
            live = cluster.partitions.get(key)
            if live is not None and live.reassigning:
                yield key, (live.target_replicas, 0)
            elif live is not None and key in self.unshown:
                target, snapshots = self.unshown[key]
                if live.replicas != target and snapshots < UNSHOWN_SNAPSHOTS_MAX:
                    yield key, (target, snapshots + 1)


NO_SNAPSHOTS = PastSnapshots()


def progress_of(
    plan: Plan,
    cluster: LiveCluster,
    *,
    staged: bool = False,
    past: PastSnapshots = NO_SNAPSHOTS,
    refused: Collection[PartitionKey] = (),
    not_elected: Collection[PartitionKey] = (),
) -> dict[PartitionKey, Progress]:
    """Returns the progress of each movement of the plan; `staged` if this execution moves by one new replica at a time.

    A caller that reads the cluster once and counts no `past` snapshots believes that one: a partition that it doesn't
    show is gone. Partitions that are `refused` for good and not on their way are skipped; of those `not_elected` the
    election is.
    """
    states = {movement.key: _progress(movement, cluster, staged, past) for movement in plan.movements}
    return with_skipped(states, refused, not_elected)


def progress_among(
    movements: Iterable[Movement], cluster: LiveCluster, *, staged: bool, past: PastSnapshots
) -> dict[PartitionKey, Progress]:
    """Returns the progress of `movements`, whatever Kafka refuses."""
    return {movement.key: _progress(movement, cluster, staged, past) for movement in movements}


def with_skipped(
    states: Mapping[PartitionKey, Progress], refused: Collection[PartitionKey], not_elected: Collection[PartitionKey]
) -> dict[PartitionKey, Progress]:
    """Returns `states`: pending movements `refused` for good become skipped, placed ones `not_elected` not elected."""
    skipped = [key for key in refused if states.get(key) is Progress.PENDING]
    led_by_others = [key for key in not_elected if states.get(key) is Progress.PLACED]
    return {**states, **dict.fromkeys(skipped, Progress.SKIPPED), **dict.fromkeys(led_by_others, Progress.NOT_ELECTED)}


def hidden_in_flight(
    movements: Iterable[Movement], states: Mapping[PartitionKey, Progress], cluster: LiveCluster, *, staged: bool
) -> list[PartitionKey]:
    """Partitions that metadata misses, and that the controller lists on the way that these movements ask for."""
    return [
        row.key
        for row in movements
        if states.get(row.key) is Progress.MISSING
        and row.key in cluster.listed
        and _is_asked_for(row, cluster.listed[row.key], staged)
    ]


def is_settled(movement: Movement, live: LivePartition | None, past: PastSnapshots) -> bool:
    """Whether the movement stands where it does because of its partition alone, not begun or made: while metadata shows
    the same partition, and `past` counts nothing of it, no snapshot changes that.
    """
    if live is None or live.reassigning or past.counts(movement.key):
        return False
    if live.replicas == movement.new_replicas:  # also those of before, where only the leader is to change
        return live.leader == movement.new_replicas[0]
    return live.replicas == movement.old_replicas


def _progress(movement: Movement, cluster: LiveCluster, staged: bool, past: PastSnapshots) -> Progress:
    live = cluster.partitions.get(movement.key)
    if live is None:
        if movement.key in cluster.listed:
            return Progress.MISSING  # it copies: however many snapshots miss it, it is not gone
        return Progress.MISSING if 0 < past.missing.get(movement.key, 0) < MISSING_SNAPSHOTS_MIN else Progress.GONE
    if live.reassigning:
        return Progress.MOVING if _is_asked_for(movement, live, staged) else Progress.FOREIGN
    if movement.key in past.unshown:
        return Progress.MOVING  # these may be the replicas of before its reassignment
    old, new = movement.old_replicas, movement.new_replicas
    if live.replicas == new:
        return Progress.DONE if live.leader == new[0] or _leader_stays_away(movement, cluster) else Progress.PLACED
    if live.replicas == old or live.replicas in _cancelled(movement, staged):
        return Progress.PENDING
    if len(live.replicas) == len(new) and is_between(live.replicas, old, new):
        return Progress.PENDING  # nothing of the way is made, or one step of several
    if _was_asked_for(movement, live, staged) and past.unlisted.get(movement.key, 0) <= UNLISTED_SNAPSHOTS_MAX:
        return Progress.MOVING
    return Progress.FOREIGN


def _cancelled(movement: Movement, staged: bool) -> list[tuple[int, ...]]:
    """The old replicas in the orders in which Kafka leaves them once a reassignment of ours is cancelled.

    While it is under way Kafka lists its target, then what it removes; what it had added goes.
    """
    old, new = movement.old_replicas, movement.new_replicas
    removed = tuple(broker for broker in old if broker not in new)
    orders = [tuple(broker for broker in new if broker in old) + removed]
    if staged:
        orders += [(*(broker for broker in old if broker != one), one) for one in removed]
    return orders


def _leader_stays_away(movement: Movement, cluster: LiveCluster) -> bool:
    """Whether the plan leaves a preferred leader that is away where it is: nobody can elect it, and none is to."""
    first = movement.new_replicas[0]
    return first == movement.old_replicas[0] and first not in cluster.broker_racks


def _is_unlisted(movement: Movement, live: LivePartition | None, staged: bool) -> bool:
    """Whether metadata shows it on its way, and the controller lists no reassignment of it."""
    if live is None or live.reassigning or live.replicas in (movement.old_replicas, movement.new_replicas):
        return False
    return not _is_step(movement, live.replicas) and _was_asked_for(movement, live, staged)


def _is_asked_for(movement: Movement, moving: LivePartition | Reassignment, staged: bool) -> bool:
    """Whether the reassignment under way is one that this execution asks for."""
    target = moving.target_replicas
    if target == movement.new_replicas:
        return True
    return staged and len(moving.adding_replicas) == 1 and _is_step(movement, target)


def _was_asked_for(movement: Movement, live: LivePartition, staged: bool) -> bool:
    """Whether `live` has the replicas during a reassignment of ours, which the controller has just ended.

    Kafka keeps the target first, then those that it removes.
    """
    new, removed = movement.new_replicas, set(movement.old_replicas) - set(movement.new_replicas)
    target, rest = live.replicas[: len(new)], set(live.replicas[len(new) :])
    if target == new and rest == removed:
        return True
    return staged and len(rest) == 1 and rest <= removed and (target == new or _is_step(movement, target))


def _is_step(movement: Movement, target: tuple[int, ...]) -> bool:
    """Whether a staged movement can ask for this list on its way."""
    old, new = movement.old_replicas, movement.new_replicas
    return len(target) == len(new) and is_between(target, old, new)


def next_replicas(current: tuple[int, ...], goal: tuple[int, ...], racks: Mapping[int, str | None]) -> tuple[int, ...]:
    """The list to ask for next, `goal` in the end: one replica exchanged, on as many racks as can be, the leader last.

    There is always an exchange that leaves no fewer racks than `current` or `goal` has, whichever has fewer: replicas
    in the same rack take each other's place. Where the replication factor changes there are no steps.

    >>> next_replicas((1, 2, 3), (4, 5, 3), {})
    (1, 4, 3)
    >>> next_replicas((1, 4, 3), (4, 5, 3), {})
    (4, 5, 3)
    >>> next_replicas((1, 2), (3, 4), {1: "a", 2: "b", 3: "a", 4: "b"})
    (1, 4)
    """
    missing = [broker for broker in goal if broker not in current]
    surplus = [broker for broker in current if broker not in goal]
    if len(missing) <= 1 or len(current) != len(goal):
        return goal
    exchanged = (_exchanged(current, old, new) for old in surplus for new in missing)
    return min(exchanged, key=lambda replicas: (-rack_count(replicas, racks), replicas[0] != current[0]))


def is_between(replicas: tuple[int, ...], old: tuple[int, ...], goal: tuple[int, ...]) -> bool:
    """Whether `replicas` can only be on the way from `old` to `goal`: some of each, and all that are in both.

    >>> is_between((1, 4), (1, 2), (3, 4)), is_between((1, 3, 2), (1, 2), (3, 4)), is_between((2, 1), (1, 2), (3, 4))
    (True, True, False)
    >>> is_between((3, 4, 1, 2), (1, 2), (3, 4))  # all replicas copy at once
    True
    """
    present, before, after = set(replicas), set(old), set(goal)
    return before & after <= present <= before | after and bool(present & (after - before)) and bool(present - after)


def rack_count(replicas: tuple[int, ...], racks: Mapping[int, str | None]) -> int:
    """Racks that the replicas are spread over; brokers without a known one count as one rack."""
    return len({racks.get(broker) for broker in replicas})


def _exchanged(replicas: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    return tuple(new if broker == old else broker for broker in replicas)


_WATCHED = frozenset({Progress.PLACED, Progress.FOREIGN, Progress.MISSING})
"""What waits for an election, is an alarm that has to be confirmed, or may count as gone after some snapshots."""


def topics_in_play(progress: Mapping[PartitionKey, Progress], live: LiveCluster) -> frozenset[str]:
    """Topics of movements whose state the controller's list alone does not show.

    >>> moving = LivePartition((1, 2), 1, (1,))
    >>> live = LiveCluster("c", {}, {("t", 0): moving, ("u", 0): moving})
    >>> sorted(topics_in_play({("t", 0): Progress.PLACED, ("u", 0): Progress.PENDING}, live))
    ['t']
    """
    unlisted = (key for key, state in progress.items() if state is Progress.MOVING and key not in live.listed)
    watched = (key for key, state in progress.items() if state in _WATCHED)
    return frozenset(topic for keys in (unlisted, watched) for topic, _ in keys)


def is_troubled(partition: LivePartition, alive: frozenset[int]) -> bool:
    """Whether a partition can hold an execution back, or takes room on a disk: offline, out of sync, or on a broker
    that is away. All others change nothing about the next step, unless the plan names them; those that are being
    reassigned are in the controller's list.

    >>> alive = frozenset({1, 2})
    >>> is_troubled(LivePartition((1, 2), 1, (1, 2)), alive), is_troubled(LivePartition((1, 2), 1, (1,)), alive)
    (False, True)
    """
    return (
        partition.leader == NO_LEADER
        or len(partition.isr) < len(partition.replicas)
        or not alive.issuperset(partition.replicas)
    ) and not partition.reassigning
