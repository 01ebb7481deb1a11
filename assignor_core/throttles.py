"""Kafka's replication throttle as it is set: the names of its four settings and its lists of replicas.

A broker has two rates in bytes/s; a topic has two lists of `partition:broker` entries, or `*` for every replica.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from assignor_core.live import PartitionKey

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EVERY_REPLICA = "*"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Setting that limits all movements of a broker between its own log dirs (KIP-113), bytes/s."""

VALUE_BYTES_MAX = 32_767
"""Kafka refuses a longer value of a setting, and closes the connection on a longer text in a request."""
LIST_BYTES_MAX = VALUE_BYTES_MAX // 2
"""Control's own entries take no more of one list: the rest is left to other tools, which share the list."""
REPLICATION_RATES = (LEADER_RATE, FOLLOWER_RATE)
"""The two settings of a broker that slow its replication."""
RATE_TAG = 973
"""The last three decimal digits of every rate that control sets. A rate with other digits was set by somebody else:
people write round numbers, and multiples of 1,024 are even.
"""
_TAGGED_STEP = 1_000
TOPICS_AT_ONCE_MAX = 100
"""Topics whose lists one request changes: 200 lists, which have 6.6 MB at most."""

ThrottledReplicas = frozenset[tuple[int, int]]
"""(partition, broker) pairs of one topic."""
Sides = tuple[Mapping[str, ThrottledReplicas], Mapping[str, ThrottledReplicas]]
"""Replicas by topic: those that are throttled as leaders, and those that are throttled as followers."""


class ThrottledMove(NamedTuple):
    """Replicas that the throttle of one partition's movement names."""

    key: PartitionKey
    sides: tuple[ThrottledReplicas, ThrottledReplicas]
    """Replicas that send (in the list of leaders) and replicas that receive (in the list of followers)."""


def tagged(bytes_per_sec: int) -> int:
    """Return the highest rate up to `bytes_per_sec` that bears control's tag, and the lowest one if none is as low.

    >>> tagged(50_000_000), tagged(2_973), tagged(5)
    (49999973, 2973, 973)
    """
    return max(RATE_TAG, bytes_per_sec - (bytes_per_sec - RATE_TAG) % _TAGGED_STEP)


def is_tagged(bytes_per_sec: int | None) -> bool:
    """Return whether control has set this rate; None stands for a rate that is not set.

    >>> is_tagged(49_999_973), is_tagged(50_000_000), is_tagged(None)
    (True, False, False)
    """
    return bytes_per_sec is not None and bytes_per_sec % _TAGGED_STEP == RATE_TAG


def is_foreign(bytes_per_sec: int | None) -> bool:
    """Return whether somebody else has set this rate; None stands for a rate that is not set.

    >>> is_foreign(49_999_973), is_foreign(50_000_000), is_foreign(None)
    (False, True, False)
    """
    return bytes_per_sec is not None and not is_tagged(bytes_per_sec)


def entries_text(replicas: Iterable[tuple[int, int]]) -> str:
    """The entries as Kafka writes them.

    >>> entries_text({(1, 3), (0, 2)})
    '0:2,1:3'
    """
    return ",".join(f"{partition}:{broker}" for partition, broker in sorted(replicas))


def missing_entries(text: str | None, replicas: ThrottledReplicas) -> ThrottledReplicas:
    """Returns the `replicas` that a list doesn't name; `text` is the list as Kafka shows it, None where it is not set.

    >>> sorted(missing_entries("0:2,7:7", frozenset({(0, 2), (1, 3)}))), missing_entries("*", frozenset({(0, 2)}))
    ([(1, 3)], frozenset())
    """
    named = set((text or "").split(","))
    if EVERY_REPLICA in named:
        return frozenset()
    return frozenset(row for row in replicas if f"{row[0]}:{row[1]}" not in named)


def named_entries(text: str | None, replicas: ThrottledReplicas) -> ThrottledReplicas:
    """Return the replicas of `replicas` that a list names one by one.

    >>> sorted(named_entries("0:2,7:7", frozenset({(0, 2), (1, 3)})))
    [(0, 2)]
    """
    named = set((text or "").split(","))
    return frozenset(row for row in replicas if f"{row[0]}:{row[1]}" in named)


def room_left(text: str | None, ours: ThrottledReplicas) -> int:
    """Bytes of one list that control may fill with its own entries, each with its comma.

    `text` is the list as Kafka shows it, None where it is not set; `ours` are replicas whose entries are control's.

    >>> room_left("7:7,0:1", frozenset({(0, 1)})), room_left("7:" + "0" * 32_000, frozenset())
    (16383, 764)
    """
    names = {f"{partition}:{broker}" for partition, broker in ours}
    foreign_bytes = sum(len(entry) + 1 for entry in (text or "").split(",") if entry and entry not in names)
    return min(LIST_BYTES_MAX, VALUE_BYTES_MAX - foreign_bytes)


def fitting(moves: Iterable[ThrottledMove], leaders_room: int, followers_room: int) -> list[ThrottledMove]:
    """The moves whose entries fit together into two lists with so many bytes left, the first ones first.

    >>> moves = [ThrottledMove(("t", n), (frozenset({(n, 1)}), frozenset({(n, 2)}))) for n in range(9)]
    >>> [move.key[1] for move in fitting(moves, 12, 99)]
    [0, 1, 2]
    """
    chosen = []
    for move in moves:
        sizes = [_bytes_of(side) for side in move.sides]
        if sizes[0] <= leaders_room and sizes[1] <= followers_room:
            leaders_room, followers_room = leaders_room - sizes[0], followers_room - sizes[1]
            chosen.append(move)
    return chosen


def pieces(leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]) -> Iterator[Sides]:
    """Split replicas into parts of one request each: the bytes of a list and the count of topics are bounded.

    >>> parts = list(pieces({"t": frozenset((number, 1) for number in range(10_000))}, {"u": frozenset({(0, 2)})}))
    >>> [{topic: len(entries_text(rows)) for topic, rows in side.items()} for side in parts[0]], len(parts)
    ([{'t': 32762}, {'u': 3}], 3)
    """
    sides = [{topic: _cut(entries) for topic, entries in side.items()} for side in (leaders, followers)]
    rounds = max((len(parts) for side in sides for parts in side.values()), default=0)
    for number in range(rounds):
        left, right = ({topic: rows[number] for topic, rows in side.items() if len(rows) > number} for side in sides)
        topics = sorted(left.keys() | right.keys())
        for start in range(0, len(topics), TOPICS_AT_ONCE_MAX):
            named = topics[start : start + TOPICS_AT_ONCE_MAX]
            yield (
                {topic: left[topic] for topic in named if topic in left},
                {topic: right[topic] for topic in named if topic in right},
            )


def _bytes_of(replicas: ThrottledReplicas) -> int:
    """Return the bytes of the entries of these replicas, each with its comma."""
    return sum(len(str(partition)) + len(str(broker)) + 2 for partition, broker in replicas)


def _cut(replicas: ThrottledReplicas) -> list[ThrottledReplicas]:
    """Parts whose entries have at most VALUE_BYTES_MAX bytes each."""
    parts: list[list[tuple[int, int]]] = []
    left = 0
    for replica in sorted(replicas):
        size = _bytes_of(frozenset({replica}))
        if size > left:
            parts.append([])
            left = VALUE_BYTES_MAX
        parts[-1].append(replica)
        left -= size
    return [frozenset(part) for part in parts]
