"""Control keeps what it has learned of loads and of past days, and one that starts anew goes on with it."""

import json
from typing import Any

import pytest
import structlog

from assignor_core.deciding.policy import DecisionPolicy, TriggerPolicy
from assignor_core.load_history.recurring import NO_HISTORY, recurrence_of
from assignor_core.resources import Resource
from streaming import tables
from streaming.contract import BROKER_LOAD_HOURLY, LOAD_MEMORY, RECURRING_LOAD
from streaming.control.load_memory import KEPT_EVERY_MS, KeptMemory, KeptRecurringLoad, read_history, read_memory
from streaming.control.windows import WindowTables, closed_windows, recorded_windows
from streaming.settings import DAY_MS, HOUR_MS
from tests.serve.synthetic import Synthetic

CLUSTER = "main"
POLICY = DecisionPolicy(resources=(Resource.BYTES_IN,))
COUNTED = frozenset({1, 2, 3})
WINDOW_MS = 600_000
DAY_WINDOWS = DAY_MS // WINDOW_MS
HOUR_WINDOWS = KEPT_EVERY_MS // WINDOW_MS
EVEN, HOT = dict.fromkeys((1, 2, 3), 1e6), {1: 3e6, 2: 1e6, 3: 1e6}
BOTH = pytest.mark.parametrize(
    ("kind", "name"), [(KeptMemory, LOAD_MEMORY.name), (KeptRecurringLoad, RECURRING_LOAD.name)]
)


@pytest.fixture
def window_tables(tables_in_memory: str) -> WindowTables:
    return WindowTables(tables_in_memory, CLUSTER, WINDOW_MS, WINDOW_MS, 30)


def load(window_tables: WindowTables, first: int, last: int) -> None:
    """Windows of ten minutes; from 02:00 to 02:50 broker 1 is hot, at other times a little above or below the mean."""
    synthetic = Synthetic(window_tables.root, CLUSTER, _commits=first)
    with synthetic.together():
        for index in range(first, last):
            wave = 1.0 + 0.1 * ((index * 7) % 5 - 2)
            rates = HOT if 12 <= index % DAY_WINDOWS < 17 else EVEN | {1: 1e6 * wave}
            end = tables.utc(WINDOW_MS * (index + 1))
            synthetic.broker_load(WINDOW_MS * index, rates, window_end=end)


def after(kept: Any, window_tables: WindowTables, index: int, policy: DecisionPolicy = POLICY) -> Any:
    return kept.after(closed_windows(window_tables, now_ms=WINDOW_MS * (index + 2)), policy, COUNTED, changed_ms=0)


def known(history: Any, day: int) -> str | None:
    found = recurrence_of(history, "bytes_in", 1, at_ms=day * DAY_MS + 2 * HOUR_MS, above=1.3)
    return None if found is None else found.in_words()


def test_the_first_start_learns_from_the_windows_of_a_day(window_tables: WindowTables) -> None:
    load(window_tables, 0, 2 * DAY_WINDOWS)
    memory = after(KeptMemory(window_tables), window_tables, 2 * DAY_WINDOWS)
    whole = recorded_windows(window_tables, since_ms=0)
    assert memory.newest_ms == whole[-1].end_ms
    assert int(memory.levels["bytes_in"].windows[0]) == DAY_WINDOWS < len(whole)
    assert memory.levels["bytes_in"].is_known(1)


def test_a_restart_goes_on_as_if_there_had_been_none(window_tables: WindowTables) -> None:
    load(window_tables, 0, 100)
    first, alone = KeptMemory(window_tables), KeptMemory(window_tables)
    after(first, window_tables, 100)
    kept = read_memory(tables.TableReader(window_tables.root), CLUSTER)
    assert kept.newest_ms == first.memory.newest_ms >= KEPT_EVERY_MS
    load(window_tables, 100, 130)
    restarted = KeptMemory(window_tables)
    assert restarted.memory.newest_ms == kept.newest_ms
    one, other = (after(row, window_tables, 130) for row in (restarted, alone))
    assert one.newest_ms == other.newest_ms > kept.newest_ms
    assert one.levels["bytes_in"].as_dict() == other.levels["bytes_in"].as_dict()
    assert one.episodes == other.episodes


@pytest.mark.long
def test_after_a_restart_the_hours_of_past_days_are_known(window_tables: WindowTables) -> None:
    load(window_tables, 0, 4 * DAY_WINDOWS)
    first, alone = KeptRecurringLoad(window_tables), KeptRecurringLoad(window_tables)
    after(first, window_tables, 4 * DAY_WINDOWS)
    kept = read_history(tables.TableReader(window_tables.root), CLUSTER)
    assert kept.newest_ms == first.history.kept_until_ms() > 3 * DAY_MS
    assert known(kept, 4) == "comes each day 02:00 to 02:50 UTC, known from 4 days"
    load(window_tables, 4 * DAY_WINDOWS, 5 * DAY_WINDOWS)
    one, other = (after(row, window_tables, 5 * DAY_WINDOWS) for row in (KeptRecurringLoad(window_tables), alone))
    assert one.newest_ms == other.newest_ms > kept.newest_ms
    assert one.days == other.days
    assert known(one, 5) == "comes each day 02:00 to 02:50 UTC, known from 5 days"


@BOTH
def test_rows_are_kept_once_an_hour_and_replaced(window_tables: WindowTables, kind: Any, name: str) -> None:
    load(window_tables, 0, 20)
    kept = kind(window_tables)
    after(kept, window_tables, 20)
    shown = tables.read(window_tables.root, name)
    assert [row["resource"] for row in shown] == ["bytes_in"]
    load(window_tables, 20, 23)
    after(kept, window_tables, 23)
    assert tables.read(window_tables.root, name) == shown
    load(window_tables, 23, 23 + HOUR_WINDOWS)
    after(kept, window_tables, 23 + HOUR_WINDOWS)
    (newer,) = tables.read(window_tables.root, name)
    assert newer["event_time"] > shown[0]["event_time"]


@pytest.mark.long
def test_the_weeks_before_the_windows_come_from_the_hours(window_tables: WindowTables) -> None:
    rows = [
        {
            "kafka_cluster": CLUSTER, "period_start": tables.utc(hour * HOUR_MS),
            "period_end": tables.utc((hour + 1) * HOUR_MS), "broker": broker, "bytes_in_per_sec": rate,
            "covered_ms": HOUR_MS, "window_count": 6, "updated_at": tables.utc((hour + 1) * HOUR_MS),
        }
        for hour in range(28 * 24)
        for broker, rate in (HOT if hour % (7 * 24) == 2 else EVEN).items()
    ]  # fmt: skip
    tables.append(window_tables.root, BROKER_LOAD_HOURLY.name, rows, transaction_id="test", transaction_version=1)
    load(window_tables, 28 * DAY_WINDOWS, 28 * DAY_WINDOWS + 6)
    history = after(KeptRecurringLoad(window_tables), window_tables, 28 * DAY_WINDOWS + 6)
    assert known(history, 28) == "comes each Thu 02:00 to 03:00 UTC, known from 4 days"
    assert known(history, 29) is None
    assert len(tables.read(window_tables.root, RECURRING_LOAD.name)) == len(history.days["bytes_in"]), (
        "one for each day"
    )


@BOTH
def test_what_cannot_be_read_is_learned_anew(window_tables: WindowTables, kind: Any, name: str) -> None:
    load(window_tables, 0, 20)
    after(kind(window_tables), window_tables, 20)
    broken = json.dumps({"brokers": [1], "windows": [], "mean_load": [1]})
    column = "levels_json" if kind is KeptMemory else "day_json"
    rows = [{**row, column: broken} for row in tables.read(window_tables.root, name)]
    tables.replace(window_tables.root, name, rows, kafka_cluster=CLUSTER, transaction_id="x", transaction_version=1)
    with structlog.testing.capture_logs() as logs:
        kept = kind(window_tables)
    assert (kept.memory if kind is KeptMemory else kept.history).newest_ms == 0
    assert [row["event"] for row in logs] == [f"{name}_unreadable"]


def test_turned_off_it_reads_and_keeps_nothing(window_tables: WindowTables) -> None:
    load(window_tables, 0, 20)
    off = DecisionPolicy(resources=(Resource.BYTES_IN,), trigger=TriggerPolicy(recurring_load=False))
    assert after(KeptRecurringLoad(window_tables), window_tables, 20, off) is NO_HISTORY
    assert tables.TableReader(window_tables.root).version(RECURRING_LOAD.name) is None
