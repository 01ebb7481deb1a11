"""What one rebalance has moved from whom to whom, as Kafka's StickyAssignor remembers it.

Where a partition is to go from one member to another while one of the same topic has moved the other way, that one
returns instead. Which of several returns is Kafka's choice to the letter, the order of its hash set included: a leader
that chose another would revoke in the next round what Kafka's chose in this one, and the group might never rest.
"""

from collections.abc import Callable

from assignor_core.assignors.partition_list import TopicIndex

BUCKETS_MIN = 16
LOAD_FACTOR = 0.75
"""A java.util.HashSet starts with so many buckets, doubles them when it is fuller, and never gives any back."""


class Movements:
    """Movements of a rebalance; members and topics are numbers, partitions are codes.

    Partition 1 has moved from member 0 to member 7, so it returns before partition 0 goes the same way:

    >>> movements = Movements(TopicIndex.of(["t"], [3]))
    >>> movements.record(topic=0, code=1, giver=0, taker=7)
    >>> movements.returning(topic=0, code=0, giver=7, taker=0)
    1
    """

    def __init__(self, index: TopicIndex) -> None:
        self._index = index
        self._first_owners: dict[int, int] = {}
        """By code that has moved and not returned."""
        self._moved: dict[tuple[int, int, int], _HashSet] = {}
        """Codes that have moved, by topic, first owner and present owner."""

    def returning(self, topic: int, code: int, giver: int, taker: int) -> int:
        """What moves to `taker` if `code` of `giver` is to: a code of the same topic, or `code` itself.

        Kafka judges a partition that has moved already as if its first owner still had it: what returns in its place
        comes from that owner, not from `giver`.
        """
        moved_back = self._moved.get((topic, taker, self._first_owners.get(code, giver)))
        if not moved_back:
            return code
        # TopicPartition.hashCode is 31 * (31 + partition) + hash of the topic, and partition = code - start.
        of_topic = 31 * (31 - int(self._index.starts[topic])) + string_hash(self._index.topics[topic])
        return moved_back.first(lambda code: 31 * code + of_topic)

    def record(self, topic: int, code: int, giver: int, taker: int) -> None:
        """`code` has moved from `giver` to `taker`."""
        first = self._first_owners.pop(code, giver)
        if first != giver:
            moved = self._moved[topic, first, giver]
            moved.remove(code)
            if not moved:
                del self._moved[topic, first, giver]
        if first != taker:
            self._first_owners[code] = first
            self._moved.setdefault((topic, first, taker), _HashSet()).add(code)


class _HashSet:
    """Codes of one topic, of which the first in the order of java.util.HashSet can be asked for."""

    def __init__(self) -> None:
        self._codes: dict[int, None] = {}
        self._buckets = BUCKETS_MIN

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, code: int) -> None:
        self._codes[code] = None
        if len(self._codes) > LOAD_FACTOR * self._buckets:
            self._buckets *= 2

    def remove(self, code: int) -> None:
        del self._codes[code]

    def first(self, hash_code: Callable[[int], int]) -> int:
        """By bucket; of one bucket the one that was added first."""

        def bucket(code: int) -> int:
            hashed = hash_code(code) & 0xFFFFFFFF
            return (hashed ^ hashed >> 16) & self._buckets - 1

        return min(self._codes, key=bucket)


def string_hash(text: str) -> int:
    """java.lang.String.hashCode, from 0 up to 2**32.

    >>> string_hash("abc"), string_hash("")
    (96354, 0)
    """
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    return hashed
