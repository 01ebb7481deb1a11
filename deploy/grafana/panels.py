"""One panel of a board, drawn with matplotlib: each kind that `generate.py` knows. Asks nobody: answers are given."""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MultipleLocator

LEGEND_MAX = 6
BARS_MIN = 6
"""Room for as many bars at least: one alone would fill the panel."""
TICKS = 7
LABEL_POINTS = 8
CHARACTER_INCHES = 0.066
"""Width of most characters at that size; an m is wider, an i is not."""
CLOCK_STEPS = (
    10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400, 2 * 86_400, 7 * 86_400,
    30 * 86_400,
)  # fmt: skip
"""Steps of an axis of seconds."""
COLOURS = {"green": "#4f9e46", "orange": "#f2811d", "red": "#d8354a", "blue": "#3b7ddd"}
SERIES = ("#3b7ddd", "#f2811d", "#4f9e46", "#8e5bb5", "#d8354a", "#20a5ba", "#b08d1e", "#c2508f", "#7a9e1f", "#4b5563")
INK, FAINT, CARD, BORDER, GRID, REBALANCE = "#1f2937", "#6b7280", "#ffffff", "#d9dde3", "#e5e8ec", "#8e5bb5"

Loaded = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Series:
    """One line of an answer: its name by the panel's legend, its labels, times in seconds and values."""

    name: str
    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


Answers = list[list[Series]]
"""Series of each of the panel's queries."""


@dataclass(frozen=True, slots=True)
class Card:
    """A panel's place in the figure; `box` is left, bottom, width, height in inches."""

    figure: Figure
    box: tuple[float, float, float, float]

    def axes(self, left: float, bottom: float, right: float, top: float) -> Axes:
        """Axes inside the card, margins in inches."""
        x, y, width, height = self.box
        total_width, total_height = self.figure.get_size_inches()
        return self.figure.add_axes((
            (x + left) / total_width, (y + bottom) / total_height,
            (width - left - right) / total_width, (height - bottom - top) / total_height,
        ))  # fmt: skip

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text at a place inside the card, in inches."""
        total_width, total_height = self.figure.get_size_inches()
        self.figure.text((self.box[0] + x) / total_width, (self.box[1] + y) / total_height, text, **style)


@dataclass(frozen=True, slots=True)
class Timeline:
    """From when to when, in seconds since 1970, and the rebalances that are shaded in between."""

    start_s: float
    end_s: float
    rebalances: list[Series]


def draw(card: Card, panel: Loaded, answers: Answers, timeline: Timeline) -> None:
    """The panel in its card."""
    _, _, width, height = card.box
    whole = card.axes(0, 0, 0, 0)
    whole.add_patch(Rectangle((0, 0), 1, 1, facecolor=CARD, edgecolor=BORDER))
    whole.set_axis_off()
    card.text(0.1, height - 0.22, panel["title"], fontsize=10, weight="bold", color=INK)
    if any(answers):
        KINDS[panel["type"]](card, panel, answers, timeline)
    else:
        nothing = panel["fieldConfig"]["defaults"].get("noValue", "no data")
        card.text(width / 2, height / 2, nothing, fontsize=10, color=FAINT, ha="center")


def _lines(card: Card, panel: Loaded, answers: Answers, timeline: Timeline) -> None:
    axes = card.axes(0.8, 0.62, 0.15, 0.36)
    dashed = [row["matcher"]["options"].strip("/") for row in panel["fieldConfig"]["overrides"]]
    colours = iter(SERIES * 10)
    for series in _flat(answers)[: 10 * len(SERIES)]:
        times, values = _broken(series)
        if any(re.match(pattern, series.name) for pattern in dashed):
            axes.plot(times, values, label=series.name, color=FAINT, linestyle=(0, (5, 4)), linewidth=1.2)
        else:
            axes.plot(times, values, label=series.name, color=next(colours), linewidth=1.8)
    for series in timeline.rebalances:
        for at in series.times:
            axes.axvspan(at, at + 1.0, color=REBALANCE, alpha=0.22, linewidth=0)
    _over_time(axes, timeline)
    _upwards(axes, [value for series in _flat(answers) for value in series.values if isfinite(value)], _unit(panel))
    _legend(axes)


def _upwards(axes: Axes, values: list[float], unit: str) -> None:
    """The axis of values: from 0 on, but for ratios, of which little counts; seconds in steps of clocks."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    bottom = low if low < 0 or (unit == "none" and low < high) else 0.0
    top = high if high > bottom else bottom + 1.0
    axes.set_ylim(bottom - 0.02 * (top - bottom), top + 0.1 * (top - bottom))
    step = next((step for step in CLOCK_STEPS if top <= TICKS * step), None)
    if unit == "s" and step is not None and top > TICKS * CLOCK_STEPS[0]:
        axes.yaxis.set_major_locator(MultipleLocator(step))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human(value, unit)))


def _legend(axes: Axes) -> None:
    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    more = len(entries) - LEGEND_MAX
    if more > 0:
        entries[LEGEND_MAX - 1] = (entries[LEGEND_MAX - 1][0], f"and {more + 1} more")
    columns = min(len(entries), LEGEND_MAX // 2)
    # matplotlib fills column after column; people read line after line.
    entries = [entry for column in range(columns) for entry in entries[:LEGEND_MAX][column::columns]]
    axes.legend(
        *zip(*entries, strict=True), loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncols=columns,
        frameon=False, fontsize=7.5, handlelength=1.4, columnspacing=1.1, borderpad=0, labelspacing=0.2,
    )  # fmt: skip


def _stat(card: Card, panel: Loaded, answers: Answers, _timeline: Timeline) -> None:
    _, _, width, height = card.box
    series_shown = _flat(answers)
    room = width / max(1, len(series_shown))
    y = height * (0.42 if len(series_shown) < 2 else 0.5)
    for index, series in enumerate(series_shown):
        middle = room * (index + 0.5)
        value = series.values[-1]
        shown = series.name if panel["options"]["textMode"] == "name" else human(value, _unit(panel))
        size = min(24.0, 110 * room / max(4, len(shown)))
        card.text(middle, y, shown, fontsize=size, weight="bold", color=_colour(panel, value), ha="center", va="center")
        if len(series_shown) > 1:
            label = wrapped(series.name, room)
            card.text(middle, y - 0.2, label, fontsize=LABEL_POINTS, color=FAINT, ha="center", va="top")


def wrapped(label: str, inches: float) -> str:
    """A label in lines that fit a width.

    >>> wrapped("brokers with a throttle left", 1.0)
    'brokers with a\nthrottle left'
    """
    return "\n".join(textwrap.wrap(label, max(1, int(inches / CHARACTER_INCHES))))


def _bars(card: Card, panel: Loaded, answers: Answers, _timeline: Timeline) -> None:
    series_shown = _flat(answers)
    axes = card.axes(0.25 + 0.075 * max(len(series.name) for series in series_shown), 0.12, 0.85, 0.36)
    values = [series.values[-1] for series in series_shown]
    axes.barh(range(len(series_shown)), values, height=0.66, color=[_colour(panel, value) for value in values])
    axes.set_yticks(range(len(series_shown)), [series.name for series in series_shown], fontsize=8, color=INK)
    axes.set_ylim(max(len(series_shown), BARS_MIN) - 0.5, -0.5)
    axes.set_xlim(min(0.0, *values), max(values) or 1.0)
    for index, value in enumerate(values):
        axes.annotate(human(value, _unit(panel)), (value, index), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=8, color=INK)  # fmt: skip
    axes.tick_params(length=0, labelbottom=False)
    axes.set_frame_on(False)


def _strip(card: Card, panel: Loaded, answers: Answers, timeline: Timeline) -> None:
    series_shown = _flat(answers)
    axes = card.axes(0.8, 0.4, 0.15, 0.36)
    for index, series in enumerate(series_shown):
        ends = [*series.times[1:], series.times[-1] + 1.0]
        for start, end, value in zip(series.times, ends, series.values, strict=True):
            axes.add_patch(
                Rectangle((start, index - 0.42), end - start, 0.84, color=_colour(panel, value), linewidth=0)
            )
    axes.set_ylim(len(series_shown) - 0.5, -0.5)
    axes.set_yticks(range(len(series_shown)), [series.name for series in series_shown])
    _over_time(axes, timeline)
    axes.grid(visible=False)


def _table(card: Card, panel: Loaded, answers: Answers, _timeline: Timeline) -> None:
    """The first query gives the rows and their labels, each further one a column; Grafana merges them like that."""
    keys = sorted({name for series in answers[0] for name in series.labels})
    columns = [target["legendFormat"] for target in panel["targets"][1:]]
    units = [_unit(panel, column) for column in columns]
    rows = []
    for row in answers[0]:
        values = [_matching(answer, row.labels) for answer in answers[1:]]
        cells = ["" if value is None else human(value, unit) for value, unit in zip(values, units, strict=True)]
        rows.append([*(row.labels.get(name, "") for name in keys), *cells])
    axes = card.axes(0.1, 0.1, 0.1, 0.45)
    axes.set_axis_off()
    drawn = axes.table(
        cellText=sorted(rows), colLabels=[*keys, *columns], loc="upper center", cellLoc="right", colLoc="right",
        edges="horizontal",
    )  # fmt: skip
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8.5)
    drawn.scale(1, 1.7)
    for (line, _), cell in drawn.get_celld().items():
        cell.set_edgecolor(BORDER)
        cell.get_text().set_color(FAINT if line == 0 else INK)


KINDS: dict[str, Callable[[Card, Loaded, Answers, Timeline], None]] = {
    "timeseries": _lines,
    "stat": _stat,
    "bargauge": _bars,
    "status-history": _strip,
    "table": _table,
}


def _flat(answers: Answers) -> list[Series]:
    return [series for answer in answers for series in answer]


def _matching(answer: list[Series], labels: Mapping[str, str]) -> float | None:
    return next((series.values[-1] for series in answer if series.labels.items() <= labels.items()), None)


def _broken(series: Series) -> tuple[list[float], list[float]]:
    """Times and values with a hole where there was no answer, so that no line is drawn across."""
    points = list(_with_holes(series))
    return [at for at, _ in points], [value for _, value in points]


def _with_holes(series: Series) -> Iterator[tuple[float, float]]:
    steps = [later - sooner for sooner, later in zip(series.times, series.times[1:], strict=False)]
    usual = min(steps, default=0.0)
    for at, value, step in zip(series.times, series.values, [0.0, *steps], strict=True):
        if step > 1.5 * usual:
            yield at, float("nan")
        yield at, value


def _over_time(axes: Axes, timeline: Timeline) -> None:
    axes.set_xlim(timeline.start_s, timeline.end_s)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")))
    axes.locator_params(axis="x", nbins=6)
    axes.tick_params(labelsize=7.5, colors=FAINT, length=0)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_frame_on(False)


def _colour(panel: Loaded, value: float) -> str:
    """The colour of the last threshold that the value has reached."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {"steps": [{"color": "blue", "value": None}]})["steps"]
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return COLOURS[reached[-1]]


def _unit(panel: Loaded, column: str | None = None) -> str:
    """The panel's unit, or that of a table's column."""
    for override in panel["fieldConfig"]["overrides"] if column else ():
        if re.search(override["matcher"]["options"].strip("/"), column or ""):
            return str(override["properties"][0]["value"])
    return str(panel["fieldConfig"]["defaults"]["unit"])


def human(value: float, unit: str) -> str:
    """A value as Grafana's units show it.

    >>> human(1_234_567, "Bps"), human(0.453, "percentunit"), human(1.5, "none"), human(3_700, "s")
    ('1.23 MB/s', '45.3 %', '1.5', '1.03 h')
    """
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    tail = {"Bps": "B/s", "bytes": "B", "cps": "/s", "s": "s"}.get(unit, "")
    sizes = {86_400.0: "d", 3_600.0: "h", 60.0: "min"} if unit == "s" else {
        1e12: f"T{tail}", 1e9: f"G{tail}", 1e6: f"M{tail}", 1e3: f"k{tail}"
    }  # fmt: skip
    for size, name in sizes.items():
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g} {tail}".strip()
