"""Kafka's replication throttle as it is set: the names of its four settings and its lists of replicas.

A broker has two rates in bytes/s; a topic has two lists of `partition:broker` entries, or `*` for every replica.
"""

from collections.abc import Iterable

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EVERY_REPLICA = "*"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Of a broker, for all its movements between its own log dirs (KIP-113), bytes/s."""

ThrottledReplicas = frozenset[tuple[int, int]]
"""(partition, broker) pairs of one topic."""


def entries_text(replicas: Iterable[tuple[int, int]]) -> str:
    """The entries as Kafka writes them.

    >>> entries_text({(1, 3), (0, 2)})
    '0:2,1:3'
    """
    return ",".join(f"{partition}:{broker}" for partition, broker in sorted(replicas))


def missing_entries(text: str | None, replicas: ThrottledReplicas) -> ThrottledReplicas:
    """Those of `replicas` that a list doesn't name; `text` as Kafka shows it, None where it is not set.

    >>> sorted(missing_entries("0:2,7:7", frozenset({(0, 2), (1, 3)}))), missing_entries("*", frozenset({(0, 2)}))
    ([(1, 3)], frozenset())
    """
    named = set((text or "").split(","))
    if EVERY_REPLICA in named:
        return frozenset()
    return frozenset(row for row in replicas if f"{row[0]}:{row[1]}" not in named)
