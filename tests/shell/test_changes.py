"""Two settings of all clusters: which roles start, end and begin anew as the second takes the place of the first."""

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import streaming
from streaming.config import load_clusters
from streaming.settings import Settings
from streaming.settings.changes import READ_BY, ROLES, RoleChanges, changes, roles_of

SHELL = Path(streaming.__file__).parent
EAST, WEST = ({"kafka": {"bootstrap_servers": [f"{name}:9092"]}} for name in ("east", "west"))
NORTH = {"kafka": {"bootstrap_servers": ["north:9092"]}}
TWO: dict[str, Any] = {"clusters": {"east": EAST, "west": WEST}}
SHARED = {"collect": {"own_process": False}, "control": {"own_process": False}}
ALL_OF_ONE = ("collect", "pipeline", "control", "serve")
ALL_OF_TWO = ("collect-east", "collect-west", "pipeline", "control-east", "control-west", "serve")


def loaded(content: dict[str, Any], folder: Path) -> dict[str, Settings]:
    file = folder / "rebalancer.yaml"
    file.write_text(repr(content))  # YAML has the lists and mappings of Python, and its texts
    return {name: effective.settings for name, effective in load_clusters(file, None, {}).items()}


def of_clusters(**clusters: Any) -> dict[str, Any]:
    return {"clusters": clusters}


def with_key(cluster: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return cluster | sections


def names(found: RoleChanges) -> dict[str, tuple[str, ...]]:
    kinds = ("started", "ended", "restarted", "adjusted")
    shown = {kind: tuple(role.name for role in getattr(found, kind)) for kind in kinds}
    return {kind: roles for kind, roles in shown.items() if roles}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (TWO, TWO, {}),
        ({}, {}, {}),
        # A cluster is added, removed, paused, continued.
        (
            TWO,
            of_clusters(east=EAST, west=WEST, north=NORTH),
            {"started": ("collect-north", "control-north"), "adjusted": ("pipeline", "serve")},
        ),
        (
            of_clusters(east=EAST, west=WEST, north=NORTH),
            TWO,
            {"ended": ("collect-north", "control-north"), "adjusted": ("pipeline", "serve")},
        ),
        (
            TWO,
            of_clusters(east=EAST, west=with_key(WEST, paused=True)),
            {"ended": ("collect-west", "control-west"), "adjusted": ("pipeline", "serve")},
        ),
        (
            of_clusters(east=EAST, west=with_key(WEST, paused=True)),
            TWO,
            {"started": ("collect-west", "control-west"), "adjusted": ("pipeline", "serve")},
        ),
        (TWO, {"paused": True, **TWO}, {"ended": ALL_OF_TWO[:-1], "adjusted": ("serve",)}),
        # A cluster that is paused changes: nothing of it runs but what serve shows.
        (
            of_clusters(east=EAST, west=with_key(WEST, paused=True)),
            of_clusters(east=EAST, west=with_key(NORTH, paused=True)),
            {"adjusted": ("serve",)},
        ),
        # One cluster's own sections: only the roles that read them.
        (
            TWO,
            of_clusters(east=with_key(EAST, trigger={"enter_ratio": 3.0}), west=WEST),
            {"restarted": ("control-east",), "adjusted": ("serve",)},
        ),
        (
            TWO,
            of_clusters(east=with_key(EAST, collect={"sample_interval_ms": 9_000}), west=WEST),
            {"restarted": ("collect-east", "control-east"), "adjusted": ("serve",)},
        ),
        (
            TWO,
            of_clusters(east=with_key(EAST, topics={"byte_rate": "b"}), west=WEST),
            {"restarted": ("collect-east", "control-east"), "adjusted": ("pipeline", "serve")},
        ),
        # A section of every cluster, at the top: the roles of each.
        (
            TWO,
            {"trigger": {"enter_ratio": 3.0}, **TWO},
            {"restarted": ("control-east", "control-west"), "adjusted": ("serve",)},
        ),
        # Sections that all clusters share: the processes that read them.
        (TWO, {"serve": {"port": 1}, **TWO}, {"restarted": ("serve",)}),
        (TWO, {"notify": {"give_up_ms": 60_000}, **TWO}, {"restarted": ("serve",)}),
        (TWO, {"pipeline": {"window_ms": 30_000}, **TWO}, {"restarted": ALL_OF_TWO}),
        (TWO, {"storage": {"readable_by": "everyone"}, **TWO}, {"restarted": ALL_OF_TWO}),
        (TWO, {"log": {"level": "debug"}, **TWO}, {"restarted": ALL_OF_TWO}),
        # Other folders for all, of which each cluster has its own.
        (
            TWO,
            {"storage": {"tables": "/t"}, **TWO},
            {"restarted": tuple(name for name in ALL_OF_TWO if "-" in name), "adjusted": ("pipeline", "serve")},
        ),
        # One cluster alone: its roles.
        ({}, {"trigger": {"enter_ratio": 3.0}}, {"restarted": ("control", "serve")}),
        ({}, {"kafka": {"cluster_name": "x"}}, {"restarted": ALL_OF_ONE}),
        ({}, {"notify": {"give_up_ms": 60_000}}, {"restarted": ("serve",)}),
        (of_clusters(east=EAST), of_clusters(east=with_key(EAST, paused=True)),
         {"ended": ALL_OF_ONE[:-1], "restarted": ("serve",)}),
        # Clusters that share a process: it takes them one by one.
        (
            {**SHARED, **TWO},
            {**SHARED, **of_clusters(east=EAST, west=WEST, north=NORTH)},
            {"adjusted": ALL_OF_ONE},
        ),
        (
            {**SHARED, **TWO},
            {**SHARED, **of_clusters(east=with_key(EAST, control={"own_process": True}), west=WEST)},
            {"started": ("control-east",), "adjusted": ("control", "serve")},
        ),
        ({**SHARED, **TWO}, {"paused": True, **SHARED, **TWO}, {"ended": ALL_OF_ONE[:-1], "adjusted": ("serve",)}),
        # From one cluster to several and back, processes have other names and pages other addresses.
        (
            of_clusters(east=EAST),
            TWO,
            {
                "started": tuple(name for name in ALL_OF_TWO if "-" in name),
                "ended": ("collect", "control"),
                "restarted": ("pipeline", "serve"),
            },
        ),
        (
            TWO,
            of_clusters(east=EAST),
            {
                "started": ("collect", "control"),
                "ended": tuple(name for name in ALL_OF_TWO if "-" in name),
                "restarted": ("pipeline", "serve"),
            },
        ),
    ],
)  # fmt: skip
def test_only_the_roles_that_read_what_has_changed_are_touched(
    old: dict[str, Any], new: dict[str, Any], expected: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    assert names(changes(loaded(old, tmp_path), loaded(new, tmp_path))) == expected


def test_sections_of_all_clusters_that_have_changed_are_named(tmp_path: Path) -> None:
    new = {"serve": {"port": 1}, "storage": {"s3_region": "x", "tables": "/t"}, "trigger": {"enter_ratio": 3.0}, **TWO}
    assert changes(loaded(TWO, tmp_path), loaded(new, tmp_path)).shared_sections == ("storage", "serve")


def test_roles_after_a_change_are_those_that_a_start_with_the_new_settings_has(tmp_path: Path) -> None:
    """Roles follow from the settings alone: a kill at any moment and another start lead to the state of the file."""
    contents = [
        {}, TWO, of_clusters(east=EAST), of_clusters(east=EAST, north=NORTH), {"paused": True, **TWO},
        of_clusters(east=with_key(EAST, paused=True), west=WEST, north=NORTH), {"kafka": {"cluster_name": "x"}},
        {**SHARED, **TWO},
    ]  # fmt: skip
    for before, after in product([loaded(content, tmp_path) for content in contents], repeat=2):
        found = changes(before, after)
        kept = [role for role in roles_of(before) if role not in found.ended]
        assert {*kept, *found.started} == {*roles_of(after)}
        assert not {*kept} & {*found.started}
        assert {*found.restarted, *found.adjusted} <= {*kept}


def read_sections(folder: str) -> Iterator[str]:
    """Sections of the settings that the modules of a room read by the name `settings`, `_settings` or `each`."""
    for file in (SHELL / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in Settings.model_fields:
                owner = ast.unparse(node.value)
                if owner.rpartition(".")[2] in ("settings", "_settings", "each"):
                    yield node.attr


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_no_section_of_which_a_change_would_not_reach_it(role: str) -> None:
    found = set(read_sections(role))
    assert {"storage", "kafka"} <= found
    assert found <= READ_BY[role]
