"""docs/json-formats.md: every field that commands read or write stands there once, and no other."""

import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from assignor_core.errors import InputError
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.model import cluster_from_json
from assignor_core.plan import CheaperPlan, Movement, Plan, Wave
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.commands.assign import assignment_answer
from streaming.commands.place import placement_answer
from streaming.runtime.jars import PROJECT_ROOT

PAGE = (PROJECT_ROOT / "docs" / "json-formats.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^#{2,3} ", PAGE, flags=re.MULTILINE)[1:]}


class Read(dict[str, Any]):
    """An object that notes which fields are asked for."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """As of any dict."""
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


def rows(title: str) -> dict[str, list[str]]:
    """The cells of a section's table by field."""
    lines = [line.strip("| ").split(" | ") for line in SECTIONS[title].splitlines() if line.startswith("| `")]
    fields = [cells[0].strip("`") for cells in lines]
    assert len(set(fields)) == len(fields), "a field stands there once"
    return dict(zip(fields, lines, strict=True))


def is_always_there(cells: list[str]) -> bool:
    """Whether a field must be there: the type of any other field ends with a question mark."""
    return not cells[1].endswith("?")


def example(title: str) -> dict[str, Any]:
    """The object that a section shows."""
    code = "\n".join(line for line in SECTIONS[title].splitlines() if line.startswith("    "))
    content: dict[str, Any] = json.loads(code)
    return content


MODEL: dict[str, Any] = {
    "cluster_id": "c",
    "observed_at_ms": 1,
    "brokers": [
        {
            "broker_id": 1,
            "rack": "r",
            "state": "alive",
            "capacity": {"bytes_in_per_sec": 9.0, "bytes_out_per_sec": 9.0, "disk_bytes": 9.0},
            "log_dirs": [{"path": "/d", "total_bytes": 9, "usable_bytes": 9, "state": "online"}],
        }
    ],
    "partitions": [
        {
            "topic": "t",
            "partition": 0,
            "replicas": [1],
            "load": {"bytes_in_per_sec": 1.0, "bytes_out_per_sec": 1.0, "disk_bytes": 1.0},
            "in_sync": 1,
        }
    ],
}
LINE: dict[str, Any] = {
    "strategy": "sticky",
    "partitions_per_topic": {"t": 1},
    "members": {
        "c-1": {
            "topics": ["t"], "owned_partitions": [["t", 0]], "generation_id": 1, "group_instance_id": None,
            "rack_id": None, "capacity": 1.0,
        }
    },
    "partition_racks": None,
    "partition_weights": None,
}  # fmt: skip
PLACED: dict[str, Any] = {
    "brokers": [{"broker_id": 0, "rack": None}], "partitions": 1, "replication_factor": 1, "fixed_start_index": -1,
    "start_partition_id": 0, "seed": 1,
}  # fmt: skip
READ: dict[str, tuple[Callable[[Any], object], dict[str, Any], tuple[str | int, ...]]] = {
    "Cluster model": (cluster_from_json, MODEL, ()),
    "Broker of the model": (cluster_from_json, MODEL, ("brokers", 0)),
    "Capacity of a broker": (cluster_from_json, MODEL, ("brokers", 0, "capacity")),
    "Log dir of a broker": (cluster_from_json, MODEL, ("brokers", 0, "log_dirs", 0)),
    "Partition of the model": (cluster_from_json, MODEL, ("partitions", 0)),
    "Load of a partition": (cluster_from_json, MODEL, ("partitions", 0, "load")),
    "Lines of `assign`": (assignment_answer, LINE, ()),
    "Member of a group": (assignment_answer, LINE, ("members", "c-1")),
    "Lines of `place`": (placement_answer, PLACED, ()),
}
"""By section: who reads it, a whole object, and where in it what the section describes lies."""


def with_read(content: dict[str, Any], path: tuple[str | int, ...], without: str = "") -> tuple[Any, Read]:
    """A copy of the object with the part at `path` noting what is asked of it, and that part."""
    whole: Any = {"": deepcopy(content)}
    holder, last = whole, ""
    for step in path:
        holder, last = holder[last], step  # type: ignore[assignment]
    part = Read(holder[last])
    part.pop(without, None)
    holder[last] = part
    return whole[""], part


@pytest.mark.parametrize("title", READ)
def test_each_field_that_is_read_stands_there(title: str) -> None:
    read, content, path = READ[title]
    whole, part = with_read(content, path)
    read(whole)
    assert part.asked == rows(title).keys()


@pytest.mark.parametrize(("title", "field"), [(title, field) for title in READ for field in rows(title)])
def test_what_must_be_there_is_missed_and_nothing_else(title: str, field: str) -> None:
    read, content, path = READ[title]
    whole, _ = with_read(content, path, without=field)
    if is_always_there(rows(title)[field]):
        with pytest.raises(InputError):
            read(whole)
    else:
        read(whole)


RATIO = {"bytes_in": {"max_over_mean": 1.0, "coefficient_of_variation": 0.0}}
MOVE = Movement("t", 0, (1,), (2,), 5.0, "why")
LIVE = LiveCluster("id", {1: None, 2: None}, {("t", 0): LivePartition((1,), 1, (1,))}, topic_ids={"t": "i"})


def live_plan() -> dict[str, Any]:
    """A plan with all that one made on a live cluster can have."""
    plan = Plan("c", (MOVE,), RATIO, RATIO, {"bytes_in": 1.0}, waves=(Wave(1, 5.0, 1.0),))
    plan = replace(plan, cheaper=(CheaperPlan(0.5, 1, 5.0),), least_bytes=4.0)
    return ProposedPlan(plan, Observed.of(plan, LIVE), worst_hour={"before": RATIO, "after": RATIO}).to_json()


def plan_within() -> dict[str, Any]:
    """A plan within a broker, of a model: it has what other plans have not, and lacks what must not always be there."""
    return ProposedPlan(Plan("c", (), log_dir_movements=(LogDirMovement(1, "t", 0, "/a", "/b", 5.0, "why"),))).to_json()


def test_each_field_of_a_plan_stands_there() -> None:
    live, within = live_plan(), plan_within()
    assert {*live, *within, "accuracy"} == rows("Plan").keys()
    assert live.keys() & within.keys() == {field for field, cells in rows("Plan").items() if is_always_there(cells)}
    parts = {
        "Movement": live["movements"][0],
        "Movement within a broker": within["log_dir_movements"][0],
        "Skew of a resource": live["skew_before"]["bytes_in"],
        "Wave": live["waves"][0],
        "Cheaper plan": live["cheaper"][0],
        "Schedule of a wave": live["schedule"][0],
        "What a live plan rests on": live["observed"],
    }
    assert {title: set(part) for title, part in parts.items()} == {title: set(rows(title)) for title in parts}
    assert {f"`{field}`" for field in live["schedule"][0]["brokers"][0]} <= set(
        re.findall(r"`\w+`", rows("Schedule of a wave")["brokers"][-1])
    )
    bare = Observed({}, {}).to_json().keys()
    assert bare == {field for field, cells in rows("What a live plan rests on").items() if is_always_there(cells)}


def test_each_field_of_an_answer_stands_there() -> None:
    assert assignment_answer(LINE).keys() == rows("Answer of `assign`").keys()


def test_each_table_is_compared_with_the_code() -> None:
    of_plans = {
        "Plan", "Movement", "Movement within a broker", "Skew of a resource", "Wave", "Cheaper plan",
        "Schedule of a wave", "What a live plan rests on",
    }  # fmt: skip
    assert READ.keys() | of_plans | {"Answer of `assign`"} == SECTIONS.keys()


def test_the_examples_are_answered() -> None:
    assert len(cluster_from_json(example("Cluster model")).partitions) == 2
    assert "assignment" in assignment_answer(example("Lines of `assign`"))
    answer = json.dumps(placement_answer(example("Lines of `place`")))
    assert f"`{answer}`" in SECTIONS["Lines of `place`"]
