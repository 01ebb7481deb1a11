"""A history for the replay that nobody recorded: a generated trace of brokers, shared out to partitions.

Each partition has one replica, so that a broker's load is the trace's until a plan moves something. Bytes out are as
many as bytes in.
"""

import numpy as np

from assignor_core.load import Floats
from assignor_core.model import RATE_KEYS
from assignor_core.replays.traces import WINDOW_MS, Trace
from assignor_core.resources import Resource
from assignor_core.what_if.history import BYTES_IN_AT, BYTES_OUT_AT, HOUR_MS, History, HistoryBroker

TOPIC = "generated"
PARTITIONS_PER_BROKER = 40
"""So many shares does a broker's load have: a plan can move 2.5 % of it at once."""
KEPT_S = 3_600
"""Seconds of writes that a partition's log holds."""
HOUR_WINDOWS = HOUR_MS // WINDOW_MS


def history_of(trace: Trace) -> History:
    """The hours of a trace that begins with a whole hour; a broker's silent windows count at the mean of its hour.

    Hours without any window are left out. An hour in which a broker never reports counts at its mean of all hours.

    >>> from assignor_core.replays.traces import generate
    >>> history = history_of(generate("diurnal", seed=1, windows=120))
    >>> len(history.brokers), len(history.partitions), history.rates.shape, history.hour_start_ms
    (6, 240, (2, 240, 2), (0, 3600000))
    """
    loads = trace.loads[Resource.BYTES_IN.value]
    starts = np.asarray(trace.window_end_ms) - WINDOW_MS
    hour_start_ms = np.unique(starts // HOUR_MS * HOUR_MS)
    windows = np.full((len(hour_start_ms), HOUR_WINDOWS, len(trace.brokers)), np.nan)
    rows = np.searchsorted(hour_start_ms, starts // HOUR_MS * HOUR_MS)
    windows[rows, starts % HOUR_MS // WINDOW_MS] = loads
    means = _means(windows)
    led_by = [broker for broker in range(len(trace.brokers)) for _ in range(PARTITIONS_PER_BROKER)]
    rates = np.zeros((len(hour_start_ms), len(led_by), len(RATE_KEYS)))
    for at in (BYTES_IN_AT, BYTES_OUT_AT):
        rates[:, :, at] = means[:, led_by] / PARTITIONS_PER_BROKER
    return History(
        trace.name,
        tuple(HistoryBroker(broker) for broker in trace.brokers),
        tuple((TOPIC, number) for number in range(len(led_by))),
        tuple((trace.brokers[broker],) for broker in led_by),
        rates[:, :, BYTES_IN_AT].mean(axis=0) * KEPT_S,
        tuple(int(start_ms) for start_ms in hour_start_ms),
        rates,
        wander={Resource.BYTES_IN: np.where(np.isnan(windows), 1.0, windows / means[:, None, :])},
    )


def _means(windows: Floats) -> Floats:
    """H x B means of the known windows of each hour; of all hours where an hour has none."""
    known = ~np.isnan(windows)
    counts = known.sum(axis=1)
    sums = np.where(known, windows, 0.0).sum(axis=1)
    overall = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), overall)
    return means
