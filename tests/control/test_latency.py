"""When brokers that answer producers slowly hold an execution back, without brokers: time is what a test says."""

from dataclasses import dataclass

import pytest

from assignor_core.execution.caution import LatencyBound
from streaming.control import pressure as pressures
from streaming.control.pressure import READ_INTERVAL_MS, SERIES, LatencyPressure

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
