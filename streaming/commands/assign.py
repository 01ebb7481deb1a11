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
from assignor_core.assignors.contract import NO_GENERATION
from assignor_core.assignors.load_aware import loads_differ
from assignor_core.assignors.load_figures import load_figures
from assignor_core.errors import UnknownStrategy
from assignor_core.wording import many
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
    racks = _optional_object(line, "partition_racks")
    weights = _optional_object(line, "partition_weights")
    return strategy, GroupSpec(
        {topic: an_int(count, f"partitions_per_topic of {shown(topic)}") for topic, count in counts.items()},
        {member_id: _member(member_id, fields) for member_id, fields in members.items()},
        {topic: _racks(entries, topic) for topic, entries in racks.items()},
        {topic: _weights(entries, topic) for topic, entries in weights.items()},
    )


def _optional_object(line: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = line.get(name)
    return {} if value is None else an_object(value, name)


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
        return [
            {
                "partition": tp,
                "old_members": list(dict.fromkeys(claimed_by)),
                "new_member": self._new_owner.get(tp),
                "reason": self._reason(tp, claimed_by),
            }
            for tp, claimed_by in sorted(self._claims.items())
            if {self._new_owner.get(tp)} != set(claimed_by)
        ]

    @cached_property
    def _claims(self) -> dict[TopicPartition, list[str]]:
        """Members that list a partition, in order, and as often as they do."""
        claims: dict[TopicPartition, list[str]] = {}
        for member_id, member in sorted(self.spec.members.items()):
            for owned in member.owned_partitions:
                claims.setdefault(owned, []).append(member_id)
        return claims

    @cached_property
    def _new_owner(self) -> dict[TopicPartition, str]:
        return _owners(self.result)

    @cached_property
    def _withheld(self) -> Set[TopicPartition]:
        return frozenset(self.result.transferring)

    @cached_property
    def _target(self) -> dict[TopicPartition, str]:
        """Who gets each partition once nothing is withheld any more: of a cooperative strategy, by its eager one."""
        return {**self._assigned(self.spec), **self._new_owner} if self._withheld else self._new_owner

    @cached_property
    def _target_without_racks(self) -> dict[TopicPartition, str]:
        """Who would get each partition if no racks were known."""
        return self._assigned(replace(self.spec, partition_racks={})) if self.spec.partition_racks else self._target

    def _assigned(self, spec: GroupSpec) -> dict[TopicPartition, str]:
        return _owners(assign_group(EAGER.get(self.strategy, self.strategy), spec))

    @cached_property
    def _gets(self) -> Counter[str]:
        return Counter(self._target.values())

    @cached_property
    def _gets_without_racks(self) -> Counter[str]:
        return Counter(self._target_without_racks.values())

    @cached_property
    def _had(self) -> Counter[str]:
        """How many partitions each member owned by claims that count."""
        winners = (self._winners(tp) for tp in self._claims if self._exists(tp))
        return Counter(members[0] for members in winners if len(members) == 1)

    @cached_property
    def _load_counts(self) -> bool:
        return "load-aware" in self.strategy and loads_differ(self.spec)

    @cached_property
    def _topics(self) -> dict[str, Set[str]]:
        return {member_id: frozenset(member.topics) for member_id, member in self.spec.members.items()}

    def _exists(self, tp: TopicPartition) -> bool:
        return tp[1] in range(self.spec.partitions_per_topic.get(tp[0], 0))

    def _readers(self, tp: TopicPartition) -> list[str]:
        return [member_id for member_id in self._claims[tp] if tp[0] in self._topics[member_id]]

    def _winners(self, tp: TopicPartition) -> list[str]:
        """Whose claims have the highest generation: a claim counts if it is alone."""
        readers = self._readers(tp)
        if len(readers) < 2:
            return readers
        generations = [max(NO_GENERATION, self.spec.members[member_id].generation_id) for member_id in readers]
        newest = max(generations)
        return [member_id for member_id, one in zip(readers, generations, strict=True) if one == newest]

    def _reason(self, tp: TopicPartition, claimed_by: Sequence[str]) -> str:
        if not self._exists(tp):
            return "the partition does not exist"
        winners = self._winners(tp)
        if not winners:
            return "its owner no longer reads the topic"
        if self.strategy in BY_POSITION:
            return self._by_position(tp)
        why = self._of_none(winners) if len(winners) > 1 else self._of_one(tp, winners[0], claimed_by)
        if tp not in self._withheld:
            return why
        who = "its owner has" if len(set(winners)) == 1 else "all that claim it have"
        return f"withheld until {who} revoked it: {why}"

    def _by_position(self, tp: TopicPartition) -> str:
        new = self._target[tp]
        by_racks = self._target_without_racks[tp] != new
        if by_racks and self._is_near(tp, new):
            return f"{self.strategy} does not know owners: the rack of {new} has a replica"
        by = "its position and the racks of others" if by_racks else "its position"
        return f"{self.strategy} does not know owners: by {by} the partition falls to {new}"

    def _of_none(self, winners: Sequence[str]) -> str:
        if len(set(winners)) > 1:
            return "several members claim it at the same generation: no claim counts"
        return f"{winners[0]} lists it {len(winners)} times: no claim counts"

    def _of_one(self, tp: TopicPartition, winner: str, claimed_by: Sequence[str]) -> str:
        """Why the one member whose claim counts gives the partition up; of several that claim it, why this one."""
        stays = self._target[tp] == winner and tp not in self._withheld
        why = "" if stays else self._of_owner(tp, winner)
        if len(claimed_by) == 1:
            return why
        has = "of the highest generation" if len(self._readers(tp)) > 1 else "who alone reads the topic"
        return f"several members claim it: the claim of {winner}, {has}, counts" + (f", and {why}" if why else "")

    def _of_owner(self, tp: TopicPartition, owner: str) -> str:
        if self._load_counts:
            return "by load: the load of members becomes even for their capacity"
        had, gets = self._had[owner], self._gets[owner]
        by_racks = self._target_without_racks[tp] == owner
        reasons = []
        if had > gets and not (by_racks and self._gets_without_racks[owner] >= had):
            reasons.append(f"its owner had {many(had, 'partition')}, more than its share of {gets}")
        if by_racks:
            reasons.append(self._of_racks(tp, owner))
        return "; ".join(reasons) or (
            f"exchanged for another partition: its owner had {many(had, 'partition')} and gets {gets}"
        )

    def _of_racks(self, tp: TopicPartition, owner: str) -> str:
        new = self._target[tp]
        if self._is_near(tp, new) and not self._is_near(tp, owner):
            return f"the rack of {new} has a replica, and that of its owner has none"
        return "by the racks of others: without racks its owner would keep it"

    def _is_near(self, tp: TopicPartition, member_id: str) -> bool:
        """Whether a replica of the partition is in the member's rack."""
        racks = self.spec.partition_racks.get(tp[0], ())
        rack = self.spec.members[member_id].rack_id
        return bool(rack) and tp[1] < len(racks) and rack in racks[tp[1]]


def _owners(result: GroupAssignment) -> dict[TopicPartition, str]:
    return {tp: member_id for member_id, partitions in result.assignment.items() for tp in partitions}
