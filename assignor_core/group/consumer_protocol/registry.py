"""Who is registered with the coordinator: members, instance ids, target assignment, and who has which partition.

Owns the bookkeeping; knows no rule of the protocol and answers nobody.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from assignor_core.assignors import SERVER_ASSIGNORS, GroupSpec
from assignor_core.assignors.contract import MemberSpec, TopicPartition
from assignor_core.group.consumer_protocol.messages import NO_PARTITIONS, ConsumerGroupMember, Partitions

DEFAULT_ASSIGNOR = next(iter(SERVER_ASSIGNORS))


class Registry:
    """Members by id. A partition is in use by the member it is assigned to, until that member has given it up."""

    def __init__(self) -> None:
        self.target: Mapping[str, Partitions] = {}
        self._members: dict[str, ConsumerGroupMember] = {}
        self._by_instance: dict[str, str] = {}
        self._user: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerGroupMember]:
        return iter(self._members.values())

    def get(self, member_id: str) -> ConsumerGroupMember | None:
        """Returns the member with this id, or None."""
        return self._members.get(member_id)

    def static_member(self, group_instance_id: str) -> ConsumerGroupMember | None:
        """The member that has the instance id now, also while it is away."""
        return self._members.get(self._by_instance.get(group_instance_id, ""))

    def is_used_by_another(self, tp: TopicPartition, member_id: str) -> bool:
        """Whether another member has the partition, or has yet to give it up."""
        return self._user.get(tp, member_id) != member_id

    def put(self, member: ConsumerGroupMember) -> None:
        """Register a member, or what has become of it."""
        before = self._members.get(member.member_id)
        used = member.assigned | member.pending_revocation
        if before is not None:
            self._release(before, used)
        self._members[member.member_id] = member
        self._user.update(dict.fromkeys(used, member.member_id))
        if member.group_instance_id is not None:
            self._by_instance[member.group_instance_id] = member.member_id

    def remove(self, member: ConsumerGroupMember) -> None:
        """Strike off; its partitions are free, and its part of the target assignment is gone."""
        self._release(member, NO_PARTITIONS)
        del self._members[member.member_id]
        self.target = {member_id: target for member_id, target in self.target.items() if member_id != member.member_id}
        if member.group_instance_id is not None:
            self._by_instance.pop(member.group_instance_id, None)

    def replace(self, old: ConsumerGroupMember, new: ConsumerGroupMember) -> None:
        """A static member's new process takes the place of the old one, with its part of the target assignment."""
        target = self.target.get(old.member_id, NO_PARTITIONS)
        self.remove(old)
        self.target = {**self.target, new.member_id: target}
        self.put(new)

    def topics(self) -> frozenset[str]:
        """Topics to which any member subscribes."""
        return frozenset[str]().union(*{member.subscribed_topic_names for member in self})

    def compute_target(self, partitions: Mapping[str, int]) -> str:
        """A new target assignment for all members, in place of the last; the name of the assignor."""
        name = self._preferred_assignor()
        members = {
            member.member_id: MemberSpec(
                sorted(member.subscribed_topic_names),
                sorted(self.target.get(member.member_id, NO_PARTITIONS)),
                group_instance_id=member.group_instance_id,
            )
            for member in self
        }
        assigned = SERVER_ASSIGNORS[name](GroupSpec(partitions, members)).assignment
        self.target = {member_id: frozenset(assigned[member_id]) for member_id in members}
        return name

    def _preferred_assignor(self) -> str:
        """What most members ask for; then the alphabet decides. Without any wish the brokers' first."""
        wishes = Counter(member.server_assignor for member in self if member.server_assignor)
        return min(wishes, key=lambda name: (-wishes[name], name)) if wishes else DEFAULT_ASSIGNOR

    def _release(self, member: ConsumerGroupMember, still_used: Partitions) -> None:
        for tp in (member.assigned | member.pending_revocation) - still_used:
            if self._user.get(tp) == member.member_id:
                del self._user[tp]
