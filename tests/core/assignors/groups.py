"""Groups for tests: seeded, as lines of the contract of `rebalancer assign`."""

import random
from typing import Any

Line = dict[str, Any]


def uniform_line(draws: random.Random, *, racks: bool = False) -> Line:
    """All members read all topics."""
    topics = [f"t{number}" for number in range(draws.randint(1, 4))]
    return _line(draws, topics, {f"c{number}": topics for number in range(draws.randint(1, 7))}, racks=racks)


def mixed_line(draws: random.Random, *, racks: bool = False) -> Line:
    """Members read different topics, at least one each."""
    topics = [f"t{number}" for number in range(draws.randint(2, 5))]
    members = {
        f"c{number}": sorted(draws.sample(topics, draws.randint(1, len(topics))))
        for number in range(draws.randint(2, 6))
    }
    return _line(draws, topics, members, racks=racks)


def large_line(draws: random.Random, *, racks: bool = False) -> Line:
    """Members read different topics, of which some have many partitions."""
    topics = [f"t{number}" for number in range(draws.randint(2, 8))]
    members = {
        f"c{number}": sorted(draws.sample(topics, draws.randint(1, len(topics))))
        for number in range(draws.randint(4, 14))
    }
    return _line(draws, topics, members, racks=racks, partitions_max=40)


def after(line: Line, assignment: dict[str, Any], draws: random.Random, *, generation_id: int = 1) -> Line:
    """The next rebalance: members own what they got; one leaves or joins, or a topic grows, goes or comes."""
    members = {
        member_id: {
            **member,
            "owned_partitions": [list(tp) for tp in assignment[member_id]],
            "generation_id": generation_id,
        }
        for member_id, member in line["members"].items()
    }
    changed = {**line, "members": members, "partitions_per_topic": dict(line["partitions_per_topic"])}
    counts = changed["partitions_per_topic"]
    topic = draws.choice(sorted(counts))
    change = draws.choice(["leave", "join", "grow", "remove", "add", "stay"])
    if change == "leave" and len(members) > 1:
        del members[draws.choice(sorted(members))]
    elif change == "join":
        members["b-new"] = {"topics": members[draws.choice(sorted(members))]["topics"], "rack_id": "r1"}
    elif change == "grow":
        counts[topic] += 3
    elif change == "remove" and len(counts) > 1:
        del counts[topic]
    elif change == "add":
        counts["a-new"] = 4
        changed["members"] = {
            name: {**member, "topics": sorted({*member["topics"], "a-new"})} for name, member in members.items()
        }
    return changed


def disputed(line: Line, draws: random.Random) -> Line:
    """The same with claims that overlap, at equal and at earlier generations."""
    members = {member_id: dict(member) for member_id, member in line["members"].items()}
    for member_id in draws.sample(sorted(members), min(2, len(members))):
        other = members[draws.choice(sorted(members))]
        stolen = draws.sample(other.get("owned_partitions") or [], min(2, len(other.get("owned_partitions") or [])))
        own = [list(tp) for tp in members[member_id].get("owned_partitions") or []]
        members[member_id]["owned_partitions"] = own + [list(tp) for tp in stolen if list(tp) not in own]
        members[member_id]["generation_id"] = draws.choice([0, 1, 2])
    return {**line, "members": members}


def stale(line: Line, draws: random.Random) -> Line:
    """The same with members that missed generations, or report none."""
    members = {member_id: dict(member) for member_id, member in line["members"].items()}
    for member_id in draws.sample(sorted(members), draws.randint(1, len(members))):
        members[member_id]["generation_id"] = draws.choice([-1, 0, 1, 2])
    return {**line, "members": members}


def _line(
    draws: random.Random, topics: list[str], members: dict[str, list[str]], *, racks: bool, partitions_max: int = 9
) -> Line:
    counts = {topic: draws.randint(1, partitions_max) for topic in topics}
    line: Line = {
        "partitions_per_topic": counts,
        "members": {
            member_id: {
                "topics": read,
                "group_instance_id": draws.choice([None, None, f"i{draws.randint(0, 99)}-{member_id}"]),
                "rack_id": draws.choice([None, "r1", "r2", "r3"]) if racks else None,
            }
            for member_id, read in members.items()
        },
    }
    if racks:
        line["partition_racks"] = {
            topic: [draws.sample(["r1", "r2", "r3"], draws.randint(0, 3)) for _ in range(count)]
            for topic, count in counts.items()
        }
    return line
