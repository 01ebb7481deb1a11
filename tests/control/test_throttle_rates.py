"""Rates of the replication throttle as an execution goes on."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from assignor_core.execution.adaptive_rates import ADAPT_INTERVAL_MS
from assignor_core.throttles import tagged
from streaming import tables
from streaming.control.wiring import rates_of
from streaming.settings import Settings
from tests.control.windows import window_columns

NOON_MS = 1_700_000_040_000
HOUR_MS = 3_600_000
WINDOW_MS = 60_000
BROKERS = frozenset({1, 2})
LOOKS_MAX = 20


def test_rates_that_no_broker_took_are_told_again(tmp_path: Path) -> None:
    settings = Settings.model_validate({"storage": {"tables": str(tmp_path)}})
    rates = rates_of(settings)
    first = rates.initial(BROKERS, now_ms=0)
    rates.sent(first)
    lowest = dict.fromkeys(BROKERS, tagged(settings.control.throttle_min_bytes_per_sec))
    wanted = first
    for look in range(1, LOOKS_MAX):
        wanted = rates.changed(BROKERS, pressed=True, now_ms=look * ADAPT_INTERVAL_MS) or {}
    assert wanted == lowest, "as long as it is refused"
    rates.sent(wanted)
    assert rates.changed(BROKERS, pressed=True, now_ms=LOOKS_MAX * ADAPT_INTERVAL_MS) is None


def test_a_clock_that_is_set_back_does_not_keep_rates_as_they_are(tables_in_memory: str) -> None:
    settings = Settings.model_validate({"storage": {"tables": tables_in_memory}})
    rates = rates_of(settings)
    rates.sent(rates.initial(BROKERS, now_ms=NOON_MS))
    assert rates.changed(BROKERS, pressed=True, now_ms=NOON_MS - HOUR_MS) is not None


def with_capacities(root: str) -> Settings:
    """Brokers that may carry 10 MB/s in each direction."""
    capacity = {"bytes_in_per_sec": 10_000_000, "bytes_out_per_sec": 10_000_000}
    return Settings.model_validate(
        {
            "storage": {"tables": root},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "planner": {"capacities": dict.fromkeys(BROKERS, capacity)},
        }
    )


def write_window(settings: Settings, end_ms: int, loads: Mapping[int, float | None]) -> None:
    """Brokers of `loads` have reported; None: without knowing their traffic."""
    audit = window_columns(settings.kafka.cluster_name, end_ms - WINDOW_MS, WINDOW_MS)
    rows = [
        {**audit, "broker": broker, "bytes_in_per_sec": load, "bytes_out_per_sec": load}
        for broker, load in loads.items()
    ]
    tables.append(settings.storage.tables, "broker_load", rows, transaction_id="windows", transaction_version=end_ms)


@pytest.mark.parametrize("newest", [{2: 7e6}, {1: None, 2: 7e6}, {}])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_broker_that_does_not_report_gets_no_more_than_before(
    tables_in_memory: str, newest: Mapping[int, float | None], restarted: bool
) -> None:
    """It may be too busy to answer its collector."""
    settings = with_capacities(tables_in_memory)
    write_window(settings, NOON_MS, dict.fromkeys(BROKERS, 7e6))
    rates = rates_of(settings)
    first = rates.initial(BROKERS, now_ms=NOON_MS)
    assert first == dict.fromkeys(BROKERS, tagged(2_400_000))
    rates.sent(first)
    if newest:
        write_window(settings, NOON_MS + WINDOW_MS, newest)
    if restarted:
        rates = rates_of(settings)
        assert rates.initial(BROKERS, now_ms=NOON_MS + WINDOW_MS + 10_000) == first
    else:
        assert rates.changed(BROKERS, pressed=False, now_ms=NOON_MS + WINDOW_MS + 10_000) is None


def test_rates_stay_while_the_pipeline_is_down(tables_in_memory: str) -> None:
    settings = with_capacities(tables_in_memory)
    write_window(settings, NOON_MS, {1: 7e6, 2: 1e6})
    rates = rates_of(settings)
    rates.sent(rates.initial(BROKERS, now_ms=NOON_MS))
    for look in range(1, 3 * HOUR_MS // ADAPT_INTERVAL_MS):
        assert rates.changed(BROKERS, pressed=False, now_ms=NOON_MS + look * ADAPT_INTERVAL_MS) is None
    # Less is always possible, and what the next window shows counts.
    now_ms = NOON_MS + 3 * HOUR_MS
    rates.sent(rates.changed(BROKERS, pressed=True, now_ms=now_ms) or {})
    write_window(settings, now_ms, {1: 1e6, 2: 1e6})
    assert rates.changed(BROKERS, pressed=False, now_ms=now_ms + ADAPT_INTERVAL_MS) == dict.fromkeys(
        (1, 2), tagged(4_500_000)
    )
