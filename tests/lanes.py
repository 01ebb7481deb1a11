"""A pytest plugin: long runs use five processes, so that both cores work while tests wait for brokers.

The others are forks of the first, made after collection: modules are imported once. Three begin with the files of a
lane: `brokers` (first process) are those that share brokers, `spark` those that share a Spark session, `beside` those
that wait on sockets, for Prometheus or for Kafka's Java classes. Then they take files that start brokers of their own
(`apart`, the whole product among them), and pure ones in the end. The fourth begins with pure ones, at a low priority,
for the time in which these three wait. A fifth begins with files that do little but wait (`waiting`). Once all pure
ones are taken there is room for more brokers: then it takes files that start them, too. With so many from the start,
two cores would be so busy that tests give up. For the same reason clusters of brokers start one after another.
The first process reports all results, so options, exit code and summary are those of any pytest run.
"""

import fcntl
import gc
import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import BinaryIO, NoReturn

import pytest
from _pytest.capture import CaptureManager

from streaming.runtime.processes import die_with_parent

JVM_MARKERS = frozenset({"spark", "kafka", "java", "prometheus", "e2e"})
APART = "apart"
"""Files with this marker start brokers, and share them with no other file; those of the whole product do, too."""
LONG = "long"
"""Files with this marker are begun first, or one process would run them while the others are done."""
WHOLE_PRODUCT = "e2e"
"""Files with both markers take longest."""
ON_SOCKETS = frozenset({"collect", "fleet", "serve", "shell", "tests"})
"""Folders whose pure tests start processes and wait for answers within limits of time: not at a low priority."""
WAITING = frozenset({"object_store"})
"""Folders whose pure tests wait for a store that is slow or refuses: ten seconds for one of a core."""
LOW_PRIORITY = 5
"""The niceness of pure tests beside those with brokers: about a third of what each of their threads gets."""
LOW_PRIORITY_TIMEOUT_S = 3 * 3600
"""Limit of a test at low priority, in place of pytest's: on a starved machine it gets a hundredth of a core."""
TESTS_MIN = 300
"""Fewer tests than this run in one process: their output then comes in order."""
GARBAGE_AFTER = 50_000
"""New objects after which the garbage collector looks for cycles. After 700, as is usual, it would look at each test's
objects dozens of times: a tenth of the CPU time of pure tests.
"""
INDEX_BYTES = 4
POLL_INTERVAL_S = 0.05
BROKERS_MODULE = "streaming.demo.brokers"

Files = list[list[pytest.Item]]


class Pool:
    """Indices of the files that no process has taken yet, in a pipe that all processes read."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._read, write = os.pipe()
        with os.fdopen(write, "wb") as stream:
            stream.writelines(index.to_bytes(INDEX_BYTES, "big") for index in range(len(files)))

    def __iter__(self) -> Iterator[list[pytest.Item]]:
        while taken := os.read(self._read, INDEX_BYTES):
            yield self.files[int.from_bytes(taken, "big")]

    def until_taken(self) -> Iterator[list[pytest.Item]]:
        """No file, once processes have taken all of them."""
        pipe = select.poll()
        pipe.register(self._read, select.POLLIN)
        while any(event & select.POLLIN for _, event in pipe.poll()):
            time.sleep(POLL_INTERVAL_S)
        yield from ()


class Reports:
    """Reports of another process, one JSON line each, in an unlinked file: a slow reader blocks nobody."""

    def __init__(self, config: pytest.Config, stream: BinaryIO) -> None:
        self.config = config
        self.nodeids: set[str] = set()
        self._stream = stream
        self._read_to = 0
        self._rest = b""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In the other process: write the report down."""
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


@dataclass(frozen=True, slots=True)
class Lane:
    """What a process runs, in order; `background` comes last, at a low priority."""

    parts: list[Iterable[list[pytest.Item]]]
    background: Pool | None = None


class Other:
    """A process beside the first, and its reports."""

    def __init__(self, session: pytest.Session, lane: Lane, stream: BinaryIO) -> None:
        self._reports = Reports(session.config, stream)
        self._exit_code: int | None = None
        first = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            _end_with(first)
            _run_as_other(session, lane, self._reports)

    def replay(self) -> None:
        """Report what has come since the last call."""
        self._reports.replay()

    def has_ended(self) -> bool:
        """Whether it has ended, by itself or not."""
        if self._exit_code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code is not None

    def interrupt(self) -> None:
        """As with Ctrl-C, and wait for its end."""
        if not self.has_ended():
            os.kill(self._pid, signal.SIGINT)
            os.waitpid(self._pid, 0)

    @property
    def failure(self) -> str | None:
        """Why its results are not whole, if they are not."""
        return f"another test process ended with {self._exit_code}" if self._exit_code else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect with the garbage collector off: nearly all that is made lives to the end, and is not worth a look."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.set_threshold(GARBAGE_AFTER)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes; None leaves them to pytest, where one serves better or is asked for."""
    option = session.config.option
    asked_for_one = option.collectonly or option.usepdb or option.capture == "no" or option.maxfail
    if session.testsfailed or asked_for_one or len(session.items) < TESTS_MIN or (os.cpu_count() or 1) < 2:
        return None
    lanes: dict[str, Files] = {"brokers": [], "spark": [], APART: [], "beside": [], "waiting": [], "pure": []}
    for _, items in groupby(session.items, key=lambda item: item.path):
        file = list(items)
        lanes[_lane(file)].append(file)
    apart, beside, waiting, pure = (
        Pool(sorted(lanes[name], key=lambda file: [mark not in _markers(file) for mark in (LONG, WHOLE_PRODUCT)]))
        for name in (APART, "beside", "waiting", "pure")
    )
    others = [Lane([lanes["spark"], apart, beside, waiting, pure]), Lane([beside, apart], background=pure)]
    if any(lanes[name] for name in ("brokers", "spark", APART)):
        others += [Lane([], background=pure), Lane([waiting, pure.until_taken(), apart])]
    _run_in_several(session, Lane([lanes["brokers"], apart, beside, waiting, pure]), others)
    return True


def _lane(file: list[pytest.Item]) -> str:
    """The lane of a file, by its markers and its folder."""
    markers = _markers(file)
    if not markers & JVM_MARKERS:
        folder = file[0].path.parent.name
        return "beside" if folder in ON_SOCKETS else "waiting" if folder in WAITING else "pure"
    if WHOLE_PRODUCT in markers:
        return APART
    if "spark" in markers:
        return "spark"
    if "kafka" not in markers:
        return "beside"
    return APART if APART in markers else "brokers"


def _markers(file: list[pytest.Item]) -> set[str]:
    return {mark.name for item in file for mark in item.iter_markers()}


def _run_in_several(session: pytest.Session, own: Lane, lanes_of_others: list[Lane]) -> None:
    """Fork, run what is this process's, and report what all have done; raises Failed if another one broke."""
    gc.freeze()  # what collection has made lives to the end: no later collection need look at it
    capture = session.config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # all would write to its files
    sys.stdout.flush()
    others: list[Other] = []
    with ExitStack() as streams:
        streams.enter_context(clusters_start_in_turn())
        try:
            for lane in lanes_of_others:
                stream = streams.enter_context(tempfile.TemporaryFile())
                others.append(Other(session, lane, stream))
            _start_capturing(capture)

            def replay() -> None:
                for other in others:
                    other.replay()

            _run_lane(session, own, replay)
            for other in others:
                while not other.has_ended():
                    replay()
                    time.sleep(POLL_INTERVAL_S)
        except BaseException:
            for other in others:
                other.interrupt()
            raise
        replay()
    gc.unfreeze()  # libraries report what is not collected at the end as leaked
    for other in others:
        if other.failure:
            session.shouldfail = other.failure
            raise session.Failed(session.shouldfail)  # pytest's summary shows the reason and what has been reported


def _run_lane(session: pytest.Session, lane: Lane, after_file: Callable[[], None]) -> None:
    """What the files of each part started ends with it: the next ones need the memory, not the brokers."""
    for files in lane.parts:
        _run(session, files, after_file)
    if lane.background:
        os.nice(LOW_PRIORITY)
        _run(session, map(_with_more_time, lane.background), after_file)


def _with_more_time(file: list[pytest.Item]) -> list[pytest.Item]:
    for item in file:
        item.add_marker(pytest.mark.timeout(LOW_PRIORITY_TIMEOUT_S))
    return file


@contextmanager
def clusters_start_in_turn() -> Iterator[None]:
    """Brokers of several clusters that start at once on few cores need so long that some give up."""
    if BROKERS_MODULE not in sys.modules:
        yield  # no test that was collected starts any
        return
    cluster_type = sys.modules[BROKERS_MODULE].EmbeddedCluster
    start = cluster_type.start
    with tempfile.TemporaryFile() as turn:

        def start_in_turn(cluster: object) -> None:
            fcntl.lockf(turn, fcntl.LOCK_EX)  # of this process; its forks have none
            try:
                start(cluster)
            finally:
                fcntl.lockf(turn, fcntl.LOCK_UN)

        cluster_type.start = start_in_turn
        try:
            yield
        finally:
            cluster_type.start = start


def _end_with(first: int) -> None:
    """Nobody would read the reports of a process that outlives the first one, which a signal may end at any time."""
    die_with_parent()
    if os.getppid() != first:  # it has ended before the kernel knew
        os._exit(1)


def _run_as_other(session: pytest.Session, lane: Lane, reports: Reports) -> NoReturn:
    """Run its lane, then end without any of the first process's farewells."""
    exit_code = 1
    try:
        for standard in (1, 2):  # only the first process speaks
            os.dup2(os.open(os.devnull, os.O_WRONLY), standard)
        _start_capturing(session.config.pluginmanager.getplugin("capturemanager"))
        session.config.pluginmanager.register(reports)
        _run_lane(session, lane, lambda: None)
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
