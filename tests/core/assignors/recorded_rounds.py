"""Rounds of the sticky assignor for groups with racks and unequal subscriptions, small enough to read.

Each is the round of Kafka's class, which `tests/java/test_mixed_timelines.py` asks for them anew: a leader that chose
otherwise would take back in the next round what Kafka's gives in this one.
"""

from dataclasses import dataclass
from typing import Any

from tests.core.assignors.groups import Line


@dataclass(frozen=True, slots=True)
class Round:
    """A group as it joins, and what each member gets."""

    name: str
    line: Line
    assignment: dict[str, list[tuple[str, int]]]


def _line(members: dict[str, dict[str, Any]], racks: dict[str, list[list[str]]]) -> Line:
    return {
        "strategy": "sticky",
        "partitions_per_topic": {topic: len(rows) for topic, rows in racks.items()},
        "members": members,
        "partition_racks": racks,
    }


def _member(topics: list[str], rack_id: str | None, **owned: list[int]) -> dict[str, Any]:
    """A member that got `owned`, by topic, in generation 3; without any it is new."""
    pairs = [[topic, number] for topic, numbers in owned.items() for number in numbers]
    return {"topics": topics, "rack_id": rack_id, "owned_partitions": pairs, "generation_id": 3 if pairs else -1}


_NINE = [["r1", "r3", "r2"], ["r3", "r2"], ["r2"], ["r3"], ["r3", "r1", "r2"], ["r2"], ["r2", "r3", "r1"], [], []]
_FOUR = [["r2"], ["r3"], ["r1", "r3"], []]

ROUNDS = (
    Round(
        "somebody must give, so all give up what is in no rack of theirs",
        _line(
            {
                "a": _member(["u"], "r1"),
                "b": _member(["t", "u"], "r3", t=[0, 1], u=[1]),
                "c": _member(["u"], "r1", u=[0, 2, 3]),
            },
            {"t": [["r1"], []], "u": [["r1", "r2", "r3"], ["r2", "r3"], [], []]},
        ),
        {"a": [("u", 2), ("u", 3)], "b": [("t", 0), ("t", 1)], "c": [("u", 0), ("u", 1)]},
    ),
    Round(
        "what a member was dealt a moment before does not go home to it",
        _line(
            {
                "a": _member(["u"], "r1", u=[0, 1, 2, 4, 6]),
                "b": _member(["t", "u"], None, u=[3, 5, 7, 8]),
                "c": _member(["t"], "r1", t=[0, 3]),
            },
            {"t": _FOUR, "u": _NINE},
        ),
        {
            "a": [("u", 0), ("u", 1), ("u", 4), ("u", 6)],
            "b": [("u", 2), ("u", 3), ("u", 5), ("u", 7), ("u", 8)],
            "c": [("t", 0), ("t", 1), ("t", 2), ("t", 3)],
        },
    ),
    Round(
        "what has moved away in this round returns before another goes the same way",
        _line(
            {
                "a": _member(["t"], "r1"),
                "b": _member(["u"], "r1"),
                "c": _member(["t", "u"], None),
                "d": _member(["t"], "r1"),
            },
            {"t": _FOUR, "u": _NINE},
        ),
        {
            "a": [("t", 1), ("t", 2)],
            "b": [("u", 0), ("u", 1), ("u", 2), ("u", 4), ("u", 6)],
            "c": [("u", 3), ("u", 5), ("u", 7), ("u", 8)],
            "d": [("t", 0), ("t", 3)],
        },
    ),
)
