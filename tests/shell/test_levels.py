"""Levels of rights: one table for `check`, for the script that grants them and for the page that explains them."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from streaming.cluster.permissions import (
    RIGHTS,
    ROLES,
    Level,
    Missing,
    Right,
    RightScope,
    level_reached,
)
from streaming.commands.check import level_finding, permissions_finding
from streaming.runtime.jars import PROJECT_ROOT
from tests.waiting import DEADLINE_S

SCRIPT = PROJECT_ROOT / "deploy" / "acls" / "grant.sh"
NAMES = {
    RightScope.CLUSTER: ("--cluster",), RightScope.TOPICS: ("--topic *",), RightScope.GROUPS: ("--group *",),
    RightScope.INPUT_TOPICS: ("--topic rebalancer.byte-rate", "--topic rebalancer.consumer-lag"),
    RightScope.FOREIGN_TOPICS: ("--topic agents",),
}  # fmt: skip
OPERATIONS = {"Describe": "DESCRIBE", "DescribeConfigs": "DESCRIBE_CONFIGS", "Alter": "ALTER",
              "AlterConfigs": "ALTER_CONFIGS", "Create": "CREATE", "Write": "WRITE", "Read": "READ"}  # fmt: skip


def lacking(level: Level) -> list[Missing]:
    """What a user lacks who has the rights of all levels below `level`."""
    levels = list(Level)
    return [Missing(right, right.scope) for right in RIGHTS if levels.index(right.level) >= levels.index(level)]


def rights_of(level: Level) -> str:
    """The cell of the page: what the level adds to those before it."""
    parts: dict[str, list[str]] = {}
    for right in RIGHTS:
        if right.level is level:
            row = parts.setdefault(f"{right.role}: {{}} on {right.scope}", [])
            row.append(next(name for name, kafka in OPERATIONS.items() if kafka == right.operation))
    return "; ".join(text.format(", ".join(operations)) for text, operations in parts.items())


def test_each_level_adds_rights() -> None:
    assert {right.level for right in RIGHTS} == set(Level)


def test_a_role_needs_no_right_twice() -> None:
    rows = [(right.role, right.scope, right.operation) for right in RIGHTS]
    assert len(set(rows)) == len(rows)


def test_the_page_has_the_table() -> None:
    page = (PROJECT_ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for level in Level:
        assert f"| `{level}` | {rights_of(level)} | " in page


@pytest.mark.parametrize("level", list(Level))
def test_check_shows_the_level_that_is_reached_and_what_brings_the_next(level: Level) -> None:
    levels = list(Level)
    reached = level_reached(lacking(level), ROLES)
    place = levels.index(level)
    assert reached.level == (levels[place - 1] if place else None)
    assert reached.next_level is level
    assert {row.right for row in reached.missing} == {right for right in RIGHTS if right.level is level}
    finding = level_finding(lacking(level), ROLES, mode="propose")
    assert finding.passed == (place > 0)
    assert finding.detail.startswith(f"{levels[place - 1] if place else 'none'}; {level} needs ")


def test_with_all_rights_check_says_that_there_is_no_higher_level() -> None:
    assert level_finding([], ROLES, mode="apply").detail == "execute, the highest of these roles"
    assert level_finding([], ["collect"], mode="apply").detail == "load, the highest of these roles"
    assert permissions_finding("collect", ()).passed


def test_mode_apply_needs_the_last_level() -> None:
    missing = lacking(Level.EXECUTE)
    assert level_finding(missing, ROLES, mode="propose").passed
    assert not level_finding(missing, ROLES, mode="apply").passed
    assert level_finding(missing, ["collect"], mode="apply").passed


@pytest.mark.parametrize("level", list(Level))
def test_who_wants_a_level_only_needs_what_it_needs(level: Level) -> None:
    above = [row for row in lacking(Level.LAG) if not level.includes(row.right.level)]
    assert level_finding(above, ROLES, mode="propose", wanted=level).passed
    if level is not Level.EXECUTE:
        assert not level_finding(lacking(level), ROLES, mode="propose", wanted=level).passed
    assert level_finding([], ["pipeline"], mode="propose", wanted=level).passed


def test_a_right_is_named_once_though_two_roles_need_it() -> None:
    needs = [Right(role, RightScope.CLUSTER, "DESCRIBE", "log dirs", Level.LOAD) for role in ("collect", "control")]
    reached = level_reached([Missing(right, "cluster") for right in needs], ROLES)
    assert str(reached) == "lag; load needs DESCRIBE on cluster (log dirs)"


def granted(folder: Path, role: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What the script asks of kafka-acls.sh, a call a line."""
    tool = folder / "kafka-acls.sh"
    tool.write_text('#!/bin/sh\necho "$@"\n')
    tool.chmod(0o755)
    given = {**os.environ, "KAFKA_ACLS": str(tool), "FOREIGN_TOPICS": "agents", **environment}
    command = [str(SCRIPT), role, "User:somebody", "127.0.0.1:9092"]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def rows_of(calls: Sequence[str]) -> set[tuple[str, str]]:
    """(RightScope as the tool takes it, operation) of each grant."""
    rows = set()
    for call in calls:
        words = call.split()
        operations = [words[place + 1] for place, word in enumerate(words) if word == "--operation"]
        resources = ["--cluster"] if "--cluster" in words else []
        resources += [
            f"{word} {words[place + 1]}" for place, word in enumerate(words) if word in ("--topic", "--group")
        ]
        rows |= {(resource, OPERATIONS[operation]) for resource in resources for operation in operations}
    return rows


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("role", [*ROLES, "all"])
def test_the_script_grants_up_to_a_level_and_no_more(role: str, level: Level, tmp_path: Path) -> None:
    levels = list(Level)
    wanted = {
        (name, right.operation)
        for right in RIGHTS
        if role in (right.role, "all") and levels.index(right.level) <= levels.index(level)
        for name in NAMES[right.scope]
    }
    assert rows_of(granted(tmp_path, role, LEVEL=level).stdout.splitlines()) == wanted


def test_without_a_level_the_script_grants_all_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    everything = {(name, right.operation) for right in RIGHTS for name in NAMES[right.scope]}
    assert rows_of(granted(tmp_path, "all").stdout.splitlines()) == everything
    answer = granted(tmp_path, "all", LEVEL="everything")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "error: level everything is unknown, allowed are lag, load, plan and execute\n"
