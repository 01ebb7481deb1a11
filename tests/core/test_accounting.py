"""How far an execution has come, by its events and on the brokers, and which throttle rates come next."""

from dataclasses import replace
from typing import Any

import pytest

from assignor_core.execution.accounting import bytes_moved, movements_done, remaining
from assignor_core.execution.adaptive_rates import (
    ADAPT_INTERVAL_MS,
    RatePolicy,
    RateState,
    adapted,
    differs,
    rates_are_due,
    wanted_rates,
)
from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.execution.life_cycle import Execution, begin
from assignor_core.execution.progress import Progress
from assignor_core.execution.seen_movements import SeenSoFar, seen_movements
from assignor_core.plan import Movement, Plan

KEYS = ("a", "b", "c")
PLAN = Plan("c", tuple(Movement("t", number, (1,), (2,), 100.0) for number in range(4)))


def test_bytes_of_finished_movements_and_what_receivers_hold_count() -> None:
    progress = {
        ("t", 0): Progress.DONE,
        ("t", 1): Progress.PLACED,
        ("t", 2): Progress.MOVING,
        ("t", 3): Progress.GONE,
    }
    sizes = {(2, ("t", 2)): 30, (1, ("t", 2)): 100, (2, ("t", 3)): 50}
    assert movements_done(progress) == 2
    assert movements_done(progress | {("t", 4): Progress.NOT_ELECTED}) == 3
    assert bytes_moved(PLAN, progress, sizes) == 100 + 100 + 30
    assert bytes_moved(PLAN, progress, {(2, ("t", 2)): 500}) == 300, "no more than the plan says"
    assert bytes_moved(PLAN, progress, {}) == 100 + 100, "a replica that no broker shows holds nothing"


@pytest.mark.parametrize(
    ("moved", "total", "now_ms", "expected"),
    [
        (250, 1_000, 10_000, "25% of 1,000 bytes, about 30 s left"),
        (0, 1_000, 10_000, ""),
        (0, 0, 10_000, ""),
        (250, 1_000, 0, ""),
        (1, 2, 1, "50% of 2 bytes, about 0 s left"),
        (250, 1_000_000, 10_000, "0% of 1,000,000 bytes, about 39,990 s left"),
        (1_000, 1_000, 10**9, "all of 1,000 bytes copied"),
    ],
)
def test_the_rest_takes_as_long_as_the_pace_so_far_says(moved: int, total: int, now_ms: int, expected: str) -> None:
    assert remaining(_under_way((now_ms, moved), bytes_total=total)) == expected


def test_while_it_waits_what_is_left_does_not_grow() -> None:
    copied = [(5_000, 100), (10_000, 250)]
    expected = "25% of 1,000 bytes, about 30 s left"
    assert remaining(_under_way(*copied, bytes_total=1_000)) == expected
    assert remaining(_under_way(*copied, (3_600_000, 250), (3_610_000, 250), bytes_total=1_000)) == expected
    assert remaining(_under_way(*copied, (20_000, 250), (30_000, 300), bytes_total=1_000)).endswith("about 70 s left")


def test_neither_do_its_pauses_count() -> None:
    paused = _under_way((10_000, 250), bytes_total=1_000).after(
        EventRecord(Event.PAUSED, 3, 20_000, "", Figures(4, 1_000, bytes_moved=250))
    )
    assert remaining(paused) == "25% of 1,000 bytes, about 30 s left"
    on = paused.after(
        EventRecord(Event.RESUMED, 4, 100_000, "", Figures(4, 1_000, bytes_moved=250)),
        EventRecord(Event.PROGRESS, 5, 110_000, "", Figures(4, 1_000, bytes_moved=500)),
    )
    assert remaining(on) == "50% of 1,000 bytes, about 30 s left"


def test_what_an_earlier_execution_of_the_plan_has_made_is_no_pace_of_this_one() -> None:
    figures = Figures(movements_total=4, bytes_total=1_000)
    events = [(Event.STARTED, 0, 0), (Event.SUBMITTED, 1_000, 500), (Event.PROGRESS, 10_000, 500)]
    again = begin("e", "p", EventRecord(Event.APPROVED, 0, 0, "", figures)).after(
        *(
            EventRecord(event, number, at_ms, "", replace(figures, bytes_moved=moved))
            for number, (event, at_ms, moved) in enumerate(events, start=1)
        )
    )
    assert remaining(again) == "", "nothing was copied yet, so nobody knows how fast that goes"
    further = EventRecord(Event.PROGRESS, 4, 20_000, "", replace(figures, bytes_moved=600))
    assert remaining(again.after(further)) == "60% of 1,000 bytes, about 80 s left"


def _under_way(*copied: tuple[int, int], bytes_total: int) -> Execution:
    """Started at 0; then events, each with its time and the bytes that had been moved by then."""
    figures = Figures(movements_total=4, bytes_total=bytes_total)
    events = ((Event.STARTED, 0, 0), *((Event.PROGRESS, at_ms, moved) for at_ms, moved in copied))
    return begin("e", "p", EventRecord(Event.APPROVED, 0, 0, "", figures)).after(
        *(
            EventRecord(event, number, at_ms, "", replace(figures, bytes_moved=moved))
            for number, (event, at_ms, moved) in enumerate(events, start=1)
        )
    )


def test_rates_halve_under_pressure_recover_without_and_stay_within_their_bounds() -> None:
    policy, state = RatePolicy(1_000, 100, adaptive=True), RateState()
    brokers = frozenset({1, 2})
    assert wanted_rates(state, policy, brokers, {2: 500.0}) == {1: 1_000, 2: 400}
    pressed = adapted(state, policy, pressed=True, now_ms=10_000)
    assert wanted_rates(pressed, policy, brokers, {2: 500.0}) == {1: 500, 2: 200}
    assert (rates_are_due(pressed, policy, now_ms=19_999), rates_are_due(pressed, policy, now_ms=20_000)) == (
        False,
        True,
    )
    for _ in range(10):
        pressed = adapted(pressed, policy, pressed=True, now_ms=20_000)
    assert wanted_rates(pressed, policy, brokers, {2: 500.0}) == {1: 100, 2: 100}
    for _ in range(20):
        pressed = adapted(pressed, policy, pressed=False, now_ms=30_000)
    assert wanted_rates(pressed, policy, brokers, {}) == {1: 1_000, 2: 1_000}


def test_a_least_rate_above_the_setting_is_the_setting() -> None:
    policy = RatePolicy(rate_max=100, rate_min=1_000, adaptive=True)
    assert policy.factor_min == 1.0
    assert wanted_rates(RateState(), policy, frozenset({1}), {1: 5.0}) == {1: 100}


def test_the_first_look_comes_after_one_interval() -> None:
    policy = RatePolicy(1_000, 100, adaptive=True)
    assert not rates_are_due(RateState(), policy, now_ms=ADAPT_INTERVAL_MS - 1)
    assert rates_are_due(RateState(), policy, now_ms=ADAPT_INTERVAL_MS)


def test_a_throttle_that_is_not_adaptive_is_the_setting_to_the_end() -> None:
    policy = RatePolicy(1_000, 100, adaptive=False)
    assert not rates_are_due(RateState(), policy, now_ms=10**9)
    assert wanted_rates(RateState(factor=0.1), policy, frozenset({1}), {1: 5.0}) == {1: 1_000}


def test_a_rate_that_a_broker_refused_differs_until_it_is_sent() -> None:
    assert differs(RateState(), {1: 100})
    assert differs(RateState(), {1: 1})
    assert not differs(RateState(sent={1: 95}), {1: 100})
    assert differs(RateState(sent={1: 94}), {1: 100})


def execution(*events: tuple[Event, dict[str, Any]]) -> Execution:
    """Approved, started, and then these with their figures; each a second after the one before."""
    told = [(Event.APPROVED, {}), (Event.STARTED, {}), *events]
    records = [EventRecord(event, i, 1_000 * i, "", Figures(3, 5, **own)) for i, (event, own) in enumerate(told)]
    return begin("e", "p", records[0]).after(*records[1:])


def states(one: Execution) -> list[str]:
    seen = seen_movements(one)
    return [str(seen.state(place)) for place in range(3)]


def test_an_event_adds_what_is_new_and_takes_back_what_others_undid() -> None:
    seen = SeenSoFar()
    progress = dict(zip(KEYS, (Progress.DONE, Progress.MOVING, Progress.PENDING), strict=True))
    first = seen.changes(execution(), KEYS, progress)
    assert first == {"movements_made": (0,), "movements_undone": (), "movements_under_way": (1,)}
    known = execution((Event.PROGRESS, first))
    assert seen.changes(known, KEYS, progress)["movements_made"] == (), "each is named once"
    missed = seen.changes(known, KEYS, progress | {"a": Progress.MISSING, "b": Progress.PLACED})
    assert missed == {"movements_made": (1,), "movements_undone": (), "movements_under_way": ()}
    undone = seen.changes(known, KEYS, progress | {"a": Progress.FOREIGN})
    assert (undone["movements_made"], undone["movements_undone"]) == ((), (0,))
    assert SeenSoFar().changes(known, KEYS, progress)["movements_made"] == (), "the next process knows it, too"
    back = execution((Event.PROGRESS, first), (Event.PROGRESS, undone), (Event.PROGRESS, first))
    assert seen_movements(back).made_ms == {0: 4_000}


def test_where_a_movement_stands() -> None:
    under_way = execution((Event.PROGRESS, {"movements_made": (0,), "movements_under_way": (1,)}))
    assert states(under_way) == ["made", "under_way", "waiting"]
    assert states(execution()) == ["waiting"] * 3
    made = {"movements_made": (0,), "movements_done": 1}
    assert states(execution((Event.PROGRESS, made), (Event.ABORTED, {"movements_done": 1}))) == [
        "made", "not_made", "not_made",
    ]  # fmt: skip
    assert states(execution((Event.ABORTED, {}))) == ["not_made"] * 3


def test_what_an_earlier_version_carried_out_is_known_only_where_all_or_nothing_was_made() -> None:
    for event, done, expected in (
        (Event.PROGRESS, 2, "unknown"), (Event.ABORTED, 2, "unknown"), (Event.ABORTED, 0, "not_made"),
        (Event.DONE, 3, "made"), (Event.DONE, 2, "unknown"),
    ):  # fmt: skip
        assert states(execution((event, {"movements_done": done}))) == [expected] * 3
