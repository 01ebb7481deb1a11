"""What the brokers show in a demo, where some of it is unknown: no figure is made up, and none passes for a success."""

from collections.abc import Mapping
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from streaming.demo.measure import BrokerProbe, CounterSample, max_over_mean
from streaming.demo.report import plot
from streaming.demo.result import DemoResult, result_lines
from streaming.demo.scenario import FoundingScenario
from streaming.demo.story import Story
from streaming.demo.traffic import TrafficReport
from streaming.demo.view import View

ENDPOINTS = {1: "http://127.0.0.1:1", 2: "http://127.0.0.1:2"}


def probe(*counts: tuple[float | None, float | None]) -> BrokerProbe:
    """Counters of brokers 1 and 2, a second apart."""
    made = BrokerProbe(ENDPOINTS)
    made.samples += [CounterSample(1_000 * at, dict(enumerate(row, start=1))) for at, row in enumerate(counts)]
    return made


def test_rates_are_those_between_the_first_and_the_last_sample() -> None:
    made = probe((0.0, 5.0), (10.0, 5.0), (40.0, 15.0))
    assert made.rates(0, 2_000) == {1: 20.0, 2: 5.0}
    assert made.series() == [(2_000, {1: 20.0, 2: 5.0})]


def test_a_broker_that_began_to_count_anew_has_an_unknown_rate_and_never_a_negative_one() -> None:
    made = probe((50.0, 0.0), (0.0, 10.0), (60.0, 20.0))
    assert made.rates(0, 2_000) == {1: None, 2: 10.0}
    assert made.series() == [(2_000, {1: None, 2: 10.0})]


def test_a_broker_that_shows_no_counter_has_an_unknown_rate() -> None:
    assert probe((None, 0.0), (7.0, 10.0), (None, 20.0)).rates(0, 2_000) == {1: None, 2: 10.0}
    assert probe((None, 0.0), (7.0, 10.0), (9.0, 20.0)).rates(0, 2_000) == {1: 2.0, 2: 10.0}
    assert probe((1.0, 1.0)).rates(0, 2_000) == {1: None, 2: None}


def result(before: Mapping[int, float | None], after: Mapping[int, float | None]) -> DemoResult:
    return DemoResult(
        scenario=FoundingScenario(), story=Story(balanced_ms=1, measured_ms=2),
        traffic=TrafficReport(0, {}, 0, 0, finished=True), leaders_before={}, leaders_after={},
        rates_before=before, rates_after=after, series=[(0, before), (1, after)], records_read_back=0,
        partitions_short=(),
    )  # fmt: skip


def test_what_is_unknown_is_no_success_and_is_shown_as_unknown() -> None:
    skewed, even = {1: 30.0, 2: 10.0}, {1: 10.0, 2: 10.0}
    assert result(skewed, even).succeeded
    nothing: tuple[Mapping[int, float | None], ...] = ({}, {1: None, 2: 10.0}, {1: 0.0, 2: 0.0})
    for unknown in nothing:
        assert max_over_mean(unknown) is None
        made = result(skewed, unknown)
        assert not made.succeeded
        assert "max/mean after was unknown, expected at most 1.05" in made.problems
        assert "nan" not in "".join(result_lines(made))
    assert plot(result(skewed, nothing[1])), "gaps are drawn as gaps"


def test_the_view_shows_unknown_and_no_figure_of_success() -> None:
    output = StringIO()
    view = View(Console(file=output, width=200))
    story = cast("Story", SimpleNamespace(now=lambda: "waiting"))
    view.show(1.0, {1: None, 2: 10.0}, story, 1.2)
    assert "broker 1 unknown  broker 2 0.0 kB/s  max/mean unknown  | waiting" in output.getvalue()


def test_bars_fit_a_narrow_terminal_and_one_without_blocks() -> None:
    drawn: dict[str, Any] = {"legacy_windows": False, "force_terminal": True, "width": 60}
    output = StringIO()
    view = View(Console(file=output, **drawn))
    view.start()
    view.show(1.0, {1: 10e6, 2: 5e6}, cast("Story", SimpleNamespace(now=lambda: "waiting")), 1.2)
    view.stop()
    longest = {name: max(line.count("█") for line in output.getvalue().splitlines() if name in line)
               for name in ("broker 1", "broker 2")}  # fmt: skip
    assert longest == {"broker 1": 34, "broker 2": 17}
