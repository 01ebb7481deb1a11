"""Which windows count, and what a broker's load is where some figures are missing."""

from typing import Any

import pytest

from assignor_core.resources import Resource
from streaming import tables
from streaming.settings import Settings
from streaming.views.broker_windows import capacities, closed, loads

SETTINGS = Settings()
WATERMARK_MS = SETTINGS.pipeline.watermark_ms
WINDOW_MS = SETTINGS.pipeline.window_ms


def row(broker: int, client: float | None, replication: float | None, disk: int | None = None) -> dict[str, Any]:
    return {
        "broker": broker, "bytes_in_per_sec": client, "replication_bytes_in_per_sec": replication,
        "bytes_out_per_sec": None, "replication_bytes_out_per_sec": replication, "log_dir_used_bytes": disk,
    }  # fmt: skip


def test_a_load_is_clients_and_replication_together() -> None:
    assert loads([row(1, 5.0, 2.0), row(2, 0.0, 0.0)], Resource.BYTES_IN) == {1: 7.0, 2: 0.0}


def test_a_broker_without_replication_figures_does_not_pass_for_an_idle_one() -> None:
    window = [row(1, 5.0, 2.0), row(2, 5.0, None), row(3, None, 2.0)]
    assert loads(window, Resource.BYTES_IN) == {1: 7.0}


def test_where_no_broker_knows_its_replication_clients_traffic_compares() -> None:
    assert loads([row(1, 5.0, None), row(2, 6.0, None), row(3, None, None)], Resource.BYTES_IN) == {1: 5.0, 2: 6.0}


def test_each_resource_goes_by_its_own_figures() -> None:
    window = [row(1, 5.0, 2.0, disk=70), row(2, 5.0, None)]
    assert loads(window, Resource.BYTES_OUT) == {}
    assert loads(window, Resource.DISK) == {1: 70}


@pytest.mark.parametrize(("late_ms", "is_closed"), [(-1, False), (0, True)])
def test_a_window_is_closed_by_an_event_later_than_its_end_plus_the_watermark(late_ms: int, is_closed: bool) -> None:
    def of(start_ms: int, newest_ms: int, *, is_final: bool = False) -> dict[str, Any]:
        times = {"window_start": tables.utc(start_ms), "window_end": tables.utc(start_ms + WINDOW_MS)}
        return {**times, "broker": 1, "last_event_time_ms": newest_ms, "is_final": is_final}

    newest = of(2 * WINDOW_MS, 2 * WINDOW_MS + WATERMARK_MS + late_ms)
    rows = [newest, of(WINDOW_MS, WINDOW_MS + 1), of(0, 1, is_final=True), of(0, 2, is_final=True)]
    windows = closed(rows, watermark_ms=SETTINGS.pipeline.watermark_ms)
    assert windows == {0: rows[2:], **({WINDOW_MS: [rows[1]]} if is_closed else {})}
    assert list(windows) == sorted(windows)


def test_capacities_are_of_all_brokers_or_of_none() -> None:
    some = {1: {"bytes_in_per_sec": 10.0, "disk_bytes": 5}, 2: {"bytes_in_per_sec": 20.0}}
    settings = Settings.model_validate({"planner": {"capacities": some}})
    assert capacities(settings.planner, Resource.BYTES_IN, {1, 2}) == {1: 10.0, 2: 20.0}
    assert capacities(settings.planner, Resource.LEADERS, {2}) == {2: 20.0}  # counts go by it too
    assert capacities(settings.planner, Resource.DISK, {1, 2}) is None
    assert capacities(settings.planner, Resource.DISK, {1}) == {1: 5}
