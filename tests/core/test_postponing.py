"""Whether a plan for skew is worth its bytes now: what is held back, for how long, and what never is."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from assignor_core.deciding.load_memory import NOTHING_REMEMBERED, LoadMemory
from assignor_core.deciding.load_memory.episodes import LASTING, Episodes, OpenEpisode
from assignor_core.deciding.observation import DecisionPolicy, Mode, Observation
from assignor_core.deciding.postponing import (
    EPISODES_MIN,
    HOUR_MS,
    HOUR_SLOTS,
    SLOTS_MIN,
    WAIT_MAX_MS,
    Effort,
    PostponingPolicy,
    cheap_hour,
    not_worth_its_bytes,
    windows_left,
)
from assignor_core.deciding.reasons import LEAVES_PLACEMENT, Reason, Verdict
from assignor_core.deciding.recurring import NO_HISTORY, RecurringLoad
from assignor_core.deciding.recurring.history import DayLoad
from assignor_core.deciding.recurring.slots import DAY_MS, DAY_SLOTS
from assignor_core.deciding.step import Decision
from assignor_core.deciding.trigger import Evaluation, TriggerState
from assignor_core.deciding.trigger_policy import Detector
from assignor_core.deciding.worth import gain_of_noise, not_worth_it, postponed
from assignor_core.errors import InputError
from assignor_core.plan import Movement
from tests.core.test_load_memory import levels_of, noisy
from tests.core.test_step import AWAY, HOT, MINUTE_MS, NIGHT, POLICY, Given, decided, observed, proposed

TODAY = 10
NOW_MS = TODAY * DAY_MS + 12 * HOUR_MS
COSTLY, SMALL = 2e12, 1e6
"""Bytes that a plan copies. The skew here is 0.25 of a mean load of 5 MB/3 a second: 36 GB a day."""
WAITS = PostponingPolicy(cheap_hour_wait_max_ms=WAIT_MAX_MS)
WORTH = PostponingPolicy(relief_min=0.1)
EFFORT = Effort(COSTLY, 1e6)


def history(days: int = 4, cheap: int = 15, less: float = 0.4, slots: int = HOUR_SLOTS) -> RecurringLoad:
    """Each hour of the days before today has a mean load of 2 MB/s, one hour of each day has less."""

    def load(slot: int) -> float:
        return 2e6 * (1 - less) if slot // HOUR_SLOTS == cheap else 2e6

    known = [slot for slot in range(DAY_SLOTS) if slot % HOUR_SLOTS < slots]
    rows = {TODAY - back: DayLoad({slot: load(slot) for slot in known}) for back in range(1, days + 1)}
    return RecurringLoad(days={"bytes_in": rows})


def memory(*ended: int, lasted: int = 3, broker: int = 1) -> LoadMemory:
    """Earlier skews have lasted so many windows, the broker's own has lasted for `lasted` until now."""
    return replace(NOTHING_REMEMBERED, episodes={"bytes_in": Episodes(((broker, OpenEpisode(lasted)),), ended)})


def made(
    policy: PostponingPolicy,
    bytes_to_move: float = COSTLY,
    *,
    remembered: LoadMemory = NOTHING_REMEMBERED,
    known: RecurringLoad = NO_HISTORY,
    given: Given | None = None,
    mode: Mode = Mode.APPLY,
    state: TriggerState | None = None,
    now_ms: int = NOW_MS,
    **changed: Any,
) -> Decision:
    """The decision on a clear skew of broker 1, whose plan copies so much."""
    rules = replace(POLICY, postponing=policy, mode=mode)
    observation = replace(observed(HOT, HOT, HOT, HOT, now_ms=now_ms), memory=remembered, recurring=known, **changed)
    given = given or Given(proposed(movements=copying(bytes_to_move)))
    return decided(given, observation, state, rules)[1]


def copying(bytes_to_move: float) -> tuple[Movement, ...]:
    (movement,) = proposed().plan.movements
    return (replace(movement, bytes_to_move=bytes_to_move),)


def verdict(decision: Decision) -> tuple[Verdict, Reason]:
    return decision.evaluation.verdict, decision.evaluation.reason


ACTED = (Verdict.PLAN, Reason.SKEWED)
SHORT = memory(*[60] * EPISODES_MIN)


def test_by_default_each_plan_is_carried_out_at_once() -> None:
    assert DecisionPolicy().postponing == PostponingPolicy()
    assert verdict(made(PostponingPolicy(), remembered=SHORT, known=history())) == ACTED


def test_a_plan_that_brings_little_before_the_skew_ends_is_not_worth_its_bytes() -> None:
    decision = made(WORTH, remembered=SHORT)
    assert verdict(decision) == (Verdict.HOLD, Reason.NOT_WORTH_IT)
    assert decision.evaluation.detail.endswith(
        "; not worth 2,000.0 GB to copy: such skews end within 57 min more here, in which "
        "it relieves the broker of 1.4 GB"
    )
    assert decision.proposed is None


@pytest.mark.parametrize(
    "remembered",
    [
        NOTHING_REMEMBERED,
        memory(*[60] * (EPISODES_MIN - 1)),
        memory(*[LASTING] * EPISODES_MIN),
        memory(*[60] * 5, *[LASTING] * 5),
        memory(*[60] * 64, lasted=61),
        memory(*[60] * 5, broker=2),
    ],
)
def test_a_skew_that_may_last_is_acted_on_at_once(remembered: LoadMemory) -> None:
    """Nothing is known, or too few skews, or they lasted, or half of them, or this one outlasted all, or another's."""
    assert verdict(made(WORTH, remembered=remembered)) == ACTED


def test_a_plan_that_copies_little_is_made_whatever_the_skew_does() -> None:
    assert verdict(made(WORTH, SMALL, remembered=SHORT)) == ACTED
    assert verdict(made(replace(WAITS, relief_min=0.1), SMALL, remembered=SHORT, known=history())) == ACTED


def test_a_costly_plan_waits_for_the_hour_with_less_load_and_is_made_in_it() -> None:
    decision = made(WAITS, known=history())
    assert verdict(decision) == (Verdict.HOLD, Reason.CHEAP_HOUR)
    assert decision.evaluation.detail.endswith(
        "; 2,000.0 GB are copied from 15:00 UTC, in 3.0 h, with 40% less traffic; "
        "at once they would relieve the broker of 4.5 GB until then"
    )
    assert verdict(made(WAITS, known=history(), now_ms=NOW_MS + 3 * HOUR_MS)) == ACTED


@pytest.mark.parametrize(
    "known",
    [
        NO_HISTORY,
        history(days=2),
        history(slots=SLOTS_MIN - 1),
        history(less=0.19),
        history(cheap=12),
        history(cheap=24),
    ],
)
def test_an_hour_that_is_not_known_or_has_hardly_less_load_is_not_waited_for(known: RecurringLoad) -> None:
    assert verdict(made(WAITS, known=known)) == ACTED


@pytest.mark.parametrize("known", [history(days=3), history(slots=SLOTS_MIN), history(less=0.21)])
def test_an_hour_is_known_from_three_days_with_half_of_its_slots(known: RecurringLoad) -> None:
    assert verdict(made(WAITS, known=known)) == (Verdict.HOLD, Reason.CHEAP_HOUR)


def test_an_hour_that_comes_later_than_the_longest_wait_is_not_waited_for() -> None:
    for hours, reason in ((2, Reason.SKEWED), (4, Reason.CHEAP_HOUR)):
        policy = PostponingPolicy(cheap_hour_wait_max_ms=hours * HOUR_MS)
        assert made(policy, known=history()).evaluation.reason is reason


def test_only_mode_apply_without_maintenance_windows_waits_for_an_hour() -> None:
    assert verdict(made(WAITS, known=history(), mode=Mode.PROPOSE)) == ACTED
    rules = replace(POLICY, postponing=WAITS, maintenance=NIGHT)
    observation = replace(observed(HOT, HOT, HOT, now_ms=NOW_MS), recurring=history())
    decision = decided(Given(proposed(movements=copying(COSTLY))), observation, policy=rules)[1]
    assert verdict(decision) == (Verdict.PLAN, Reason.MAINTENANCE_WINDOW)


BOTH = PostponingPolicy(relief_min=1.0, cheap_hour_wait_max_ms=WAIT_MAX_MS)


def test_groups_that_fall_behind_on_the_broker_make_any_plan_worth_it() -> None:
    for known, remembered in ((history(), NOTHING_REMEMBERED), (NO_HISTORY, SHORT)):
        given = Given(proposed(movements=copying(COSTLY)), behind={1: "group g lags by 9"})
        assert verdict(made(BOTH, known=known, remembered=remembered, given=given)) == ACTED


def test_drains_lost_replicas_and_crowded_racks_wait_for_nothing() -> None:
    assert verdict(made(BOTH, known=history(), remembered=SHORT, drained=frozenset({3}))) == ACTED
    lost = TriggerState(missing_since_ms=((4, 0),), evaluated_ms=NOW_MS - MINUTE_MS)
    relief = made(BOTH, known=history(), remembered=SHORT, live=AWAY, state=lost)
    assert verdict(relief) == (Verdict.PLAN, Reason.BROKER_FAILED)
    assert {Reason.NOT_WORTH_IT, Reason.CHEAP_HOUR} <= set(LEAVES_PLACEMENT)


@for_any(
    relief_min=st.floats(0, 10),
    wait_max_ms=st.integers(0, WAIT_MAX_MS),
    age_ms=st.integers(WAIT_MAX_MS, 10 * WAIT_MAX_MS),
    cheap=st.integers(0, 23),
    bytes_to_move=st.floats(1, 1e15),
)
def test_no_skew_older_than_a_day_is_left(
    relief_min: float, wait_max_ms: int, age_ms: int, cheap: int, bytes_to_move: float
) -> None:
    rules = replace(POLICY, postponing=PostponingPolicy(relief_min, wait_max_ms))
    observation = replace(observed(HOT, HOT, now_ms=NOW_MS), memory=SHORT, recurring=history(cheap=cheap))
    state, decision = decided(Given(), observation)
    plan = proposed(movements=copying(bytes_to_move)).plan
    old = replace(state, breached_since_ms=NOW_MS - age_ms, breached_broker=1, breached_resource="bytes_in")
    assert postponed(rules, old, observation, decision.evaluation, plan) is None


@for_any(st.integers(1, 100), st.lists(st.one_of(st.integers(1, 200), st.just(LASTING)), max_size=64))
def test_a_skew_is_expected_to_end_only_as_earlier_ones_did(lasted: int, ended: list[int]) -> None:
    left = windows_left(memory(*ended, lasted=lasted), "bytes_in", 1)
    longer = [length for length in ended if length >= lasted]
    if left is not None:
        assert len(longer) >= EPISODES_MIN
        assert 1 <= left <= max(1, max(length for length in longer if length < LASTING) - lasted)
        assert sum(length == LASTING for length in longer) * 2 < len(longer)


@for_any(
    now_ms=st.integers(NOW_MS, NOW_MS + 11 * HOUR_MS),
    age_ms=st.integers(0, WAIT_MAX_MS),
    wait_max_ms=st.integers(0, WAIT_MAX_MS),
    cheap=st.integers(0, 23),
    effort=st.builds(Effort, st.floats(1, 1e13), st.floats(0, 1e9)),
)
def test_a_wait_ends_in_time_and_costs_less_than_the_copies(
    now_ms: int, age_ms: int, wait_max_ms: int, cheap: int, effort: Effort
) -> None:
    policy, since_ms = PostponingPolicy(cheap_hour_wait_max_ms=wait_max_ms), now_ms - age_ms
    later = cheap_hour(policy, history(cheap=cheap), "bytes_in", effort, now_ms=now_ms, since_ms=since_ms)
    begins_ms = next(ms for ms in range(NOW_MS, NOW_MS + 2 * DAY_MS, HOUR_MS) if is_next(ms, now_ms, cheap))
    if later is not None:
        assert now_ms < begins_ms <= since_ms + wait_max_ms
        assert effort.relieved_bytes(begins_ms - now_ms) <= effort.bytes_to_move
        assert f"{cheap:02d}:00 UTC" in later.detail


def is_next(ms: int, now_ms: int, cheap: int) -> bool:
    return ms > now_ms and ms % DAY_MS == cheap * HOUR_MS


@for_any(st.floats(0, 10), st.floats(0, 1e9), st.builds(Effort, st.floats(1, 1e13), st.floats(0, 1e9)))
def test_what_relieves_the_broker_of_enough_is_worth_it(relief_min: float, left_ms: float, effort: Effort) -> None:
    policy = PostponingPolicy(relief_min=relief_min)
    costly = not_worth_its_bytes(policy, left_ms, effort)
    assert (costly is None) == (effort.relieved_bytes(left_ms) >= relief_min * effort.bytes_to_move)
    assert not_worth_its_bytes(policy, None, effort) is None


@pytest.mark.parametrize(
    ("relief_min", "wait_max_ms"), [(-0.1, 0), (float("nan"), 0), (float("inf"), 0), (0.1, -1), (0.1, WAIT_MAX_MS + 1)]
)
def test_limits_outside_their_range_are_refused(relief_min: float, wait_max_ms: int) -> None:
    with pytest.raises(InputError, match=r"must be"):
        PostponingPolicy(relief_min, wait_max_ms)


def test_limits_are_named_with_what_was_given() -> None:
    with pytest.raises(InputError, match=r"^relief_min must be a number of 0 or more, found -0\.5$"):
        PostponingPolicy(-0.5)
    with pytest.raises(InputError, match=r"^cheap_hour_wait_max_ms must be from 0 to 86400000, found -7$"):
        PostponingPolicy(cheap_hour_wait_max_ms=-7)
    assert PostponingPolicy() == PostponingPolicy(0.0, 0)
    assert [policy.is_off for policy in (PostponingPolicy(), WORTH, WAITS)] == [True, False, False]


def test_the_median_of_five_skews_that_lasted_as_long_is_what_is_left() -> None:
    assert windows_left(memory(*[3] * 5), "bytes_in", 1) == 1
    assert windows_left(memory(*[9] * 5, 2), "bytes_in", 1) == 6
    assert windows_left(memory(*[9] * 4, 2), "bytes_in", 1) is None


def test_a_plan_that_relieves_of_just_enough_is_worth_it() -> None:
    assert Effort(20.0, 5.0).relieved_bytes(2_000) == 10.0
    assert not_worth_its_bytes(PostponingPolicy(relief_min=0.5), 2_000, Effort(20.0, 5.0)) is None
    costly = not_worth_its_bytes(PostponingPolicy(relief_min=0.51), 6_000_000_000, Effort(1e16, 1e6))
    assert costly is not None
    assert "within 100000 min more here" in costly.detail


def waits_for(known: RecurringLoad, effort: Effort = EFFORT, wait_max_ms: int = WAIT_MAX_MS) -> str | None:
    """The hour that a plan waits for at noon, as its detail names it, for a skew that has just begun."""
    policy = PostponingPolicy(cheap_hour_wait_max_ms=wait_max_ms)
    later = cheap_hour(policy, known, "bytes_in", effort, now_ms=NOW_MS, since_ms=NOW_MS)
    return None if later is None else later.detail.split("copied from ")[1].split(", with")[0]


def days_of(loads: dict[int, dict[int, float]]) -> RecurringLoad:
    """By day, counted back from today: the load of hours that differ from 2."""
    rows = {
        TODAY - back: DayLoad({slot: hours.get(slot // HOUR_SLOTS, 2.0) for slot in range(DAY_SLOTS)})
        for back, hours in loads.items()
    }
    return RecurringLoad(days={"bytes_in": rows})


def test_a_plan_waits_for_one_of_the_23_hours_after_this_one() -> None:
    assert waits_for(history(cheap=13)) == "13:00 UTC, in 1.0 h"
    assert waits_for(history(cheap=11)) == "11:00 UTC, in 23.0 h"
    assert waits_for(history(cheap=14), wait_max_ms=2 * HOUR_MS) == "14:00 UTC, in 2.0 h"
    assert waits_for(history(cheap=15), wait_max_ms=2 * HOUR_MS) is None
    # The same hour of tomorrow has less load by what today has shown.
    assert waits_for(days_of({0: {12: 0.5}, 1: {12: 0.5}, 2: {}, 3: {}, 4: {}})) is None


def test_the_load_of_an_hour_is_known_from_the_four_days_before() -> None:
    rows: dict[int, dict[int, float]] = {back: {15: 1.0} for back in range(1, 6)}
    assert waits_for(days_of({back: rows[back] for back in (1, 3, 4)})) == "15:00 UTC, in 3.0 h"
    assert waits_for(days_of({back: rows[back] for back in (3, 4, 5)})) is None
    assert waits_for(history(slots=3)) == "15:00 UTC, in 3.0 h"
    assert waits_for(history(slots=2)) is None


def test_what_costs_as_much_as_it_saves_waits() -> None:
    relieved_bytes = EFFORT.relieved_bytes(3 * HOUR_MS)
    assert waits_for(history(), Effort(relieved_bytes, 1e6)) == "15:00 UTC, in 3.0 h"
    assert waits_for(history(), Effort(relieved_bytes - 1, 1e6)) is None


def test_nothing_waits_in_an_hour_whose_own_load_is_not_known() -> None:
    rows = history().days["bytes_in"]
    known = {day: {slot: load for slot, load in row.mean_load.items() if slot // 6 != 12} for day, row in rows.items()}
    assert waits_for(RecurringLoad(days={"bytes_in": {day: DayLoad(row) for day, row in known.items()}})) is None


def seen(*loads: float) -> tuple[Observation, TriggerState, Evaluation]:
    """Skewed windows with these mean loads, oldest first, and the decision on them."""
    observation = replace(observed(*[HOT] * len(loads), now_ms=NOW_MS), memory=SHORT)
    skews = tuple(
        replace(row, mean_load={"bytes_in": load} if load else {})
        for row, load in zip(observation.skews, loads, strict=True)
    )
    state, decision = decided(Given(), observation)
    state = replace(state, breached_since_ms=NOW_MS - 1, breached_broker=1, breached_resource="bytes_in")
    return replace(observation, skews=skews), state, decision.evaluation


def test_the_load_that_counts_is_that_of_the_newest_window_and_an_unknown_one_is_none() -> None:
    rules = replace(POLICY, postponing=WORTH)
    plan = proposed(movements=copying(COSTLY)).plan
    observation, state, evaluation = seen(9e6, 9e6, 9e6, 2e6)
    held = postponed(rules, state, observation, evaluation, plan)
    assert held is not None
    assert held.detail.endswith("it relieves the broker of 1.7 GB")
    # Two hundred bytes would be enough here, less than a load of one byte a second brings.
    lenient = replace(POLICY, postponing=PostponingPolicy(relief_min=1e-10))
    observation, state, evaluation = seen(2e6, 2e6, 2e6, 0.0)
    assert postponed(lenient, state, observation, evaluation, plan) is not None


def test_a_skew_that_is_a_day_old_is_no_longer_postponed() -> None:
    rules = replace(POLICY, postponing=WORTH)
    plan = proposed(movements=copying(COSTLY)).plan
    observation, state, evaluation = seen(2e6, 2e6, 2e6, 2e6)
    day_old = replace(state, breached_since_ms=NOW_MS - WAIT_MAX_MS)
    assert postponed(rules, day_old, observation, evaluation, plan) is None
    assert postponed(rules, replace(day_old, breached_since_ms=NOW_MS - WAIT_MAX_MS + 1), observation, evaluation, plan)
    for unknown in (replace(state, breached_broker=None), replace(state, breached_since_ms=None)):
        assert postponed(rules, unknown, observation, evaluation, plan) is None
    assert postponed(rules, state, observation, replace(evaluation, resource="disk"), plan) is None
    assert postponed(rules, state, observation, evaluation, replace(plan, movements=copying(0.0))) is None


def test_a_resource_that_no_broker_shows_is_no_reason_to_move() -> None:
    unknown = Evaluation(Verdict.PLAN, Reason.SKEWED, "", "disk", 1.5)
    assert not_worth_it(proposed(), unknown, 0.0, 0.0) == (
        "max/mean of disk is not known: no broker shows the sizes of its logs"
    )


def test_noise_is_what_is_remembered_only_where_the_detector_asks_for_it() -> None:
    levels = levels_of(noisy(600, noise=0.10, memory=0.6))
    observation, state, evaluation = seen(2e6, 2e6, 2e6, 2e6)
    observation = replace(observation, memory=LoadMemory(levels={"bytes_in": levels}))
    by_detector = {
        detector: gain_of_noise(
            replace(POLICY, trigger=replace(POLICY.trigger, detector=detector)), state, observation, evaluation, 3
        )
        for detector in Detector
    }
    assert by_detector[Detector.NOISE] > 0.05
    assert by_detector[Detector.WINDOWS] == 0.0, "the windows themselves are equal"
