"""A serve for several clusters: all of them at a glance, each below its own address, and one door for all."""

import json
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from assignor_core.resources import Resource
from assignor_core.skew import skew_of
from streaming.runtime import processes
from streaming.runtime.processes import free_port
from streaming.serve.api.load import overview
from streaming.serve.families import FAMILIES
from streaming.serve.metrics import Exposition, ExpositionOfAll
from streaming.serve.run import ClusterParts
from streaming.serve.snapshot import Snapshot, SnapshotReader, read_snapshot
from streaming.serve.web import ClusterRouter, Door, build_app, build_shared_app
from streaming.settings import Settings
from streaming.views.group_ranking import GroupPart
from tests.serve.asking import Acted, app_of, ask, get
from tests.serve.synthetic import NOW_MS, settings_for
from tests.waiting import DEADLINE_S, until

OLD_MS = 60_000
"""Age from which a snapshot is old, in tests that hand it in."""


@pytest.fixture(scope="module")
def snapshots(skewed_snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    """East is skewed; west has no tables yet."""
    west = read_snapshot(named(settings_for(tmp_path_factory.mktemp("west")), "west"), NOW_MS)
    return [replace(skewed_snapshot, kafka_cluster="east"), west]


def named(settings: Settings, name: str) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"cluster_name": name})})


def app_of_all(snapshots: Sequence[Snapshot], settings: Settings) -> ClusterRouter:
    def clock() -> int:
        return NOW_MS

    door = Door.of(settings.serve, clock)
    parts: list[tuple[Callable[[], Snapshot], Settings]] = []
    apps: dict[str, Any] = {}
    for snapshot in snapshots:
        own = named(settings, snapshot.kafka_cluster)
        parts.append((lambda snapshot=snapshot: snapshot, own))  # type: ignore[misc]
        exposition = Exposition(snapshot, own, ())
        apps[snapshot.kafka_cluster] = build_app(
            parts[-1][0], exposition, own, clock, Acted(), door=door, of_all=lambda: snapshots
        )
    router = ClusterRouter()
    router.replace(build_shared_app(parts, ExpositionOfAll(parts), clock, door), apps)
    return router


@pytest.fixture
def app(snapshots: list[Snapshot], skewed_tables: str) -> ClusterRouter:
    return app_of_all(snapshots, settings_for(Path(skewed_tables).parent))


def test_all_clusters_are_listed_the_worst_first(app: ClusterRouter) -> None:
    west, east = get(app, "/api/v1/clusters").json()["items"]
    assert (west["kafka_cluster"], west["is_stale"], west["window_end_ms"]) == ("west", True, None)
    assert (east["kafka_cluster"], east["is_stale"], east["mode"]) == ("east", False, "propose")
    assert max(value for value in east["max_over_mean"].values() if value) > east["threshold_enter"]
    assert east["groups"]
    assert [row["status"] for row in east["worst_groups"]] == sorted(row["status"] for row in east["worst_groups"])
    assert get(app, "/clusters/west/api/v1/clusters").json()["items"] == [west, east]


def test_a_cluster_that_can_not_be_read_comes_before_one_that_is_skewed(skewed_snapshot: Snapshot) -> None:
    broken = replace(skewed_snapshot, kafka_cluster="broken", failures={"load": "gone"})
    even = replace(skewed_snapshot, kafka_cluster="even", load=replace(skewed_snapshot.load, skew={}))
    rows = overview([even, skewed_snapshot, broken], now_ms=NOW_MS, old_after_ms=OLD_MS)
    assert [row["kafka_cluster"] for row in rows] == ["broken", skewed_snapshot.kafka_cluster, "even"]
    assert rows[0]["failures"] == ["load"]


def test_a_snapshot_that_is_no_longer_replaced_is_named_and_comes_first(skewed_snapshot: Snapshot) -> None:
    """A bug in the thread of one cluster leaves its last snapshot, whose figures look sound for a while."""
    left = replace(skewed_snapshot, kafka_cluster="left", read_at_ms=NOW_MS - OLD_MS - 1)
    rows = overview([skewed_snapshot, left], now_ms=NOW_MS, old_after_ms=OLD_MS)
    assert [(row["kafka_cluster"], row["failures"]) for row in rows] == [("left", ["snapshot"]), ("test", [])]


def test_skew_of_a_resource_that_makes_no_plan_makes_no_cluster_the_worst(skewed_snapshot: Snapshot) -> None:
    other = replace(skewed_snapshot, kafka_cluster="of-counts", trigger_resources=("bytes_out",))
    skews = {**skewed_snapshot.load.skew, Resource.BYTES_OUT: skew_of({1: 1.0, 2: 1.0})}
    skews[Resource.LEADERS] = skew_of({1: 9.0, 2: 1.0})
    other = replace(other, load=replace(skewed_snapshot.load, skew=skews))
    rows = overview([other, skewed_snapshot], now_ms=NOW_MS, old_after_ms=OLD_MS)
    assert [row["kafka_cluster"] for row in rows] == ["test", "of-counts"]
    assert rows[1]["max_over_mean"]["leaders"] > max(rows[0]["max_over_mean"].values())


@pytest.mark.long
def test_a_large_cluster_takes_no_series_of_another(snapshots: list[Snapshot], skewed_tables: str) -> None:
    """`serve.series_max` holds for each cluster; what is cut of one is counted for this one alone."""
    east, _ = snapshots
    small = replace(east, kafka_cluster="small")
    large = replace(east, kafka_cluster="large", groups=many_groups(east, 3_000))
    settings = settings_for(Path(skewed_tables).parent)
    serve = settings.serve.model_copy(update={"series_max": 2_000})
    app = app_of_all([large, small], settings.model_copy(update={"serve": serve}))
    alone = app_of_all([small], settings)

    def series(app: ClusterRouter, cluster: str) -> set[str]:
        lines = get(app, "/metrics").text.splitlines()
        return {line.rpartition(" ")[0] for line in lines if f'kafka_cluster="{cluster}"' in line}

    assert series(app, "small") == series(alone, "small")
    assert len(series(app, "large")) <= 2_000 + len(FAMILIES)
    text = get(app, "/metrics").text
    dropped = re.findall(r'^rebalancer_export_dropped_series\{.*kafka_cluster="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    assert {cluster for cluster, count in dropped if float(count) > 0} == {"large"}


def many_groups(snapshot: Snapshot, total: int) -> GroupPart:
    """Returns the consumer groups of a snapshot, over and over under other names."""
    topics = cycle(snapshot.groups.topics)
    groups = cycle(snapshot.groups.groups)
    names = [f"group-{number}" for number in range(total)]
    return replace(
        snapshot.groups,
        topics=tuple(replace(topic, group=name) for topic, name in zip(topics, names, strict=False)),
        groups=tuple(replace(group, group=name) for group, name in zip(groups, names, strict=False)),
    )


def test_a_plan_waits_until_it_expires_or_an_execution_begins(skewed_snapshot: Snapshot) -> None:
    plan = {"plan_id": "p", "movement_count": 1, "created_ms": NOW_MS - 10, "expires_ms": NOW_MS + 10}

    def waiting(plan: dict[str, Any], execution: dict[str, Any] | None) -> str | None:
        control = replace(skewed_snapshot.control, plan=plan, execution=execution)
        (row,) = overview([replace(skewed_snapshot, control=control)], now_ms=NOW_MS, old_after_ms=OLD_MS)
        found: str | None = row["waiting_plan_id"]
        return found

    assert waiting(plan, None) == "p"
    assert waiting(plan, {"plan_id": "before", "started_ms": NOW_MS - 20}) == "p"
    assert waiting(plan, {"plan_id": "p", "started_ms": NOW_MS - 5}) is None
    not_begun = {"execution_id": "e", "started_ms": None, "under_way": False}
    assert waiting(plan, {"plan_id": "before", "event": "refused", **not_begun}) == "p"
    assert waiting(plan, {"plan_id": "p", "needs_approval": True, **not_begun}) == "p", "it needs another approval"
    assert waiting(plan | {"expires_ms": NOW_MS}, None) is None
    assert waiting(plan | {"movement_count": 0}, None) is None


def test_each_cluster_answers_below_its_address_as_alone(
    app: ClusterRouter, snapshots: list[Snapshot], skewed_tables: str
) -> None:
    alone = app_of(snapshots[0], named(settings_for(Path(skewed_tables).parent), "east"), now_ms=NOW_MS)
    for path in ("/api/v1/groups", "/api/status", "/readyz", "/metrics", "/", "/main.js"):
        there = get(app, f"/clusters/east{path}")
        assert there.status_code == get(alone, path).status_code == 200
        if path != "/metrics":
            assert there.content == get(alone, path).content
    assert get(app, "/clusters/west/api/v1/brokers").json()["items"] == []
    moved = get(app, "/clusters/east")
    assert (moved.status_code, moved.headers["location"]) == (307, "east/")


@pytest.mark.parametrize("path", ["/clusters/north/", "/api/status", "/api/v1/brokers", "/clusters/", "/clusters//api"])
def test_what_is_of_no_cluster_is_not_found(app: ClusterRouter, path: str) -> None:
    assert get(app, path).status_code == 404


def test_metrics_have_the_series_of_all_clusters_each_family_once(app: ClusterRouter) -> None:
    text = get(app, "/metrics").text
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples if family.name.startswith("rebalancer")]
    assert {sample.labels["kafka_cluster"] for sample in samples} == {"east", "west"}
    assert len({(sample.name, *sorted(sample.labels.items())) for sample in samples}) == len(samples)


def test_series_without_a_cluster_are_left_to_each_clusters_own_metrics(
    snapshots: list[Snapshot], skewed_tables: str
) -> None:
    settings = settings_for(Path(skewed_tables).parent)
    serve = settings.serve.model_copy(update={"compatible_metrics": ["kafka_exporter"]})
    app = app_of_all(snapshots, settings.model_copy(update={"serve": serve}))
    assert "kafka_consumergroup_lag" not in get(app, "/metrics").text
    assert "kafka_consumergroup_lag" in get(app, "/clusters/east/metrics").text


def test_ready_names_the_cluster_that_can_not_be_read(snapshots: list[Snapshot], skewed_tables: str) -> None:
    east, west = snapshots
    app = app_of_all(
        [east, replace(west, failures={"load": "the disk is gone"})], settings_for(Path(skewed_tables).parent)
    )
    answer = get(app, "/readyz")
    assert (answer.status_code, answer.json()["problems"]) == (503, ["west: load: the disk is gone"])
    assert get(app, "/healthz").status_code == 200


def test_a_foreign_host_is_refused_below_the_address_of_a_cluster_too(app: ClusterRouter) -> None:
    for path in ("/api/v1/clusters", "/clusters/east/api/status"):
        assert ask(app, "GET", path, headers={"Host": "evil.example.org"}).status_code == 421


@pytest.mark.long
def test_one_process_serves_all_clusters_whose_log_lines_name_them(tmp_path: Path) -> None:
    """A cluster whose folder appears later is read then; the end of the process is in order."""
    port, config, log_file = free_port(), tmp_path / "rebalancer.yaml", tmp_path / "serve.log"
    clusters = {name: {"kafka": {"bootstrap_servers": [f"{name}:9092"]}} for name in ("east", "west")}
    settings = {
        "storage": {"tables": str(tmp_path / "tables")},
        "serve": {"port": port, "refresh_interval_ms": 100},
        "log": {"format": "json"},
        "clusters": clusters,
    }
    config.write_text(yaml.safe_dump(settings))
    (tmp_path / "tables" / "clusters" / "east").mkdir(parents=True)
    process = processes.start([sys.executable, "-m", "streaming", "serve", "--config", str(config)], log=log_file)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client:

            def problems() -> list[str] | None:
                try:
                    found: list[str] = client.get("/readyz").json()["problems"]
                except httpx.TransportError:
                    return None
                return found

            first = until("serve answers", problems)
            assert {problem.partition(":")[0] for problem in first} == {"west"}
            assert client.get("/clusters/west/api/status").json()["kafka_cluster"] == "west"
            assert client.get("/clusters/east/metrics").text.count('kafka_cluster="west"') == 0
            (tmp_path / "tables" / "clusters" / "west").mkdir()
            until("west is read", lambda: problems() == [])
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    named = {line["event"]: line.get("kafka_cluster") for line in lines}
    assert named["snapshot_part_failed"] == named["snapshot_part_recovered"] == "west"


def test_the_end_of_serve_waits_for_the_slowest_cluster_and_not_for_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cluster's threads may be in the middle of a request, and a process that ends late is killed."""
    settings = settings_for(tmp_path, serve={"refresh_interval_ms": 100})
    others, reading = set(threading.enumerate()), threading.Event()
    parts = ClusterParts({name: named(settings, name) for name in ("east", "west")}, lambda _settings: Acted())
    read, own_threads = SnapshotReader.read, list[threading.Thread]()

    def slow(reader: SnapshotReader, now_ms: int) -> Snapshot:
        if threading.current_thread() is own_threads[0]:  # that of the first cluster, which is waited for first
            reading.set()
            until("the other cluster's thread has ended", lambda: not own_threads[1].is_alive())
        return read(reader, now_ms)

    parts.start()
    own_threads += [thread for thread in threading.enumerate() if thread not in others]
    monkeypatch.setattr(SnapshotReader, "read", slow)
    assert reading.wait(DEADLINE_S)
    parts.stop()
    assert not any(thread.is_alive() for thread in own_threads)
