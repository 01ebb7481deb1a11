"""What holds movements back: groups that fall behind, and brokers that answer slowly. Real tables, no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from assignor_core.execution.caution import LagBound, LatencyBound
from assignor_core.live import LivePartition
from streaming import tables
from streaming.control import pressure as pressures
from streaming.control.pressure import BASELINE_WINDOWS, READ_INTERVAL_MS, SERIES, LagPressure, LatencyPressure
from streaming.control.windows import WindowTables
from streaming.views.group_picture import CURRENT_WINDOWS
from streaming.views.spans import STALE_WINDOWS
from tests.tables_in_memory import MemoryReader

WINDOW_MS = 60_000
STARTED_MS = 1_700_000_040_000
"""The start of a window."""
PARTITIONS = {("t", 0): LivePartition((1,), 1, (1,)), ("t", 1): LivePartition((3,), 3, (3,))}
PLAN_BROKERS = frozenset({1, 2})


class Groups:
    """Writes windows of `group_lag` and asks for pressure."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._version = 0
        self.pressure = LagPressure(
            WindowTables(self._root, "main", WINDOW_MS, watermark_ms=0, windows_max=1),
            LagBound(2.0, 1_000),
            "^(?!ignored)",
        )

    def write(
        self,
        lag: int | None,
        window: int,
        *,
        group: str = "readers",
        partition: int = 0,
        committed: int | None = None,
        state: str | None = "Stable",
        cluster: str = "main",
    ) -> None:
        """The window that begins so many windows after the start of the execution."""
        start_ms = STARTED_MS + window * WINDOW_MS
        row = {
            "kafka_cluster": cluster, "window_start": tables.utc(start_ms),
            "window_end": tables.utc(start_ms + WINDOW_MS), "group_id": group, "topic": "t", "partition": partition,
            "lag_records": lag, "committed_offset": committed, "group_state": state, "sample_count": 1,
            "first_event_time_ms": start_ms + 1, "last_event_time_ms": start_ms + WINDOW_MS - 1, "is_final": True,
            "updated_at": tables.utc(start_ms), "batch_id": 0, "query_id": "q",
        }  # fmt: skip
        self._version += 1
        tables.append(self._root, "group_lag", [row], transaction_id="lag", transaction_version=self._version)

    def reason(self, window: int) -> str | None:
        """Asked at the end of that window."""
        now_ms = STARTED_MS + (window + 1) * WINDOW_MS
        return self.pressure.reason(PLAN_BROKERS, PARTITIONS, started_ms=STARTED_MS, now_ms=now_ms)


@pytest.fixture
def groups(tables_in_memory: str) -> Groups:
    return Groups(tables_in_memory)


def test_a_group_that_falls_behind_holds_back_until_it_has_caught_up(groups: Groups) -> None:
    groups.write(10, -1, committed=100)
    groups.write(5_000, 0, committed=200)
    assert groups.reason(0) == "1 consumer group falls behind, first readers: 5,000 records, 10 at the start"
    groups.write(20, 1, committed=9_000)
    assert groups.reason(1) is None


AT_FIRST, BEHIND = (10, -1, {"committed": 100}), (5_000, 0, {"committed": 200})


@pytest.mark.parametrize(
    ("rows", "window", "held_back"),
    [
        pytest.param([], 0, False, id="no tables"),
        pytest.param([(10, -1, {"state": None}), (5_000, 0, {"state": None})], 0, True, id="nothing known of it"),
        pytest.param(
            [AT_FIRST, (1_500, 0, {"committed": 200, "state": "Empty"}), (5_000, 1, {"state": None})], 1, True,
            id="state and commits are those of the sample that shows the lag",
        ),
        pytest.param(
            [(10, -1, {"group": "ignored", "committed": 1}), (5_000, 0, {"group": "ignored", "committed": 2})], 0,
            False, id="not selected",
        ),
        pytest.param(
            [(10, -1, {"group": "other", "committed": 1}), (5_000, 0, {"group": "new", "committed": 2})], 0, False,
            id="new",
        ),
        pytest.param([AT_FIRST, (5_000, 0, {"committed": 200, "state": "Empty"})], 0, False, id="without members"),
        pytest.param([AT_FIRST, (5_000, 0, {"committed": 200, "state": "Dead"})], 0, False, id="dead"),
        pytest.param(
            [AT_FIRST, BEHIND, (5_000, 500, {"group": "ignored", "committed": 200})], 0, True,
            id="others have windows of the future",
        ),
        pytest.param(
            [AT_FIRST, BEHIND, *((0, row, {"committed": 200 + row, "cluster": "another"}) for row in range(1, 6))], 5,
            True, id="our pipeline is behind that of another cluster in the same tables",
        ),
    ],
)  # fmt: skip
def test_whether_a_group_holds_back(
    groups: Groups, rows: Sequence[tuple[int, int, dict[str, Any]]], window: int, held_back: bool
) -> None:
    for lag, written, given in rows:
        groups.write(lag, written, **given)
    assert (groups.reason(window) is not None) == held_back


def test_a_group_that_reads_from_no_broker_of_the_plan_holds_nothing_back(groups: Groups) -> None:
    groups.write(10, -1, partition=1, committed=100)
    groups.write(5_000, 0, partition=1, committed=200)
    assert groups.reason(0) is None
    groups.write(0, 1, partition=0, committed=300)
    groups.write(5_000, 1, partition=1, committed=300)
    assert groups.reason(1) is not None


def test_a_group_that_has_committed_nothing_since_the_start_holds_nothing_back(groups: Groups) -> None:
    groups.write(10, -1, committed=100)
    groups.write(5_000, 0, committed=100)
    assert groups.reason(0) is None
    groups.write(6_000, 1, committed=101)
    assert groups.reason(1) is not None


def test_only_the_newest_windows_count_of_the_time_since_the_start(groups: Groups) -> None:
    for partition in (0, 1):
        groups.write(10, -1, partition=partition, committed=100)
        groups.write(5_000, 0, partition=partition, committed=200)
    assert "10,000 records, 20" in (groups.reason(0) or "")
    groups.write(10, 9, partition=0, committed=9_000)  # partition 1 is no longer read
    assert groups.reason(9) is None


def test_the_lag_at_the_start_is_read_once(groups: Groups) -> None:
    groups.write(10, -1, committed=100)
    groups.write(5_000, 0, committed=200)
    assert groups.reason(0) is not None
    groups.write(4_000, -1, partition=1, committed=100)
    assert "5,000 records, 10 at the start" in (groups.reason(1) or "")


def test_another_execution_has_a_start_of_its_own(groups: Groups) -> None:
    groups.write(10, -1, committed=100)
    groups.write(5_000, 0, committed=200)
    groups.write(5_500, 1, committed=300)
    assert groups.reason(1) is not None
    started_ms = STARTED_MS + WINDOW_MS
    now_ms = started_ms + WINDOW_MS + READ_INTERVAL_MS
    assert groups.pressure.reason(PLAN_BROKERS, PARTITIONS, started_ms=started_ms, now_ms=now_ms) is None


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows are read from now on, summed, in its only element."""
    read, arrow = [0], MemoryReader.arrow

    def counted(reader: MemoryReader, name: str, **asked: Any) -> pa.Table:
        rows = arrow(reader, name, **asked)
        read[0] += rows.num_rows
        return rows

    monkeypatch.setattr(MemoryReader, "arrow", counted)
    return read


@pytest.mark.long
def test_what_is_read_does_not_grow_with_the_time_before_the_start_and_since(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it was read at each look: after six hours that took half a minute, and 1.5 GB."""
    for window in range(-BASELINE_WINDOWS - 20, 0):
        groups.write(10, window, committed=100 + window)
    groups.write(5_000, 0, committed=200)
    read = rows_read(monkeypatch)
    assert groups.reason(0) is not None
    assert read == [BASELINE_WINDOWS + 1], "the windows right before the start, and the one since"
    for window in range(1, CURRENT_WINDOWS + 20):
        groups.write(5_000 + window, window, committed=200 + window)
    read[0] = 0
    assert groups.reason(CURRENT_WINDOWS + 19) is not None
    assert read == [CURRENT_WINDOWS + 1], "the newest windows alone"


def test_windows_that_have_not_changed_are_not_read_again(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are taken every five seconds; windows change with the pipeline's batches."""
    groups.write(1_000, -1)
    groups.write(3_000, 0, committed=1)
    read = rows_read(monkeypatch)
    behind = groups.reason(0)
    assert behind is not None
    assert read == [2], "what was before, and what is now"
    assert groups.reason(1) == behind
    assert groups.reason(2) == behind
    assert read == [2]
    groups.write(900, 1, committed=2)
    assert groups.reason(3) is None
    assert read == [4]


def test_what_was_so_before_the_pipeline_stopped_holds_nothing_back(groups: Groups) -> None:
    groups.write(10, -1, committed=100)
    groups.write(5_000, 0, committed=200)
    assert groups.reason(STALE_WINDOWS) is not None
    assert groups.reason(STALE_WINDOWS + 1) is None
    groups.write(6_000, STALE_WINDOWS + 1, committed=300)
    assert groups.reason(STALE_WINDOWS + 2) is not None


def test_a_clock_that_is_set_back_does_not_keep_it_from_looking(groups: Groups) -> None:
    groups.write(10, -1, committed=100)
    groups.write(5_000, 0, committed=200)
    assert groups.reason(3) is not None
    groups.write(20, 1, committed=9_000)
    assert groups.reason(2) is None


def test_lags_that_add_up_to_more_than_64_bits_hold_are_compared(groups: Groups) -> None:
    for partition in range(20):
        groups.write(100, -1, partition=partition)
        groups.write(10**18, 1, partition=partition)
    assert (
        groups.reason(1) == f"1 consumer group falls behind, first readers: {20 * 10**18:,} records, 2,000 at the start"
    )


NOON_MS = 1_700_000_040_000
HOUR_MS = 3_600_000
SLOW = "broker 1 answers producers in 900 ms (p99), 10 ms at the start"


@dataclass
class Scraped:
    """What the endpoints of the test answer, and how often they were asked."""

    p99_ms: float = 900.0
    asked: int = 0

    @property
    def answers(self) -> dict[int, str]:
        return {1: f"{SERIES},}} {self.p99_ms}\n"}


@pytest.fixture
def scraped(monkeypatch: pytest.MonkeyPatch) -> Scraped:
    scraped = Scraped()

    def scrape(endpoints: object, *, limit_s: float) -> Scraped:
        scraped.asked += 1
        return scraped

    monkeypatch.setattr(pressures, "scrape", scrape)
    return scraped


@pytest.fixture
def pressure() -> LatencyPressure:
    return LatencyPressure({1: "http://127.0.0.1:9"}, LatencyBound(2.0, 100.0))


def test_it_asks_every_few_seconds(scraped: Scraped, pressure: LatencyPressure) -> None:
    assert pressure.reason(10.0, now_ms=NOON_MS) == SLOW
    scraped.p99_ms = 20.0
    assert pressure.reason(10.0, now_ms=NOON_MS + READ_INTERVAL_MS - 1) == SLOW
    assert scraped.asked == 1
    assert pressure.reason(10.0, now_ms=NOON_MS + READ_INTERVAL_MS) is None


def test_an_execution_without_a_latency_to_compare_with_is_not_held_back_by_the_one_before(
    scraped: Scraped, pressure: LatencyPressure
) -> None:
    assert pressure.reason(10.0, now_ms=NOON_MS) == SLOW
    assert pressure.reason(None, now_ms=NOON_MS + 1_000) is None
    assert pressure.reason(None, now_ms=NOON_MS + HOUR_MS) is None


def test_the_next_execution_is_compared_with_its_own_start(scraped: Scraped, pressure: LatencyPressure) -> None:
    assert pressure.reason(10.0, now_ms=NOON_MS) == SLOW
    assert pressure.reason(800.0, now_ms=NOON_MS + 1_000) is None


def test_a_clock_that_is_set_back_does_not_keep_it_from_asking(scraped: Scraped, pressure: LatencyPressure) -> None:
    assert pressure.reason(10.0, now_ms=NOON_MS) == SLOW
    scraped.p99_ms = 20.0
    assert pressure.reason(10.0, now_ms=NOON_MS - HOUR_MS) is None
