"""The life of an execution: its phases, the only ways from one to another, and what follows from its events.

All transitions live here; a pair that is not in the table raises and changes nothing. This file knows neither tables
nor the cluster: where a movement stands is read off the cluster (see `reconcile`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from assignor_core.errors import IllegalTransition
from assignor_core.execution.caution import SkewOutcome, judged_by
from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.throttles import is_tagged


class Phase(StrEnum):
    """Phase of an execution, from its approval to its end."""

    PENDING = "pending"
    """Approved by fewer people than have to approve it."""
    WAITING = "waiting"
    """Approved, and not started."""
    UNDER_WAY = "under way"
    PAUSED = "paused"
    """Waits for a maintenance window, or for a person, with nothing of it on the cluster."""
    ABORTING = "aborting"
    """Asked to stop; control ends it at its next tick. Follows from the request: the table has no such phase."""
    REFUSED = "refused"
    DONE = "done"
    """Carried out; the result is not measured yet."""
    MEASURED = "measured"
    """Carried out, and the result is measured."""
    ABORTED = "aborted"


_AT_WORK = (Event.SUBMITTED, Event.PROGRESS, Event.ELECTING)
_STAGES = tuple(phase for phase in Phase if phase is not Phase.ABORTING)

FIRST_PHASES: Mapping[Event, Phase] = {
    Event.ENDORSED: Phase.PENDING,
    Event.APPROVED: Phase.WAITING,
    Event.REFUSED: Phase.REFUSED,
}
"""What the first event of an execution may be, and the phase it begins."""

TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    # Nothing leads from here to a start but the event of the approval that completes the number.
    (Phase.PENDING, Event.ENDORSED): Phase.PENDING,
    (Phase.PENDING, Event.APPROVED): Phase.WAITING,
    (Phase.PENDING, Event.REFUSED): Phase.REFUSED,
    (Phase.PENDING, Event.ABORTED): Phase.ABORTED,
    (Phase.WAITING, Event.STARTED): Phase.UNDER_WAY,
    (Phase.WAITING, Event.REFUSED): Phase.REFUSED,
    (Phase.WAITING, Event.ABORTED): Phase.ABORTED,
    **{(Phase.UNDER_WAY, event): Phase.UNDER_WAY for event in _AT_WORK},
    (Phase.UNDER_WAY, Event.PAUSED): Phase.PAUSED,
    (Phase.UNDER_WAY, Event.DONE): Phase.DONE,
    (Phase.UNDER_WAY, Event.ABORTED): Phase.ABORTED,
    (Phase.PAUSED, Event.RESUMED): Phase.UNDER_WAY,
    (Phase.PAUSED, Event.ABORTED): Phase.ABORTED,
    (Phase.DONE, Event.MEASURED): Phase.MEASURED,
    **{(phase, Event.SWEPT): phase for phase in (Phase.DONE, Phase.MEASURED, Phase.ABORTED)},
    # A request may come at any time, even just after the end: it moves nothing, whoever carries out acts on it.
    **{(phase, Event.ABORT_REQUESTED): phase for phase in _STAGES},
}

ENDED = frozenset({Phase.REFUSED, Phase.DONE, Phase.MEASURED, Phase.ABORTED})
"""Phases in which nothing is left to do on the cluster, but for throttles of brokers that are down."""
ENDING_EVENTS = frozenset(
    event for (before, event), after in TRANSITIONS.items() if after in ENDED and before not in ENDED
)
"""Events that end an execution."""
EVENTS_AFTER_THE_END = frozenset({Event.MEASURED, Event.SWEPT})
"""Bookkeeping: events that show an end even where the end itself is not known."""


def next_phase(phase: Phase, event: Event) -> Phase:
    """The phase after an event; raises IllegalTransition.

    >>> next_phase(Phase.WAITING, Event.STARTED).value
    'under way'
    """
    try:
        return TRANSITIONS[phase, event]
    except KeyError:
        raise IllegalTransition(f"event {event.value} can't follow in phase {phase.value}") from None


@dataclass(frozen=True, slots=True)
class Execution:
    """One carrying out of a plan, folded from its events. Make it with `fold` or `begin`, go on with `after`."""

    execution_id: str
    plan_id: str
    events: tuple[EventRecord, ...]
    """At least one; oldest first, numbered from 0, without the request to abort."""
    stage: Phase
    """Phase by the table, whether or not somebody asked to abort."""
    abort_request: EventRecord | None = None

    def after(self, *records: EventRecord) -> "Execution":
        """The execution after these events, in that order; raises IllegalTransition and leaves this one as it is.

        Of several requests to abort the earliest counts.
        """
        stage, request, numbered = self.stage, self.abort_request, list(self.events)
        for record in records:
            stage = next_phase(stage, record.event)
            if record.event is Event.ABORT_REQUESTED:
                request = record if request is None else min(request, record, key=lambda row: row.at_ms)
                continue
            if record.sequence != len(numbered):
                raise IllegalTransition(f"event {record.sequence} can't follow: the next one is {len(numbered)}")
            numbered.append(record)
        return replace(self, events=tuple(numbered), stage=stage, abort_request=request)

    @property
    def phase(self) -> Phase:
        """Phase of the execution; ABORTING if an abort was requested and the execution has not ended."""
        return Phase.ABORTING if self.abort_requested and not self.ended else self.stage

    @property
    def last(self) -> EventRecord:
        """The newest numbered event: the one whose figures the next one starts from."""
        return self.events[-1]

    @property
    def last_event(self) -> Event:
        """What happened last, a request to abort apart."""
        return self.last.event

    @property
    def shown(self) -> EventRecord:
        """The event that people are shown: a request to abort until the execution has ended, else the newest.

        Whoever asks may have a clock that is behind, so the times of the two are not compared.
        """
        return self.last if self.abort_request is None or self.ended else self.abort_request

    @property
    def history(self) -> tuple[EventRecord, ...]:
        """All events in the order of their times, the request to abort included."""
        request = () if self.abort_request is None else (self.abort_request,)
        return tuple(sorted((*self.events, *request), key=lambda record: (record.at_ms, record.sequence)))

    @property
    def figures(self) -> Figures:
        """Figures of the newest event."""
        return self.last.figures

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do on the cluster."""
        return self.stage in ENDED

    @property
    def waiting(self) -> bool:
        """Whether the execution has not started: it waits for approvals, for its time or for its turn."""
        return self.stage in (Phase.PENDING, Phase.WAITING)

    @property
    def needs_approval(self) -> bool:
        """Whether more people have to approve the execution, and nobody has asked it to stop."""
        return self.phase is Phase.PENDING

    @property
    def approvers(self) -> tuple[str, ...]:
        """Names of those who have approved, in their order; those of earlier versions are unknown and left out."""
        return tuple(record.figures.approver for record in self.events if record.figures.approver is not None)

    @property
    def begins_ms(self) -> int | None:
        """Time before which the execution must not start; None where it may start at once."""
        return self.figures.begins_ms

    def may_begin(self, now_ms: int) -> bool:
        """Whether the execution is approved, has not started, and may start at this time."""
        return self.phase is Phase.WAITING and (self.begins_ms is None or now_ms >= self.begins_ms)

    def has_turn(self, now_ms: int) -> bool:
        """Whether the execution is carried out now or as soon as those before it have ended: it has started and has not
        ended, or may begin.
        """
        return self.in_progress or self.may_begin(now_ms)

    @property
    def in_progress(self) -> bool:
        """Whether the execution has started and has not ended, paused or not."""
        return self.stage in (Phase.UNDER_WAY, Phase.PAUSED)

    @property
    def paused(self) -> bool:
        """Whether the execution waits for a maintenance window, or for a person, with nothing of it on the cluster."""
        return self.stage is Phase.PAUSED

    @property
    def under_way(self) -> bool:
        """Whether control acts on it at its next tick. That includes one that is paused and asked to abort."""
        return self.phase in (Phase.UNDER_WAY, Phase.ABORTING)

    @property
    def abort_requested(self) -> bool:
        """Whether a person asked to stop."""
        return self.abort_request is not None

    @property
    def approved_ms(self) -> int:
        """When the execution was first approved, or refused at once."""
        return self.events[0].at_ms

    @property
    def started_ms(self) -> int | None:
        """When the execution started; None where it has not."""
        return next((record.at_ms for record in self.events if record.event is Event.STARTED), None)

    @property
    def begun_ms(self) -> int:
        """When the execution started; when it was approved, as long as it has not started."""
        return self.approved_ms if self.started_ms is None else self.started_ms

    @property
    def since_ms(self) -> int:
        """When the execution started, or resumed after its newest pause: what clients are compared with.

        Before the start it is the approval.
        """
        resumed = (record.at_ms for record in reversed(self.events) if record.event is Event.RESUMED)
        return next(resumed, self.begun_ms)

    def worked_ms(self, now_ms: int) -> int:
        """Time from its start to `now_ms`, without its pauses: waiting behind another execution is no work.

        >>> approved = begin("e", "p", EventRecord(Event.APPROVED, 0, 1_000, "", Figures(1, 5)))
        >>> events = ((Event.STARTED, 2_000), (Event.PAUSED, 5_000), (Event.RESUMED, 9_000))
        >>> records = [EventRecord(event, i, at, "", Figures(1, 5)) for i, (event, at) in enumerate(events, 1)]
        >>> approved.after(*records).worked_ms(10_000)
        4000
        """
        started = next((place for place, record in enumerate(self.events) if record.event is Event.STARTED), 0)
        records = self.events[started:]
        ends_ms = (*(record.at_ms for record in records[1:]), now_ms)
        spans = zip(records, ends_ms, strict=True)
        # What a clock that was ahead has dated does not count: with less than nothing no deadline would ever be there.
        return sum(
            max(0, min(end_ms, now_ms) - min(record.at_ms, now_ms))
            for record, end_ms in spans
            if record.event is not Event.PAUSED
        )

    @property
    def copied_ms(self) -> int:
        """When bytes were last seen to have been copied; the start before any were."""
        rises = (
            after.at_ms
            for before, after in pairwise(self.events)
            if after.figures.bytes_moved > before.figures.bytes_moved
        )
        return max(rises, default=self.begun_ms)

    @property
    def end(self) -> EventRecord | None:
        """The event that ended it; None while it is open."""
        if not self.ended:
            return None
        return next(record for record in reversed(self.events) if record.event in ENDING_EVENTS)

    @property
    def ended_ms(self) -> int | None:
        """When the execution ended."""
        return None if self.end is None else self.end.at_ms

    @property
    def done_ms(self) -> int | None:
        """When the execution was carried out in full; None where it was not."""
        return self.ended_ms if self.stage in (Phase.DONE, Phase.MEASURED) else None

    @property
    def failed(self) -> bool:
        """Whether the execution ended without being carried out."""
        return self.stage in (Phase.REFUSED, Phase.ABORTED)

    @property
    def acted_ms(self) -> int:
        """When the execution last did, or was allowed, something: what came after its end is bookkeeping."""
        return next(record.at_ms for record in reversed(self.events) if record.event not in EVENTS_AFTER_THE_END)

    @property
    def cancels(self) -> Counter[int]:
        """How often somebody else has cancelled each movement, by its place in the plan."""
        return Counter(place for record in self.events for place in record.figures.movements_cancelled or ())

    @property
    def throttled_brokers(self) -> tuple[int, ...]:
        """Brokers that carry its throttle."""
        return self.figures.throttled_brokers or ()

    @property
    def tags_rates(self) -> bool:
        """Whether its throttle rates bear control's tag: those of an execution that an earlier version began do not."""
        rates = (record.figures.throttle_bytes_per_sec for record in self.events if record.event is Event.STARTED)
        return is_tagged(next(rates, None))

    @property
    def owes(self) -> bool:
        """Whether the execution has ended and brokers that were down still carry its throttle."""
        return self.ended and bool(self.throttled_brokers)

    @property
    def to_be_measured(self) -> bool:
        """Whether the execution was carried out and its result is not measured."""
        return self.stage is Phase.DONE

    @property
    def measured(self) -> EventRecord | None:
        """The measurement of its result; None where there is none."""
        return next((record for record in reversed(self.events) if record.event is Event.MEASURED), None)

    @property
    def outcome(self) -> SkewOutcome | None:
        """Outcome that the execution is judged by: of the load with the largest promise. None where nothing was
        measured.
        """
        return None if self.measured is None else judged_by(self.measured.figures.outcomes())

    @property
    def in_windows_only(self) -> bool:
        """Whether the execution may submit movements in maintenance windows only."""
        return bool(self.figures.in_windows_only)


def begin(execution_id: str, plan_id: str, first: EventRecord) -> Execution:
    """An execution with its first event; raises IllegalTransition for an event that can't be the first."""
    if first.event not in FIRST_PHASES or first.sequence != 0:
        raise IllegalTransition(f"event {first.sequence} ({first.event.value}) can't be the first of an execution")
    return Execution(execution_id, plan_id, (first,), FIRST_PHASES[first.event])


def fold(execution_id: str, plan_id: str, records: Iterable[EventRecord]) -> Execution:
    """An execution from all its events in any order; raises IllegalTransition where they are not a legal history."""
    first, *rest = sorted(records, key=lambda record: record.sequence)
    return begin(execution_id, plan_id, first).after(*rest)


def in_focus(executions: Sequence[Execution]) -> Execution | None:
    """The one to show of executions, oldest first: the newest that has started and is under way, else the newest.

    One that was approved after it only waits for its turn.
    """
    at_work = (row for row in reversed(executions) if row.under_way and row.in_progress)
    return next(at_work, executions[-1] if executions else None)
