"""What a plan costs: how long each wave takes, what each broker copies in it, and which part of it brings most.

Kafka throttles what a broker receives as a follower and what it sends as a leader, each by itself, so a wave takes as
long as the broker that receives or sends most. Leaders send. A plan takes the first of the old replicas for the leader,
or the first that is not away: Kafka elects leaders in this order.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assignor_core.plan import Movement, Plan, Wave


@dataclass(frozen=True, slots=True)
class Copied:
    """Bytes that one broker copies."""

    received_bytes: float = 0.0
    sent_bytes: float = 0.0


def copied_by_broker(movements: Iterable[Movement], away: Container[int] = ()) -> dict[int, Copied]:
    """What each broker receives and sends, by id; brokers that copy nothing are left out. Those `away` send nothing.

    >>> copied_by_broker([Movement("t", 0, (1, 2), (1, 3), 500.0)])
    {1: Copied(received_bytes=0.0, sent_bytes=500.0), 3: Copied(received_bytes=500.0, sent_bytes=0.0)}
    """
    received: dict[int, float] = {}
    sent: dict[int, float] = {}
    for movement in movements:
        new = set(movement.new_replicas) - set(movement.old_replicas)
        for broker in new:
            received[broker] = received.get(broker, 0.0) + movement.bytes_to_move / len(new)
        if new and movement.bytes_to_move:
            sender = next((broker for broker in movement.old_replicas if broker not in away), None)
            if sender is not None:
                sent[sender] = sent.get(sender, 0.0) + movement.bytes_to_move
    return {
        broker: Copied(received.get(broker, 0.0), sent.get(broker, 0.0)) for broker in sorted(received.keys() | sent)
    }


def duration_ms(copied: Mapping[int, Copied], throttle_bytes_per_sec: float) -> float:
    """How long copying takes where each broker receives and sends at most so fast.

    >>> duration_ms({1: Copied(0.0, 500.0), 3: Copied(300.0)}, 100.0)
    5000.0
    """
    most = max((max(row.received_bytes, row.sent_bytes) for row in copied.values()), default=0.0)
    return most / throttle_bytes_per_sec * 1000


def wave_of(movements: Collection[Movement], throttle_bytes_per_sec: float | None, away: Container[int] = ()) -> Wave:
    """Size of one wave; its time is that of the broker that receives or sends most, if the throttle is known. Brokers
    that are `away` send nothing.

    >>> wave_of([Movement("t", 0, (1, 2), (1, 3), 500.0)], 100.0)
    Wave(movements=1, bytes_to_move=500.0, duration_ms=5000.0)
    """
    throttle = throttle_bytes_per_sec
    duration = None if throttle is None else duration_ms(copied_by_broker(movements, away), throttle)
    return Wave(len(movements), sum(movement.bytes_to_move for movement in movements), duration)


def plan_duration_ms(plan: Plan) -> float | None:
    """How long its waves take one after the other; None without a throttle, and of movements within brokers."""
    durations = [wave.duration_ms for wave in plan.waves if wave.duration_ms is not None]
    return sum(durations) if plan.waves and len(durations) == len(plan.waves) else None


def by_wave(movements: Iterable[Movement]) -> Mapping[int, list[Movement]]:
    """Returns the movements of each wave, by its number; of a wave without any an empty list."""
    in_waves: dict[int, list[Movement]] = defaultdict(list)
    for movement in movements:
        in_waves[movement.wave].append(movement)
    return in_waves


def schedule(plan: Plan, away: Container[int] = ()) -> list[dict[str, Any]]:
    """By wave: when it begins after the start of the plan, how long it takes, and what each broker copies.

    Times are None where no throttle was given. `away` are brokers that send nothing.
    """
    starts: list[float | None] = [0.0]
    for wave in plan.waves:
        before = starts[-1]
        starts.append(None if before is None or wave.duration_ms is None else before + wave.duration_ms)
    in_waves = by_wave(plan.movements)
    rows = []
    for number, wave in enumerate(plan.waves):
        copied = copied_by_broker(in_waves[number], away)
        rows.append(
            {
                "starts_after_ms": starts[number] if wave.duration_ms is not None else None,
                "duration_ms": wave.duration_ms,
                "brokers": [
                    {"broker": broker, "received_bytes": row.received_bytes, "sent_bytes": row.sent_bytes}
                    for broker, row in copied.items()
                ],
            }
        )
    return rows
