"""The upkeep beside a pipeline that writes: killed between any two steps, slow, failing, and cut off at the end."""

import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from structlog.testing import capture_logs

from streaming import tables
from streaming.contract import BROKER_LOAD, BROKER_LOAD_HOURLY
from streaming.pipeline import rollups, upkeep
from streaming.pipeline.delta_tables import WindowTable, create_window_table, write_lock
from streaming.pipeline.rollups import rolled_up
from streaming.pipeline.upkeep import Job, UpkeepThread, jobs_of_pipeline
from streaming.settings import DAY_MS, HOUR_MS, PipelineSettings
from streaming.tables import data_files
from streaming.tables.reader import JOINED
from tests.pipeline.table_upkeep import TableUpkeep
from tests.pipeline.test_delta_tables import arrow, window
from tests.pipeline.test_upkeep import time_goes_on
from tests.serve.synthetic import Synthetic
from tests.waiting import DEADLINE_S, until

DAY0_MS = 1_795_219_200_000  # midnight UTC
HOURS = 27
BROKERS = (1, 2)
WATERMARK_MS = 30_000
SETTINGS = PipelineSettings(watermark_ms=WATERMARK_MS, retention_ms=HOUR_MS)
NOW_MS = DAY0_MS + (HOURS + 1) * HOUR_MS


class Killed(BaseException):
    """kill -9: no code of the process sees it."""


def rate(hour: int, third: int, broker: int) -> float:
    return float(broker * 1_000 + hour * 10 + third)


def fill(root: Path) -> None:
    """A day and three hours of windows, three an hour, each hour in a file of its own."""
    made = Synthetic(str(root))
    for hour in range(HOURS):
        with made.together():
            for third in range(3):
                start_ms = DAY0_MS + hour * HOUR_MS + third * HOUR_MS // 3
                made.broker_load(start_ms, {broker: rate(hour, third, broker) for broker in BROKERS})
    time_goes_on(root)


def recount() -> dict[tuple[str, int, int], float]:
    """Mean rate by table, period start and broker, of all periods that are over."""
    rates: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for hour in range(HOURS):
        for broker in BROKERS:
            thirds = [rate(hour, third, broker) for third in range(3)]
            if hour < HOURS - 1:  # the newest hour may still get samples
                rates["broker_load_hourly", DAY0_MS + hour * HOUR_MS, broker] += thirds
            if hour < 24:
                rates["broker_load_daily", DAY0_MS, broker] += thirds
    return {key: fmean(values) for key, values in rates.items()}


def assert_recounted(root: Path) -> None:
    made = [
        ((name, tables.to_ms(row["period_start"]), row["broker"]), row["bytes_in_per_sec"])
        for name in ("broker_load_hourly", "broker_load_daily")
        for row in tables.read(str(root), name)
    ]
    assert len(dict(made)) == len(made), "a period was made twice"
    assert dict(made) == pytest.approx(recount())
    windows = tables.read(str(root), "broker_load")
    starts = {tables.to_ms(row["window_start"]) for row in windows}
    kept_since_ms = min(starts)
    assert len(windows) == len(starts) * len(BROKERS), "a window is there twice, or without a broker"
    assert kept_since_ms == DAY0_MS + DAY_MS, "windows of days that are made have gone"


class Fault:
    """Ends the process before or after the so-manyeth of the calls that change something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, at: int, after: bool) -> None:
        self._left, self._after = at, after
        self.met = False
        for module, name in (
            (rollups, "write_deltalake"),
            (tables, "create_table"),
            (upkeep, "join_next"),
            (upkeep, "remove_old_files"),
        ):
            monkeypatch.setattr(module, name, self._breaking(getattr(module, name)))
        expire = upkeep._Tidying.expire
        monkeypatch.setattr(upkeep._Tidying, "expire", self._breaking(expire))

    def _breaking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                self.met = True
                raise Killed
            result = call(*arguments, **named)
            if self._left == 0 and self._after:
                self.met = True
                raise Killed
            return result

        return called


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only to be copied."""
    root = tmp_path_factory.mktemp("filled")
    fill(root)
    return root


@pytest.fixture
def root(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "tables")
    return tmp_path / "tables"


POINTS = [
    pytest.param(1, True, id="the first table is made"),
    pytest.param(2, False, id="the first hour is not written"),
    pytest.param(2, True, id="the first hour is written"),
    pytest.param(55, False, id="the day is not written"),
    pytest.param(55, True, id="the day is written"),
    pytest.param(57, True, id="windows are deleted"),
    pytest.param(58, True, id="files are joined"),
    pytest.param(59, False, id="old files are not removed"),
]


@pytest.mark.long
@pytest.mark.parametrize(("at", "after"), POINTS)
def test_killed_at_a_step_it_ends_as_if_it_had_not_been(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    with monkeypatch.context() as broken:
        fault = Fault(broken, at=at, after=after)
        with pytest.raises(Killed):
            TableUpkeep(str(root), BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
        assert fault.met
    TableUpkeep(str(root), BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
    assert_recounted(root)


RUN = """
import sys
from streaming.contract import BROKER_LOAD
from tests.pipeline.table_upkeep import TableUpkeep
from tests.pipeline.test_upkeep_faults import NOW_MS, SETTINGS
TableUpkeep(sys.argv[1], BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
"""


@pytest.mark.long
def test_kill_9_at_any_instant_leaves_nothing_out_and_makes_nothing_twice(root: Path) -> None:
    for number in range(6):
        process = subprocess.Popen([sys.executable, "-c", RUN, str(root)])
        wanted = 6 * (number + 1)

        def far_enough(process: subprocess.Popen[bytes] = process, wanted: int = wanted) -> bool:
            made = tables.read(str(root), "broker_load_hourly", columns=["broker"])
            return len(made) >= wanted or process.poll() is not None

        until("more hours are made", far_enough, pause_s=0.005)
        process.kill()
        process.wait(timeout=DEADLINE_S)
    TableUpkeep(str(root), BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
    assert_recounted(root)


def open_windows(root: Path) -> WindowTable:
    create_window_table(str(root), BROKER_LOAD)
    return WindowTable(tables.table_uri(str(root), "broker_load"), BROKER_LOAD, rows_max=1_000)


def write_window(table: WindowTable, number: int) -> None:
    """A batch of the window that begins `number` minutes after the start; it closes the window before."""
    start_ms = DAY0_MS + number * 60_000
    times = {"window_start": tables.utc(start_ms), "window_end": tables.utc(start_ms + 60_000)}
    events = {"first_event_time_ms": start_ms, "last_event_time_ms": start_ms + 55_000}
    rows = arrow(*(window(broker, 6, **times, **events) for broker in BROKERS))
    table.upsert(rows, ("q", number), tables.utc(start_ms))


@pytest.mark.long
def test_batches_go_on_while_an_hour_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_windows(tmp_path)
    for number in range(0, 125, 5):
        write_window(table, number)
    begun, may_go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any, **named: Any) -> Any:
        begun.set()
        assert may_go_on.wait(DEADLINE_S)
        return rolled_up(*arguments, **named)

    monkeypatch.setattr(rollups, "rolled_up", slow)
    monkeypatch.setattr(upkeep, "FIRST_AFTER_S", 0.0)
    jobs = jobs_of_pipeline(str(tmp_path), "test", SETTINGS)
    with UpkeepThread(jobs, now_ms=lambda: NOW_MS, patience_s=DEADLINE_S) as running:
        try:
            assert begun.wait(DEADLINE_S)
            for number in range(125, 140, 5):  # here, in the thread of the batches: a wait would never end
                write_window(table, number)
            assert len(tables.read(str(tmp_path), "broker_load")) == 28 * len(BROKERS)
            assert tables.read(str(tmp_path), "broker_load_hourly") == []
        finally:
            may_go_on.set()
        until("both hours are made", lambda: len(tables.read(str(tmp_path), "broker_load_hourly")) == 4)
        running.end_soon()


@pytest.mark.long
def test_a_batch_is_written_while_files_are_joined_and_its_lock_holds_back_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_windows(tmp_path)
    for number in range(3):
        write_window(table, number)
    begun, may_go_on = threading.Event(), threading.Event()
    whole = data_files._written

    def slow(*arguments: Any) -> Any:
        added = whole(*arguments)
        begun.set()
        assert may_go_on.wait(DEADLINE_S)
        return added

    monkeypatch.setattr(data_files, "_written", slow)
    thread = threading.Thread(
        target=lambda: TableUpkeep(str(tmp_path), BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
    )
    thread.start()
    assert begun.wait(DEADLINE_S)
    write_window(table, 3)  # here, in the thread of the batches: a wait would never end
    lock = write_lock(tables.table_uri(str(tmp_path), "broker_load"))
    with lock:
        may_go_on.set()
        version = tables.opened(tables.table_uri(str(tmp_path), "broker_load")).version()
        thread.join(0.2)
        assert thread.is_alive(), "it waits for its turn to commit"
        assert tables.opened(tables.table_uri(str(tmp_path), "broker_load")).version() == version
    thread.join(DEADLINE_S)
    rows = tables.read(str(tmp_path), "broker_load")
    assert len(rows) == len({(row["window_start"], row["broker"]) for row in rows}) == 4 * len(BROKERS)
    assert [commit.get(JOINED) for commit in tables.opened(str(tmp_path / "broker_load")).history(1)] == [2]


@pytest.mark.long
def test_a_file_is_written_without_expired_rows_while_a_batch_holds_the_lock(tmp_path: Path) -> None:
    """In a large cluster such a file has up to 100 MB, and no batch waits while it is written."""
    made = Synthetic(str(tmp_path))
    with made.together():
        for hour in range(HOURS):
            for third in range(3):
                start_ms = DAY0_MS + hour * HOUR_MS + third * HOUR_MS // 3
                made.broker_load(start_ms, {broker: rate(hour, third, broker) for broker in BROKERS})
    time_goes_on(tmp_path)
    folder = tmp_path / "broker_load"
    version = tables.opened(str(folder)).version()
    thread = threading.Thread(
        target=lambda: TableUpkeep(str(tmp_path), BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
    )
    with write_lock(tables.table_uri(str(tmp_path), "broker_load")):  # a batch that takes long
        thread.start()
        until("the new file is there", lambda: len(list(folder.rglob("*.parquet"))) == 2)
        assert tables.opened(str(folder)).version() == version
    thread.join(DEADLINE_S)
    assert_recounted(tmp_path)


@pytest.mark.long
def test_batches_and_upkeep_that_never_rest_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are joined, rows are deleted and hours are made in one thread while windows are written in another."""
    monkeypatch.setattr(upkeep, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(upkeep, "POLL_INTERVAL_S", 0.001)
    settings = PipelineSettings(watermark_ms=WATERMARK_MS, maintenance_interval_ms=1, retention_ms=3 * DAY_MS)
    jobs = jobs_of_pipeline(str(tmp_path), "test", settings)
    clock = iter(range(NOW_MS, NOW_MS + 10**9))
    table = open_windows(tmp_path)
    count = 150
    with capture_logs() as logged, UpkeepThread(jobs, now_ms=lambda: next(clock), patience_s=DEADLINE_S) as running:
        for number in range(count):
            write_window(table, number)
        until("both hours are made", lambda: len(tables.read(str(tmp_path), "broker_load_hourly")) == 4)
        running.end_soon()
    assert running.failing() == ()
    assert [row for row in logged if row["log_level"] != "info"] == []
    rows = tables.read(str(tmp_path), "broker_load")
    starts = [(tables.to_ms(row["window_start"]), row["broker"]) for row in rows]
    assert sorted(starts) == [(DAY0_MS + number * 60_000, broker) for number in range(count) for broker in BROKERS]
    assert {row["window_count"] for row in tables.read(str(tmp_path), "broker_load_hourly")} == {60}
    operations = [row["table"] for row in logged if row["event"] == "maintained"]
    assert operations.count("broker_load") > 3


def test_a_job_that_fails_is_tried_again_shown_and_holds_nothing_up(tmp_path: Path) -> None:
    tries, others = list[int](), list[int]()
    broken = True

    def fail(now_ms: int) -> None:
        tries.append(now_ms)
        if broken:
            raise ValueError("of a kind that nobody thought of")

    jobs = [Job("t", "broken", 10, fail), Job("t", "sound", 10, others.append)]
    now_ms = 0
    running = UpkeepThread(jobs, now_ms=lambda: now_ms, patience_s=0)
    with capture_logs() as logged:
        for now_ms in range(0, 50, 5):  # noqa: B007 - the clock of the jobs
            running.run_due()
            assert running.failing() == ("t: broken",)
    assert tries == others == [0, 10, 20, 30, 40]
    assert [row["times"] for row in logged if row["event"] == "maintenance_failed"] == [1, 2, 3, 4, 5]
    broken, now_ms = False, 50
    running.run_due()
    assert running.failing() == ()


def test_a_job_is_done_to_its_end_and_the_first_one_has_its_turn_between_its_steps() -> None:
    """Also where jobs take longer than their interval: days of months to make hold up no event for so long."""
    done = list[str]()
    left = 3

    def periods(_now_ms: int) -> bool:
        nonlocal left
        left -= 1
        done.append("period")
        return left > 0

    jobs = [Job("t", "events", 4, lambda _now_ms: done.append("events")), Job("t", "periods", 1_000, periods)]
    clock = iter(range(100))
    UpkeepThread(jobs, now_ms=lambda: next(clock), patience_s=0).run_due()
    assert done[:2] == ["events", "period"]
    assert (done.count("period"), "events" in done[2:]) == (3, True)


class Panic(BaseException):
    """An error like that of pyo3 for a panic in Rust, which is no Exception."""


def test_a_panic_ends_neither_the_thread_nor_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FIRST_AFTER_S", 0.0)
    done = threading.Event()

    def panics(_now_ms: int) -> bool:
        raise Panic("called `Option::unwrap()` on a `None` value")

    jobs = [Job("t", "panics", 1_000, panics), Job("t", "other", 1_000, lambda _now_ms: done.set())]
    with UpkeepThread(jobs, now_ms=lambda: 0, patience_s=DEADLINE_S) as running:
        assert done.wait(DEADLINE_S)
        assert running.failing() == ("t: panics",)


def test_the_end_waits_for_the_step_under_way_and_begins_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FIRST_AFTER_S", 0.0)
    begun, may_go_on, done = threading.Event(), threading.Event(), list[str]()

    def slow(_now_ms: int) -> bool:
        begun.set()
        assert may_go_on.wait(DEADLINE_S)
        done.append("step")
        return True

    with UpkeepThread([Job("t", "slow", 1, slow)], now_ms=lambda: 0, patience_s=DEADLINE_S) as running:
        assert begun.wait(DEADLINE_S)
        running.end_soon()
        may_go_on.set()
    assert done == ["step"]


def test_a_step_that_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FIRST_AFTER_S", 0.0)
    begun, may_go_on = threading.Event(), threading.Event()

    def slow(_now_ms: int) -> None:
        begun.set()
        may_go_on.wait(DEADLINE_S)

    with capture_logs() as logged:
        try:
            with UpkeepThread([Job("t", "slow", 1, slow)], now_ms=lambda: 0, patience_s=0.01) as running:
                assert begun.wait(DEADLINE_S)
                running.end_soon()
        finally:
            may_go_on.set()
    assert [row["event"] for row in logged] == ["maintenance_cut"]


@pytest.mark.long
def test_an_hour_is_made_in_pieces_if_it_is_large(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large cluster's hour is never in memory; pieces that are as small as a window change no figure."""
    read = list[int]()

    def counted(part: Callable[..., Any]) -> Callable[..., Any]:
        def called(rows: Any, *rest: Any) -> Any:
            read.append(rows.num_rows)
            return part(rows, *rest)

        return called

    monkeypatch.setattr(rollups, "_part", counted(rollups._part))
    monkeypatch.setattr(rollups, "ROWS_AT_A_TIME", len(BROKERS))
    TableUpkeep(str(root), BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
    assert max(read) == len(BROKERS)
    assert_recounted(root)


@pytest.mark.long
def test_windows_of_a_long_pause_are_skipped_at_once(tmp_path: Path) -> None:
    """Years between two windows are no periods that are looked for one by one."""
    made = Synthetic(str(tmp_path))
    for start_ms in (DAY0_MS - 20 * 365 * DAY_MS, DAY0_MS, DAY0_MS + 2 * HOUR_MS):
        made.broker_load(start_ms, {1: 1.0})
    began_s = time.process_time()
    TableUpkeep(str(tmp_path), BROKER_LOAD, SETTINGS).run_if_due(now_ms=NOW_MS)
    starts = [tables.to_ms(row["period_start"]) for row in tables.read(str(tmp_path), BROKER_LOAD_HOURLY.name)]
    assert starts == [DAY0_MS], f"after {time.process_time() - began_s:.1f} s of CPU"
