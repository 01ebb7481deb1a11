"""What to do next to carry out a plan, read off the cluster as it is: never from memory of what was sent.

A run that was killed at any instant continues from a snapshot: each movement is where the cluster shows it to be (see
`progress`). A partition that somebody else has changed is left alone and reported. With staged moves the way has steps
(see `progress`). The module decides; it sends nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from assignor_core.execution.accounting import NO_REFUSALS, what_was_made
from assignor_core.execution.progress import FINISHED, NO_SNAPSHOTS, PastSnapshots, Progress, next_replicas, progress_of
from assignor_core.execution.room import RoomLeft, waiting_text
from assignor_core.live import (
    RELIEF_MAX_AWAY_SHARE,
    LiveCluster,
    LivePartition,
    PartitionKey,
    lagging,
    lagging_text,
    offline,
    offline_text,
    partition_name,
    too_many_away,
)
from assignor_core.plan import Movement, Plan
from assignor_core.policies import WAIT_MAX_MS, knob
from assignor_core.wording import counted, first_named

NAMED_MAX = 5
"""Most brokers that one text names."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on partitions that copy: in all, per topic, per broker that sends or receives; on partitions whose leader
    changes; deadline in ms of work.
    """

    movements_in_flight_max: int = knob(
        50, "The executor reassigns no more partitions than this at a time.", ge=1, le=10_000
    )
    movements_per_topic_max: int | None = knob(
        None,
        "The executor reassigns no more partitions of one topic than this at a time; null: only "
        "movements_in_flight_max limits them.",
        ge=1,
        le=10_000,
    )
    movements_per_broker_max: int = knob(
        5, "A broker receives or sends no more partitions than this at a time.", ge=1, le=10_000
    )
    elections_at_once_max: int = knob(
        100,
        "The executor changes the leaders of no more partitions than this at a time; these copy nothing, but the "
        "clients of each search for its new leader.",
        ge=1,
        le=10_000,
    )
    deadline_ms: int = knob(
        6 * 3_600_000,
        "An execution that works for longer gives up and restores what it began.",
        unit="ms",
        ge=1,
        le=WAIT_MAX_MS,
    )
    staged: bool = knob(
        False, "true: a partition gets one new replica at a time, and an old one leaves once the new one is in sync."
    )
    relief_max_away_share: float = RELIEF_MAX_AWAY_SHARE
    """If a larger share of the brokers is away, replicas on these brokers are not re-created."""
    drained: frozenset[int] = frozenset()
    """Brokers that must end empty: their log dirs may be cordoned."""

    @property
    def topic_max(self) -> int:
        """Most partitions of one topic that are reassigned at a time.

        >>> Limits(movements_in_flight_max=7).topic_max, Limits(movements_per_topic_max=3).topic_max
        (7, 3)
        """
        return self.movements_per_topic_max or self.movements_in_flight_max


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask Kafka to reassign these partitions to these replicas."""

    reassignments: Mapping[PartitionKey, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Ask Kafka to make the preferred replica the leader of these partitions."""

    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to send now, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Every movement that is still ours to make has been made."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Carrying on could do harm: cancel `to_cancel` (reassignments of ours still in flight) and stop."""

    reason: str
    to_cancel: tuple[PartitionKey, ...]


Step = Submit | ElectLeaders | Wait | Done | Abort


def next_step(
    plan: Plan,
    cluster: LiveCluster,
    limits: Limits,
    *,
    worked_ms: int,
    held_back: str | None = None,
    past: PastSnapshots = NO_SNAPSHOTS,
    refused: Mapping[PartitionKey, str] = NO_REFUSALS,
    not_elected: Mapping[PartitionKey, str] = NO_REFUSALS,
    room: RoomLeft | None = None,
    progress: Mapping[PartitionKey, Progress] | None = None,
) -> Step:
    """The one next step. Order: give up, else submit, else elect, else wait, else done.

    `worked_ms` is the time since the start without the pauses. Nothing new is submitted on a cluster that is unhealthy,
    or where the caller says so (`held_back`, the reason); what has begun is brought to its end all the same. `past`
    counts the snapshots of this process, this one included; `refused` and `not_elected` are partitions whose move or
    election is skipped, with the reason. `room` is a snapshot of the disks of brokers that receive; without one the
    step shows what there would be to submit. `progress` is that of this snapshot, where the caller has it. A plan of
    which nothing was made is never done.
    """
    if progress is None:
        staged = limits.staged
        progress = progress_of(plan, cluster, staged=staged, past=past, refused=refused, not_elected=not_elected)
    moving = [key for key, state in progress.items() if state is Progress.MOVING]
    if worked_ms > limits.deadline_ms:
        hours = limits.deadline_ms / 3_600_000
        return Abort(f"not finished after {hours:.1f} h of work", tuple(sorted(moving)))
    foreign = [key for key, state in progress.items() if state is Progress.FOREIGN]
    if foreign:
        return Abort(f"{partition_name(min(foreign))} was changed by somebody else", tuple(sorted(moving)))
    pending = Progress.PENDING in progress.values()
    obstacle = (held_back or _unhealthy(plan, cluster, moving, limits)) if pending else None
    if pending and obstacle is None:
        to_submit = _to_submit(plan, cluster, progress, limits, room)
        if to_submit:
            return Submit(to_submit)
        lacking = without_room(plan, cluster, progress, limits, room) if room is not None else {}
        obstacle = waiting_text(lacking) if lacking else None
    to_elect = tuple(sorted(key for key, state in progress.items() if state is Progress.PLACED))
    electable = tuple(key for key in to_elect if cluster.partitions[key].replicas[0] in cluster.partitions[key].isr)
    if electable:
        return ElectLeaders(electable[: limits.elections_at_once_max])
    missing = sum(state is Progress.MISSING for state in progress.values())
    if moving or to_elect or pending or missing:
        unseen = (
            counted(missing, "partition is", "partitions are") + " not in the cluster's metadata" if missing else None
        )
        return Wait(_waiting(cluster, moving, len(to_elect), obstacle or unseen))
    if plan.movements and not _anything_made(plan, progress):
        return Abort(what_was_made(progress, refused, not_elected), ())
    return Done()


def differences(plan: Plan, cluster: LiveCluster) -> tuple[str, ...]:
    """How the cluster differs from what the plan was made for; empty when the plan can be started as approved.

    A plan that was started before may be found under way or done: that is no difference.
    """
    progress = progress_of(plan, cluster)
    differences = []
    for movement in plan.movements:
        name = partition_name(movement.key)
        if progress[movement.key] is Progress.GONE:
            differences.append(f"{name} is gone")
        elif progress[movement.key] is Progress.FOREIGN:
            replicas = list(cluster.partitions[movement.key].replicas)
            differences.append(f"{name} has replicas {replicas}, planned for {list(movement.old_replicas)}")
        missing = sorted(set(movement.new_replicas) - set(movement.old_replicas) - set(cluster.broker_racks))
        if missing:
            differences.append(f"{name} would go to broker {missing[0]}, which is not alive")
    return tuple(differences)


def wave_pending(plan: Plan, progress: Mapping[PartitionKey, Progress]) -> list[Movement]:
    """Movements of the wave under way that are not begun, in the plan's order.

    None while a later wave copies: a process that starts asks once more for what an earlier one had skipped.
    """
    wave = min((movement.wave for movement in plan.movements if progress[movement.key] not in FINISHED), default=None)
    if wave is None or any(row.wave > wave and progress[row.key] is Progress.MOVING for row in plan.movements):
        return []
    return [row for row in plan.movements if row.wave == wave and progress[row.key] is Progress.PENDING]


def without_room(
    plan: Plan, cluster: LiveCluster, progress: Mapping[PartitionKey, Progress], limits: Limits, room: RoomLeft
) -> dict[PartitionKey, str]:
    """Movements of the wave under way that do not fit on the disks, even alone, with the reason."""
    lacking = {}
    for movement in wave_pending(plan, progress):
        live = cluster.partitions[movement.key]
        receiving = set(_target(movement, cluster, limits)) - set(live.replicas)
        reason = room.lacking(movement.key, receiving, {}, leader=live.leader)
        if reason is not None:
            lacking[movement.key] = reason
    return lacking


def _anything_made(plan: Plan, progress: Mapping[PartitionKey, Progress]) -> bool:
    """Whether some movement brought anything. One that only changes a leader doesn't if the election is refused."""
    return any(
        progress[movement.key] is Progress.DONE
        or (progress[movement.key] is Progress.NOT_ELECTED and movement.kind == "replica")
        for movement in plan.movements
    )


def _waiting(cluster: LiveCluster, moving: Collection[PartitionKey], to_elect: int, obstacle: str | None) -> str:
    """What is waited for, in words."""
    held_up = sorted(key for key in moving if cluster.partitions[key].awaited_replicas)
    copying = counted(len(moving) - len(held_up), "partition is copying", "partitions are copying")
    copying += ", " + counted(to_elect, "waits for its leader", "wait for their leader") + " to be in sync"
    if held_up:
        copying += f"; {_held_up_text(cluster, held_up)}"
    if obstacle is None:
        return copying
    return f"{obstacle}; {copying}" if moving or to_elect else obstacle


def _held_up_text(cluster: LiveCluster, held_up: Sequence[PartitionKey]) -> str:
    """Reassignments that are copied and wait for replicas that stay, with the brokers of these replicas."""
    brokers = sorted({broker for key in held_up for broker in cluster.partitions[key].awaited_replicas})
    awaited = first_named(
        brokers, NAMED_MAX, lambda row: f"broker {row}" + ("" if row in cluster.broker_racks else " (offline)")
    )
    waiting = counted(len(held_up), "partition is copied and waits", "partitions are copied and wait")
    return f"{waiting} until Kafka has replicas that stay in sync, on {awaited}: first {partition_name(held_up[0])}"


def _to_submit(
    plan: Plan,
    cluster: LiveCluster,
    progress: Mapping[PartitionKey, Progress],
    limits: Limits,
    room: RoomLeft | None,
) -> dict[PartitionKey, tuple[int, ...]]:
    """Pending movements of the wave under way that fit below the caps and on the disks, in the plan's order. One that
    copies nothing counts for elections alone: brokers elect preferred leaders by themselves, too, all at once.

    Waves are barriers. The planner proves loads and capacities for whole waves only: replicas that leave in one wave
    make the place that the next one fills. A barrier keeps that proof as it is.
    """
    under_way = {key for key, state in progress.items() if state is Progress.MOVING}
    # Brokers may elect the new leaders of these before metadata shows the new order.
    reordered = {
        row.key
        for row in plan.movements
        # One that somebody else has moved meanwhile copies on its way back.
        if row.key in under_way and row.kind == "leader" and not cluster.partitions[row.key].adding_replicas
    }
    moving = [cluster.partitions[key] for key in under_way - reordered]
    # What others copy, or an earlier execution could not cancel, is work for a broker, too.
    foreign = cluster.reassigning() - cluster.waiting_for_brokers() - progress.keys()
    others = [cluster.partitions[key] for key in foreign]
    per_broker = Counter(broker for live in (*moving, *others) for broker in _busy_brokers(live, live.adding_replicas))
    hidden = [row for row in plan.movements if progress[row.key] is Progress.MISSING]  # these may be copying, too
    per_broker.update(broker for row in hidden for broker in set(row.new_replicas) - set(row.old_replicas))
    per_topic = Counter(topic for topic, _ in [*(under_way - reordered), *(row.key for row in hidden)])
    in_flight_left = limits.movements_in_flight_max - len(moving) - len(hidden)
    taken: Counter[int] = Counter()
    placed = sum(state is Progress.PLACED for state in progress.values())
    elections_room = limits.elections_at_once_max - placed - len(reordered)
    chosen: dict[PartitionKey, tuple[int, ...]] = {}
    for movement in wave_pending(plan, progress):
        if in_flight_left <= 0:
            break
        key = movement.key
        live, target = cluster.partitions[key], _target(movement, cluster, limits)
        receiving = set(target) - set(live.replicas)
        brokers = _busy_brokers(live, receiving)
        if not brokers:
            if elections_room > 0:
                chosen[key] = target
                elections_room -= 1
            continue
        fits = all(per_broker[broker] < limits.movements_per_broker_max for broker in brokers)
        if not fits or per_topic[key[0]] >= limits.topic_max:
            continue
        if room is not None:
            if room.lacking(key, receiving, taken, leader=live.leader) is not None:
                continue
            taken.update(dict.fromkeys(receiving, room.replica_bytes.get(key, 0)))
        chosen[key] = target
        per_broker.update(brokers)
        per_topic[key[0]] += 1
        in_flight_left -= 1
    return chosen


def _target(movement: Movement, cluster: LiveCluster, limits: Limits) -> tuple[int, ...]:
    """The replicas to request next: those of the plan, or an intermediate list of a staged movement.

    An intermediate list must not keep a replica on an offline broker that the plan removes: Kafka before 4.3 waits
    until all replicas that stay are in sync (`LivePartition.awaited_replicas`), perhaps forever. Neither must the list
    keep a replica on a drained broker that the plan removes: Kafka 4.4 refuses lists with a fully cordoned broker.
    """
    if not limits.staged:
        return movement.new_replicas
    step = next_replicas(cluster.partitions[movement.key].replicas, movement.new_replicas, cluster.broker_racks)
    leaving = set(step).difference(movement.new_replicas)
    may_wait = leaving <= cluster.broker_racks.keys() and not leaving & limits.drained
    return step if may_wait else movement.new_replicas


def _busy_brokers(live: LivePartition, receiving: Iterable[int]) -> tuple[int, ...]:
    """Brokers that copy for a partition: those that receive, and its leader, which sends. None if none receives."""
    receivers = tuple(sorted(receiving))
    return (*receivers, live.leader) if receivers else ()


def _unhealthy(plan: Plan, cluster: LiveCluster, moving: Collection[PartitionKey], limits: Limits) -> str | None:
    """Why no further load should be put on the cluster now, or None.

    What the plan is for is no reason to wait: replicas missing on lost brokers, where all it does is replace those.
    """
    lost = _lost(plan, cluster)
    outage = too_many_away(len(lost), len(cluster.broker_racks), limits.relief_max_away_share)
    if outage is not None:
        return outage
    without_leader = offline(cluster, lost)
    if without_leader:
        return offline_text(without_leader)
    behind = lagging(cluster, lost, moving)
    if behind:
        return lagging_text(len(behind), behind[0])
    # A replica on a broker that is away may stay there: Kafka waits for those only that are added.
    alive = cluster.broker_racks
    missing = {
        broker
        for row in plan.movements
        for broker in row.new_replicas
        if broker not in alive and broker not in row.old_replicas
    }
    return f"broker {min(missing)} is down" if missing else None


def _lost(plan: Plan, cluster: LiveCluster) -> frozenset[int]:
    """Brokers that are away and hold replicas, if the plan only re-creates such replicas; otherwise none.

    All of them, not only those that the plan takes replicas from: disks may have no room for what another one held.
    """
    relieved = (set(movement.old_replicas) - set(movement.new_replicas) for movement in plan.movements)
    if not all(brokers - cluster.broker_racks.keys() for brokers in relieved):
        return frozenset()
    return cluster.hosts_away()
