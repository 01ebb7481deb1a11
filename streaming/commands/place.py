"""`rebalancer place`: Kafka's own replica placement, JSON lines in, JSON lines out."""

import random
from collections.abc import Mapping
from typing import Any

import click

from assignor_core.placement import PlacementBroker, PlacementStart, place_replicas
from streaming.commands.json_lines import (
    a_list,
    an_int,
    an_object,
    answer_lines,
    optional_string,
    required,
)

RANDOM_START = -1


@click.command()
def place() -> None:
    """JSON lines in, one replica placement a line out: where Kafka would put the replicas of a new topic."""
    answer_lines(placement_answer)


def placement_answer(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer one line of the contract; raises InputError."""
    brokers = [_broker(entry) for entry in a_list(required(line, "brokers"), "brokers")]
    placed = place_replicas(
        brokers,
        an_int(required(line, "partitions"), "partitions"),
        an_int(required(line, "replication_factor"), "replication_factor"),
        _start(line, len(brokers)),
        an_int(line.get("start_partition_id", 0), "start_partition_id"),
    )
    return {"replicas": {str(partition): list(replicas) for partition, replicas in placed.items()}}


def _broker(entry: object) -> PlacementBroker:
    fields = an_object(entry, "broker")
    return PlacementBroker(
        an_int(required(fields, "broker_id"), "broker_id"), optional_string(fields.get("rack"), "rack")
    )


def _start(line: Mapping[str, Any], brokers: int) -> PlacementStart:
    """A fixed start, or two draws as Kafka does; `seed` makes the draws repeatable."""
    index = an_int(line.get("fixed_start_index", RANDOM_START), "fixed_start_index")
    if index >= 0:
        return PlacementStart.fixed(index)
    seed = line.get("seed")
    draws = random.Random(None if seed is None else an_int(seed, "seed", minimum=-(2**63), maximum=2**63 - 1))  # noqa: S311 - no secret
    return PlacementStart(draws.randrange(max(1, brokers)), draws.randrange(max(1, brokers)))
