"""A pytest plugin: long runs use two processes, so that both cores work and pure tests run beside those with brokers.

The second process is a fork of the first, made after collection: modules are imported once. Files of tests that use
Spark run in the second process and share its session; files of other tests that start a JVM run in the first and share
its brokers. Files of pure tests are taken by whichever process is free. The first process reports all results, so
options, exit code and summary are those of any pytest run.
"""

import gc
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby, pairwise
from typing import BinaryIO, NoReturn

import pytest
from _pytest.capture import CaptureManager

JVM_MARKERS = frozenset({"spark", "kafka", "java", "prometheus", "e2e"})
LONG = "long"
"""Files of pure tests with this marker are begun first, or one process would run them while the other is done."""
WHOLE_PRODUCT = "e2e"
"""Files with this marker come last: the product starts a Spark of its own, best when the tests' Spark has ended."""
TESTS_MIN = 300
"""Fewer tests than this run in one process: their output then comes in order."""
INDEX_BYTES = 4
POLL_INTERVAL_S = 0.05

Files = list[list[pytest.Item]]


class Pool:
    """Indices of the files that no process has taken yet, in a pipe that both processes read."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._read, write = os.pipe()
        with os.fdopen(write, "wb") as stream:
            stream.writelines(index.to_bytes(INDEX_BYTES, "big") for index in range(len(files)))

    def __iter__(self) -> Iterator[list[pytest.Item]]:
        while taken := os.read(self._read, INDEX_BYTES):
            yield self.files[int.from_bytes(taken, "big")]


class Reports:
    """Reports of the second process, one JSON line each, in an unlinked file: a slow reader blocks nobody."""

    def __init__(self, config: pytest.Config, stream: BinaryIO) -> None:
        self.config = config
        self.nodeids: set[str] = set()
        self._stream = stream
        self._read_to = 0
        self._rest = b""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In the second process: write the report down."""
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        os.write(self._stream.fileno(), json.dumps(data).encode() + b"\n")

    def replay(self) -> None:
        """In the first process: report what has come since the last call."""
        came = os.pread(self._stream.fileno(), os.fstat(self._stream.fileno()).st_size - self._read_to, self._read_to)
        self._read_to += len(came)
        *lines, self._rest = (self._rest + came).split(b"\n")
        for line in lines:
            report = self.config.hook.pytest_report_from_serializable(config=self.config, data=json.loads(line))
            if isinstance(report.longrepr, list):  # why a test was skipped is a tuple, which JSON has not
                report.longrepr = tuple(report.longrepr)
            if report.when == "setup":
                self.nodeids.add(report.nodeid)
                self.config.hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
            self.config.hook.pytest_runtest_logreport(report=report)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in two processes; None leaves them to pytest, where one process serves better or is asked for."""
    option = session.config.option
    asked_for_one = option.collectonly or option.usepdb or option.capture == "no" or option.maxfail
    if session.testsfailed or asked_for_one or len(session.items) < TESTS_MIN or (os.cpu_count() or 1) < 2:
        return None
    lanes: dict[str, Files] = {"brokers": [], "spark": [], "pure": []}
    for _, items in groupby(session.items, key=lambda item: item.path):
        file = list(items)
        lanes[_lane(file)].append(file)
    lanes["brokers"].sort(key=lambda file: WHOLE_PRODUCT in _markers(file))
    lanes["pure"].sort(key=lambda file: LONG not in _markers(file))
    _run_in_two(session, lanes["brokers"], lanes["spark"], Pool(lanes["pure"]))
    return True


def _lane(file: list[pytest.Item]) -> str:
    """Where a file's tests run: brokers (first process), spark (second process) or pure (either)."""
    markers = _markers(file)
    if "spark" in markers and WHOLE_PRODUCT not in markers:
        return "spark"
    return "brokers" if markers & JVM_MARKERS else "pure"


def _markers(file: list[pytest.Item]) -> set[str]:
    return {mark.name for item in file for mark in item.iter_markers()}


def _run_in_two(session: pytest.Session, of_first: Files, of_second: Files, pool: Pool) -> None:
    """Fork, run what is this process's, and report what both have done; raises Failed if the other one broke."""
    gc.freeze()  # what collection has made lives to the end: no later collection need look at it
    capture = session.config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # both would write to its files
    sys.stdout.flush()
    with tempfile.TemporaryFile() as stream:
        reports = Reports(session.config, stream)
        second = os.fork()
        if not second:
            _run_as_second(session, of_second, pool, reports)
        try:
            _start_capturing(capture)
            _run(session, chain(of_first, pool), reports.replay)
            while not (ended := os.waitpid(second, os.WNOHANG))[0]:
                reports.replay()
                time.sleep(POLL_INTERVAL_S)
        except BaseException:
            os.kill(second, signal.SIGINT)
            os.waitpid(second, 0)
            raise
        reports.replay()
    gc.unfreeze()  # libraries report what is not collected at the end as leaked
    if ended[1]:
        session.shouldfail = f"the second test process ended with {os.waitstatus_to_exitcode(ended[1])}"
        raise session.Failed(session.shouldfail)  # pytest's summary shows the reason and what has been reported


def _run_as_second(session: pytest.Session, own: Files, pool: Pool, reports: Reports) -> NoReturn:
    """Run its own files, then those of the pool, then end without any of the first process's farewells."""
    exit_code = 1
    try:
        for standard in (1, 2):  # only the first process speaks
            os.dup2(os.open(os.devnull, os.O_WRONLY), standard)
        _start_capturing(session.config.pluginmanager.getplugin("capturemanager"))
        session.config.pluginmanager.register(reports)
        _run(session, own, lambda: None)  # what it started ends here: the pure tests need no Spark
        _run(session, pool, lambda: None)
        exit_code = 0
    finally:
        os._exit(exit_code)


def _start_capturing(capture: CaptureManager) -> None:
    capture.start_global_capturing()
    capture.suspend_global_capture()  # pytest resumes it for each test


def _run(session: pytest.Session, files: Iterable[list[pytest.Item]], after_file: Callable[[], None]) -> None:
    """Run files in order; the next one is taken before the last test of a file, whose teardown depends on it."""
    for item, following in pairwise(chain(chain.from_iterable(files), [None])):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        if following is None or following.path != item.path:
            after_file()
