"""The founding scenario end to end, as those on call see it: skew is told, the death of Spark is told and silences it,
a person approves the plan on the page, balance ends it. The plan is carried out once, no record is lost and nothing is
left running.

And the boards: no panel is empty but two, no query fails, and the pictures of them can be drawn.
"""

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from streaming.demo.traffic import read_report
from tests.prometheus.approving import approve, shows_what_came_of_it, signed_in
from tests.prometheus.boards import BOARDS, GRAFANA, load, without_numbers
from tests.prometheus.demo import (
    CLUSTER,
    STORY_DEADLINE_S,
    STORY_OPTIONS,
    WatchedDemo,
    assert_balanced_once,
    assert_gone,
    watched_demo,
)  # fmt: skip
from tests.prometheus.live import needs_servers
from tests.waiting import until

SKEWED = "RebalancerBrokerLoadSkewed"
STALLED = "RebalancerStreamStalled"
NOTHING_DELETED = "Kafka · consumer lag, Close to losing records: []"
"""The one panel that must be empty: the demo's topics are minutes old, and Kafka has deleted nothing of them yet."""
FEW_MEASURED = "Kafka · rebalancer, How far plans were off: []"
"""The demo carries out one plan; errors are shown from three on."""
OF_LOAD = 'query="byte_rate"'
"""The query whose stall makes figures of load old."""
STALLED_AFTER_S = 45
"""Longer than a batch lasts on a slow machine: a stall that is none would hold the skew back until it is over."""

pytestmark = [
    pytest.mark.prometheus, pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, needs_servers,
]  # fmt: skip


def test_skew_a_dead_spark_and_balance_as_those_on_call_are_told(tmp_path: Path) -> None:
    with (
        watched_demo(tmp_path, *STORY_OPTIONS, "--propose", stalled_after_s=STALLED_AFTER_S) as demo,
        signed_in(demo) as browser,
    ):
        page = until("skew told to the webhook", lambda: demo.watch.notification(SKEWED, "firing"), STORY_DEADLINE_S)
        assert page["path"] == "/ticket"
        skew = re.search(r"In cluster demo the busiest broker has (\d\.\d+) times", page["annotations"]["description"])
        # Of a demo that is still starting: above the threshold, and no more than three brokers allow.
        assert skew is not None
        assert 1.3 < float(skew[1]) <= 3.0
        assert "broker 1, " in page["annotations"]["description"]
        seen = demo.descendants()
        _spark_dies(demo)
        approve(demo, browser)
        until("balance told to the webhook", lambda: demo.watch.notification(SKEWED, "resolved"), STORY_DEADLINE_S)
        until("the demo's result", lambda: demo.finished, STORY_DEADLINE_S)
        if browser is not None:
            shows_what_came_of_it(browser)
        # A pipeline's first row after a start doesn't know how much is left to read; the next comes 10 s later.
        until(
            "numbers on every board",
            lambda: _without_numbers(demo) == [NOTHING_DELETED, FEW_MEASURED],
            state=lambda: str(_without_numbers(demo)),
        )
        _pictures_can_be_drawn(demo, tmp_path / "pictures")
        _traffic_goes_on(demo)
        assert demo.end() == 0, demo.log.read_text()
    assert_balanced_once(demo.home, demo.log.read_text())
    assert_gone(seen)


def _without_numbers(demo: WatchedDemo) -> list[str]:
    return [row for file in BOARDS for row in without_numbers(load(file), demo.watch, CLUSTER)]


def _spark_dies(demo: WatchedDemo) -> None:
    """kill -9; the one that is started in its place is held until what must be told was told."""
    # A query that has never told of itself can't fall silent: its first batch is over only after its windows are seen.
    until(
        "a heartbeat",
        lambda: demo.watch.query(f"rebalancer_stream_last_progress_timestamp_seconds{{{OF_LOAD}}}"),
    )
    dead = demo.role("pipeline")
    assert dead is not None
    for process in [dead, *dead.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # Spark's workers end by themselves, too
            process.kill()
    follower = until("a new pipeline", lambda: _other_than(dead, demo))
    follower.suspend()
    try:
        stall = until("the stall told to the webhook", lambda: _stall_notification(demo))
        assert stall["path"] == "/page"
        held = until("skew held back", lambda: [row for row in demo.watch.alerts().get(SKEWED, ()) if _inhibited(row)])
        assert held[0]["labels"]["kafka_cluster"] == CLUSTER
    finally:
        follower.resume()
    until("the end of the stall told", lambda: demo.watch.notification(STALLED, "resolved"), STORY_DEADLINE_S)


def _traffic_goes_on(demo: WatchedDemo) -> None:
    """What is kept has traffic and readers, and these are started again if they end by themselves."""
    dead = until("traffic", demo.traffic)
    dead.kill()
    until("new traffic", lambda: (process := demo.traffic()) is not None and process.pid != dead.pid)
    report = demo.home / "traffic.json"
    begun = read_report(report)
    assert begun is not None
    until("records read", lambda: (now := read_report(report)) and now.started_ms > begun.started_ms and now.read > 0)


def _stall_notification(demo: WatchedDemo) -> dict[str, Any] | None:
    labels = {"alertname": STALLED, "kafka_cluster": CLUSTER, "query": "byte_rate"}
    rows = [row for row in demo.watch.received if row["status"] == "firing" and labels.items() <= row["labels"].items()]
    return rows[-1] if rows else None


def _other_than(dead: psutil.Process, demo: WatchedDemo) -> psutil.Process | None:
    pipeline = demo.role("pipeline")
    return pipeline if pipeline is not None and pipeline.pid != dead.pid else None


def _inhibited(alert: dict[str, dict[str, list[str]]]) -> bool:
    return bool(alert["status"]["inhibitedBy"])


def _pictures_can_be_drawn(demo: WatchedDemo, folder: Path) -> None:
    from matplotlib.image import imread  # collecting the pure tests must not pay for it

    script = [sys.executable, str(GRAFANA / "pictures.py"), demo.watch.prometheus_url, str(folder)]
    subprocess.run([*script, "--kafka-cluster", CLUSTER, "--minutes", "5"], check=True)
    for file in BOARDS:
        pixels = imread(folder / f"{file.stem}.png")
        assert pixels.shape[1] > 1_000
        assert pixels[..., :3].std() > 0.05, "something is drawn"
