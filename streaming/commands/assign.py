"""`rebalancer assign`: one consumer assignment per line, JSON lines in, JSON lines out."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import click

from assignor_core.assignors import GroupAssignment, GroupSpec, MemberSpec, TopicPartition, balance_score
from assignor_core.assignors import assign as assign_group
from assignor_core.assignors.load_figures import load_figures
from assignor_core.errors import UnknownStrategy
from streaming.commands.json_lines import (
    InvalidField,
    a_list,
    a_string,
    an_int,
    an_object,
    answer_lines,
    optional_string,
    required,
    shown,
)

BY_POSITION = frozenset({"range", "roundrobin"})
EAGER: Mapping[str, str] = {"cooperative-sticky": "sticky", "cooperative-load-aware": "load-aware"}
"""The strategy whose assignment a cooperative one reaches once owners have revoked what moves."""


@click.command()
@click.option("--explain", is_flag=True, help="Add to each answer what moved, and why.")
def assign(explain: bool) -> None:
    """JSON lines in, one consumer assignment a line out."""
    answer_lines(explained_answer if explain else assignment_answer)


def assignment_answer(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer one line of the contract; raises InputError."""
    strategy, spec = group_of(line)
    started_ns = time.perf_counter_ns()
    result = assign_group(strategy, spec)
    elapsed_ms = (time.perf_counter_ns() - started_ns) / 1e6
    return _to_json(result, elapsed_ms)


def explained_answer(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answers one line with the assignment, its movements under "moves", and figures if the strategy counts load.

    Strategies that ignore load have no such figures. Raises InputError.
    """
    strategy, spec = group_of(line)
    result = assign_group(strategy, spec)
    figures = {"load": asdict(load_figures(spec, result))} if strategy.endswith("load-aware") else {}
    return {**assignment_answer(line), "moves": ExplainedMoves(strategy, spec, result).rows(), **figures}


def group_of(line: Mapping[str, Any]) -> tuple[str, GroupSpec]:
    """Strategy and group of a line; raises InputError that names the field."""
    strategy = required(line, "strategy")
    if not isinstance(strategy, str):
        raise UnknownStrategy(f"strategy is {shown(strategy)}, must be a string")
    counts = an_object(required(line, "partitions_per_topic"), "partitions_per_topic")
    members = an_object(required(line, "members"), "members")
    racks = an_object(line.get("partition_racks") or {}, "partition_racks")
    weights = an_object(line.get("partition_weights") or {}, "partition_weights")
    return strategy, GroupSpec(
        {topic: an_int(count, f"partitions_per_topic of {shown(topic)}") for topic, count in counts.items()},
        {member_id: _member(member_id, fields) for member_id, fields in members.items()},
        {topic: _racks(entries, topic) for topic, entries in racks.items()},
        {topic: _weights(entries, topic) for topic, entries in weights.items()},
    )


def _member(member_id: str, fields: object) -> MemberSpec:
    name = f"members.{member_id}"
    member = an_object(fields, name)
    generation = member.get("generation_id")
    return MemberSpec(
        topics=tuple(
            a_string(topic, f"{name}.topics") for topic in a_list(required(member, "topics"), f"{name}.topics")
        ),
        owned_partitions=_owned(member.get("owned_partitions"), f"{name}.owned_partitions"),
        generation_id=-1 if generation is None else an_int(generation, f"{name}.generation_id"),
        group_instance_id=optional_string(member.get("group_instance_id"), f"{name}.group_instance_id"),
        rack_id=optional_string(member.get("rack_id"), f"{name}.rack_id"),
        capacity=_number(member.get("capacity", 1.0), f"{name}.capacity"),
    )


def _owned(pairs: object, name: str) -> list[TopicPartition]:
    owned = []
    for pair in a_list([] if pairs is None else pairs, name):
        if not isinstance(pair, list) or len(pair) != 2:
            raise InvalidField(f"{name} holds {shown(pair)}, must hold [topic, partition] pairs")
        owned.append((a_string(pair[0], name), an_int(pair[1], name)))
    return owned


def _racks(entries: object, topic: str) -> list[list[str | None]]:
    name = f"partition_racks of {shown(topic)}"
    return [[optional_string(rack, name) for rack in a_list(replicas, name)] for replicas in a_list(entries, name)]


def _weights(entries: object, topic: str) -> list[float]:
    name = f"partition_weights of {shown(topic)}"
    return [math.nan if weight is None else _number(weight, name) for weight in a_list(entries, name)]


def _number(value: object, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= 1e300:
        raise InvalidField(f"{name} is {shown(value)}, must be a number up to 1e300")
    return float(value)


def _to_json(result: GroupAssignment, elapsed_ms: float) -> Mapping[str, Any]:
    return {
        "assignment": {member_id: list(partitions) for member_id, partitions in result.assignment.items()},
        "transferring": list(result.transferring),
        "balance_score": balance_score([len(partitions) for partitions in result.assignment.values()]),
        "elapsed_ms": elapsed_ms,
    }


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
