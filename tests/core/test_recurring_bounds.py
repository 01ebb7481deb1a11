"""Load that comes back, figure by figure: where a slot, a day, a recurrence or a mended skew begins and ends."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import TriggerPolicy
from assignor_core.deciding.reasons import Evaluation, Reason, Verdict
from assignor_core.deciding.skewed import Over, recurrence
from assignor_core.deciding.state import TriggerState
from assignor_core.load_history.load_memory import SkewLimits
from assignor_core.load_history.recurring import (
    DAY_MS,
    DAY_SLOTS,
    SLOT_MS,
    DayLoad,
    FollowedSkew,
    OpenSlot,
    RecurringLoad,
    recurrence_of,
    slots_of,
    unmended,
)
from assignor_core.load_history.windows import SkewWindow
from tests.core.judging import step

WATCHED = SkewLimits(enter_ratio=1.30, exit_ratio=1.15, windows_over=3, completeness_min=0.95)
POLICY = TriggerPolicy(stale_after_ms=4 * SLOT_MS)
MONDAY = 4
TODAY = MONDAY + 7 * 10
"""A Monday, too."""
THREE_HOURS_MS = 10_800_000
MINUTE_MS = 60_000


def window(
    end_ms: int, share: float = 1.0, *, length_ms: int = SLOT_MS, load: float | None = 2.0, reporting: int = 20
) -> SkewWindow:
    mean_load = {} if load is None else {"bytes_in": load}
    return SkewWindow(end_ms, {"bytes_in": {1: share, 2: 1.0}}, mean_load, 20, reporting, length_ms)


def in_slot(slot: int, share: float = 1.0, **changed: float | None) -> SkewWindow:
    return window((slot + 1) * SLOT_MS, share, **changed)  # type: ignore[arg-type]


def of_days(by_back: Mapping[int, Mapping[int, float]], today: int = TODAY) -> RecurringLoad:
    """By days before today: shares of broker 1 by slot; all other slots are known and even."""
    even = dict.fromkeys(range(DAY_SLOTS), 1.0)
    rows = {today - back: DayLoad(even, {1: row} if row else {}) for back, row in by_back.items()}
    return RecurringLoad(days={"bytes_in": rows})


def comes_at(history: RecurringLoad, slot: int, today: int = TODAY) -> tuple[str, int, int, int] | None:
    """When, its first slot and the one after its last, and on how many days; above 1.3."""
    known = recurrence_of(history, "bytes_in", 1, at_ms=(today * DAY_SLOTS + slot) * SLOT_MS, above=1.3)
    if known is None:
        return None
    return known.when, known.first_slot - today * DAY_SLOTS, known.end_slot - today * DAY_SLOTS, known.days


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "slots"),
    [(300_000, 900_000, [0]), (300_001, 900_001, [1]), (299_999, 900_000, [0]), (299_999, 900_001, [0, 1])],
)
def test_a_window_counts_to_the_slots_whose_middle_it_holds(start_ms: int, end_ms: int, slots: list[int]) -> None:
    assert list(slots_of(start_ms, end_ms)) == slots


def test_what_a_slot_shows_replaces_what_was_known_of_it() -> None:
    day = DayLoad().with_slot(3, 1.0, {1: 1.5, 2: 1.4}).with_slot(4, 1.0, {1: 1.6}).with_slot(3, 2.0, {2: 1.70049})
    assert day == DayLoad({3: 2.0, 4: 1.0}, {1: {4: 1.6}, 2: {3: 1.7}})
    assert DayLoad().with_slot(0, 1.23456, {1: 1.76543}) == DayLoad({0: 1.235}, {1: {0: 1.765}})


def test_a_slot_is_the_mean_of_its_windows() -> None:
    sums = OpenSlot().after(2.0, {1: 1.0}).after(4.0, {1: 2.0, 2: 3.0})
    assert sums == OpenSlot(2, 6.0, {1: (3.0, 2), 2: (3.0, 1)})
    assert sums.high(1.5) == {2: 3.0}
    assert len(OpenSlot(1, 1.0, dict.fromkeys(range(20), (2.0, 1))).high(1.5)) == 16
    history = RecurringLoad().after((in_slot(0, load=2.0), in_slot(1)), WATCHED)
    assert history.days["bytes_in"][0].mean_load == {0: 2.0}
    half_ms = SLOT_MS // 2
    halves = (window(half_ms, 2.0, length_ms=half_ms, load=2.0), window(SLOT_MS, 1.0, length_ms=half_ms, load=4.0))
    history = RecurringLoad().after((*halves, in_slot(1, load=None), in_slot(2)), WATCHED)
    assert history.days["bytes_in"][0].mean_load == {0: 3.0, 1: 0.0}
    assert history.share("bytes_in", 1, 0) == 1.5


def test_a_history_begins_with_nothing_and_counts_each_window_once() -> None:
    nothing = RecurringLoad()
    assert (nothing.newest_ms, nothing.slot, nothing.changed_ms, nothing.kept_until_ms()) == (0, -1, 0, 0)
    once = nothing.after((in_slot(5),), WATCHED)
    again = once.after((in_slot(4), in_slot(5)), WATCHED)
    assert (again.newest_ms, again.kept_until_ms(), again.changed_ms) == (6 * SLOT_MS, 5 * SLOT_MS, 0)
    assert again.open["bytes_in"].windows == 1


def test_a_window_counts_if_just_enough_brokers_report() -> None:
    for reporting, is_counted in ((18, False), (19, True)):
        history = RecurringLoad().after((in_slot(5, reporting=reporting),), WATCHED)
        assert (history.newest_ms, "bytes_in" in history.open) == (6 * SLOT_MS, is_counted)


@pytest.mark.parametrize(("later", "kept"), [(56, True), (57, False)])
def test_a_day_is_kept_for_56_days(later: int, kept: bool) -> None:
    """It goes with the first slot of the day after them."""
    slots = (0, later * DAY_SLOTS, later * DAY_SLOTS + 1)
    history = RecurringLoad().after([in_slot(slot) for slot in slots], WATCHED)
    assert (0 in history.days["bytes_in"]) is kept


@pytest.mark.parametrize(
    ("changed_ms", "is_moved", "low_windows"),
    [
        (20 * MINUTE_MS, True, 0),  # it began when replicas had been moved
        (20 * MINUTE_MS + 1, False, 0),  # they may be moving in it: it does not show that the skew has ended
        (20 * MINUTE_MS + THREE_HOURS_MS, False, 0),
        (20 * MINUTE_MS + THREE_HOURS_MS + 1, False, 1),  # that is too long before
        (5, False, 1),  # known already
        (0, False, 1),
    ],
)
def test_a_window_is_before_while_or_after_replicas_move(changed_ms: int, is_moved: bool, low_windows: int) -> None:
    """Both windows begin a day later than the times above, so that no difference of times is taken for a sum."""
    begin_ms, length_ms = DAY_MS, 10 * MINUTE_MS
    hot = window(begin_ms + length_ms, 2.0, length_ms=length_ms)
    history = replace(RecurringLoad().after((hot,), WATCHED), changed_ms=begin_ms + 5)
    low = window(begin_ms + 30 * MINUTE_MS, 1.0, length_ms=length_ms)
    history = history.after((low,), WATCHED, changed_ms=begin_ms + changed_ms)
    followed = history.followed["bytes_in"][1]
    assert followed.moved_ms == (begin_ms + changed_ms if is_moved else None)
    assert followed.low_windows == low_windows
    assert history.changed_ms == begin_ms + (changed_ms if is_moved else 5)


def test_a_window_from_before_the_known_move_is_none_in_which_replicas_move() -> None:
    hot = RecurringLoad().after((window(DAY_MS, 2.0),), WATCHED)
    history = replace(hot, changed_ms=2 * DAY_MS)
    after = history.after((window(2 * DAY_MS, 1.0),), WATCHED, changed_ms=2 * DAY_MS)
    assert after.followed["bytes_in"][1].low_windows == 1


ABOVE = FollowedSkew(total=4.0, windows=2)
"""Twice the mean."""
MOVED = replace(ABOVE, moved_ms=0)


@pytest.mark.parametrize(
    ("skew", "share", "may_be_moving", "expected", "unmended_share"),
    [
        (FollowedSkew(), 1.5, False, FollowedSkew(1.5, 1, 0), 1.5),
        (replace(ABOVE, low_windows=1), 1.5, False, FollowedSkew(5.5, 3, 0), 1.5),
        (ABOVE, 1.3, False, replace(ABOVE, low_windows=1), 1.3),
        (replace(ABOVE, low_windows=1), 1.0, True, replace(ABOVE, low_windows=1), 1.0),
        (MOVED, 2.0**-0.5, False, replace(MOVED, low_windows=1), 2.0**-0.5),  # it had ended before the move
        (replace(MOVED, low_windows=1), 0.4, False, replace(MOVED, low_windows=2), 0.4),
        (MOVED, 0.8, False, replace(MOVED, shares_after=(0.8,)), 2.0),
        (MOVED, 4.0, False, replace(MOVED, shares_after=(4.0,)), 4.0),  # the move made it worse
    ],
)
def test_a_skew_is_followed_window_by_window(
    skew: FollowedSkew, share: float, may_be_moving: bool, expected: FollowedSkew, unmended_share: float
) -> None:
    followed, result = skew.after(share, threshold=1.3, may_be_moving=may_be_moving)
    assert followed == expected
    assert result == pytest.approx(unmended_share)


def test_a_share_at_the_threshold_is_not_above_it() -> None:
    compared = replace(MOVED, total=3.0, shares_after=(2.0, 2.0, 2.0))
    assert compared.after(1.3, threshold=1.3, may_be_moving=False)[0].low_windows == 1
    shares = {1: 1.0, 2: 1.3, 3: 1.4}
    going, result = unmended({}, shares, threshold=1.3, start_ms=0, may_be_moving=False)
    assert (set(going), result) == ({3}, shares)


@pytest.mark.parametrize(("age_ms", "is_followed"), [(THREE_HOURS_MS - 1, True), (THREE_HOURS_MS, False)])
def test_a_skew_is_followed_for_three_hours_after_a_move(age_ms: int, is_followed: bool) -> None:
    skews = {1: replace(MOVED, moved_ms=DAY_MS, shares_after=(1.0,))}
    going, _ = unmended(skews, {1: 1.0}, threshold=1.3, start_ms=DAY_MS + age_ms, may_be_moving=False)
    assert (1 in going) is is_followed


def height_of(*shares: float) -> float:
    """Of a skew in slots 10 and 11 that was as high on the days before, newest first; 2 in slot 11."""
    history = of_days({back: {10: share, 11: 2.0} for back, share in enumerate(shares, 1)})
    known = recurrence_of(history, "bytes_in", 1, at_ms=(TODAY * DAY_SLOTS + 10) * SLOT_MS, above=1.3)
    assert known is not None
    return known.height


def test_the_usual_height_is_the_median_and_what_days_differ_by() -> None:
    assert height_of(1.5, 1.5, 1.5) == pytest.approx(2.4)
    assert height_of(3.0, 3.0, 3.0) == pytest.approx(3.6)
    assert height_of(2.0, 3.0, 4.0, 1.3) == pytest.approx(3 + 3 * 1.4826)


def test_a_share_at_the_threshold_is_no_recurrence() -> None:
    assert comes_at(of_days({back: {10: 1.3} for back in range(1, 8)}), 10) is None
    assert comes_at(of_days({1: {10: 1.3}, 2: {10: 2.0}, 3: {10: 2.0}, 4: {10: 2.0}}), 10) == ("each day", 10, 11, 3)


def test_days_count_for_eight_weeks() -> None:
    history = of_days({back: {10: 2.0} for back in (1, 2, 3, 55, 56, 57)})
    assert comes_at(history, 10) == ("each day", 10, 11, 5)


def test_of_two_skews_as_near_the_one_to_come_counts() -> None:
    assert comes_at(of_days({back: {9: 2.0, 11: 2.0} for back in (1, 2, 3)}), 10) == ("each day", 11, 12, 3)


def test_the_whole_run_counts_from_wherever_it_is_asked_for() -> None:
    four = of_days({back: dict.fromkeys(range(12, 16), 2.0) for back in (1, 2, 3)})
    for slot in range(11, 17):
        assert comes_at(four, slot) == ("each day", 12, 16, 3)


@pytest.mark.parametrize(("slots", "is_known"), [(72, True), (73, False)])
def test_what_lasts_for_longer_than_half_a_day_is_none_wherever_it_is_asked_for(slots: int, is_known: bool) -> None:
    history = of_days({back: dict.fromkeys(range(20, 20 + slots), 2.0) for back in (1, 2, 3)})
    for slot in (20, 50, 19 + slots):
        assert (comes_at(history, slot) is not None) is is_known


def test_saturday_is_no_working_day() -> None:
    """Today is a Monday; the job did not run last Wednesday."""
    history = of_days({back: {10: 2.0} if back in (3, 4, 6) else {} for back in range(1, 8)})
    assert comes_at(history, 10) == ("Monday to Friday", 10, 11, 3)


def test_what_lasts_too_long_on_other_days_is_known_by_the_kind_of_day() -> None:
    """From Thursday to Sunday it lasted for long; on most working days it did not."""
    long, short = dict.fromkeys(range(10, 100), 2.0), {10: 2.0}
    history = of_days({back: long if back in (1, 2, 3, 4) else short for back in range(1, 8)})
    assert comes_at(history, 10) == ("Monday to Friday", 10, 11, 5)


def evaluated(history: RecurringLoad, slot: int, planned_ms: int | None = None, changed_ms: int = 0) -> Evaluation:
    """Three windows of a minute with 1.8 times the mean, of which the last one ends 7 minutes after the slot began."""
    begin_ms = (TODAY * DAY_SLOTS + slot) * SLOT_MS
    rows = tuple(window(begin_ms + MINUTE_MS * (5 + index), 1.8, length_ms=MINUTE_MS, load=2e6) for index in range(3))
    planned = {} if planned_ms is None else {1: rows[-1].window_end_ms - planned_ms}
    around = Surroundings(recurring=history, recurring_planned_ms=planned, changed_ms=changed_ms)
    return step(POLICY, TriggerState(), rows, around, now_ms=rows[-1].window_end_ms)[1]


@pytest.mark.parametrize(("slots", "verdict"), [(5, Verdict.HOLD), (6, Verdict.PLAN)])
def test_a_recurring_skew_of_an_hour_is_planned_for(slots: int, verdict: Verdict) -> None:
    history = of_days({back: dict.fromkeys(range(10, 10 + slots), 1.8) for back in (1, 2, 3, 4)})
    assert evaluated(history, 12).verdict is verdict


def test_one_that_a_plan_did_not_mend_is_planned_for_again_after_seven_days() -> None:
    history = of_days({back: dict.fromkeys(range(10, 20), 1.8) for back in (1, 2, 3, 4)})
    now_ms = (TODAY * DAY_SLOTS + 12) * SLOT_MS + 7 * MINUTE_MS
    changed_ms = now_ms - 30 * MINUTE_MS
    held = evaluated(history, 12, DAY_MS, changed_ms)
    assert (held.verdict, held.reason) == (Verdict.HOLD, Reason.RECURRING)
    assert held.detail.endswith(
        "; comes each day 01:40 to 03:20 UTC, known from 4 days; a plan for it was carried out 1.0 days ago"
    )
    assert evaluated(history, 12, 7 * DAY_MS - 1, changed_ms).verdict is Verdict.HOLD
    assert evaluated(history, 12, 7 * DAY_MS, changed_ms).verdict is Verdict.PLAN
    assert evaluated(history, 12, DAY_MS, now_ms - DAY_MS).verdict is Verdict.PLAN, "it was not carried out since"


def known_for(shares: tuple[float | None, ...], usual: float, *, slot: int = 11, length_ms: int = SLOT_MS) -> bool:
    """Whether windows of such shares, the last of which has its middle where the slot begins, are as usual.

    The skew comes in slots 12 to 15.
    """
    end_ms = (TODAY * DAY_SLOTS + slot) * SLOT_MS + length_ms // 2
    ratios = [{2: 1.0} if share is None else {1: share} for share in shares]
    rows = tuple(
        SkewWindow(end_ms - back * length_ms, {"bytes_in": ratios[-1 - back]}, {}, 20, 20, length_ms)
        for back in reversed(range(len(shares)))
    )
    history = of_days({back: dict.fromkeys(range(12, 16), usual) for back in (1, 2, 3, 4)})
    return recurrence(POLICY, rows, Over("bytes_in", 1, 0), Surroundings(recurring=history)) is not None


def test_the_middle_of_the_newest_window_is_the_time_that_counts() -> None:
    assert known_for((1.5, 1.5, 1.5), 1.5, length_ms=2 * SLOT_MS)
    assert not known_for((1.5, 1.5, 1.5), 1.5, slot=10, length_ms=2 * SLOT_MS)


@pytest.mark.parametrize(
    ("shares", "usual", "is_usual"),
    [
        ((1.2 * 1.5, 1.2 * 1.5), 1.5, True),
        ((1.81, 1.81), 1.5, False),
        ((1.6, 1.6, None), 1.4, True),  # a window without the broker says nothing
        ((1.81, 1.3), 1.5, False),  # nor does one in which it is not above the threshold
    ],
)
def test_a_skew_is_higher_than_usual_by_the_mean_of_its_windows(
    shares: tuple[float | None, ...], usual: float, is_usual: bool
) -> None:
    assert known_for(shares, usual) is is_usual
