"""Rates of the replication throttle as an execution goes on."""

from pathlib import Path

from streaming.control.throttle import ADAPT_INTERVAL_MS
from streaming.control.wiring import rates_of
from streaming.settings import Settings

BROKERS = frozenset({1, 2})
LOOKS_MAX = 20


def test_rates_that_no_broker_took_are_told_again(tmp_path: Path) -> None:
    settings = Settings.model_validate({"storage": {"tables": str(tmp_path)}})
    rates = rates_of(settings)
    first = rates.initial(BROKERS, now_ms=0)
    rates.sent(first)
    lowest = dict.fromkeys(BROKERS, settings.control.throttle_min_bytes_per_sec)
    wanted = first
    for look in range(1, LOOKS_MAX):
        wanted = rates.changed(BROKERS, pressed=True, now_ms=look * ADAPT_INTERVAL_MS) or {}
    assert wanted == lowest, "as long as it is refused"
    rates.sent(wanted)
    assert rates.changed(BROKERS, pressed=True, now_ms=LOOKS_MAX * ADAPT_INTERVAL_MS) is None
