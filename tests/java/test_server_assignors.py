"""Our `uniform` and `range` of the consumer protocol against the assignors in the brokers' jar, on seeded groups."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assignor_core.assignors import SERVER_ASSIGNORS, balance_score
from assignor_core.assignors.contract import GroupSpec
from streaming.commands.assign import group_of
from tests.core.assignors.groups import Line, after, mixed_line, uniform_line
from tests.core.assignors.invariants import kept, violations
from tests.java_programs import program

pytestmark = pytest.mark.java

SOURCE = Path(__file__).with_name("ServerAssignors.java")
SEEDS = range(200)
ROUNDS = 4
Assignment = dict[str, list[list[Any]]]


def ours(line: Line) -> Assignment:
    _, spec = group_of({**line, "strategy": "sticky"})
    result = SERVER_ASSIGNORS[line["strategy"]](spec)
    assert violations(spec, result) == []
    return {member_id: [list(tp) for tp in partitions] for member_id, partitions in result.assignment.items()}


def rounds(strategy: str, *, mixed: bool) -> list[Line]:
    """Groups as members come and go; each round begins with the target that ours made of the last."""
    lines: list[Line] = []
    for seed in SEEDS:
        draws = random.Random(seed)
        line = (mixed_line if mixed else uniform_line)(draws)
        for _ in range(ROUNDS):
            line = in_order({**line, "strategy": strategy})
            lines.append(line)
            line = after(line, ours(line), draws)
    return lines


def in_order(line: Line) -> Line:
    """Members, topics and partitions sorted; targets hold no partition of a topic that is gone."""
    topics = line["partitions_per_topic"]
    members = {
        member_id: {
            **member,
            "owned_partitions": sorted(tp for tp in member.get("owned_partitions", ()) if tp[0] in topics),
        }
        for member_id, member in sorted(line["members"].items())
    }
    return {**line, "partitions_per_topic": dict(sorted(topics.items())), "members": members}


def answers(lines: list[Line]) -> list[Assignment]:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(program(SOURCE), input=text, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    given = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("answer ")]
    assert len(given) == len(lines)
    return given


def as_sets(assignment: Assignment) -> Assignment:
    return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


def spec_of(line: Line) -> GroupSpec:
    return group_of({**line, "strategy": "sticky"})[1]


def test_uniform_is_kafkas_where_all_read_the_same() -> None:
    lines = rounds("uniform", mixed=False)
    for line, theirs in zip(lines, answers(lines), strict=True):
        assert as_sets(ours(line)) == as_sets(theirs), line


@pytest.mark.parametrize("mixed", [False, True])
def test_range_is_kafkas(mixed: bool) -> None:
    lines = rounds("range", mixed=mixed)
    for line, theirs in zip(lines, answers(lines), strict=True):
        assert as_sets(ours(line)) == as_sets(theirs), line


def test_uniform_is_as_even_as_kafkas_where_subscriptions_differ_and_moves_no_more() -> None:
    """Not the same rule, so not the same partitions: here quality is compared."""
    lines = rounds("uniform", mixed=True)
    kept_by_ours = kept_by_kafka = 0
    for line, theirs in zip(lines, answers(lines), strict=True):
        mine = ours(line)
        sizes = [len(partitions) for partitions in mine.values()]
        assert balance_score(sizes) <= balance_score([len(partitions) for partitions in theirs.values()]), line
        kept_by_ours += kept(spec_of(line), as_tuples(mine))
        kept_by_kafka += kept(spec_of(line), as_tuples(theirs))
    assert kept_by_ours >= 0.98 * kept_by_kafka


def as_tuples(assignment: Assignment) -> dict[str, list[tuple[str, int]]]:
    return {member_id: [(topic, number) for topic, number in listed] for member_id, listed in assignment.items()}
