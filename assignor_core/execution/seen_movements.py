"""Which movements of an execution are made, as its events show: what an event adds, and what all of them add up to.

A movement is named by its place in the plan: the `sequence` of its row in the table `movement`.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from assignor_core.execution.events import EventRecord
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import Progress

MADE = frozenset({Progress.DONE, Progress.PLACED, Progress.NOT_ELECTED})
"""The partition has reached its new replicas, whoever leads it."""

KeyT = TypeVar("KeyT", bound=Hashable)

Changes = dict[str, tuple[int, ...]]
"""Figures of an event by their names, see `Figures`."""


class MovementState(StrEnum):
    """State of one movement of an execution, by the journal."""

    WAITING = "waiting"
    UNDER_WAY = "under_way"
    MADE = "made"
    NOT_MADE = "not_made"
    """The execution has ended without it."""
    UNKNOWN = "unknown"
    """An earlier version carried the plan out, and kept how many movements were made, not which."""


@dataclass(frozen=True, slots=True)
class SeenMovements:
    """What the events of one execution show of its movements, by their place in the plan."""

    made_ms: Mapping[int, int]
    """When each movement that is made was first seen as made, ms since 1970."""
    under_way: frozenset[int]
    rest: MovementState
    """State of all movements that are neither made nor under way."""

    def state(self, place: int) -> MovementState:
        """Returns the state of the movement at `place` in the plan."""
        if place in self.made_ms:
            return MovementState.MADE
        return MovementState.UNDER_WAY if place in self.under_way else self.rest


def seen_movements(execution: Execution) -> SeenMovements:
    """Returns what the events of `execution` show of its movements.

    >>> from assignor_core.execution.events import Event, Figures
    >>> from assignor_core.execution.life_cycle import begin
    >>> seen_in = [(Event.APPROVED, {}), (Event.STARTED, {}), (Event.PROGRESS, {"movements_made": (1,)}),
    ...         (Event.ABORTED, {"movements_made": ()})]
    >>> records = [EventRecord(event, i, 10 * i, "", Figures(3, 5, **seen)) for i, (event, seen) in enumerate(seen_in)]
    >>> seen = seen_movements(begin("e", "p", records[0]).after(*records[1:]))
    >>> seen.made_ms, str(seen.state(0)), str(seen.state(1))
    ({1: 20}, 'not_made', 'made')
    """
    made_ms: dict[int, int] = {}
    under_way: Collection[int] = ()
    for record in execution.events:
        figures = record.figures
        for place in figures.movements_undone or ():
            made_ms.pop(place, None)
        made_ms |= dict.fromkeys(figures.movements_made or (), record.at_ms)
        under_way = under_way if figures.movements_under_way is None else figures.movements_under_way
    if execution.ended:
        return SeenMovements(made_ms, frozenset(), _rest_at_the_end(execution, len(made_ms)))
    rest = MovementState.WAITING if _is_recorded(execution.events) else MovementState.UNKNOWN
    return SeenMovements(made_ms, frozenset(under_way), rest)


def _is_recorded(events: Sequence[EventRecord]) -> bool:
    """Whether events name movements. Those before the first snapshot of the cluster name none."""
    looked = [row for row in events if row.figures.movements_made is not None]
    return bool(looked) or all(not row.figures.movements_done for row in events)


def _rest_at_the_end(execution: Execution, made: int) -> MovementState:
    """Returns the state, in an execution that has ended, of movements that no event names."""
    figures = execution.figures
    if figures.movements_done == figures.movements_total:
        return MovementState.MADE
    return MovementState.NOT_MADE if figures.movements_done <= made else MovementState.UNKNOWN


class SeenSoFar:
    """What the events of one execution have named as made; each call reads the new events alone."""

    def __init__(self) -> None:
        self._made: set[int] = set()
        self._events = 0

    def changes(self, execution: Execution, keys: Iterable[KeyT], progress: Mapping[KeyT, Progress]) -> Changes:
        """What the next event adds. `keys` are the movements in the plan's order, `progress` is where they stand."""
        for record in execution.events[self._events :]:
            self._made -= set(record.figures.movements_undone or ())
            self._made |= set(record.figures.movements_made or ())
        self._events = len(execution.events)
        made, undone, under_way = [], [], []
        for place, key in enumerate(keys):
            state = progress[key]
            if state in MADE:
                if place not in self._made:
                    made.append(place)
            elif state is Progress.MOVING:
                under_way.append(place)
            if place in self._made and state not in MADE and state is not Progress.MISSING:
                undone.append(place)
        return {
            "movements_made": tuple(made),
            "movements_undone": tuple(undone),
            "movements_under_way": tuple(under_way),
        }
