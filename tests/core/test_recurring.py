"""Load that comes back at the same time: what is learned of past days, and what a decision makes of it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import Detector, TriggerPolicy
from assignor_core.deciding.reasons import Evaluation, Reason, Verdict
from assignor_core.deciding.skewed import Over, recurrence
from assignor_core.deciding.state import TriggerState, after_plan
from assignor_core.deciding.step import Tried
from assignor_core.load_history.load_memory import SkewLimits
from assignor_core.load_history.recurring import (
    BROKERS_MAX,
    DAY_MS,
    DAY_SLOTS,
    NO_HISTORY,
    RECURRENCES_MIN,
    SLOT_MS,
    SLOTS_MAX,
    DayLoad,
    FollowedSkew,
    OpenSlot,
    RecurringLoad,
    moved,
    recurrence_of,
    slots_of,
    unmended,
)
from assignor_core.load_history.windows import SkewWindow
from tests.core.judging import tried

WATCHED = SkewLimits(enter_ratio=1.30, exit_ratio=1.15, windows_over=3, completeness_min=0.95)
POLICY = TriggerPolicy(stale_after_ms=4 * SLOT_MS)
MONDAY = 4
"""5 January 1970."""
TODAY = MONDAY + 7 * 10
"""A Monday, too."""
TWO, TEN_TO_THREE, ELEVEN = 12, 17, 66
"""Slots of the day."""
THREE_HOURS_MS = 10_800_000
MINUTE_MS = 60_000


def window(
    end_ms: int, share: float = 1.0, broker: int = 1, *, length_ms: int = SLOT_MS, load: float | None = 2.0,
    reporting: int = 20,
) -> SkewWindow:  # fmt: skip
    mean_load = {} if load is None else {"bytes_in": load}
    shares = {1: 1.0, 2: 1.0, broker: share}
    return SkewWindow(end_ms, {"bytes_in": shares}, mean_load, 20, reporting, length_ms)


def days(first: int, count: int, hot: range = range(0), share: float = 1.8, broker: int = 1) -> list[SkewWindow]:
    """Windows of ten minutes; one broker is hot in these slots of each day."""
    return [
        window(SLOT_MS * (slot + 1), share if slot % DAY_SLOTS in hot else 1.0, broker)
        for slot in range(first * DAY_SLOTS, (first + count) * DAY_SLOTS)
    ]


def learned(*parts: list[SkewWindow]) -> RecurringLoad:
    history = RecurringLoad()
    for part in parts:
        history = history.after(part, WATCHED)
    return history.after((window(history.newest_ms + SLOT_MS),), WATCHED)  # closes the newest slot


def known(history: RecurringLoad, slot: int, broker: int = 1) -> str | None:
    """What brings the broker above 1.3 in a slot counted from the epoch."""
    found = recurrence_of(history, "bytes_in", broker, at_ms=slot * SLOT_MS + 1, above=1.3)
    return None if found is None else found.in_words()


NIGHT = range(TWO, TEN_TO_THREE)
NEXT_MONDAY = (MONDAY + 7) * DAY_SLOTS
SEVEN_NIGHTS = learned(days(MONDAY, 7, NIGHT))


def test_what_comes_each_day_is_named_with_its_hours_and_days() -> None:
    assert known(SEVEN_NIGHTS, NEXT_MONDAY + TWO) == "comes each day 02:00 to 02:50 UTC, known from 7 days"
    assert known(SEVEN_NIGHTS, NEXT_MONDAY + TWO - 1) is not None, "ten minutes sooner"
    assert known(SEVEN_NIGHTS, NEXT_MONDAY + TEN_TO_THREE) is not None, "ten minutes later"
    assert known(SEVEN_NIGHTS, NEXT_MONDAY + TWO - 2) is None
    assert known(SEVEN_NIGHTS, NEXT_MONDAY + TEN_TO_THREE + 1) is None
    assert known(SEVEN_NIGHTS, NEXT_MONDAY + TWO, broker=2) is None


@pytest.mark.parametrize(("nights", "is_known"), [(1, False), (2, False), (3, True), (4, True)])
def test_it_counts_once_it_has_come_three_times(nights: int, is_known: bool) -> None:
    history = learned(days(MONDAY, 4), days(MONDAY + 4, nights, NIGHT))
    assert (known(history, (MONDAY + 4 + nights) * DAY_SLOTS + TWO) is not None) is is_known


def test_one_day_without_it_is_no_end_and_two_are() -> None:
    once = learned(days(MONDAY, 7, NIGHT), days(MONDAY + 7, 1))
    assert known(once, NEXT_MONDAY + DAY_SLOTS + TWO) is not None
    twice = learned(days(MONDAY, 7, NIGHT), days(MONDAY + 7, 2))
    assert known(twice, NEXT_MONDAY + 2 * DAY_SLOTS + TWO) is None


@pytest.mark.long
def test_working_days_and_weekly_jobs_are_known_as_such() -> None:
    working = learned(
        *(part for week in range(2) for part in (days(MONDAY + 7 * week, 5, NIGHT), days(MONDAY + 7 * week + 5, 2)))
    )
    monday = (MONDAY + 14) * DAY_SLOTS
    assert known(working, monday + TWO) == "comes Monday to Friday 02:00 to 02:50 UTC, known from 10 days"
    assert known(working, monday + 5 * DAY_SLOTS + TWO) is None
    sundays = learned(
        *(part for week in range(3) for part in (days(MONDAY + 7 * week, 6), days(MONDAY + 7 * week + 6, 1, NIGHT)))
    )
    sunday = (MONDAY + 27) * DAY_SLOTS
    assert known(sundays, sunday + TWO) == "comes each Sun 02:00 to 02:50 UTC, known from 3 days"
    assert known(sundays, sunday - DAY_SLOTS + TWO) is None


def test_what_goes_over_midnight_is_one_skew() -> None:
    history = learned(
        [window(SLOT_MS * (slot + 1), 1.8 if slot % DAY_SLOTS in (0, 1, 142, 143) else 1.0)
         for slot in range(MONDAY * DAY_SLOTS, NEXT_MONDAY)]
    )  # fmt: skip
    assert known(history, NEXT_MONDAY) == "comes each day 23:40 to 00:20 UTC, known from 7 days"


def test_a_slot_keeps_the_shares_of_few_brokers() -> None:
    shares = {broker: 1.5 + broker / 100 for broker in range(40)} | dict.fromkeys(range(40, 100), 0.1)
    many = SkewWindow(SLOT_MS, {"bytes_in": shares}, {"bytes_in": 1e6}, 100, 100, SLOT_MS)
    history = RecurringLoad().after((many, window(2 * SLOT_MS)), WATCHED)
    assert sorted(history.days["bytes_in"][0].shares) == list(range(40 - BROKERS_MAX, 40))


@pytest.mark.long
def test_windows_of_any_length_fill_the_slots_that_they_cover() -> None:
    hourly = [
        window((hour + 1) * 6 * SLOT_MS, 1.8 if hour % 24 == 2 else 1.0, length_ms=6 * SLOT_MS)
        for hour in range(24 * MONDAY, 24 * (MONDAY + 7))
    ]
    minute = SLOT_MS // 10
    minutely = [
        window((index + 1) * minute, 1.8 if index // 10 % DAY_SLOTS in NIGHT else 1.0, length_ms=minute)
        for index in range(MONDAY * DAY_SLOTS * 10, NEXT_MONDAY * 10)
    ]
    assert known(learned(hourly), NEXT_MONDAY + TWO) == "comes each day 02:00 to 03:00 UTC, known from 7 days"
    assert known(learned(minutely), NEXT_MONDAY + TWO) == "comes each day 02:00 to 02:50 UTC, known from 7 days"


@given(st.integers(0, 10**7), st.sampled_from([60_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000]))
def test_windows_in_a_row_leave_no_slot_out_and_count_to_few(index: int, length_ms: int) -> None:
    """Lengths are those that divide an hour. What follows begins where this one ends, or goes on in its last slot."""
    slots = slots_of(index * length_ms, (index + 1) * length_ms)
    following = slots_of((index + 1) * length_ms, (index + 2) * length_ms)
    assert 1 <= len(slots) <= max(1, -(-length_ms // SLOT_MS))
    assert following.start in (slots.stop, slots.stop - 1)


@pytest.mark.long
@given(
    st.dictionaries(st.tuples(st.integers(0, 11), st.integers(0, 2)), st.floats(0.5, 4.0), max_size=40),
    st.sets(st.integers(0, 12 * DAY_SLOTS // 9 - 1), max_size=4),
    st.integers(0, 30),
)
def test_whatever_is_kept_is_read_again_and_a_recurrence_has_come_before(
    hot: dict[tuple[int, int], float], restarts: set[int], at: int
) -> None:
    """Invariants: a restart changes nothing; what is expected holds the time asked for, and came often enough."""
    windows = [
        window(SLOT_MS * (slot + 1), hot.get((slot // DAY_SLOTS, slot % DAY_SLOTS // 9), 1.0))
        for slot in range(0, 12 * DAY_SLOTS, 9)
    ]
    whole, kept = RecurringLoad(), RecurringLoad()
    for index, row in enumerate(windows):
        whole = whole.after((row,), WATCHED)
        if index in restarts:
            kept = restarted(kept)
        kept = kept.after(windows[max(0, index - 3) : index + 1], WATCHED)
    assert whole.days == kept.days
    slot = 12 * DAY_SLOTS + at
    found = recurrence_of(whole, "bytes_in", 1, at_ms=slot * SLOT_MS, above=1.3)
    if found is not None:
        assert found.first_slot - 1 <= slot <= found.end_slot
        assert 1 <= found.end_slot - found.first_slot <= SLOTS_MAX
        assert RECURRENCES_MIN <= found.days <= sum(share > 1.3 for share in hot.values())
        assert found.height >= 1.3


def restarted(history: RecurringLoad) -> RecurringLoad:
    """What another process reads of it; the slot that goes on is made of its windows again."""
    by_resource = {
        resource: {day: DayLoad.from_dict(json.loads(json.dumps(row.as_dict()))) for day, row in rows.items()}
        for resource, rows in history.days.items()
    }
    return RecurringLoad(history.kept_until_ms(), by_resource)


def tried_in(
    history: RecurringLoad,
    share: float,
    around: Mapping[str, Any] = MappingProxyType({}),
    *,
    slot: int = NEXT_MONDAY + TWO,
    policy: TriggerPolicy = POLICY,
) -> Tried:
    """Three windows of a minute in this slot, counted from the epoch; the last one ends 7 minutes after it began."""
    ends_ms = (slot * SLOT_MS + MINUTE_MS * minute for minute in (5, 6, 7))
    rows = tuple(window(end_ms, share, length_ms=MINUTE_MS, load=2e6) for end_ms in ends_ms)
    surroundings = replace(Surroundings(recurring=history), **around)
    return tried(policy, TriggerState(), rows, surroundings, now_ms=rows[-1].window_end_ms)[1]


def test_a_burst_that_comes_each_day_makes_no_plan_and_is_named() -> None:
    evaluation = tried_in(SEVEN_NIGHTS, 1.8).evaluation
    assert (evaluation.verdict, evaluation.reason) == (Verdict.HOLD, Reason.RECURRING)
    assert evaluation.detail == (
        "bytes_in max/mean 1.800; broker 1 over 1.3 in 3 of the last 3 windows; "
        "comes each day 02:00 to 02:50 UTC, known from 7 days"
    )


@pytest.mark.parametrize(
    ("history", "share", "policy", "around"),
    [
        (NO_HISTORY, 1.8, POLICY, {}),
        (SEVEN_NIGHTS, 2.5, POLICY, {}),  # higher than it ever was
        (SEVEN_NIGHTS, 1.8, POLICY, {"behind": {1: "billing"}}),
        (SEVEN_NIGHTS, 1.8, replace(POLICY, recurring_load=False), {}),
        (SEVEN_NIGHTS, 1.8, replace(POLICY, detector=Detector.WINDOWS), {}),
        (learned(days(MONDAY, 7, NIGHT, broker=2)), 1.8, POLICY, {}),
    ],
)
def test_what_is_not_known_so_is_planned_for(
    history: RecurringLoad, share: float, policy: TriggerPolicy, around: dict[str, Any]
) -> None:
    evaluation = tried_in(history, share, around, policy=policy).evaluation
    assert (evaluation.verdict, evaluation.reason) == (Verdict.PLAN, Reason.SKEWED)


def test_a_plan_for_a_recurring_skew_of_hours_notes_its_broker() -> None:
    morning = learned(days(MONDAY, 7, range(48, ELEVEN)))
    planned_for = tried_in(morning, 1.8, slot=NEXT_MONDAY + 50)
    assert planned_for.need is not None
    assert (planned_for.evaluation.verdict, planned_for.need.recurring_broker) == (Verdict.PLAN, 1)
    assert planned_for.evaluation.detail.endswith("; comes each day 08:00 to 11:00 UTC, known from 7 days")


def test_the_state_keeps_plans_for_recurring_skews_for_a_week() -> None:
    state = after_plan(POLICY, TriggerState(), 5 * DAY_MS, 2)
    state = after_plan(POLICY, state, 6 * DAY_MS)
    assert state.recurring_planned_ms == ((2, 5 * DAY_MS),)
    assert after_plan(POLICY, state, 12 * DAY_MS, 1).recurring_planned_ms == ((1, 12 * DAY_MS),)
    assert TriggerState.read({"recurring_planned_ms": [[2, 5]]}).recurring_planned_ms == ((2, 5),)


def followed(*shares: float, moved_after: int, threshold: float = 1.3) -> list[float]:
    """Shares of a broker had nothing been moved; replicas are moved after so many windows of a minute."""
    skews: dict[int, FollowedSkew] = {}
    rows = []
    for index, share in enumerate(shares):
        if index == moved_after:
            skews = moved(skews, index * 60_000)
        skews, unmended_shares = unmended(
            skews, {1: share}, threshold=threshold, start_ms=index * 60_000, may_be_moving=False
        )
        rows.append(unmended_shares[1])
    return rows


def test_a_mended_burst_is_followed_until_it_ends() -> None:
    """Twice the load; a plan makes it even after the third window; four windows later the broker has half a share."""
    shares = followed(1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, moved_after=4)
    assert shares == pytest.approx([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.5])


def test_a_burst_that_ended_while_replicas_moved_is_over() -> None:
    shares = followed(2.0, 2.0, 2.0, 0.5, 0.5, 0.5, 0.5, moved_after=3)
    assert max(shares[3:]) < 1.3
    assert shares[-1] == 0.5


def test_a_lasting_skew_is_followed_for_hours_and_no_longer() -> None:
    shares = followed(2.0, 2.0, 2.0, *[1.0] * 200, moved_after=3)
    assert shares[100] == pytest.approx(2.0)
    assert shares[-1] == 1.0


@given(st.lists(st.floats(0.1, 4.0), min_size=1, max_size=60), st.integers(0, 60))
def test_shares_without_a_move_are_as_measured_and_never_lower_after_one(shares: list[float], moved_after: int) -> None:
    result = followed(*shares, moved_after=moved_after)
    assert result[:moved_after] == shares[:moved_after]
    assert all(unmended_share >= share for unmended_share, share in zip(result, shares, strict=True))


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
    """The decision 7 minutes after this slot of today began, at 1.8 times the mean; a plan was made so long before."""
    now_ms = (TODAY * DAY_SLOTS + slot) * SLOT_MS + 7 * MINUTE_MS
    planned = {} if planned_ms is None else {1: now_ms - planned_ms}
    around = {"recurring_planned_ms": planned, "changed_ms": changed_ms}
    return tried_in(history, 1.8, around, slot=TODAY * DAY_SLOTS + slot).evaluation


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
