"""The founding scenario end to end, with Spark killed in the middle, and Ctrl-C; nothing is left running afterwards.

Where Prometheus is installed, tests/prometheus/test_demo.py tests the scenario on a run that Prometheus watches.
"""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streaming import tables
from streaming.runtime import processes
from tests.prometheus.demo import STORY_OPTIONS, assert_balanced_once, assert_gone
from tests.prometheus.live import has_servers
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]

STORY_DEADLINE_S = 900.0


def start_demo(home: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "streaming", "demo", "--home", str(home), *options]
    return processes.start(command, log=home.parent / "demo.log")


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def wait_for_role(process: subprocess.Popen[bytes], role: str) -> psutil.Process:
    deadline = time.monotonic() + STORY_DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        for child in descendants(process):
            with suppress(psutil.NoSuchProcess):  # one that has just ended
                if child.cmdline()[1:4] == ["-m", "streaming", role]:
                    return child
        time.sleep(0.2)
    raise AssertionError(f"{role} never ran; exit code of the demo: {process.poll()}")


@pytest.mark.skipif(has_servers, reason="tests/prometheus/test_demo.py asserts this and more on a watched run")
def test_from_skew_to_balance_with_spark_killed_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    demo = start_demo(home, *STORY_OPTIONS)
    seen: list[psutil.Process] = []
    try:
        pipeline = wait_for_role(demo, "pipeline")
        deadline = time.monotonic() + STORY_DEADLINE_S
        while not tables.read(str(home / "tables"), "broker_load") and time.monotonic() < deadline:
            assert demo.poll() is None, (tmp_path / "demo.log").read_text()
            time.sleep(0.5)
        seen = descendants(demo)
        for process in [pipeline, *pipeline.children(recursive=True)]:
            process.kill()  # Spark's Python and its JVM, in the middle of a batch or not
        code = demo.wait(timeout=STORY_DEADLINE_S)
        text = (tmp_path / "demo.log").read_text()
        assert code == 0, text
    finally:
        if demo.poll() is None:
            demo.send_signal(signal.SIGTERM)
            demo.wait(timeout=DEADLINE_S)
    assert_balanced_once(home, text)
    assert_gone(seen)


def test_a_killed_demo_leaves_no_orphan_its_home_is_taken_over_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    home = tmp_path / "home"
    demo = start_demo(home)
    wait_for_role(demo, "control")
    seen = descendants(demo)
    demo.kill()
    demo.wait()
    assert_gone(seen)
    (tmp_path / "demo.log").unlink()
    again = start_demo(home)
    try:
        assert wait_for_role(again, "control").is_running()
        seen = descendants(again)
        assert len(seen) >= 6  # three brokers and the roles
    finally:
        again.send_signal(signal.SIGINT)
        assert again.wait(timeout=DEADLINE_S) == 130
    assert_gone(seen)
    text = (tmp_path / "demo.log").read_text()
    assert "error: interrupted" in text
    assert "Traceback" not in text
