"""Our verdicts: what must be seen is seen in time, and what is well is never called ill."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.errors import InputError
from assignor_core.lag import LagPolicy, LagStatus, worst_of
from tests.core.lag.cases import Story, judge, verdict

T = TypeVar("T")
RATE = 50


def growing(second: int) -> int:
    return RATE * second


def always(value: T) -> Callable[[int], T]:
    return lambda _second: value


def made_again(second: int) -> int | None:
    """A topic that is away for the first minute of each quarter of an hour, and then begins anew."""
    return None if second % 900 < 60 else growing(second % 900 - 60)


def read_until(stop_s: int) -> Story:
    """Keeps up, commits every five seconds, then nothing more."""
    return Story(growing, lambda second: growing(min(second, stop_s) // 5 * 5))


def gone(story: Story) -> Story:
    return Story(story.log_end, story.committed, owned=False, populated=False)


HEALTHY = {
    "keeps up, commits every five seconds": Story(growing, lambda s: growing(s // 5 * 5 - 5 if s >= 5 else 0)),
    "a commit a message": Story(growing, lambda s: growing(s) - 1),
    "a commit a minute and a half": Story(growing, lambda s: growing(s // 90 * 90)),
    "a slow topic, a record in four minutes": Story(lambda s: s // 240, lambda s: max(0, s - 20) // 240),
    "a topic that is never written": Story(always(100), always(100)),
    "nothing to read, nothing committed": Story(always(100), always(None), log_start=100),
    "catches up": Story(growing, lambda s: growing(s) - max(0, 18_000 - 15 * max(0, s - 300))),
    "set back, and there again": Story(growing, lambda s: growing(s) - (3_000 if 400 <= s < 460 else 0)),
    "a topic deleted and made again": Story(lambda s: growing(s % 900), lambda s: growing(s % 900)),
    "a topic deleted, away for some samples and made again": Story(
        made_again, lambda s: None if (end := made_again(s)) is None else max(0, end - 10)
    ),
}


@pytest.mark.parametrize("story", HEALTHY.values(), ids=HEALTHY.keys())
def test_what_is_well_is_never_called_ill(story: Story) -> None:
    alarms = {LagStatus.STOP, LagStatus.STALL, LagStatus.REWIND, LagStatus.WARN}
    times_s = (*range(900, 1_000, 10), *range(1_000, 1_800, 50))
    seen = {until_s: verdict(story, until_s=until_s) for until_s in times_s}
    assert not {until_s: status for until_s, status in seen.items() if status in alarms}


@pytest.mark.parametrize("story", HEALTHY.values(), ids=HEALTHY.keys())
def test_nor_when_the_monitor_has_just_been_started(story: Story) -> None:
    alarms = {LagStatus.STOP, LagStatus.STALL}
    lengths = (*range(0, 100, 10), *range(100, 600, 50))
    seen = {length: verdict(story, from_s=900, until_s=900 + length) for length in lengths}
    assert not {length: status for length, status in seen.items() if status in alarms}


@pytest.mark.parametrize(
    ("story", "expected"),
    [(gone(read_until(900)), LagStatus.STOP), (read_until(900), LagStatus.STALL)],
    ids=["stopped", "stuck"],
)
def test_who_stops_reading_is_seen_within_two_windows_after_it_can_be_known(story: Story, expected: LagStatus) -> None:
    statuses = {until_s: verdict(story, until_s=until_s) for until_s in range(900, 1_200, 10)}
    first_s = min(until_s for until_s, status in statuses.items() if status is expected)
    assert first_s - 900 <= (1 + 2) * 60  # a window of waiting makes it known
    assert all(status is expected for until_s, status in statuses.items() if until_s >= first_s)


def test_every_drop_counts_the_second_after_a_recovered_one_too() -> None:
    def committed(second: int) -> int:
        return growing(second) - (3_000 if 300 <= second < 320 else 10) if second < 800 else 5_000 + 30 * (second - 800)

    assert verdict(Story(growing, committed), until_s=700) is LagStatus.OK
    assert verdict(Story(growing, committed), until_s=940) is LagStatus.REWIND


def test_who_falls_behind_is_warned_of_even_when_its_lag_dips_once() -> None:
    slow = Story(growing, lambda s: int(0.7 * growing(s)))
    assert verdict(slow, until_s=900) is LagStatus.WARN
    dips = Story(growing, lambda s: int(0.7 * growing(s)) + (200 if s == 650 else 0))
    assert verdict(dips, until_s=900) is LagStatus.WARN


def test_a_lag_that_stays_where_it_is_is_warned_of_once_it_is_older_than_a_window() -> None:
    assert verdict(Story(growing, lambda s: max(0, growing(s) - 200_000)), until_s=9_000) is LagStatus.WARN
    assert verdict(Story(growing, lambda s: max(0, growing(s) - 40 * RATE)), until_s=9_000) is LagStatus.OK


def test_lag_that_nobody_can_judge_is_unknown() -> None:
    assert verdict(Story(growing, always(None)), until_s=900) is LagStatus.UNKNOWN
    assert verdict(Story(growing, always(5), left_over=True), until_s=900) is LagStatus.UNKNOWN
    assert verdict(Story(growing, always(5)), from_s=800, until_s=900) is LagStatus.UNKNOWN


def test_a_group_is_as_its_worst_partition() -> None:
    judged = judge([HEALTHY["a commit a message"], gone(read_until(300)), HEALTHY["catches up"]], until_s=900)
    assert [LagStatus(status).name for status in worst_of(judged.status, np.array([0, 0, 1]), 2)] == ["STOP", "OK"]
    assert LagStatus.STOP.label == "stop"


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="windows must be 2 or more"):
        LagPolicy(windows=1)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 9)), min_size=40, max_size=40), st.booleans())
def test_partitions_are_judged_alike_alone_and_beside_others(steps: list[tuple[int, int]], owned: bool) -> None:
    ends, offsets = [0], [0]
    for written, read in steps:
        ends.append(ends[-1] + written)
        offsets.append(max(0, min(ends[-1], offsets[-1] + read)))
    story = Story(lambda s: ends[s // 30], lambda s: offsets[s // 30], owned=owned, populated=owned)
    together = judge([HEALTHY["catches up"], story, gone(read_until(300)), story], until_s=1_200).status
    assert together[1] == together[3] == judge([story], until_s=1_200).status[0]
