"""`rebalancer assign`: one consumer assignment per line, JSON lines in, JSON lines out."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from assignor_core.assignors import GroupAssignment, GroupSpec, MemberSpec, TopicPartition, balance_score
from assignor_core.assignors import assign as assign_group
from assignor_core.assignors.load_figures import load_figures
from assignor_core.errors import UnknownStrategy
from streaming.commands.explained_moves import ExplainedMoves
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
    """The same, with one entry under "moves" for each partition that changes hands, and figures where load counts."""
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
