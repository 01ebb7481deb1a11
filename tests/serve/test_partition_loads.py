"""Loads of partitions are read once for a closed window, and again only where it has got other rows."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from streaming.contract.records import PARTITION_MAX
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, Condition, TableReader
from streaming.views.broker_load import LoadPart, LoadReader, read_leaders, read_load
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Over Delta."""
    return settings_for(tmp_path)


class CountingReader(TableReader):
    """Counts how often loads of partitions are read."""

    reads = 0

    def encoded(self, name: str, *, columns: Sequence[str], where: Condition = ALL_ROWS) -> pa.Table:
        self.reads += name == "partition_load"
        return super().encoded(name, columns=columns, where=where)


class Kept:
    """A reader that is kept, held against one that has just begun."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reader = CountingReader(settings.storage.tables)
        self.loads = LoadReader(self.reader, settings)

    def look(self) -> tuple[LoadPart, int]:
        """The load, and how often partitions were read for it."""
        self.reader.look_again()
        before = self.reader.reads
        load = self.loads.read()
        assert load == read_load(TableReader(self.settings.storage.tables), self.settings)
        return load, self.reader.reads - before


def window(synthetic: Synthetic, number: int, rate: float, *, is_final: bool) -> None:
    start_ms = NOW_MS + number * WINDOW_MS
    synthetic.broker_load(start_ms, {1: rate, 2: rate}, is_final=is_final)
    rows = [(1, "t", 0, "leader", rate), (2, "t", 1, "leader", rate / 2), (2, "t", 0, "follower", rate)]
    synthetic.partition_load(start_ms, rows, is_final=is_final)


@pytest.mark.long
def test_rows_of_other_windows_cost_no_reading_of_the_closed_one(settings: Settings, synthetic: Synthetic) -> None:
    window(synthetic, 0, 1e6, is_final=True)
    kept = Kept(settings)
    assert kept.look()[1] == 1
    assert kept.look()[1] == 0
    window(synthetic, 1, 2e6, is_final=False)
    load, reads = kept.look()
    assert (load.window_start_ms, reads) == (NOW_MS, 0)
    window(synthetic, -1, 3e6, is_final=True)
    assert kept.look()[1] == 0


@pytest.mark.long
def test_a_window_that_is_closed_next_is_read(settings: Settings, synthetic: Synthetic) -> None:
    kept = Kept(settings)
    assert kept.look() == (LoadPart(), 0)
    for number in range(2):
        window(synthetic, number, 1e6 * (1 + number), is_final=True)
        load, reads = kept.look()
        assert (load.window_start_ms, reads) == (NOW_MS + number * WINDOW_MS, 1)
        assert load.leader_rates == {"t": (1e6 * (1 + number), 5e5 * (1 + number))}


@pytest.mark.long
def test_rows_that_come_late_are_seen(settings: Settings, synthetic: Synthetic) -> None:
    window(synthetic, 0, 1e6, is_final=True)
    kept = Kept(settings)
    kept.look()
    synthetic.partition_load(NOW_MS, [(2, "late", 0, "leader", 7.0)])
    load, reads = kept.look()
    assert reads == 1
    assert load.leader_rates["late"] == (7.0,)
    assert kept.look()[1] == 0


def test_a_table_that_comes_after_the_window_is_seen(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(NOW_MS, {1: 1e6})
    kept = Kept(settings)
    assert kept.look()[0].leader_rates == {}
    synthetic.partition_load(NOW_MS, [(1, "t", 0, "leader", 1e6)])
    assert kept.look()[0].leader_rates == {"t": (1e6,)}


@pytest.mark.parametrize("number", [PARTITION_MAX, PARTITION_MAX + 1, 200_000_000, 2**31 - 1])
def test_a_partition_number_that_no_topic_has_costs_nothing(
    settings: Settings, synthetic: Synthetic, number: int
) -> None:
    """In tables of an earlier release it may stand."""
    window(synthetic, 0, 1e6, is_final=True)
    synthetic.partition_load(NOW_MS, [(1, "odd", number, "leader", 1.0), (1, "t", number, "leader", 1.0)])
    load = read_load(TableReader(settings.storage.tables), settings)
    assert load.leader_rates["t"] == (1e6, 5e5)
    assert sum(map(len, load.leader_rates.values())) == 2


def test_partitions_between_others_that_no_row_shows_are_unknown(settings: Settings, synthetic: Synthetic) -> None:
    window(synthetic, 0, 1e6, is_final=True)
    synthetic.partition_load(NOW_MS, [(1, "few", 900, "leader", 7.0)])
    load = read_load(TableReader(settings.storage.tables), settings)
    assert load.leader_rates["few"] == (*[None] * 900, 7.0)


def test_a_partition_that_moves_within_a_window_is_its_newest_leaders(settings: Settings, synthetic: Synthetic) -> None:
    """The replica of before is gone, so both brokers lead it by their newest samples."""
    synthetic.broker_load(NOW_MS, {1: 1e6, 2: 1e6})
    synthetic.partition_load(NOW_MS, [(2, "t", 0, "leader", 2e6), (1, "t", 1, "leader", 5e5)])
    earlier = {"last_event_time_ms": NOW_MS + 20_000, "remote_size_bytes": 9}
    synthetic.partition_load(NOW_MS, [(1, "t", 0, "leader", 1e6)], **earlier)
    load = read_load(TableReader(settings.storage.tables), settings)
    assert load.leader_rates == {"t": (2e6, 5e5)}
    assert [(row.broker, row.topic, row.partition) for row in load.hot_partitions] == [(2, "t", 0), (1, "t", 1)]
    assert [(row.leaders, row.remote_log_bytes) for row in load.brokers] == [(1, None), (1, None)]
    synthetic.partition_load(NOW_MS, [(3, "t", 1, "leader", 5e5)], last_event_time_ms=NOW_MS + 10_000)
    leaders = read_leaders(TableReader(settings.storage.tables), "test", load, ["t"])
    assert leaders == {("t", 0): 2, ("t", 1): 1}
