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
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.state import TriggerState, after_plan
from assignor_core.deciding.step import Tried
from assignor_core.load_history.load_memory import SkewLimits
from assignor_core.load_history.recurring import (
    BROKERS_MAX,
    DAY_MS,
    DAY_SLOTS,
    KEPT_DAYS,
    NO_HISTORY,
    RECURRENCES_MIN,
    SLOT_MS,
    SLOTS_MAX,
    DayLoad,
    FollowedSkew,
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
TWO, TEN_TO_THREE, ELEVEN = 12, 17, 66
"""Slots of the day."""


def window(end_ms: int, share: float = 1.0, broker: int = 1, length_ms: int = SLOT_MS) -> SkewWindow:
    others = dict.fromkeys(range(1, 7), (6 - share) / 5)
    return SkewWindow(end_ms, {"bytes_in": {**others, broker: share}}, {"bytes_in": 2e6}, 6, 6, length_ms)


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
TODAY = (MONDAY + 7) * DAY_SLOTS
SEVEN_NIGHTS = learned(days(MONDAY, 7, NIGHT))


def test_what_comes_each_day_is_named_with_its_hours_and_days() -> None:
    assert known(SEVEN_NIGHTS, TODAY + TWO) == "comes each day 02:00 to 02:50 UTC, known from 7 days"
    assert known(SEVEN_NIGHTS, TODAY + TWO - 1) is not None, "ten minutes sooner"
    assert known(SEVEN_NIGHTS, TODAY + TEN_TO_THREE) is not None, "ten minutes later"
    assert known(SEVEN_NIGHTS, TODAY + TWO - 2) is None
    assert known(SEVEN_NIGHTS, TODAY + TEN_TO_THREE + 1) is None
    assert known(SEVEN_NIGHTS, TODAY + TWO, broker=2) is None


@pytest.mark.parametrize(("nights", "is_known"), [(1, False), (2, False), (3, True), (4, True)])
def test_it_counts_once_it_has_come_three_times(nights: int, is_known: bool) -> None:
    history = learned(days(MONDAY, 4), days(MONDAY + 4, nights, NIGHT))
    assert (known(history, (MONDAY + 4 + nights) * DAY_SLOTS + TWO) is not None) is is_known


def test_one_day_without_it_is_no_end_and_two_are() -> None:
    once = learned(days(MONDAY, 7, NIGHT), days(MONDAY + 7, 1))
    assert known(once, TODAY + DAY_SLOTS + TWO) is not None
    twice = learned(days(MONDAY, 7, NIGHT), days(MONDAY + 7, 2))
    assert known(twice, TODAY + 2 * DAY_SLOTS + TWO) is None


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
    history = learned(days(MONDAY, 7, range(DAY_SLOTS - 2, DAY_SLOTS)), [])
    history = learned(
        [window(SLOT_MS * (slot + 1), 1.8 if slot % DAY_SLOTS in (0, 1, 142, 143) else 1.0)
         for slot in range(MONDAY * DAY_SLOTS, TODAY)]
    )  # fmt: skip
    assert known(history, TODAY) == "comes each day 23:40 to 00:20 UTC, known from 7 days"


def test_a_lasting_skew_is_no_recurring_one() -> None:
    assert known(learned(days(MONDAY, 7, range(DAY_SLOTS))), TODAY + TWO) is None
    half = learned(days(MONDAY, 7, range(SLOTS_MAX)))
    assert known(half, TODAY + TWO) == "comes each day 00:00 to 12:00 UTC, known from 7 days"
    assert known(learned(days(MONDAY, 7, range(SLOTS_MAX + 1))), TODAY + TWO) is None


def test_days_are_forgotten_after_eight_weeks() -> None:
    history = learned(days(MONDAY, 3, NIGHT), days(MONDAY + KEPT_DAYS + 10, 1))
    assert min(history.days["bytes_in"]) >= MONDAY + 10


def test_a_slot_keeps_the_shares_of_few_brokers() -> None:
    shares = {broker: 1.5 + broker / 100 for broker in range(40)} | dict.fromkeys(range(40, 100), 0.1)
    many = SkewWindow(SLOT_MS, {"bytes_in": shares}, {"bytes_in": 1e6}, 100, 100, SLOT_MS)
    history = RecurringLoad().after((many, window(2 * SLOT_MS)), WATCHED)
    assert sorted(history.days["bytes_in"][0].shares) == list(range(40 - BROKERS_MAX, 40))


def test_windows_of_any_length_fill_the_slots_that_they_cover() -> None:
    hourly = [
        window((hour + 1) * 6 * SLOT_MS, 1.8 if hour % 24 == 2 else 1.0, length_ms=6 * SLOT_MS)
        for hour in range(24 * MONDAY, 24 * (MONDAY + 7))
    ]
    minute = SLOT_MS // 10
    minutely = [
        window((index + 1) * minute, 1.8 if index // 10 % DAY_SLOTS in NIGHT else 1.0, length_ms=minute)
        for index in range(MONDAY * DAY_SLOTS * 10, TODAY * 10)
    ]
    assert known(learned(hourly), TODAY + TWO) == "comes each day 02:00 to 03:00 UTC, known from 7 days"
    assert known(learned(minutely), TODAY + TWO) == "comes each day 02:00 to 02:50 UTC, known from 7 days"


@given(st.integers(0, 10**7), st.sampled_from([60_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000]))
def test_windows_in_a_row_leave_no_slot_out_and_count_to_few(index: int, length_ms: int) -> None:
    """Lengths are those that divide an hour. What follows begins where this one ends, or goes on in its last slot."""
    slots = slots_of(index * length_ms, (index + 1) * length_ms)
    following = slots_of((index + 1) * length_ms, (index + 2) * length_ms)
    assert 1 <= len(slots) <= max(1, -(-length_ms // SLOT_MS))
    assert following.start in (slots.stop, slots.stop - 1)


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


def evaluated(
    history: RecurringLoad,
    share: float,
    around: Mapping[str, Any] = MappingProxyType({}),
    *,
    slot: int = TODAY + TWO,
    policy: TriggerPolicy = POLICY,
) -> tuple[TriggerState, Tried]:
    """Three windows of a minute in this slot."""
    minute_ms = SLOT_MS // 10
    rows = tuple(window(slot * SLOT_MS + minute_ms * (5 + index), share, length_ms=minute_ms) for index in range(3))
    surroundings = replace(Surroundings(recurring=history), **around)
    return tried(policy, TriggerState(), rows, surroundings, now_ms=rows[-1].window_end_ms)


def test_a_burst_that_comes_each_day_makes_no_plan_and_is_named() -> None:
    evaluation = evaluated(SEVEN_NIGHTS, 1.8)[1].evaluation
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
    evaluation = evaluated(history, share, around, policy=policy)[1].evaluation
    assert (evaluation.verdict, evaluation.reason) == (Verdict.PLAN, Reason.SKEWED)


def test_a_recurring_skew_of_hours_is_planned_for_once_a_week_if_that_is_carried_out() -> None:
    morning = learned(days(MONDAY, 7, range(48, ELEVEN)))
    slot = TODAY + 50
    now_ms = slot * SLOT_MS
    _, planned_for = evaluated(morning, 1.8, slot=slot)
    evaluation = planned_for.evaluation
    assert planned_for.need is not None
    assert (evaluation.verdict, planned_for.need.recurring_broker) == (Verdict.PLAN, 1)
    assert evaluation.detail.endswith("; comes each day 08:00 to 11:00 UTC, known from 7 days")

    def verdict(planned_ms: int, changed_ms: int) -> Verdict:
        planned = {"recurring_planned_ms": {1: planned_ms}, "changed_ms": changed_ms}
        return evaluated(morning, 1.8, planned, slot=slot)[1].evaluation.verdict

    day_ago = now_ms - DAY_MS
    assert verdict(day_ago, day_ago - 1) is Verdict.PLAN, "nobody has carried it out"
    assert verdict(day_ago, day_ago + 1) is Verdict.HOLD
    assert verdict(now_ms - 8 * DAY_MS, day_ago) is Verdict.PLAN


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
