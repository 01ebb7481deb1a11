"""What plans promised against what came."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.execution.accuracy import EXECUTIONS_MIN, Comparison, accuracy_of, compared
from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.execution.life_cycle import Execution, begin
from assignor_core.resources import Resource


def execution(*, promised: float = 1.0, measured: float | None = 1.1, paused_ms: int = 0) -> Execution:
    """One that copies 900 of 1,000 bytes in 60 s of work, besides a pause."""

    def figures(result: float | None = None) -> Figures:
        """Of all events; `result` of the measurement alone."""
        return Figures(
            2,
            1_000,
            2,
            900,
            before={Resource.BYTES_IN: 1.5},
            predicted={Resource.BYTES_IN: promised},
            measured={} if result is None else {Resource.BYTES_IN: result},
        )

    approved = begin("e", "p", EventRecord(Event.APPROVED, 0, 0, "", figures()))
    events = [(Event.STARTED, 10_000), (Event.PAUSED, 20_000), (Event.RESUMED, 20_000 + paused_ms)]
    events.append((Event.DONE, 70_000 + paused_ms))
    records = [EventRecord(event, number, at_ms, "", figures()) for number, (event, at_ms) in enumerate(events, 1)]
    if measured is not None:
        records.append(EventRecord(Event.MEASURED, len(records) + 1, 200_000 + paused_ms, "", figures(measured)))
    return approved.after(*records)


@pytest.mark.parametrize("paused_ms", [0, 3_600_000])
def test_errors_are_relative_and_pauses_are_no_work(paused_ms: int) -> None:
    row = compared(execution(paused_ms=paused_ms), 50_000.0)
    assert row is not None
    assert row.max_over_mean_error == pytest.approx(0.1)
    assert row.bytes_error == pytest.approx(-0.1)
    assert row.duration_error == pytest.approx(0.2)


def test_what_is_not_known_is_no_error() -> None:
    assert compared(execution(measured=None), 50_000.0) is None
    row = compared(execution(), None)
    assert row is not None
    assert row.duration_error is None
    accuracy = accuracy_of([row] * EXECUTIONS_MIN)
    assert accuracy.duration is None
    assert accuracy.bytes_copied is not None
    assert accuracy.bytes_copied.median == pytest.approx(-0.1)


def test_few_executions_say_too_little() -> None:
    row = compared(execution(), 50_000.0)
    assert row is not None
    assert accuracy_of([row] * (EXECUTIONS_MIN - 1)).max_over_mean is None


COMPARISONS = st.builds(
    Comparison,
    st.just("e"),
    st.floats(1.0, 3.0),
    st.floats(1.0, 3.0),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.none() | st.floats(1.0, 1e9),
    st.integers(0, 10**9),
)


@settings(max_examples=40)
@given(st.lists(COMPARISONS, max_size=15), st.randoms(use_true_random=False))
def test_what_holds_of_every_error(rows: list[Comparison], random: Random) -> None:
    accuracy = accuracy_of(rows)
    shuffled = rows.copy()
    random.shuffle(shuffled)
    assert accuracy_of(shuffled) == accuracy, "whatever their order"
    known: tuple[list[float | None], ...] = (
        [row.max_over_mean_error for row in rows],
        [row.bytes_error for row in rows if row.bytes_predicted],
        [row.duration_error for row in rows if row.duration_predicted_ms],
    )
    for error, errors in zip((accuracy.max_over_mean, accuracy.bytes_copied, accuracy.duration), known, strict=True):
        assert (error is None) == (len(errors) < EXECUTIONS_MIN)
        if error is not None:
            assert error.count == len(errors)
            assert 0.0 <= error.off_median <= error.likely <= error.off_max
            assert abs(error.median) <= error.off_max
            assert error.off_max == max(abs(value) for value in errors if value is not None)


@settings(max_examples=40)
@given(st.lists(COMPARISONS, min_size=EXECUTIONS_MIN, max_size=15))
def test_promises_that_came_true_are_off_by_nothing(rows: list[Comparison]) -> None:
    kept = [
        replace(
            row,
            max_over_mean_measured=row.max_over_mean_predicted,
            bytes_copied=row.bytes_predicted,
            duration_predicted_ms=float(row.duration_ms) or None,
        )
        for row in rows
    ]
    accuracy = accuracy_of(kept)
    for error in (accuracy.max_over_mean, accuracy.bytes_copied, accuracy.duration):
        assert error is None or (error.off_max, error.median) == (0.0, 0.0)
