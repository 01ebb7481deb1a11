"""The demo's report: one self-contained HTML page, and its plot as PNG."""

import base64
import io
import json
from math import nan
from pathlib import Path

import jinja2
import matplotlib as mpl
from matplotlib.figure import Figure

from assignor_core.plan import Movement
from assignor_core.proposed_plan import ProposedPlan
from streaming.demo.measure import ratio_text
from streaming.demo.result import DemoResult, result_lines
from streaming.runtime import clocks
from streaming.tables import utc

COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b")
PAGE = "report.html"
PLOT = "report.png"


def write_report(result: DemoResult, folder: Path) -> tuple[Path, Path]:
    """Write page and plot into `folder`; returns their paths."""
    figure = plot(result)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=130, facecolor="white")
    (folder / PLOT).write_bytes(png.getvalue())
    environment = jinja2.Environment(loader=jinja2.PackageLoader("streaming.demo", "."), autoescape=True)
    page = environment.get_template("report.html.jinja").render(
        result=result,
        ratio_text=ratio_text,
        lines="\n".join(result_lines(result)),
        image=base64.b64encode(png.getvalue()).decode(),
        made_at=utc(clocks.now_ms()).strftime("%Y-%m-%d %H:%M UTC"),
        movements=_movements(result),
    )
    (folder / PAGE).write_text(page, encoding="utf-8")
    return folder / PAGE, folder / PLOT


def plot(result: DemoResult) -> Figure:
    """Broker rates over time with the move marked, and bars of before and after."""
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    over_time, bars = figure.subplots(1, 2, width_ratios=[2.2, 1])
    brokers = sorted(result.rates_before)
    colours = dict(zip(brokers, COLOURS, strict=False))
    started_ms = result.traffic.started_ms
    for broker in brokers:
        # What is unknown is a gap.
        times_s = [(time_ms - started_ms) / 1000 for time_ms, _ in result.series]
        rates = [nan if (rate := row[broker]) is None else rate / 1e3 for _, row in result.series]
        over_time.plot(times_s, rates, label=f"broker {broker}", color=colours[broker], linewidth=1.6)
    story = result.story
    if story.detected_ms:
        at = (story.detected_ms - started_ms) / 1000
        over_time.axvline(at, color="0.4", linestyle=":", linewidth=1)
        over_time.annotate(
            "skew\ndetected", (at, 1), xycoords=("data", "axes fraction"), ha="right", va="top", fontsize=8
        )
    if story.execution_started_ms and story.balanced_ms:
        start, end = ((moment - started_ms) / 1000 for moment in (story.execution_started_ms, story.balanced_ms))
        over_time.axvspan(start, end, color="0.85", label="plan carried out")
    over_time.set(xlabel="seconds since the first record", ylabel="bytes in, kB/s (JMX)", title="Load of each broker")
    over_time.margins(y=0.15)
    over_time.set_ylim(bottom=0)
    over_time.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=4)
    for index, broker in enumerate(brokers):
        heights = [(rates.get(broker) or 0.0) / 1e3 for rates in (result.rates_before, result.rates_after)]
        bars.bar([index * 0.26, 1.2 + index * 0.26], heights, width=0.24, color=colours[broker])
    bars.set_xticks(
        [0.26, 1.46],
        [
            f"before\nmax/mean {ratio_text(result.ratio_before, 2)}",
            f"after\nmax/mean {ratio_text(result.ratio_after, 2)}",
        ],
    )
    bars.set(title="Before and after", ylabel="bytes in, kB/s (JMX)")
    return figure


def _movements(result: DemoResult) -> tuple[Movement, ...]:
    if result.story.plan is None:
        return ()
    return ProposedPlan.from_json(json.loads(result.story.plan["plan_json"])).plan.movements
