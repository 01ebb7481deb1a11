"""The process around the queries: waiting for topics, brokers that are away, a Spark that can't start."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import structlog
from kafka.errors import KafkaConnectionError

from streaming.errors import ClusterUnreachable, RefusedForSafety, UsageProblem
from streaming.pipeline import run
from streaming.pipeline.checkpoints import FINGERPRINT
from streaming.pipeline.guards import only_writer
from streaming.runtime import clocks
from streaming.settings import KafkaSettings, Settings
from tests.waiting import DEADLINE_S

NAMES = ("rebalancer.byte-rate", "rebalancer.consumer-lag")
LEADER_NOT_AVAILABLE = 5
Answer = dict[str, int] | Exception
"""Error codes of the topics by name, or what the request fails with."""


class Brokers:
    """Answers requests for metadata, each from the list, the last one for good."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests = 0

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        answer = self._answers[min(self.requests, len(self._answers) - 1)]
        self.requests += 1
        if isinstance(answer, Exception):
            raise answer
        return [
            {"name": name, "topic_id": f"id of {name}", "error_code": answer[name]} for name in topics if name in answer
        ]

    def close(self) -> None:
        """Nothing is open."""


Reach = Callable[..., Brokers]


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Reach:
    def answering(*answers: Answer) -> Brokers:
        brokers = Brokers(*answers)
        monkeypatch.setattr(run, "admin_client", lambda _settings: brokers)
        monkeypatch.setattr(run, "TOPIC_POLL_S", 0.0)
        return brokers

    return answering


BOTH: Answer = dict.fromkeys(NAMES, 0)
IDS = {name: f"id of {name}" for name in NAMES}


def nothing() -> None:
    """What to do meanwhile."""


NOT_YET: Answer = {NAMES[0]: 0, NAMES[1]: LEADER_NOT_AVAILABLE}
"""Else it would be noted without its id, and nobody would see when it is made again."""


@pytest.mark.parametrize(
    "answers",
    [({}, NOT_YET), ({}, KafkaConnectionError("away"), ConnectionResetError("away")), ({}, UsageProblem("a file"))],
    ids=["a topic that can't be described yet", "brokers that are away", "a file of the login that is being written"],
)
def test_topics_are_waited_for_whatever_comes_between(reach: Reach, answers: tuple[Answer, ...]) -> None:
    brokers = reach(*answers, BOTH)
    assert run._wait_for_topics(KafkaSettings(), NAMES, threading.Event(), nothing) == IDS
    assert brokers.requests == len(answers) + 1


def test_brokers_that_were_never_reached_are_not_waited_for_and_nothing_is_once_it_shall_stop(reach: Reach) -> None:
    stopping = threading.Event()
    reach(KafkaConnectionError("nobody there"))
    with pytest.raises(ClusterUnreachable):
        run._wait_for_topics(KafkaSettings(), NAMES, stopping, nothing)
    reach({})
    stopping.set()
    assert run._wait_for_topics(KafkaSettings(), NAMES, stopping, nothing) is None


def test_what_fails_while_topics_are_waited_for_is_not_waited_for(reach: Reach) -> None:
    brokers = reach({})

    def fail_at_the_third() -> None:
        if brokers.requests == 3:
            raise UsageProblem("Spark doesn't start")

    with pytest.raises(UsageProblem, match="Spark doesn't start"):
        run._wait_for_topics(KafkaSettings(), NAMES, threading.Event(), fail_at_the_third)


@pytest.mark.parametrize("error", [KafkaConnectionError("away"), ConnectionResetError("away")])
def test_brokers_that_are_away_when_topics_are_checked_again_end_nothing(reach: Reach, error: Exception) -> None:
    reach(error)
    last_good = {("t", "0"): 7}
    assert run._check_topics(Settings(), last_good) == last_good


def test_a_file_of_the_login_that_is_being_written_ends_nothing(tmp_path: Path) -> None:
    """systemd starts nothing again that ends with the code of a wrong setting."""
    login = {"security_protocol": "SSL", "ssl_ca_file": tmp_path / "none.pem"}
    settings, last_good = Settings.model_validate({"kafka": login}), {("t", "0"): 7}
    assert run._check_topics(settings, last_good) == last_good


def test_topics_are_checked_again_though_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    started_ms, interval_ms = 10**12, run.TOPIC_CHECK_INTERVAL_MS
    times, checked = [started_ms, started_ms + 1, 5, 6, 5 + interval_ms], list[int]()
    clock = iter(times)
    reported: list[int] = []

    def check(_settings: Settings, last_good: object) -> object:
        checked.append(reported[-1])
        return last_good

    monkeypatch.setattr(clocks, "now_ms", lambda: next(clock))
    monkeypatch.setattr(run, "offsets_read", lambda _checkpoints: {})
    monkeypatch.setattr(run, "_check_topics", check)
    reporter: Any = SimpleNamespace(report=lambda **now: reported.append(now["now_ms"]))
    stopping: Any = SimpleNamespace(wait=lambda _s: len(reported) == len(times) - 1)
    assert run._watch([], reporter, Settings(), stopping, nothing)
    assert checked == [5, 5 + interval_ms]


class Starting:
    """Spark's start, of which no session comes."""

    def __init__(self, *_: object) -> None:
        """Nothing is started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is to be stopped."""

    def start(self) -> None:
        """Nothing to do."""

    def session(self) -> None:
        """There is none."""


class AskedToEnd(Starting):
    """The same, in the middle of which SIGTERM comes."""

    def session(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def storage(reach: Reach, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Topics are there, and no query may be begun."""
    reach(BOTH)

    def began(*_: object, **__: object) -> None:
        raise AssertionError("a query was begun")

    monkeypatch.setattr(run, "Queries", began)
    return {"tables": str(tmp_path / "tables"), "checkpoints": str(tmp_path / "checkpoints")}


def test_told_to_stop_while_spark_starts_it_begins_no_query(
    storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch takes long, and what is under way is waited for."""
    monkeypatch.setattr(run, "StartingSession", AskedToEnd)
    with structlog.testing.capture_logs() as logged:
        assert run.run_pipeline(Settings.model_validate({"storage": storage})) == 0
    assert [row["event"] for row in logged] == ["pipeline_stopped"]


def test_tables_that_a_pipeline_with_other_checkpoints_writes_are_refused(
    storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would close windows of the other by its own watermark."""
    monkeypatch.setattr(run, "StartingSession", Starting)
    settings = Settings.model_validate({"storage": storage})
    another = pytest.raises(RefusedForSafety, match="another pipeline is writing the tables in")
    with only_writer(storage["tables"]), another:
        run.run_pipeline(settings)
    assert not (Path(storage["checkpoints"]) / FINGERPRINT).exists(), "nothing is changed"


STOPPED_IN_A_BATCH = """
import sys
from streaming.pipeline import run
from streaming.pipeline.session import build_session
from streaming.settings import Settings

run.STOP_GRACE_S = 0.5
settings = Settings.model_validate({"storage": {"tables": sys.argv[1], "checkpoints": sys.argv[2]}})
session = build_session(settings.pipeline, settings.storage)

def never_ends(batch, _number):
    print("begun", flush=True)
    batch.sparkSession.range(10**15).selectExpr("sum(id % 7)").collect()

rows = session.readStream.format("rate").load()
query = rows.writeStream.foreachBatch(never_ends).option("checkpointLocation", sys.argv[2]).start()
while not query.status["isTriggerActive"] or not session.sparkContext.statusTracker().getActiveJobsIds():
    assert query.isActive, query.exception()
run.stop_queries(session, [query])
print("stopped", flush=True)
"""


@pytest.mark.spark
def test_a_batch_that_is_cut_at_the_end_leaves_no_trace_of_java_or_python(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STOPPED_IN_A_BATCH, str(tmp_path / "tables"), str(tmp_path / "checkpoints")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.stdout.splitlines()[-1:] == ["stopped"], done.stderr[-2_000:]
    told = [line for line in done.stderr.splitlines() if re.search(r"Traceback|Exception|ERROR|^\s+at |py4j", line)]
    assert told == []
