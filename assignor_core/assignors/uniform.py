"""Kafka's server-side assignor `uniform` (KIP-848): equal numbers first, then what members have by the last target.

Owns the rule for members that read the same topics, which is Kafka's own. Where members read different topics, the
general rule of the sticky assignors goes first, and `even_shares` makes it as even as subscriptions allow.
"""

from itertools import islice

from assignor_core.assignors.contract import GroupAssignment, GroupSpec, MemberSpec, TopicPartition
from assignor_core.assignors.even_shares import even_out
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
