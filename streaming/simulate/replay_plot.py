"""Draws replays below each other on one time axis: how uneven the brokers are, what each carries, when plans copy."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from assignor_core.replays.placed_cluster import ReplayedHours
from assignor_core.resources import Resource
from streaming.runtime.printable import printable
from streaming.simulate.plot import COLOURS, IDLE, REBALANCE

Hours = NDArray[np.datetime64]
LINES_MAX = 30
"""Number of brokers above which the brokers are drawn as their lowest, mean and highest."""


def plot_replays(replays: Sequence[tuple[str, ReplayedHours]], title: str, *, enter_ratio: float) -> Figure:
    """Two panels for each (name, replay): max/mean by resource, and bytes in by broker. Shaded while a plan copies."""
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(13, 4.2 * len(replays) + 0.6), layout="constrained")
    figure.suptitle(printable(title), x=0.01, ha="left", fontsize=13, fontweight="bold")
    panels = figure.subplots(2 * len(replays), 1, sharex=True, squeeze=False)[:, 0]
    for number, (name, replay) in enumerate(replays):
        skew, load = panels[2 * number], panels[2 * number + 1]
        hours = np.array(replay.hour_start_ms, dtype="datetime64[ms]")
        _draw_skew(skew, replay, hours, enter_ratio)
        skew.set_title(printable(name), loc="left", fontsize=11)
        _draw_load(load, replay, hours)
        for panel in (skew, load):
            _shade_plans(panel, replay)
    panels[-1].set_xlabel("recorded hours, UTC    shaded: a plan is carried out")
    return figure


def _draw_skew(panel: Axes, replay: ReplayedHours, hours: Hours, enter_ratio: float) -> None:
    for colour, (name, values) in zip(COLOURS, replay.max_over_mean.items(), strict=False):
        panel.plot(hours, values, color=colour, label=Resource(name).words)
    panel.axhline(enter_ratio, color=IDLE, linestyle="--", linewidth=0.8)
    panel.set_ylabel("max/mean")
    panel.set_ylim(bottom=1.0)
    panel.legend(loc="upper right", frameon=False, ncols=3)


def _draw_load(panel: Axes, replay: ReplayedHours, hours: Hours) -> None:
    loads = replay.broker_load[Resource.BYTES_IN] / 1e6
    there = ~(loads != loads).all(axis=0)
    brokers = [broker for broker, is_there in zip(replay.broker_ids, there, strict=True) if is_there]
    known = loads[:, there]
    if len(brokers) <= LINES_MAX:
        for number, broker in enumerate(brokers):
            panel.plot(hours, known[:, number], color=COLOURS[number % len(COLOURS)], linewidth=1, label=str(broker))
        if len(brokers) <= len(COLOURS):
            panel.legend(loc="upper right", frameon=False, ncols=5, title="broker")
    else:
        panel.fill_between(hours, known.min(axis=1), known.max(axis=1), color=COLOURS[0], alpha=0.3)
        panel.plot(hours, known.mean(axis=1), color=COLOURS[0])
    panel.set_ylabel("bytes in, MB/s")
    panel.set_ylim(bottom=0.0)


def _shade_plans(panel: Axes, replay: ReplayedHours) -> None:
    end_ms = replay.hour_start_ms[-1] + 3_600_000
    for plan in replay.plans:
        ended_ms = end_ms if plan.ended_ms is None else plan.ended_ms
        span = np.array([plan.begun_ms, ended_ms], dtype="datetime64[ms]")
        panel.axvspan(span[0], span[1], color=REBALANCE, alpha=0.12, lw=0)
