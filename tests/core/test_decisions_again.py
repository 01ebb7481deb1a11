"""Decisions made again on windows to follow by head; a whole fortnight is in `tests/control`."""

from assignor_core.deciding.policy import DecisionPolicy, Mode, TriggerPolicy
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.replays.recorded_decisions import Decided, decided_again
from assignor_core.resources import Resource

MINUTE_MS = 60_000
POLICY = DecisionPolicy(
    trigger=TriggerPolicy(windows_over=2, windows_considered=3), mode=Mode.APPLY, resources=(Resource.BYTES_IN,)
)
EVEN, HOT = {1: 1e6, 2: 1e6, 3: 1e6}, {1: 3e6, 2: 1e6, 3: 1e6}


def windows(*loads: dict[int, float]) -> list[ClosedWindow]:
    return [
        ClosedWindow(index * MINUTE_MS, (index + 1) * MINUTE_MS, frozenset(row), {"bytes_in": row})
        for index, row in enumerate(loads)
    ]


def past(*reasons: Reason) -> list[Decided]:
    """Decisions a second after each window."""
    plans = (Reason.SKEWED, Reason.BROKER_FAILED)
    rows = []
    for number, reason in enumerate(reasons, start=1):
        verdict = Verdict.PLAN if reason in plans else Verdict.HOLD
        rows.append(Decided(number * MINUTE_MS + 1_000, number * MINUTE_MS, verdict, reason))
    return rows


def again(*loads: dict[int, float], then: list[Decided], changed_ms: tuple[int, ...] = ()) -> list[str]:
    return [row.reason.value for row in decided_again(windows(*loads), then, POLICY, changed_ms=changed_ms)]


def test_a_plan_is_made_again_and_its_cooldown_runs() -> None:
    then = past(Reason.NOT_ENOUGH_WINDOWS, Reason.SKEWED, Reason.COOLDOWN)
    assert again(HOT, HOT, HOT, then=then) == ["not_enough_windows", "skewed", "cooldown"]


def test_no_window_from_before_a_move_counts() -> None:
    then = past(*[Reason.BALANCED] * 3)
    assert again(HOT, HOT, EVEN, then=then[2:], changed_ms=(2 * MINUTE_MS,)) == ["balanced"]
    assert again(HOT, HOT, HOT, then=then[2:], changed_ms=(2 * MINUTE_MS,)) == ["not_enough_windows"]
    assert again(HOT, HOT, HOT, then=then[2:], changed_ms=(10 * MINUTE_MS,)) == ["skewed"], "not moved yet"


def test_what_the_planner_found_stays_as_it_was() -> None:
    for found in (Reason.MIN_GAIN, Reason.LOADS_DISAGREE):
        assert again(HOT, HOT, then=past(Reason.NOT_ENOUGH_WINDOWS, found))[1] == found.value


def test_what_windows_do_not_show_stays_as_it_was_with_its_cooldown() -> None:
    then = past(Reason.NOT_ENOUGH_WINDOWS, Reason.BROKER_FAILED, Reason.SKEWED)
    assert again(HOT, HOT, HOT, then=then) == ["not_enough_windows", "broker_failed", "cooldown"]


def test_a_decision_whose_windows_are_no_longer_kept_stays_as_it_was() -> None:
    assert decided_again([], past(Reason.SKEWED), POLICY, changed_ms=()) == past(Reason.SKEWED)


def test_a_broker_that_was_being_drained_then_counts_from_its_end_on() -> None:
    """It was empty and counted for nothing: with it the others are above the mean."""
    emptied = {**EVEN, 4: 0.0}
    then = past(*[Reason.BALANCED] * 4)

    def drained_at(at_ms: int) -> frozenset[int]:
        return frozenset({4}) if at_ms < 3 * MINUTE_MS else frozenset()

    assert again(*[emptied] * 4, then=then)[1] == "skewed", "a plan would fill it"
    rows = decided_again(windows(*[emptied] * 4), then, POLICY, changed_ms=(), drained_at=drained_at)
    assert [row.reason.value for row in rows] == ["balanced", "balanced", "skewed", "cooldown"]
