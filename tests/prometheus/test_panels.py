"""How panels are drawn for those without Grafana: axes that can be read, whatever the values are."""

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from tests.prometheus.boards import GRAFANA

pytestmark = pytest.mark.long  # the import of Matplotlib costs more than these tests


@pytest.fixture(scope="module")
def panels() -> Iterator[ModuleType]:
    sys.path.insert(0, str(GRAFANA))
    yield import_module("panels")
    sys.path.remove(str(GRAFANA))


def drawn(panels: ModuleType, unit: str, values: list[float], kind: str = "timeseries") -> Any:
    """The axes of a panel with one series of these values, ten seconds apart; the figure itself where it has none."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    panel = {"title": "a title", "type": kind, "fieldConfig": {"defaults": {"unit": unit}, "overrides": []}}
    times = tuple(10.0 * index for index in range(len(values)))
    answers = [[panels.Series("a", {}, times, tuple(values))]] if values else [[]]
    panels.draw(panels.Card(figure, (0, 0, 6, 4)), panel, answers, panels.Timeline(0.0, 200.0, []))
    figure.canvas.draw()
    return figure.axes[-1] if values else figure


def ticks(axes: Any) -> list[str]:
    low, high = axes.get_ylim()
    return [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]


def test_nothing_at_all_is_a_line_at_the_bottom(panels: ModuleType) -> None:
    axes = drawn(panels, "short", [0.0] * 5)
    low, high = axes.get_ylim()
    assert -0.1 < low <= 0
    assert high > 1


def test_rates_and_sizes_are_shown_from_zero_and_ratios_are_not(panels: ModuleType) -> None:
    assert drawn(panels, "Bps", [70e3, 84e3]).get_ylim()[0] <= 0
    assert drawn(panels, "bytes", [2.1e6] * 5).get_ylim()[0] <= 0
    assert drawn(panels, "none", [1.01, 1.5]).get_ylim()[0] > 0.9
    assert drawn(panels, "percentunit", [-0.2, 0.3]).get_ylim()[0] < -0.2


def test_bars_that_are_all_zero_begin_at_the_left(panels: ModuleType) -> None:
    assert drawn(panels, "s", [0.0], kind="bargauge").get_xlim() == (0.0, 1.0)


def test_seconds_go_in_steps_of_clocks(panels: ModuleType) -> None:
    assert ticks(drawn(panels, "s", [0.0, 150.0])) == ["0 s", "30 s", "1 min", "1.5 min", "2 min", "2.5 min"]
    assert ticks(drawn(panels, "s", [0.0, 20 * 86_400.0])) == ["0 s", "7 d", "14 d", "21 d"]


def test_an_unknown_value_spoils_no_axis(panels: ModuleType) -> None:
    assert drawn(panels, "short", [1.0, float("nan"), 3.0]).get_ylim()[1] == pytest.approx(3.3)


def test_a_panel_without_an_answer_says_so(panels: ModuleType) -> None:
    assert "no data" in [text.get_text() for text in drawn(panels, "short", []).texts]
