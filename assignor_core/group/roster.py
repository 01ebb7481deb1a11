"""Who is registered with the coordinator: members, the leader, static ids, and the strategy all can agree on.

Owns the bookkeeping; knows no state of the group and answers nobody.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.messages import JoinGroup, Protocols


@dataclass(slots=True)
class RegisteredMember:
    """One member as the coordinator knows it. `session_start_ms`: when it was last heard of."""

    member_id: str
    group_instance_id: str | None
    client: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    session_start_ms: int
    awaits_join: bool = False
    awaits_sync: bool = False
    assignment: Sequence[TopicPartition] = ()

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id (KIP-345)."""
        return self.group_instance_id is not None


class Roster:
    """Members in the order they came in; the first is the leader until it goes."""

    def __init__(self) -> None:
        self.leader_id: str | None = None
        self.not_joined = 0
        self._members: dict[str, RegisteredMember] = {}
        self._static: dict[str, str] = {}
        self._offers: Counter[tuple[str, ...]] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[RegisteredMember]:
        return iter(self._members.values())

    def get(self, member_id: str) -> RegisteredMember | None:
        """Returns the member with this id, or None."""
        return self._members.get(member_id)

    def static_member_id(self, group_instance_id: str) -> str | None:
        """Member id that the instance id maps to now."""
        return self._static.get(group_instance_id)

    def add(self, member: RegisteredMember) -> None:
        """Register; the first becomes the leader."""
        self._members[member.member_id] = member
        self._offers[tuple(member.protocols)] += 1
        self.not_joined += not member.awaits_join
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> RegisteredMember:
        """Strike off; if it led, the oldest of the others leads."""
        member = self._members.pop(member_id)
        self._withdraw(member)
        self.not_joined -= not member.awaits_join
        if member.group_instance_id is not None:
            del self._static[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return member

    def rename(self, member_id: str, new_member_id: str) -> RegisteredMember:
        """A static member's new process takes the place of the old one, leadership and assignment too."""
        member = self._members.pop(member_id)
        assert member.group_instance_id is not None, "only static members are replaced"
        member.member_id = new_member_id
        self._members[new_member_id] = member
        self._static[member.group_instance_id] = new_member_id
        if self.leader_id == member_id:
            self.leader_id = new_member_id
        return member

    def take(self, member: RegisteredMember, request: JoinGroup) -> None:
        """Make the request's address, offers and timeouts the member's."""
        self._withdraw(member)
        member.client = request.client
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._offers[tuple(member.protocols)] += 1

    def set_awaits_join(self, member: RegisteredMember, awaits: bool) -> None:
        """Note whether the member's JoinGroup waits for its answer."""
        self.not_joined += member.awaits_join - awaits
        member.awaits_join = awaits

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one who has joined; False if nobody has."""
        leader = self._members.get(self.leader_id or "")
        if leader is None or not leader.awaits_join:
            leader = next((member for member in self if member.awaits_join), None)
        if leader is not None:
            self.leader_id = leader.member_id
        return leader is not None

    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def accepts(self, protocols: Protocols, instead_of: RegisteredMember | None) -> bool:
        """Whether some strategy is offered by these and by every member other than `instead_of`."""
        own = tuple(instead_of.protocols) if instead_of is not None else ()
        others = [offer for offer, count in self._offers.items() if count > (offer == own)]
        return bool(set(protocols).intersection(*others))

    def select_strategy(self) -> str:
        """Each member votes for the first of its strategies that all have; most votes, then the alphabet, decide."""
        common = set.intersection(*map(set, self._offers))
        votes: Counter[str] = Counter()
        for offer, count in self._offers.items():
            votes[next(name for name in offer if name in common)] += count
        return min(votes, key=lambda name: (-votes[name], name))

    def _withdraw(self, member: RegisteredMember) -> None:
        offer = tuple(member.protocols)
        self._offers[offer] -= 1
        if not self._offers[offer]:
            del self._offers[offer]
