"""A prediction beside what came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.model import Capacity
from assignor_core.resources import Resource
from assignor_core.what_if.predictions import Compared, Outlook, compare, outlook_that_came
from tests.core.test_accuracy import execution

OUTLOOKS = st.builds(
    Outlook,
    st.dictionaries(st.sampled_from(["bytes_in", "disk"]), st.floats(1.0, 3.0)),
    st.dictionaries(st.sampled_from(["bytes_in", "disk"]), st.floats(-1.0, 1.0)),
    st.none() | st.floats(0.0, 1e15),
    st.none() | st.floats(0.0, 1e12),
)


@given(OUTLOOKS, OUTLOOKS)
def test_what_is_known_of_either_is_shown_and_the_rest_stays_unknown(predicted: Outlook, came: Outlook) -> None:
    rows = {row.figure: row for row in compare(predicted, came)}
    for side, outlook in (("predicted", predicted), ("came", came)):
        shown = {name: getattr(row, side) for name, row in rows.items() if getattr(row, side) is not None}
        known = {f"{name}_max_over_mean": ratio for name, ratio in outlook.max_over_mean.items()}
        known |= {f"{name}_headroom_left": share for name, share in outlook.headroom_left.items()}
        totals = {"bytes_copied": outlook.bytes_copied, "duration_ms": outlook.duration_ms}
        assert shown == known | {name: value for name, value in totals.items() if value is not None}


@given(OUTLOOKS)
def test_what_came_as_predicted_is_off_by_nothing(outlook: Outlook) -> None:
    assert {row.error for row in compare(outlook, outlook)} <= {None, 0.0}


def test_of_what_came_the_newest_hour_shows_skew_and_the_worst_shows_headroom() -> None:
    hours = [{Resource.BYTES_IN: {1: 90.0, 2: 10.0}}, {Resource.BYTES_IN: {1: 60.0, 2: 40.0}}]
    came = outlook_that_came(hours, {Resource.BYTES_IN: {1: 100.0, 2: 100.0}}, [execution(), execution()])
    assert came.max_over_mean == {"bytes_in": pytest.approx(1.2)}
    assert came.headroom_left == {"bytes_in": pytest.approx(0.1)}
    assert (came.bytes_copied, came.duration_ms) == (1_800.0, 120_000.0)
    assert outlook_that_came([], {}, []) == Outlook()


def test_skew_that_came_is_measured_as_it_was_predicted() -> None:
    """By what is used of capacities, and without drained brokers: else a plan that came true would be off."""
    hours = [{Resource.BYTES_IN: {1: 60.0, 2: 30.0, 3: 0.0}}]
    given = {1: Capacity(200.0), 2: Capacity(100.0), 3: Capacity(100.0)}
    came = outlook_that_came(hours, {}, [], given=given, drained=frozenset({3}))
    assert came.max_over_mean == {"bytes_in": pytest.approx(1.0)}
    assert outlook_that_came(hours, {}, [], given={1: given[1]}).max_over_mean == {"bytes_in": pytest.approx(2.0)}
    assert outlook_that_came(hours, {}, [], drained=frozenset({1, 2, 3})) == Outlook()


@pytest.mark.parametrize(("predicted", "came"), [(None, 1.0), (1.0, None), (0.0, 5.0)])
def test_without_both_there_is_no_error(predicted: float | None, came: float | None) -> None:
    assert Compared("bytes_copied", predicted, came).error is None
