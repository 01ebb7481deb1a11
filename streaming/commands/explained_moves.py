"""Why each partition of a group changes hands: the reasons that `rebalancer assign --explain` prints.

Each reason is read from the group and its assignment, not from the strategy's steps:

1. Claims come first. A partition that does not exist, that several members claim, or whose owner does not read the
   topic has no owner to keep it.
2. `range` and `roundrobin` know no owners: a partition goes to the member that its position gives. `range` first
   matches the racks of members and replicas where they matter.
3. Sticky strategies keep owners as far as shares allow. A partition moves because its owner held more than its share,
   to a member whose rack has a replica, for load, or because a claim is of an earlier generation. If none of these is
   the reason, the partition was exchanged for another one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from assignor_core.assignors import GroupAssignment, GroupSpec, TopicPartition
from assignor_core.assignors import assign as assign_group

BY_POSITION = frozenset({"range", "roundrobin"})
EAGER: Mapping[str, str] = {"cooperative-sticky": "sticky", "cooperative-load-aware": "load-aware"}
"""The strategy whose assignment a cooperative one reaches once owners have revoked what moves."""


@dataclass(frozen=True)
class ExplainedMoves:
    """Partitions that some member claims and another gets, and those withheld."""

    strategy: str
    spec: GroupSpec
    result: GroupAssignment

    def rows(self) -> list[Mapping[str, Any]]:
        """One entry for each, in order."""
        claims: dict[TopicPartition, list[str]] = {}
        for member_id, member in sorted(self.spec.members.items()):
            for owned in member.owned_partitions:
                claims.setdefault(owned, []).append(member_id)
        changed = [tp for tp in claims if self._new_owner.get(tp) not in claims[tp] or len(claims[tp]) > 1]
        return [
            {
                "partition": tp,
                "old_members": claims[tp],
                "new_member": self._new_owner.get(tp),
                "reason": self._reason(tp, claims[tp]),
            }
            for tp in sorted(changed)
        ]

    @cached_property
    def _new_owner(self) -> dict[TopicPartition, str]:
        return {tp: member_id for member_id, partitions in self.result.assignment.items() for tp in partitions}

    @cached_property
    def _withheld(self) -> Set[TopicPartition]:
        return frozenset(self.result.transferring)

    @cached_property
    def _target(self) -> Mapping[str, Sequence[TopicPartition]]:
        """What each member gets once nothing is withheld any more: of a cooperative strategy, that of its eager one."""
        if not self._withheld:
            return self.result.assignment
        return assign_group(EAGER[self.strategy], self.spec).assignment

    @cached_property
    def _target_owner(self) -> dict[TopicPartition, str]:
        return {tp: member_id for member_id, partitions in self._target.items() for tp in partitions}

    @cached_property
    def _valid_claims(self) -> Counter[str]:
        """How many partitions each member claims that exist and whose topic it reads."""
        return Counter(
            {
                member_id: len({tp for tp in member.owned_partitions if self._exists(tp) and tp[0] in member.topics})
                for member_id, member in self.spec.members.items()
            }
        )

    @cached_property
    def _load_counts(self) -> bool:
        """Whether a load-aware strategy has weights or capacities that differ."""
        capacities = {member.capacity for member in self.spec.members.values()}
        return any(map(len, self.spec.partition_weights.values())) or len(capacities) > 1

    @cached_property
    def _racks_count(self) -> bool:
        """Whether the assignment would be another one without racks."""
        if not self.spec.partition_racks:
            return False
        without = assign_group(EAGER.get(self.strategy, self.strategy), replace(self.spec, partition_racks={}))
        return {name: set(own) for name, own in without.assignment.items()} != {
            name: set(own) for name, own in self._target.items()
        }

    def _exists(self, tp: TopicPartition) -> bool:
        return tp[1] in range(self.spec.partitions_per_topic.get(tp[0], 0))

    def _reason(self, tp: TopicPartition, claimed_by: Sequence[str]) -> str:
        if not self._exists(tp):
            return "the partition does not exist"
        readers = [member_id for member_id in claimed_by if tp[0] in self.spec.members[member_id].topics]
        if not readers:
            return "its owner no longer reads the topic"
        if self.strategy in BY_POSITION:
            return self._by_position(tp)
        if len(claimed_by) > 1:
            return self._of_several(tp, readers)
        why = self._of_one(tp, claimed_by[0])
        return f"withheld until its owner has revoked it: {why}" if tp in self._withheld else why

    def _by_position(self, tp: TopicPartition) -> str:
        new = self._new_owner.get(tp)
        if new is None:
            return "no member reads the topic"
        if self.strategy == "range" and self._racks_count and self._is_near(tp, new):
            return f"range does not know owners: the rack of {new} has a replica"
        return f"{self.strategy} does not know owners: by its position the partition falls to {new}"

    def _of_several(self, tp: TopicPartition, readers: Sequence[str]) -> str:
        newest = max(self.spec.members[member_id].generation_id for member_id in readers)
        if sum(self.spec.members[member_id].generation_id == newest for member_id in readers) > 1:
            return "several members claim it at the same generation: no claim counts"
        winner = next(name for name in readers if self.spec.members[name].generation_id == newest)
        kept = "" if self._target_owner.get(tp) == winner else f", and {self._of_one(tp, winner)}"
        return f"several members claim it: the claim of {winner}, of the highest generation, counts{kept}"

    def _of_one(self, tp: TopicPartition, owner: str) -> str:
        gets, had = len(self._target.get(owner, ())), self._valid_claims[owner]
        new = self._target_owner.get(tp)
        if new is None:
            return "no member reads the topic"
        if "load-aware" in self.strategy and self._load_counts:
            return "by load: the load of members becomes even for their capacity"
        if had > gets:
            return f"its owner had {had} partitions, more than its share of {gets}"
        if self._racks_count and self._is_near(tp, new) and not self._is_near(tp, owner):
            return f"the rack of {new} has a replica, and that of its owner has none"
        generation = self.spec.members[owner].generation_id
        newest = max(row.generation_id for row in self.spec.members.values())
        if generation < newest:
            return f"the claim of its owner is of generation {generation}, and the newest is {newest}"
        return f"exchanged for another partition: its owner had {had} partitions and gets {gets}"

    def _is_near(self, tp: TopicPartition, member_id: str) -> bool:
        """Whether a replica of the partition is in the member's rack."""
        racks = self.spec.partition_racks.get(tp[0], ())
        rack = self.spec.members[member_id].rack_id
        return bool(rack) and tp[1] < len(racks) and rack in racks[tp[1]]
