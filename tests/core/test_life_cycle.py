"""The life of an execution: each listed pair, each other one, and what follows from any legal history."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.errors import IllegalTransition
from assignor_core.execution.caution import SkewOutcome
from assignor_core.execution.events import ABORT_SEQUENCE, Event, EventRecord, Figures
from assignor_core.execution.life_cycle import (
    ENDED,
    ENDING_EVENTS,
    FIRST_PHASES,
    TRANSITIONS,
    Execution,
    Phase,
    begin,
    fold,
    in_focus,
)
from assignor_core.resources import Resource

FIGURES = Figures(movements_total=3, bytes_total=1_000)
NUMBERED = tuple(event for event in Event if event is not Event.ABORT_REQUESTED)


def record(event: Event, sequence: int, at_ms: int, figures: Figures = FIGURES) -> EventRecord:
    return EventRecord(event, sequence, at_ms, event.value, figures)


def history(*events: tuple[Event, int]) -> Execution:
    """An execution with these events at these times, ms."""
    records = [record(event, sequence, at_ms) for sequence, (event, at_ms) in enumerate(events)]
    return fold("e", "p", records)


def asked_to_abort(execution: Execution, at_ms: int) -> Execution:
    return execution.after(record(Event.ABORT_REQUESTED, ABORT_SEQUENCE, at_ms))


@st.composite
def legal_records(draw: st.DrawFn) -> list[EventRecord]:
    """Numbered events of an execution at times that grow, as far as the history has come."""
    event = draw(st.sampled_from(sorted(FIRST_PHASES)))
    phase, at_ms = FIRST_PHASES[event], draw(st.integers(0, 10))
    records = [record(event, 0, at_ms)]
    for sequence in range(1, draw(st.integers(1, 12))):
        following = [event for event in NUMBERED if (phase, event) in TRANSITIONS]
        if not following:
            break
        event = draw(st.sampled_from(following))
        phase, at_ms = TRANSITIONS[phase, event], at_ms + draw(st.integers(0, 100))
        records.append(record(event, sequence, at_ms))
    return records


def test_an_execution_begins_with_an_approval_or_a_refusal_alone() -> None:
    for event in set(Event) - FIRST_PHASES.keys():
        with pytest.raises(IllegalTransition, match=r"event 0 .* can't be the first of an execution"):
            begin("e", "p", record(event, 0, 1))
    with pytest.raises(IllegalTransition, match=r"event 1 \(approved\) can't be the first"):
        begin("e", "p", record(Event.APPROVED, 1, 0))


def test_requests_to_abort_keep_the_number_that_tables_hold() -> None:
    assert ABORT_SEQUENCE == 1_000_000


def test_what_ends_an_execution_is_listed() -> None:
    assert {Event.REFUSED, Event.DONE, Event.ABORTED} == ENDING_EVENTS


@given(legal_records())
def test_an_event_that_cannot_follow_changes_nothing(records: list[EventRecord]) -> None:
    execution = fold("e", "p", records)
    for event in NUMBERED:
        if (execution.stage, event) not in TRANSITIONS:
            with pytest.raises(IllegalTransition):
                execution.after(record(event, len(records), records[-1].at_ms))
    with pytest.raises(IllegalTransition):
        execution.after(record(Event.PROGRESS, len(records) + 1, records[-1].at_ms))
    assert execution == fold("e", "p", records)


@pytest.mark.long
@given(legal_records(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(records: list[EventRecord], chance: random.Random) -> None:
    shuffled = list(records)
    chance.shuffle(shuffled)
    assert fold("e", "p", shuffled) == fold("e", "p", records)


@given(legal_records())
def test_a_process_that_is_killed_anywhere_leaves_what_the_next_one_goes_on_with(records: list[EventRecord]) -> None:
    for length in range(1, len(records)):
        taken_up = fold("e", "p", records[:length])
        assert taken_up.after(*records[length:]) == fold("e", "p", records)
        if taken_up.ended:
            assert taken_up.end == fold("e", "p", records).end, "an end is for good"


@given(legal_records(), st.data())
def test_a_request_to_abort_is_the_same_whenever_it_arrives(records: list[EventRecord], data: st.DataObject) -> None:
    length = data.draw(st.integers(1, len(records)))
    at_once = asked_to_abort(fold("e", "p", records[:length]), 7).after(*records[length:])
    assert at_once == asked_to_abort(fold("e", "p", records), 7)
    assert asked_to_abort(at_once, 9) == at_once, "the earliest counts"
    assert at_once.phase is (at_once.stage if at_once.ended else Phase.ABORTING)


@given(legal_records())
def test_phases_exclude_each_other_and_times_fit(records: list[EventRecord]) -> None:
    execution = fold("e", "p", records)
    now_ms = records[-1].at_ms + 50
    assert [execution.waiting, execution.under_way, execution.paused, execution.ended].count(True) == 1
    assert execution.in_progress == (execution.started_ms is not None and not execution.ended)
    assert execution.ended == (execution.stage in ENDED) == (execution.end is not None)
    assert 0 <= execution.worked_ms(now_ms) <= now_ms - execution.approved_ms
    assert execution.approved_ms <= execution.since_ms <= now_ms
    assert execution.started_ms is None or execution.started_ms >= execution.approved_ms
    assert execution.acted_ms <= records[-1].at_ms
    assert not (execution.failed and execution.done_ms is not None)
    assert execution.to_be_measured == (execution.done_ms is not None and execution.measured is None)


def test_waiting_for_its_turn_uses_nothing_of_its_time() -> None:
    """An approval may stand for hours behind another execution: its deadline begins with its own start."""
    waiting = history((Event.APPROVED, 0))
    started = waiting.after(record(Event.STARTED, 1, 7_200_000))
    assert (started.worked_ms(7_200_500), started.since_ms) == (500, 7_200_000)


def test_the_life_of_one_that_pauses() -> None:
    paused = history((Event.APPROVED, 0), (Event.STARTED, 1_000), (Event.SUBMITTED, 2_000), (Event.PAUSED, 5_000))
    assert (paused.phase, paused.under_way, paused.worked_ms(9_000)) == (Phase.PAUSED, False, 4_000)
    resumed = paused.after(record(Event.RESUMED, 4, 20_000))
    assert (resumed.phase, resumed.since_ms, resumed.worked_ms(21_000)) == (Phase.UNDER_WAY, 20_000, 5_000)
    done = resumed.after(record(Event.DONE, 5, 30_000))
    assert (done.started_ms, done.done_ms, done.ended_ms, done.to_be_measured) == (1_000, 30_000, 30_000, True)
    measured = done.after(record(Event.MEASURED, 6, 40_000))
    assert (measured.acted_ms, measured.to_be_measured, measured.done_ms) == (30_000, False, 30_000)


def test_one_that_is_paused_and_asked_to_abort_is_under_way() -> None:
    paused = history((Event.APPROVED, 0), (Event.STARTED, 1_000), (Event.PAUSED, 5_000))
    asked = asked_to_abort(paused, 6_000)
    assert (asked.phase, asked.under_way, asked.paused) == (Phase.ABORTING, True, True)
    assert (asked.last_event, asked.shown.event) == (Event.PAUSED, Event.ABORT_REQUESTED)
    ended = asked.after(record(Event.ABORTED, 3, 7_000))
    assert (ended.phase, ended.under_way, ended.shown.event, ended.failed) == (
        Phase.ABORTED, False, Event.ABORTED, True,
    )  # fmt: skip
    assert [row.event for row in ended.history[-2:]] == [Event.ABORT_REQUESTED, Event.ABORTED]


def test_what_comes_with_a_request_to_abort_is_not_lost() -> None:
    under_way = history((Event.APPROVED, 0), (Event.STARTED, 1_000))
    requests = [record(Event.ABORT_REQUESTED, ABORT_SEQUENCE, at_ms) for at_ms in (3_000, 2_000)]
    ended = under_way.after(*requests, record(Event.ABORTED, 2, 4_000))
    assert (ended.phase, ended.abort_request, ended.last_event) == (Phase.ABORTED, requests[1], Event.ABORTED)
    assert [row.at_ms for row in ended.history] == [0, 1_000, 2_000, 4_000]


def test_what_can_not_follow_is_named_with_what_can() -> None:
    under_way = history((Event.APPROVED, 0), (Event.STARTED, 1_000))
    with pytest.raises(IllegalTransition, match="event 4 can't follow: the next one is 2"):
        under_way.after(record(Event.PROGRESS, 4, 2_000))


def test_what_is_not_known_of_an_execution_is_nothing() -> None:
    assert Figures(1, 5) == Figures(movements_total=1, bytes_total=5, movements_done=0, bytes_moved=0)
    waiting = history((Event.APPROVED, 0))
    assert (waiting.throttled_brokers, waiting.in_windows_only, waiting.owes) == ((), False, False)
    assert (waiting.begun_ms, waiting.started_ms, waiting.ended_ms, waiting.done_ms) == (0, None, None, None)
    in_windows = begin("e", "p", record(Event.APPROVED, 0, 0, Figures(1, 5, in_windows_only=True)))
    assert in_windows.in_windows_only is True


def test_an_end_may_leave_a_throttle_behind() -> None:
    under_way = history((Event.APPROVED, 0), (Event.STARTED, 1_000))
    down = Figures(3, 1_000, throttled_brokers=(2,))
    aborted = under_way.after(record(Event.ABORTED, 2, 2_000, down))
    assert (aborted.owes, aborted.throttled_brokers) == (True, (2,))
    swept = aborted.after(record(Event.SWEPT, 3, 3_000, Figures(3, 1_000, throttled_brokers=())))
    assert (swept.owes, swept.end, swept.phase) == (False, aborted.last, Phase.ABORTED)


def test_an_outcome_is_that_of_the_load_with_the_greatest_promise() -> None:
    done = history((Event.APPROVED, 0), (Event.STARTED, 1), (Event.DONE, 2))
    assert done.outcome is None
    figures = Figures(
        3,
        1_000,
        before={Resource.BYTES_IN: 1.5, Resource.DISK: 1.2, Resource.LEADERS: 3.0},
        predicted={Resource.BYTES_IN: 1.1, Resource.DISK: 1.1, Resource.LEADERS: 1.0},
        measured={Resource.BYTES_IN: 1.2, Resource.LEADERS: 1.0},
    )
    assert done.after(record(Event.MEASURED, 3, 3, figures)).outcome == SkewOutcome(1.5, 1.1, 1.2)
    assert figures.carried().measured == {}


def test_the_newest_that_is_under_way_is_in_focus_else_the_newest() -> None:
    ended = history((Event.APPROVED, 0), (Event.STARTED, 1), (Event.DONE, 2))
    working = history((Event.APPROVED, 3), (Event.STARTED, 4))
    waiting = history((Event.APPROVED, 5))
    assert in_focus([]) is None
    assert in_focus([ended, working, waiting]) is working
    assert in_focus([ended, working, asked_to_abort(waiting, 6)]) is working
    assert in_focus([ended, waiting]) is waiting
    assert in_focus([waiting, ended, working.after(record(Event.PAUSED, 2, 7)), ended]) is ended
    assert in_focus([ended, working.after(record(Event.PAUSED, 2, 7)), waiting]) is waiting


def test_nothing_but_the_completing_approval_lets_an_execution_start() -> None:
    pending = history((Event.ENDORSED, 0))
    assert (pending.phase, pending.waiting, pending.needs_approval) == (Phase.PENDING, True, True)
    assert not pending.may_begin(1)
    with pytest.raises(IllegalTransition, match="event started can't follow in phase pending"):
        pending.after(record(Event.STARTED, 1, 1))
    asked = asked_to_abort(pending, 1)
    assert (asked.phase, asked.needs_approval) == (Phase.ABORTING, False)
    assert pending.after(record(Event.APPROVED, 1, 1)).may_begin(1)


def test_an_execution_may_begin_from_its_time_on() -> None:
    dated = begin("e", "p", record(Event.APPROVED, 0, 0, Figures(1, 5, begins_ms=100, approver="ann")))
    assert [dated.may_begin(at_ms) for at_ms in (99, 100, 101)] == [False, True, True]
    assert not asked_to_abort(dated, 50).may_begin(100)
    assert dated.figures.carried() == Figures(1, 5, begins_ms=100), "the approver belongs to one event"


def test_a_clock_that_is_set_back_does_not_put_off_the_deadline() -> None:
    """What a clock that was a day ahead has dated counts as nothing: the work counts from the first event after."""
    day_ms, figures = 86_400_000, Figures(1, 5)
    times = (
        (Event.STARTED, day_ms),
        (Event.SUBMITTED, day_ms + 1_000),
        (Event.PROGRESS, 2_000),
        (Event.PROGRESS, 9_000),
    )
    records = [EventRecord(event, number, at_ms, "", figures) for number, (event, at_ms) in enumerate(times, 1)]
    execution = begin("e", "p", EventRecord(Event.APPROVED, 0, day_ms, "", figures)).after(*records)
    assert (execution.worked_ms(2_000), execution.worked_ms(9_000), execution.worked_ms(10_500)) == (0, 7_000, 8_500)
