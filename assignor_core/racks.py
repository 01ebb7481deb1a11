"""How evenly replicas of one partition lie over racks; planner and decisions share what counts as crowded."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from assignor_core.wording import first_named

NAMED_MAX = 5
"""Brokers named in one line."""


def least_spread(factor: int, sizes: Sequence[int]) -> int:
    """Least sum of squared replicas by rack: each replica goes to the emptiest rack that has a broker left.

    >>> least_spread(4, [2, 2, 2]), least_spread(4, [1, 3])  # 2 + 1 + 1 and 1 + 3
    (6, 10)
    """
    held = [0] * len(sizes)
    for _ in range(min(factor, sum(sizes))):
        rack = min((rack for rack, size in enumerate(sizes) if held[rack] < size), key=lambda rack: (held[rack], rack))
        held[rack] += 1
    return sum(count * count for count in held)


def spread_range(factor: int, sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Fewest and most replicas, by rack, of a partition with `factor` replicas whose sum of squares is the least.

    Each rack is filled up to one level, or holds one more than that level where it has another broker.

    >>> spread_range(4, [2, 2, 2]), spread_range(5, [1, 3, 2])
    (([1, 1, 1], [2, 2, 2]), ([1, 2, 2], [1, 2, 2]))
    """
    factor = min(factor, sum(sizes))
    level = max(level for level in range(factor + 1) if sum(min(size, level) for size in sizes) <= factor)
    lowest = [min(size, level) for size in sizes]
    has_more = sum(lowest) < factor
    return lowest, [min(size, level + has_more) for size in sizes]


def some_without_rack(without: Sequence[str], racks: int) -> str | None:
    """What brokers `without` a rack mean beside others that have one, in words; None if all have one, or none has.

    `racks` counts the racks of all brokers, with one for each broker that has none.

    >>> some_without_rack(["broker 3"], 3).partition(":")[0]
    'broker 3 has no rack while others have one, so it counts as a rack of its own'
    >>> some_without_rack([], 3), some_without_rack(["broker 1", "broker 2"], 2)
    (None, None)
    """
    if not without or len(without) == racks:
        return None
    names, counts = first_named(without, NAMED_MAX), "it counts as a rack of its own"
    verb = "has no rack" if len(without) == 1 else "have no rack"
    counts = counts if len(without) == 1 else "each counts as a rack of its own"
    return f"{names} {verb} while others have one, so {counts}: set broker.rack on all brokers or none"


class RackSpread:
    """Judges placements over brokers that are in use; a broker without a rack is a rack of its own.

    >>> spread = RackSpread({1: "a", 2: "a", 3: "b"}, in_use={1, 2, 3})
    >>> spread.is_crowded((1, 2)), spread.is_crowded((1, 3)), spread.is_crowded((1, 2, 3))
    (True, False, False)
    """

    def __init__(self, racks: Mapping[int, str | None], in_use: Collection[int]) -> None:
        self._rack_of: dict[int, object] = {broker: broker if rack is None else rack for broker, rack in racks.items()}
        self._sizes = list(Counter(self._rack_of[broker] for broker in sorted(in_use)).values())
        self._count = sum(self._sizes)
        self._least: dict[int, int] = {}

    @property
    def shares_racks(self) -> bool:
        """Whether any two brokers in use are in one rack."""
        return any(size > 1 for size in self._sizes)

    def is_crowded(self, replicas: Sequence[int]) -> bool:
        """Whether brokers in use would allow a more even spread. With fewer of them than replicas none is possible."""
        racks = [self._rack_of.get(broker, broker) for broker in replicas]
        factor = len(racks)
        # Of millions of partitions nearly all have a rack for each replica: nothing is more even.
        if len(set(racks)) == factor or factor > self._count:
            return False
        if factor not in self._least:
            self._least[factor] = least_spread(factor, self._sizes)
        counts = Counter(racks)
        return sum(count * count for count in counts.values()) > self._least[factor]
