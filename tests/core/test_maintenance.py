"""Maintenance windows against Python's own calendar."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.errors import InputError
from assignor_core.maintenance import (
    DAYS,
    MaintenanceWindow,
    may_act,
    next_opening,
    next_window,
    open_window,
    window_of,
)

YEAR_MS = 366 * 86_400_000
TIMES_MS = st.integers(0, 100 * YEAR_MS)
TIMES_OF_DAY = st.integers(0, 1439)


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


@given(TIMES_MS, st.sampled_from(range(7)), st.sampled_from(range(7)), TIMES_OF_DAY, TIMES_OF_DAY)
def test_open_is_what_the_calendar_says(now_ms: int, first: int, last: int, begin: int, end: int) -> None:
    if begin == end:
        return
    window = window_of(f"{DAYS[first]}-{DAYS[last]} {clock(begin)}-{clock(end)}")
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    days = {(first + offset) % 7 for offset in range((last - first) % 7 + 1)}
    minute = now.hour * 60 + now.minute
    if begin < end:
        expected = now.weekday() in days and begin <= minute < end
    else:
        expected = (now.weekday() in days and minute >= begin) or ((now.weekday() - 1) % 7 in days and minute < end)
    assert window.is_open(now_ms) == expected


@given(TIMES_MS, st.sampled_from(DAYS), TIMES_OF_DAY)
def test_the_next_opening_is_the_first_after_now(now_ms: int, day: str, begin: int) -> None:
    window = window_of(f"{day} {clock(begin)}-{clock((begin + 1) % 1440)}")
    _, opens_ms = next_window((window,), now_ms)
    assert now_ms < opens_ms <= now_ms + 7 * 86_400_000
    opening = datetime.fromtimestamp(opens_ms / 1000, UTC)
    assert (DAYS[opening.weekday()], opening.hour * 60 + opening.minute) == (day, begin)
    assert (opening.second, opening.microsecond) == (0, 0)
    assert window.is_open(opens_ms)
    assert not window.is_open(opens_ms - 1)


def test_of_several_windows_the_open_one_and_the_next_one_are_named() -> None:
    windows = (window_of("Sat 02:00-04:00"), window_of("22:00-24:00"))
    saturday_ms = 2 * 86_400_000  # 3 January 1970
    assert open_window(windows, saturday_ms + 3 * 3_600_000) is windows[0]
    assert open_window(windows, saturday_ms + 5 * 3_600_000) is None
    assert next_window(windows, saturday_ms + 5 * 3_600_000) == (windows[1], saturday_ms + 22 * 3_600_000)
    assert window_of("00:00-24:00").is_open(saturday_ms)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nights", "allowed is a form like"),
        ("Mon-Fri 1:00-5:00", "allowed is a form like"),
        ("Mo 01:00-05:00", "allowed is a form like"),
        ("Moo 01:00-05:00", "found day 'Moo', allowed are Mon, Tue, Wed, Thu, Fri, Sat, Sun"),
        ("Mon-Moo 01:00-05:00", "found day 'Moo'"),
        ("Mon 01:00-25:00", "found time 25:00"),
        ("Mon 01:60-05:00", "found time 01:60"),
        ("Mon 01:00-01:00", "begins and ends at the same time"),
        ("Sat 24:00-02:00", "begins at 24:00, write 00:00 and the day after"),
        ("24:00-00:00", "begins at 24:00"),
    ],
)
def test_what_is_no_window_is_named(text: str, named: str) -> None:
    with pytest.raises(InputError, match=f"maintenance window {text!r}: .*{named}"):
        window_of(text)


def test_days_and_times_at_their_ends() -> None:
    assert window_of("00:59-24:00") == MaintenanceWindow(frozenset(range(7)), 59, 1440 - 59, "00:59-24:00")
    assert window_of("Sun 23:59-00:59") == MaintenanceWindow(frozenset({6}), 1439, 60, "Sun 23:59-00:59")


def test_the_cluster_may_be_changed_in_a_window_or_where_there_is_none() -> None:
    saturday = (window_of("Sat 02:00-04:00"),)
    two_ms = 2 * 86_400_000 + 2 * 3_600_000  # Saturday, 3 January 1970, 02:00
    assert may_act((), two_ms) is True
    assert [may_act(saturday, two_ms + ms) for ms in (-1, 0, 7_199_999, 7_200_000)] == [False, True, True, False]
    # Three minutes before.
    text = next_opening((window_of("Sun 02:00-04:00"), *saturday), two_ms - 180_000)
    assert text == "maintenance window Sat 02:00-04:00, which opens in 0.1 h"
