"""What /api/status answers: all of a small cluster, and of any other what matters most, in a bounded body."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from assignor_core.resources import MEASURED, Resource
from assignor_core.skew import skew_of
from streaming.serve.api.pages import BODY_BYTES_MAX, as_json
from streaming.serve.snapshot import Snapshot
from streaming.serve.status import status_of
from streaming.views.group_memberships import GroupMembership
from streaming.views.group_ranking import BY_TOPIC, GroupPart, GroupTopic, GroupVerdict, RankingRows
from streaming.views.json_values import to_json
from streaming.views.log_dirs import LogDirState
from streaming.views.partition_loads import HotPartition
from streaming.views.restarts import EFFECTS, BrokerRestart
from tests.serve.synthetic import NOW_MS

BROKERS, GROUPS, LOG_DIRS, HOT = 1_000, 10_000, 12_000, 1_000
LONG = 240
"""About the length of the longest topic names."""


@pytest.fixture(scope="module")
def small(skewed_snapshot: Snapshot) -> Snapshot:
    return skewed_snapshot


@pytest.fixture(scope="module")
def body(large: Snapshot) -> dict[str, Any]:
    """The answer for `large`."""
    return status_of(large)


@pytest.fixture(scope="module")
def large(small: Snapshot) -> Snapshot:
    """A thousand brokers, of which the last has sent nothing in the window; names as long as they may be."""
    one = small.load.brokers[0]
    loads = {broker: 1e8 + broker for broker in range(BROKERS - 1)}
    brokers = tuple(replace(one, broker=broker) for broker in range(BROKERS))
    skew = {str(resource): skew_of(loads) for resource in MEASURED}
    hot = tuple(HotPartition(1, "t" * LONG, number, 1e9 / 3) for number in range(HOT))
    load = replace(small.load, brokers=brokers, skew=skew, hot_partitions=hot)
    names = [f"{number:05}-{'ü' * (LONG // 2)}" for number in range(GROUPS)]
    verdicts = tuple(GroupVerdict(name, "ok", "it keeps up", "Stable", 50, {"ok": 50}, 3, 0.25) for name in names)
    # Most lag first: the topic of the group whose verdict is worst comes last.
    topics = tuple(_topic(name, lag) for lag, name in enumerate(reversed(names)))
    memberships = tuple(GroupMembership(name, 5, 0, None) for name in names)
    log_dirs = tuple(
        LogDirState(number % BROKERS, f"/{number:05}", NOW_MS, "online", 12_000, number) for number in range(LOG_DIRS)
    )
    effects = dict.fromkeys(EFFECTS, 10_000)
    restarts = tuple(BrokerRestart(number, NOW_MS, number % 2 == 0, effects) for number in range(BROKERS))
    part = GroupPart(verdicts, topics[::-1][:-1] + topics[:1], NOW_MS, {"ok": GROUPS})
    return replace(small, load=load, groups=part, memberships=memberships, log_dirs=log_dirs, restarts=restarts)


def _topic(group: str, lag: int) -> GroupTopic:
    return GroupTopic(group, "t" * LONG, "Stable", 50, {"ok": 50}, lag, lag, 0.25, None, NOW_MS)


def rows(body: dict[str, Any], path: str) -> list[dict[str, Any]]:
    *part, name = path.split(".")
    found: list[dict[str, Any]] = (body[part[0]] if part else body)[name]
    return found


def test_of_a_small_cluster_nothing_is_left_out(small: Snapshot) -> None:
    body = status_of(small)
    left_out = body.pop("left_out")
    assert [one["name"] for one in body.pop("resources")] == [str(resource) for resource in Resource]
    assert body == to_json(small)
    assert set(left_out.values()) == {0}


@pytest.mark.long
def test_the_body_is_bounded_and_counts_what_it_leaves_out(body: dict[str, Any]) -> None:
    assert len(as_json(body)) <= BODY_BYTES_MAX
    sizes = {
        "load.brokers": BROKERS, "load.hot_partitions": HOT, "groups.groups": GROUPS, "groups.topics": GROUPS,
        "memberships": GROUPS, "log_dirs": LOG_DIRS, "restarts": BROKERS,
    }  # fmt: skip
    assert body["left_out"].keys() == sizes.keys()
    for path, size in sizes.items():
        assert 0 < len(rows(body, path)) == size - body["left_out"][path], path


@pytest.mark.long
def test_the_worst_groups_are_shown_with_their_topics(large: Snapshot, body: dict[str, Any]) -> None:
    shown = [row["group"] for row in body["groups"]["groups"]]
    assert shown == [row.group for row in large.groups.groups[: len(shown)]]
    topics = {row["group"] for row in body["groups"]["topics"]}
    assert shown[0] in topics
    assert topics <= set(shown)


def test_silent_brokers_and_those_furthest_off_the_mean_are_shown(body: dict[str, Any]) -> None:
    shown = [row["broker"] for row in body["load"]["brokers"]]
    assert shown == sorted(shown)
    assert {0, BROKERS - 2, BROKERS - 1} <= set(shown)
    for skew in body["load"]["skew"].values():
        assert set(skew["deviation"]) == {str(broker) for broker in shown} - {str(BROKERS - 1)}


def test_the_fullest_log_dirs_are_shown(body: dict[str, Any]) -> None:
    shown = body["log_dirs"]
    assert {row["path"] for row in shown} == {f"/{number:05}" for number in range(len(shown))}


def test_names_of_lag_exporters_in_metrics_leave_the_status_as_it_is(small: Snapshot) -> None:
    offsets = {BY_TOPIC: RankingRows(pa.table({"group": ["g"]}), {})}
    exported = replace(small, groups=replace(small.groups, offsets=offsets))
    assert status_of(exported) == status_of(small)
