"""A run in several processes reports what a run in one would."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import os
from tests import lanes
pytest_plugins = ["tests.lanes"]
lanes.TESTS_MIN = 10
with open("first", "w") as first:
    first.write(str(os.getpid()))
"""
PURE = """
import os, pytest
from tests.waiting import until

@pytest.mark.parametrize("number", range(4))
def test_passes(number):
    with open("pids", "a") as pids:
        print(os.getpid(), file=pids)
    if os.getpid() == int(open("first").read()):
        open("pids_of_first", "w").close()
    else:
        open("pids_of_second", "w").close()
        until("the first process has taken a file too", lambda: os.path.exists("pids_of_first"))

def test_fails():
    print("what it printed")
    assert 1 == 2, "on purpose"

@pytest.mark.skip(reason="not today")
def test_is_skipped():
    pass
"""
WITH_JVM = """
import os, pytest
from tests.waiting import until

@pytest.mark.kafka
def test_stays_in_the_first_process():
    assert os.getpid() == int(open("first").read())
    until("the second process runs tests meanwhile", lambda: os.path.exists("pids"))
"""
WITH_SPARK = """
import os, pytest

@pytest.mark.kafka
@pytest.mark.spark
def test_runs_in_the_second_process():
    assert os.getpid() != int(open("first").read())
    assert not os.path.exists("pids_of_second"), "before the pure tests"
"""
OWN_BROKERS = """
import os, pytest

@pytest.mark.kafka
@pytest.mark.apart
def test_runs_before_the_whole_product_and_pure_tests():
    assert not os.path.exists("pids")
    open("apart", "w").close()
"""
PRODUCT = """
import os, pytest

@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.e2e
def test_runs_once_a_process_has_done_its_own_files():
    assert os.path.exists("apart")
    assert not os.path.exists("pids")
"""
DEADLY = """
import os, pytest
from tests.waiting import until

@pytest.mark.parametrize("number", range(2))
def test_ends_the_second_process(number):
    if os.getpid() != int(open("first").read()):
        open("died", "w").close()
        os._exit(7)
    until("the second process has died", lambda: os.path.exists("died"))
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Three files of pure tests, and one that would start brokers."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))  # it runs in a folder of its own
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what other plugins import takes longer than the tests
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers =\n    kafka: brokers\n    spark: Spark\n    apart: its own\n    e2e: all")
    pytester.makepyfile(test_a=PURE, test_b=PURE, test_c=PURE, test_d=WITH_JVM)
    return pytester


def test_both_processes_run_tests_and_one_reports_them(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_e=WITH_SPARK)
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=14, failed=3, skipped=3)
    result.stdout.fnmatch_lines(["*AssertionError: on purpose*", "*Captured stdout call*", "what it printed"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(set((suite.path / "pids").read_text().split())) == 2


def test_files_with_brokers_of_their_own_are_taken_first_then_the_whole_product_then_pure_tests(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(test_e=OWN_BROKERS, test_f=WITH_SPARK, test_g=PRODUCT)
    suite.runpytest_subprocess().assert_outcomes(passed=16, failed=3, skipped=3)


def test_a_few_tests_and_those_that_stop_at_a_failure_run_in_one_process(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("test_a.py").assert_outcomes(passed=4, failed=1, skipped=1)
    suite.runpytest_subprocess("--maxfail=9").assert_outcomes(passed=13, failed=3, skipped=3)
    assert len(set((suite.path / "pids").read_text().split())) == 2


def test_a_second_process_that_dies_fails_the_run(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_c=DEADLY, test_d=DEADLY)
    result = suite.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*another test process ended with 7*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
