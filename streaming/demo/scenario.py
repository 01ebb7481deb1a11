"""The founding scenario as data: topics, their placement on three brokers, and the proportions of their traffic.

Source: the founding document (seed 002): 30 partitions each, replication factor 1, 20 partitions a broker, but topic A
15 / 7 / 8 and topic B 5 / 13 / 12; A gets 10,000 records for each one of B.
"""

from dataclasses import dataclass

PARTITIONS_PER_TOPIC = 30
RECORDS_OF_A_PER_RECORD_OF_B = 10_000
A_PER_BROKER = (15, 7, 8)
B_PER_BROKER = (5, 13, 12)


@dataclass(frozen=True, slots=True)
class FoundingScenario:
    """Names may be changed; the proportions are the founding document's."""

    topic_a: str = "topic-A"
    topic_b: str = "topic-B"
    records_per_sec: float = 8_000.0
    group: str = "demo-readers"

    @property
    def topics(self) -> tuple[str, str]:
        """Names of both topics."""
        return (self.topic_a, self.topic_b)


def placement(per_broker: tuple[int, ...], broker_ids: tuple[int, ...]) -> dict[int, list[int]]:
    """Replicas by partition, dealt round the brokers until each has its number.

    >>> placement((2, 1), (1, 2))
    {0: [1], 1: [2], 2: [1]}
    """
    left = dict(zip(broker_ids, per_broker, strict=True))
    replicas: dict[int, list[int]] = {}
    while any(left.values()):
        for broker in broker_ids:
            if left[broker]:
                left[broker] -= 1
                replicas[len(replicas)] = [broker]
    return replicas
