"""A generated trace as a history for the replay."""

import numpy as np
import pytest

from assignor_core.replays.history import BYTES_IN_AT, HOUR_MS, history_of
from assignor_core.replays.traces import SCENARIOS, WINDOW_MS, generate
from assignor_core.resources import Resource


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_brokers_load_is_that_of_the_trace(scenario: str) -> None:
    trace = generate(scenario, seed=3, windows=5 * 60)
    history = history_of(trace)
    leader = np.array([replicas[0] for replicas in history.replicas])
    for column, broker in enumerate(trace.brokers):
        hourly = history.rates[:, leader == broker, BYTES_IN_AT].sum(axis=1)
        for row, end_ms in enumerate(trace.window_end_ms):
            load = trace.loads["bytes_in"][row, column]
            hour = history.hour_start_ms.index((end_ms - WINDOW_MS) // HOUR_MS * HOUR_MS)
            window = (end_ms - WINDOW_MS) % HOUR_MS // WINDOW_MS
            factor = history.wander[Resource.BYTES_IN][hour, window, column]
            assert factor * hourly[hour] == pytest.approx(hourly[hour] if np.isnan(load) else load)


def test_an_hour_without_any_window_is_left_out() -> None:
    trace = generate("diurnal", seed=1, windows=10)
    ends = tuple(end if row < 5 else end + 3 * HOUR_MS for row, end in enumerate(trace.window_end_ms))
    shifted = type(trace)(trace.name, ends, trace.brokers, trace.loads)
    assert history_of(shifted).hour_start_ms == (0, 3 * HOUR_MS)
