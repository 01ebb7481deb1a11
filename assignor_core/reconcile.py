"""What to do next to carry out a plan, told from the cluster as it is: never from memory of what was sent.

A run that was killed at any instant goes on by looking: each movement is where the cluster shows it to be. A partition
that is neither at its old replicas, nor on its way, nor at its new ones was touched by somebody else; it is left alone
and reported. The module decides; it sends nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey
from assignor_core.plan import Movement, Plan


class Progress(StrEnum):
    """Where one movement stands."""

    PENDING = "pending"
    MOVING = "moving"
    PLACED = "placed"
    DONE = "done"
    FOREIGN = "foreign"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on what is in flight: partitions in all, and per broker that sends or receives; deadline in ms."""

    movements_in_flight_max: int = 50
    movements_per_broker_max: int = 5
    deadline_ms: int = 6 * 3_600_000


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


def next_step(plan: Plan, cluster: LiveCluster, limits: Limits, *, started_ms: int, now_ms: int) -> Step:
    """The one next step. Order: give up, else wait while unhealthy, else submit, else elect, else wait, else done."""
    progress = progress_of(plan, cluster)
    moving = [key for key, state in progress.items() if state is Progress.MOVING]
    if now_ms - started_ms > limits.deadline_ms:
        hours = limits.deadline_ms / 3_600_000
        return Abort(f"not finished {hours:.1f} h after the start", tuple(sorted(moving)))
    foreign = [key for key, state in progress.items() if state is Progress.FOREIGN]
    if foreign:
        return Abort(f"{_name(min(foreign))} was changed by somebody else", tuple(sorted(moving)))
    to_submit = _to_submit(plan, cluster, progress, limits)
    if to_submit:
        unhealthy = _unhealthy(plan, cluster, moving)
        return Wait(unhealthy) if unhealthy else Submit(to_submit)
    to_elect = tuple(sorted(key for key, state in progress.items() if state is Progress.PLACED))
    electable = tuple(key for key in to_elect if cluster.partitions[key].replicas[0] in cluster.partitions[key].isr)
    if electable:
        return ElectLeaders(electable)
    if moving or to_elect:
        return Wait(f"{len(moving)} partitions are copying, {len(to_elect)} wait for their leader to be in sync")
    return Done()


def progress_of(plan: Plan, cluster: LiveCluster) -> dict[PartitionKey, Progress]:
    """Where each movement of the plan stands, read off the cluster."""
    return {
        (movement.topic, movement.partition): _progress(movement, cluster.partitions.get(_key(movement)))
        for movement in plan.movements
    }


def differences(plan: Plan, cluster: LiveCluster) -> tuple[str, ...]:
    """How the cluster differs from what the plan was made for; empty when the plan can be started as approved.

    A plan that was started before may be found under way or done: that is no difference.
    """
    found = []
    for movement in plan.movements:
        live = cluster.partitions.get(_key(movement))
        state = _progress(movement, live)
        if state is Progress.GONE:
            found.append(f"{_name(_key(movement))} is gone")
        elif state is Progress.FOREIGN:
            assert live is not None
            found.append(
                f"{_name(_key(movement))} has replicas {list(live.replicas)}, planned for {list(movement.old_replicas)}"
            )
        missing = sorted(set(movement.new_replicas) - set(cluster.broker_racks))
        if missing:
            found.append(f"{_name(_key(movement))} would go to broker {missing[0]}, which is not alive")
    return tuple(found)


def _progress(movement: Movement, live: LivePartition | None) -> Progress:
    if live is None:
        return Progress.GONE
    if live.reassigning:
        return Progress.MOVING if live.target_replicas == movement.new_replicas else Progress.FOREIGN
    if live.replicas == movement.new_replicas:
        return Progress.DONE if live.leader == live.replicas[0] else Progress.PLACED
    if set(live.replicas) == {*movement.old_replicas, *movement.new_replicas} and _receiving(movement):
        # The controller has finished; this broker's metadata, a moment behind, still shows both sets.
        return Progress.MOVING
    return Progress.PENDING if live.replicas == movement.old_replicas else Progress.FOREIGN


def _to_submit(
    plan: Plan, cluster: LiveCluster, progress: Mapping[PartitionKey, Progress], limits: Limits
) -> dict[PartitionKey, tuple[int, ...]]:
    """Pending movements that fit below the caps, in the plan's order."""
    moving = [movement for movement in plan.movements if progress[_key(movement)] is Progress.MOVING]
    per_broker = Counter(broker for movement in moving for broker in _busy_brokers(movement))
    room = limits.movements_in_flight_max - len(moving)
    chosen: dict[PartitionKey, tuple[int, ...]] = {}
    for movement in plan.movements:
        if room <= 0:
            break
        brokers = _busy_brokers(movement)
        fits = all(per_broker[broker] < limits.movements_per_broker_max for broker in brokers)
        alive = all(broker in cluster.broker_racks for broker in movement.new_replicas)
        if progress[_key(movement)] is Progress.PENDING and fits and alive:
            chosen[_key(movement)] = movement.new_replicas
            per_broker.update(brokers)
            room -= 1 if brokers else 0
    return chosen


def _busy_brokers(movement: Movement) -> tuple[int, ...]:
    """Brokers that copy for this movement: those that receive, and the present leader, which sends. None if none do."""
    receiving = _receiving(movement)
    return (*receiving, movement.old_replicas[0]) if receiving else ()


def _receiving(movement: Movement) -> tuple[int, ...]:
    return tuple(sorted(set(movement.new_replicas) - set(movement.old_replicas)))


def _unhealthy(plan: Plan, cluster: LiveCluster, moving: Iterable[PartitionKey]) -> str | None:
    """Why no further load should be put on the cluster now, or None.

    What the plan is for is no reason to wait: replicas missing on lost brokers, where all it does is replace those.
    """
    lost = _replaced(plan, cluster)
    offline = sorted(
        key
        for key, partition in cluster.partitions.items()
        if partition.leader == NO_LEADER and not lost.issuperset(partition.replicas)
    )
    if offline:
        return f"{len(offline)} partitions are offline, first {_name(offline[0])}"
    ours = set(moving)
    lagging = sorted(
        key
        for key, partition in cluster.partitions.items()
        if key not in ours and not partition.reassigning and not lost >= set(partition.replicas) - set(partition.isr)
    )
    if lagging:
        return f"{len(lagging)} partitions are under-replicated, first {_name(lagging[0])}"
    needed = sorted({broker for movement in plan.movements for broker in movement.new_replicas})
    missing = [broker for broker in needed if broker not in cluster.broker_racks]
    return f"broker {missing[0]} is down" if missing else None


def _replaced(plan: Plan, cluster: LiveCluster) -> frozenset[int]:
    """Brokers that are gone and whose replicas the plan makes anew elsewhere, if it does nothing else."""
    relieved = [set(movement.old_replicas) - set(movement.new_replicas) for movement in plan.movements]
    gone = [brokers - cluster.broker_racks.keys() for brokers in relieved]
    return frozenset().union(*gone) if all(gone) else frozenset()


def _key(movement: Movement) -> PartitionKey:
    return (movement.topic, movement.partition)


def _name(key: PartitionKey) -> str:
    return f"{key[0]}-{key[1]}"
