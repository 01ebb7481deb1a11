"""Moving a partition by one new replica at a time: the replica lists it has on its way from the old to the new ones.

Kafka drops a replica only once those that are added are in sync, so a list in which one replica is exchanged keeps the
replication factor, and is one above it while it copies. The module remembers nothing: the next list follows from the
present one, wherever on the way that is.
"""

from collections.abc import Mapping


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
