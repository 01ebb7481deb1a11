"""Control keeps what it has learned of brokers' loads, and a control that starts anew goes on with it."""

from pathlib import Path
from typing import Any

import pytest

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.resources import Resource
from streaming import tables
from streaming.contract import LOAD_MEMORY
from streaming.control import load_memory
from streaming.control.load_memory import KEPT_EVERY_MS, KeptMemory, read_memory
from streaming.control.windows import WindowTables, closed_windows, recorded_windows
from tests.serve.synthetic import WINDOW_MS, Synthetic

CLUSTER = "main"
POLICY = DecisionPolicy(resources=(Resource.BYTES_IN,))
COUNTED = frozenset({1, 2, 3})


@pytest.fixture
def window_tables(tmp_path: Path) -> WindowTables:
    return WindowTables(str(tmp_path / "tables"), CLUSTER, WINDOW_MS, WINDOW_MS, 30)


def load(window_tables: WindowTables, first: int, last: int) -> None:
    """Windows in which broker 1 is now above, now below the mean."""
    synthetic = Synthetic(window_tables.root, CLUSTER, _commits=first)
    with synthetic.together():
        for index in range(first, last):
            wave = 1.0 + 0.1 * ((index * 7) % 5 - 2)
            synthetic.broker_load(WINDOW_MS * index, {1: 1e6 * wave, 2: 1e6, 3: 1e6})


def after(kept: KeptMemory, window_tables: WindowTables, index: int) -> Any:
    windows = closed_windows(window_tables, now_ms=WINDOW_MS * (index + 2))
    return kept.after(windows, POLICY, COUNTED, changed_ms=0)


def test_the_first_start_learns_from_the_windows_of_a_day(window_tables: WindowTables) -> None:
    load(window_tables, 0, 200)
    memory = after(KeptMemory(window_tables), window_tables, 200)
    whole = recorded_windows(window_tables, since_ms=0)
    assert memory.newest_ms == whole[-1].end_ms
    assert int(memory.levels["bytes_in"].windows[0]) == len(whole) > 150
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
    one, other = after(restarted, window_tables, 130), after(alone, window_tables, 130)
    assert one.newest_ms == other.newest_ms > kept.newest_ms
    assert one.levels["bytes_in"].as_dict() == other.levels["bytes_in"].as_dict()
    assert one.episodes == other.episodes


def test_rows_are_kept_once_an_hour_and_replaced(window_tables: WindowTables) -> None:
    load(window_tables, 0, 70)
    kept = KeptMemory(window_tables)
    after(kept, window_tables, 70)
    shown = tables.read(window_tables.root, LOAD_MEMORY.name)
    assert [line["resource"] for line in shown] == ["bytes_in"]
    load(window_tables, 70, 80)
    after(kept, window_tables, 80)
    assert tables.read(window_tables.root, LOAD_MEMORY.name) == shown
    load(window_tables, 80, 140)
    after(kept, window_tables, 140)
    newer = tables.read(window_tables.root, LOAD_MEMORY.name)
    assert len(newer) == 1
    assert newer[0]["event_time"] > shown[0]["event_time"]


def test_what_cannot_be_read_is_learned_anew(window_tables: WindowTables, monkeypatch: pytest.MonkeyPatch) -> None:
    load(window_tables, 0, 70)
    after(KeptMemory(window_tables), window_tables, 70)
    rows = tables.read(window_tables.root, LOAD_MEMORY.name)
    broken = [{**line, "levels_json": '{"brokers": [1], "windows": []}'} for line in rows]
    tables.replace(
        window_tables.root, LOAD_MEMORY.name, broken, kafka_cluster=CLUSTER, transaction_id="x", transaction_version=1
    )
    warnings: list[str] = []
    monkeypatch.setattr(load_memory.log, "warning", lambda event, **_: warnings.append(event))
    assert KeptMemory(window_tables).memory.newest_ms == 0
    assert warnings == ["load_memory_unreadable"]
