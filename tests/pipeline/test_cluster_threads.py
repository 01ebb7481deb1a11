"""Pipelines of several clusters in one process: what ends one of them, what ends all, and how long it waits."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import structlog

from streaming.errors import ClusterUnreachable, SetUpIncomplete
from streaming.runtime import cluster_threads
from streaming.runtime.cluster_threads import ClusterThreads
from streaming.settings import Settings
from streaming.settings.clusters import NamedClusterSettings
from tests.waiting import DEADLINE_S, until

EXIT_QUERY_FAILED = 4
Pipeline = Callable[[Settings, threading.Event], int]


class Spark:
    """Spark's start, as the threads see it."""

    ended = False
    failure: Exception | None = None

    def has_ended(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.ended


def settings_of(*names: str) -> dict[str, Settings]:
    return {name: Settings.model_validate({"kafka": {"cluster_name": name}}) for name in names}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_threads, "RETRY_WAIT_S", 0.0)


@contextmanager
def running(
    clusters: dict[str, Settings], run_one: Callable[[Settings, threading.Event], int]
) -> Iterator[ClusterThreads]:
    """The threads of these clusters, which end with the context."""
    stopping = threading.Event()
    threads = ClusterThreads("pipeline", clusters, run_one, stopping, Spark())
    thread = threading.Thread(target=threads.run)
    thread.start()
    try:
        yield threads
    finally:
        stopping.set()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()


def run_with(spark: Spark | None, run_one: Callable[[str, threading.Event], int]) -> int:
    """Run two clusters with this pipeline, whose first run begins once both have begun."""
    stopping, both, begun = threading.Event(), threading.Barrier(2, timeout=DEADLINE_S), set[str]()

    def run(settings: Settings, _own_end: threading.Event) -> int:
        name = settings.kafka.cluster_name
        if name not in begun:
            begun.add(name)
            both.wait()
        return run_one(name, stopping)

    return ClusterThreads("pipeline", settings_of("east", "west"), run, stopping, spark).run()


@pytest.mark.parametrize("failure", [ClusterUnreachable("away"), KeyError("a bug"), EXIT_QUERY_FAILED])
def test_a_cluster_that_fails_is_tried_again_and_the_other_runs_on(failure: Exception | int) -> None:
    runs: dict[str, int] = {"east": 0, "west": 0}

    def run_one(name: str, stopping: threading.Event) -> int:
        runs[name] += 1
        if name == "east" and runs[name] < 4:
            if isinstance(failure, int):
                return failure
            raise failure
        if name == "east":
            stopping.set()
        assert stopping.wait(DEADLINE_S)
        return 0

    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as logged:
        assert run_with(Spark(), run_one) == 0
    assert runs == {"east": 4, "west": 1}
    failed = [row for row in logged if row["event"] == "cluster_failed"]
    if isinstance(failure, Exception):
        assert [row["kafka_cluster"] for row in failed] == ["east"] * 3
        assert type(failure).__name__ in failed[0]["error"]


def test_a_jvm_that_has_ended_ends_all_with_the_code_of_a_dead_query() -> None:
    spark = Spark()

    def run_one(name: str, stopping: threading.Event) -> int:
        if name == "west":
            stopping.wait(DEADLINE_S)
        spark.ended = True
        return 4

    assert run_with(spark, run_one) == 4


def test_spark_that_does_not_start_ends_all_with_its_error() -> None:
    spark = Spark()

    def run_one(_name: str, _stopping: threading.Event) -> int:
        spark.failure = SetUpIncomplete("no Java")
        raise spark.failure

    with pytest.raises(SetUpIncomplete, match="no Java"):
        run_with(spark, run_one)


def test_pauses_grow_while_a_cluster_fails_soon_after_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_threads, "RETRY_WAIT_S", 0.001)
    monkeypatch.setattr(cluster_threads, "RETRY_WAIT_MAX_S", 0.004)
    runs: list[str] = []

    def run_one(name: str, stopping: threading.Event) -> int:
        if name == "west":
            stopping.wait(DEADLINE_S)
            return 0
        runs.append(name)
        if len(runs) == 5:
            stopping.set()
        return 4

    with structlog.testing.capture_logs() as logged:
        assert run_with(Spark(), run_one) == 0
    assert [row["after_s"] for row in logged if row["event"] == "cluster_is_tried_again"] == [
        0.001,
        0.002,
        0.004,
        0.004,
    ]


def test_clusters_come_go_and_change_while_the_others_run_on() -> None:
    """A changed cluster's next pipeline begins when the one before has ended: both write the same tables."""
    runs, alive = list[str](), set[str]()

    def run_one(settings: Settings, own_end: threading.Event) -> int:
        name = settings.kafka.cluster_name
        assert name not in alive
        alive.add(name)
        runs.append(name)
        assert own_end.wait(DEADLINE_S)
        alive.discard(name)
        return 0

    with running(settings_of("east", "west", "north"), run_one) as threads:
        until("all run", lambda: alive == {"east", "west", "north"})
        west = Settings.model_validate({"kafka": {"cluster_name": "west", "request_timeout_ms": 7_000}})
        threads.adjust(settings_of("east", "south") | {"west": west})
        until("the new ones run", lambda: len(runs) == 5 and alive == {"east", "west", "south"})
    assert sorted(runs[:3]) == ["east", "north", "west"]
    assert sorted(runs[3:]) == ["south", "west"]
    assert not alive


def test_a_paused_cluster_has_no_pipeline_and_what_a_pipeline_does_not_read_disturbs_none() -> None:
    runs = list[str]()

    def named(name: str, **own: object) -> dict[str, Settings]:
        return {name: NamedClusterSettings.model_validate({"kafka": {"cluster_name": name}, **own})}

    def run_one(settings: Settings, own_end: threading.Event) -> int:
        runs.append(settings.kafka.cluster_name)
        assert own_end.wait(DEADLINE_S)
        return 0

    with running(named("east", paused=True) | named("west"), run_one) as threads:
        until("west runs", lambda: runs == ["west"])
        threads.adjust(named("east") | named("west", trigger={"enter_ratio": 3.0}))
        until("east runs", lambda: len(runs) == 2)
    assert runs == ["west", "east"]


def test_a_cluster_that_hangs_keeps_no_other_and_no_end_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_threads, "END_WAIT_S", 0.05)
    released, runs = threading.Event(), list[str]()

    def run_one(name: str, stopping: threading.Event) -> int:
        runs.append(name)
        if name == "east":
            assert released.wait(DEADLINE_S)  # and hears of no end
        if runs.count("west") == 3:
            stopping.set()
        return 0

    with structlog.testing.capture_logs() as logged:
        assert run_with(None, run_one) == 0
    released.set()
    assert sorted(runs) == ["east", "west", "west", "west"]
    assert [row["threads"] for row in logged if row["event"] == "clusters_hang"] == [["cluster-east"]]
