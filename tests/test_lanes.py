"""A run in several processes reports what a run in one would."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.lanes import BROKERS_MODULE, LOW_PRIORITY, clusters_start_in_turn
from tests.waiting import until

pytest_plugins = ["pytester"]

CONFTEST = """
import os
from tests import lanes
pytest_plugins = ["tests.lanes"]
lanes.TESTS_MIN = 10
with open("first", "w") as first:
    first.write(str(os.getpid()))
"""
COMMON = """
import os, pytest
from tests.waiting import until

PROCESSES = int(os.environ["PROCESSES"])

def in_pure_tests():
    "Process ids, each with its niceness, of those that have begun a pure test."
    return {tuple(map(int, line.split())) for line in open("pids")} if os.path.exists("pids") else set()

def is_first():
    return os.getpid() == int(open("first").read())
"""
PURE = f"""{COMMON}
@pytest.mark.parametrize("number", range(4))
def test_passes(number):
    with open("pids", "a") as pids:
        print(os.getpid(), os.nice(0), file=pids)
    until("each process has taken a file", lambda: len(in_pure_tests()) >= PROCESSES)

def test_fails():
    print("what it printed")
    assert 1 == 2, "on purpose"

@pytest.mark.skip(reason="not today")
def test_is_skipped():
    pass
"""
WITH_JVM = f"""{COMMON}
@pytest.mark.kafka
def test_stays_in_the_first_process():
    assert is_first()
    until("the other processes run tests meanwhile", lambda: len(in_pure_tests()) >= PROCESSES - 1)
"""
WITH_SPARK = f"""{COMMON}
@pytest.mark.kafka
@pytest.mark.spark
def test_runs_in_the_second_process():
    assert not is_first()
    assert (os.getpid(), os.nice(0)) not in in_pure_tests(), "before the pure tests"
    open("second", "w").write(str(os.getpid()))
"""
OWN_BROKERS = f"""{COMMON}
@pytest.mark.kafka
@pytest.mark.apart
def test_runs_while_the_first_process_is_not_done():
    assert not is_first()
    assert (os.getpid(), os.nice(0)) not in in_pure_tests(), "before the pure tests"
    until("those that are long have begun", lambda: os.path.exists("product"))
"""
PRODUCT = f"""{COMMON}
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.long
def test_runs_while_the_first_process_is_not_done():
    assert not is_first()
    open("product", "w").close()
"""
BUSY = f"""{COMMON}
@pytest.mark.{{marker}}
def test_waits_for_another_process():
    until("a fifth process has run what these three can't", lambda: os.path.exists("own"))
"""
WAITING = f"""{COMMON}
def test_begins_the_fifth_process():
    open("fifth", "w").write(str(os.getpid()))
"""
LAST_PURE = f"""{PURE}
def test_is_still_running():
    until("another process starts brokers meanwhile", lambda: os.path.exists("own"))
"""
OWN_BROKERS_ALONE = f"""{COMMON}
@pytest.mark.kafka
@pytest.mark.apart
def test_runs_after_the_pure_tests_at_no_low_priority():
    assert os.getpid() == int(open("fifth").read())
    assert os.nice(0) == int(os.environ["NICENESS"])
    assert len(open("pids").readlines()) >= 12, "the last of four pure files is taken, so the others are done"
    open("own", "w").close()
"""
BESIDE = f"""{COMMON}
@pytest.mark.java
def test_runs_at_no_low_priority_before_the_pure_tests():
    assert not is_first()
    assert os.nice(0) == int(os.environ["NICENESS"])
    assert (os.getpid(), os.nice(0)) not in in_pure_tests(), "before the pure tests"
"""
DEADLY = f"""{COMMON}
@pytest.mark.parametrize("number", range(2))
def test_ends_another_process(number):
    if not is_first():
        open("died", "w").close()
        os._exit(7)
    until("another process has died", lambda: os.path.exists("died"))
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Four files of pure tests, and one that would start brokers."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))  # it runs in a folder of its own
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what other plugins import takes longer than the tests
    monkeypatch.setenv("PROCESSES", "1")  # with more, pure tests wait for as many
    pytester.makeconftest(CONFTEST)
    markers = ("kafka: brokers", "spark: Spark", "java: Java", "apart: its own", "e2e: all", "long: long")
    pytester.makeini("\n    ".join(["[pytest]\nmarkers =", *markers]))
    pytester.makepyfile(test_a=PURE, test_b=PURE, test_c=PURE, test_d=WITH_JVM, test_i=PURE)
    return pytester


def test_four_processes_run_tests_and_one_reports_them(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCESSES", "4")
    suite.makepyfile(test_e=WITH_SPARK)
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=18, failed=4, skipped=4)
    result.stdout.fnmatch_lines(["*AssertionError: on purpose*", "*Captured stdout call*", "what it printed"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert _niceness_of_processes(suite) == sorted([os.nice(0)] * 2 + [min(19, os.nice(0) + LOW_PRIORITY)] * 2)


@pytest.mark.long
def test_long_files_are_taken_first_and_pure_ones_last(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCESSES", "4")
    monkeypatch.setenv("NICENESS", str(os.nice(0)))
    suite.makepyfile(test_e=OWN_BROKERS, test_f=WITH_SPARK, test_g=PRODUCT, test_h=BESIDE)
    suite.runpytest_subprocess().assert_outcomes(passed=21, failed=4, skipped=4)


@pytest.mark.long
def test_once_all_pure_tests_are_taken_one_process_more_starts_brokers(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NICENESS", str(os.nice(0)))
    busy = {f"test_{marker}": BUSY.replace("{marker}", marker) for marker in ("kafka", "spark", "java")}
    suite.makepyfile(test_d="", test_e=OWN_BROKERS_ALONE, test_i=LAST_PURE, **busy)
    suite.mkdir("object_store").joinpath("test_waits.py").write_text(WAITING)
    suite.runpytest_subprocess().assert_outcomes(passed=22, failed=4, skipped=4)


@pytest.mark.long
def test_a_few_tests_and_those_that_stop_at_a_failure_run_in_one_process(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("test_a.py").assert_outcomes(passed=4, failed=1, skipped=1)
    suite.runpytest_subprocess("--maxfail=9").assert_outcomes(passed=17, failed=4, skipped=4)
    assert _niceness_of_processes(suite) == [os.nice(0)] * 2


@pytest.mark.long
def test_another_process_that_dies_fails_the_run(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_c=DEADLY, test_d=DEADLY)
    result = suite.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*another test process ended with 7*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_where_a_signal_ends_the_first_process_no_other_goes_on(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("PROCESSES", "5")  # one more than run pure tests: these wait to their limit
    nowhere = subprocess.DEVNULL
    first = suite.popen([sys.executable, "-m", "pytest"], stdout=nowhere, stderr=nowhere)
    pids = suite.path / "pids"
    until("three others run tests", lambda: pids.exists() and len(pids.read_text().splitlines()) == 3)
    others = [psutil.Process(int(line.split()[0])) for line in pids.read_text().splitlines()]
    try:
        first.send_signal(number)
        first.wait()
        until("they have ended", lambda: not any(map(_runs, others)))
    finally:
        for other in filter(_runs, others):
            other.kill()


def test_clusters_of_several_processes_start_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"

    def note(what: str) -> None:
        with log.open("a") as file:
            print(what, file=file)

    class Cluster:
        def start(self) -> None:
            note("begins")
            time.sleep(0.2)  # without turns the others begin meanwhile
            note("ends")

    monkeypatch.setitem(sys.modules, BROKERS_MODULE, SimpleNamespace(EmbeddedCluster=Cluster))
    with clusters_start_in_turn():
        starts = [multiprocessing.get_context("fork").Process(target=Cluster().start) for _ in range(3)]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
    assert log.read_text().split() == ["begins", "ends"] * 3


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _niceness_of_processes(suite: pytest.Pytester) -> list[int]:
    processes = set((suite.path / "pids").read_text().splitlines())
    return sorted(int(line.split()[1]) for line in processes)
