"""Who reads a partition in which rack: the parts of its bytes out that consumers read in their own racks (KIP-392).

The module holds plain values, so that whoever reads settings or a model loads no arrays; `follower_reads` has those.
"""

from collections.abc import Iterable, Mapping

Rack = str | None

ReaderRacks = tuple[tuple[str, float], ...]
"""Racks of consumers, in order of their names, each with its part of a partition's bytes out. The rest of them name no
rack. Empty where followers serve nobody.
"""
NO_READERS: ReaderRacks = ()


def reader_racks(
    leader: tuple[Rack, float], followers: Iterable[tuple[Rack, float]], read: Mapping[Rack, float]
) -> ReaderRacks:
    """Parts by rack, of what a leader and its followers were seen to serve: each the rack of its broker, and bytes/s.

    What a follower serves is read in its rack. `read` is what groups read by rack, None for those that name none, in
    any unit: it divides what the leader serves among its own rack, racks without a replica, and all others. Without
    it nobody knows who reads from the leader: it all goes with the leadership.

    >>> reader_racks(("a", 60.0), [("b", 30.0), ("c", 10.0)], {"a": 2.0, None: 4.0, "b": 3.0})
    (('a', 0.2), ('b', 0.3), ('c', 0.1))
    """
    rack, rate = leader
    amounts: dict[str, float] = {}
    total, others = rate, {rack}
    for name, of_follower in followers:
        total += of_follower
        others.add(name)
        if name is not None and of_follower > 0:
            amounts[name] = amounts.get(name, 0.0) + of_follower
    if not amounts or total <= 0:
        return ()
    at_leader = {name: amount for name, amount in read.items() if name == rack or name not in others or name is None}
    whole = sum(at_leader.values())
    for name, amount in at_leader.items():
        if name is not None and amount > 0:
            amounts[name] = amounts.get(name, 0.0) + rate * amount / whole
    return tuple((name, min(1.0, amount / total)) for name, amount in sorted(amounts.items()) if amount > 0)
