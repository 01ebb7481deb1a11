"""Which movements of an execution are made, seen from its events."""

from typing import Any

from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.execution.life_cycle import Execution, begin
from assignor_core.execution.progress import Progress
from assignor_core.execution.seen_movements import SeenSoFar, seen_movements

KEYS = ("a", "b", "c")


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
