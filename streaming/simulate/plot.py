"""Draws timelines below each other on one time axis, with the figures in which they differ beside them."""

import io
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from assignor_core.group.figures import RunTotals
from assignor_core.group.simulation import Run
from streaming.runtime.printable import printable
from streaming.simulate.scenario_file import Variant
from streaming.simulate.timeline import Bar, Timeline, timeline_of

ROWS_MAX = 60
"""Number of members above which the members are not drawn."""

COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#2f4b7c", "#a5c639",
)  # fmt: skip
IDLE, IDLE_FILL, DOWN, REBALANCE = "#c0392b", "#f8c9c4", "#d9d9d9", "#2c3e50"
STATE_ROW = 0.35
FIRST_OF_IDLE = 3
ROW_FILL = 0.84
CAPTION = "colour: who read the partition first    hatched: nobody reads it    grey: process away"

Corners = list[tuple[float, float]]


def plot(runs: Sequence[tuple[Variant, Run]], title: str) -> Figure:
    """One panel a variant: members as rows, partitions as bars, pauses hatched; beside them bars of the totals."""
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "hatch.linewidth": 0.7})
    end_ms = max(run.end_ms for _, run in runs)
    start_ms = min(variant.show_from_ms for variant, _ in runs)
    timelines = [timeline_of(run, end_ms, start_ms) for _, run in runs]
    rows = [min(len(timeline.members), ROWS_MAX) for timeline in timelines]
    heights = [0.24 * count + 0.75 for count in rows]
    figure = Figure(figsize=(15, sum(heights) + 1.1), layout="constrained")
    figure.suptitle(printable(title), x=0.01, ha="left", fontsize=13, fontweight="bold")
    grid = figure.add_gridspec(len(runs), 2, height_ratios=heights, width_ratios=[6.2, 1])
    panels: list[Axes] = []
    for number, ((variant, run), timeline) in enumerate(zip(runs, timelines, strict=True)):
        panel = figure.add_subplot(grid[number, 0], sharex=panels[0] if panels else None)
        _draw_panel(panel, variant, timeline)
        panels.append(panel)
        _draw_figures(figure.add_subplot(grid[number, 1]), run, [other for _, other in runs])
    panels[0].set_xlim(start_ms / 1000, end_ms / 1000)
    panels[0].set_title(CAPTION, loc="right", fontsize=9, color="0.3")
    panels[-1].set_xlabel("seconds")
    return figure


def png_of(figure: Figure) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def _draw_panel(panel: Axes, variant: Variant, timeline: Timeline) -> None:
    members = timeline.members[:ROWS_MAX]
    row_of = {member: number for number, member in enumerate(members)}
    colour_of = {member: COLOURS[number % len(COLOURS)] for number, member in enumerate(timeline.members)}
    bars = [bar for bar in timeline.bars if bar.member in row_of]
    reading = [bar for bar in bars if not bar.idle]
    slots = timeline.slots
    panel.add_collection(
        PolyCollection(
            [_corners(row_of[bar.member], bar, slots) for bar in reading],
            facecolors=[colour_of[timeline.first_reader[bar.partition]] for bar in reading],
            edgecolors="white",
            linewidths=0.3,
        )
    )
    panel.add_collection(
        PolyCollection(
            [_corners(row_of[bar.member], bar, slots) for bar in bars if bar.idle],
            facecolors=IDLE_FILL,
            edgecolors=IDLE,
            hatch="//////",
            linewidths=0.4,
        )
    )
    for member, start_ms, end_ms in timeline.down:
        if member in row_of:
            row = row_of[member]
            panel.fill_between([start_ms / 1000, end_ms / 1000], row - 0.5, row + 0.5, color=DOWN, lw=0, zorder=0)
    for member, at_ms, error in timeline.failed:
        if member in row_of:
            panel.text(
                at_ms / 1000, row_of[member], f" \N{MULTIPLICATION SIGN} {error}", color=IDLE, va="center", fontsize=8
            )
    for start_ms, end_ms in timeline.rebalancing:
        panel.fill_between([start_ms / 1000, end_ms / 1000], -1.0, -1.0 + STATE_ROW, color=REBALANCE, lw=0.6)
    panel.set_ylim(len(members) - 0.4, -1.1)
    panel.set_yticks([-0.82, *range(len(members))], ["rebalance", *map(printable, members)])
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    hidden = len(timeline.members) - len(members)
    more = f" (and {hidden} more members)" if hidden else ""
    panel.set_title(f"{printable(variant.name) or 'members'}{more}", loc="left", fontsize=11, fontweight="bold")


def _corners(row: int, bar: Bar, slots: int) -> Corners:
    height = ROW_FILL / slots
    top = row - ROW_FILL / 2 + bar.slot * height
    left, right = bar.start_ms / 1000, bar.end_ms / 1000
    return [(left, top), (right, top), (right, top + height), (left, top + height)]


def _draw_figures(axes: Axes, run: Run, all_runs: Sequence[Run]) -> None:
    """Draws each total as a bar, in proportion to the greatest total among the variants."""
    others = [_figures(other.totals) for other in all_runs]
    figures = _figures(run.totals)
    for number, (label, value, digits) in enumerate(figures):
        greatest = max(other[number][1] for other in others)
        colour = IDLE if number >= FIRST_OF_IDLE else REBALANCE
        axes.barh(number, value / greatest if greatest else 0.0, height=0.34, color=colour)
        axes.text(0, number - 0.25, f"{label}: {value:,.{digits}f}", fontsize=9, va="bottom")
    axes.set_ylim(len(figures) - 0.5, -0.85)
    axes.set_xlim(0, 1.05)
    axes.set_axis_off()


def _figures(totals: RunTotals) -> tuple[tuple[str, float, int], ...]:
    """Label, value and digits after the point."""
    return (
        ("rebalances", totals.rebalances, 0),
        ("members stopped", totals.members_stopped, 0),
        ("partitions moved", totals.moved, 0),
        ("idle partition-s", totals.idle_partition_ms / 1000, 0),
        ("longest pause, s", totals.idle_longest_ms / 1000, 1),
    )
