"""Kafka's server-side assignor `uniform` (KIP-848): equal numbers first, then what members have by the last target.

Owns the rule for members that read the same topics, which is Kafka's own. Where members read different topics, the
general rule of the sticky assignors goes first, and `even_out` makes it as even as subscriptions allow.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import islice

from assignor_core.assignors.contract import GroupAssignment, GroupSpec, MemberSpec, TopicPartition
from assignor_core.assignors.sticky import assign_sticky


def assign_uniform(spec: GroupSpec) -> GroupAssignment:
    """Each partition to a member that reads it. `owned_partitions` are the last target; generations don't matter.

    Members get their share in the order of their ids. (Kafka's order is that of a hash map.)

    >>> members = {"c-1": MemberSpec(["t"], [("t", 0), ("t", 1), ("t", 2)]), "c-2": MemberSpec(["t"])}
    >>> {member: list(owned) for member, owned in assign_uniform(GroupSpec({"t": 3}, members)).assignment.items()}
    {'c-1': [('t', 0), ('t', 1)], 'c-2': [('t', 2)]}
    """
    subscriptions = {frozenset(member.topics) for member in spec.members.values()}
    if len(subscriptions) > 1:
        return GroupAssignment(even_out(spec, assign_sticky(_of_one_generation(spec)).assignment))
    topics = sorted(topic for topics in subscriptions for topic in topics)
    partitions = [(topic, number) for topic in topics for number in range(spec.partitions_per_topic.get(topic, 0))]
    return GroupAssignment(_assign_equal_subscriptions(spec, partitions))


def _assign_equal_subscriptions(spec: GroupSpec, partitions: list[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Members keep the first partitions of what they have, up to their share; the rest fills those below theirs.

    One more than the others goes to members that have so many, as long as enough members are left to take the rest.
    """
    members = sorted(spec.members)
    quota, extra = divmod(len(partitions), max(1, len(members)))
    kept: dict[str, list[TopicPartition]] = {}
    shares: dict[str, int] = {}
    not_claimed = set(partitions)
    given_up: list[TopicPartition] = []
    for number, member_id in enumerate(members):
        owned = sorted(not_claimed.intersection(spec.members[member_id].owned_partitions))
        not_claimed.difference_update(owned)
        others_can = len(members) - number > extra
        takes_extra = extra > 0 and (len(owned) > quota or not others_can)
        share = shares[member_id] = quota + takes_extra
        extra -= takes_extra
        kept[member_id] = owned[:share]
        given_up += owned[share:]
    free = iter([tp for tp in partitions if tp in not_claimed] + given_up)
    return {
        member_id: sorted([*owned, *islice(free, shares[member_id] - len(owned))]) for member_id, owned in kept.items()
    }


def _of_one_generation(spec: GroupSpec) -> GroupSpec:
    """Returns the group with all claims of one generation: a target has one owner a partition, and no owner is late."""
    members = {
        member_id: MemberSpec(member.topics, member.owned_partitions, 1, member.group_instance_id)
        for member_id, member in spec.members.items()
    }
    return GroupSpec(spec.partitions_per_topic, members)


Move = tuple[str, str, str]
"""One move: giver, topic and taker of a partition."""
Held = Mapping[str, dict[str, set[int]]]
"""Partition numbers by member and topic."""


def even_out(spec: GroupSpec, assignment: Mapping[str, Sequence[TopicPartition]]) -> dict[str, list[TopicPartition]]:
    """The assignment with as few moves more as it needs, by chains: a partition from one member to the next, and so on.

    Where no chain leads from a member to one that holds two fewer, no assignment is more even (Harvey, Ladner, Lovasz,
    Tamir: Semi-matchings for bipartite graphs and load balancing, 2006).

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> members = {"a": MemberSpec(["t"]), "b": MemberSpec(["t", "u"]), "c": MemberSpec(["u"])}
    >>> spec = GroupSpec({"t": 2, "u": 2}, members)
    >>> even_out(spec, {"a": [], "b": [("t", 0), ("t", 1)], "c": [("u", 0), ("u", 1)]})
    {'a': [('t', 0)], 'b': [('t', 1)], 'c': [('u', 0), ('u', 1)]}
    """
    held: Held = {member_id: defaultdict(set) for member_id in assignment}
    for member_id, partitions in assignment.items():
        for topic, number in partitions:
            held[member_id][topic].add(number)
    sizes = {member_id: len(partitions) for member_id, partitions in assignment.items()}
    readers: dict[str, list[str]] = defaultdict(list)
    for member_id in sorted(spec.members):
        for topic in spec.members[member_id].topics:
            readers[topic].append(member_id)
    owned = {member_id: frozenset(member.owned_partitions) for member_id, member in spec.members.items()}
    # Each chain lowers the sum of the squares of the sizes, so there is a last one.
    while chain := _chain(held, sizes, readers):
        for giver, topic, taker in chain:
            _move(owned, held, giver, topic, taker)
        sizes[chain[0][0]] -= 1
        sizes[chain[-1][2]] += 1
    return {
        member_id: sorted((topic, number) for topic, numbers in topics.items() for number in numbers)
        for member_id, topics in held.items()
    }


def _chain(held: Held, sizes: Mapping[str, int], readers: Mapping[str, Sequence[str]]) -> list[Move]:
    """The shortest chain from the largest member that has one; empty if none has."""
    smallest = min(sizes.values(), default=0)
    in_vain: set[str] = set()
    for start in sorted(sizes, key=lambda member_id: (-sizes[member_id], member_id)):
        if sizes[start] < smallest + 2:
            break
        if start in in_vain:
            continue
        came_by, end = _search(start, held, sizes, readers, in_vain)
        if end is not None:
            return _back(came_by, end)
        # Whoever was reached has no smaller member in reach either, and those that follow are no larger.
        in_vain |= came_by.keys()
    return []


def _search(
    start: str, held: Held, sizes: Mapping[str, int], readers: Mapping[str, Sequence[str]], in_vain: set[str]
) -> tuple[Mapping[str, Move | None], str | None]:
    """Whom partitions can reach from a member, each by its last move, up to one that holds two fewer, if there is."""
    came_by: dict[str, Move | None] = {start: None}
    seen_topics: set[str] = set()
    queue = deque([start])
    while queue:
        giver = queue.popleft()
        if sizes[giver] <= sizes[start] - 2:
            return came_by, giver
        topics = sorted(topic for topic, numbers in held[giver].items() if numbers and topic not in seen_topics)
        seen_topics.update(topics)
        for topic in topics:
            new = [taker for taker in readers[topic] if taker not in came_by and taker not in in_vain]
            came_by.update((taker, (giver, topic, taker)) for taker in new)
            queue.extend(new)
    return came_by, None


def _back(came_by: Mapping[str, Move | None], end: str) -> list[Move]:
    chain: list[Move] = []
    move = came_by[end]
    while move is not None:
        chain.insert(0, move)
        move = came_by[move[0]]
    return chain


def _move(owned: Mapping[str, frozenset[TopicPartition]], held: Held, giver: str, topic: str, taker: str) -> None:
    """Moves one partition: one that the taker owned before, else one that the giver did not own."""

    def preference(number: int) -> tuple[bool, bool, int]:
        return (topic, number) not in owned[taker], (topic, number) in owned[giver], number

    number = min(held[giver][topic], key=preference)
    held[giver][topic].remove(number)
    held[taker][topic].add(number)
