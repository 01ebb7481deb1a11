"""What mode `apply` decides is carried out once, also where control is killed or the store refuses a row in between."""

import json
from typing import Any

import pytest

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.plan import Movement, Plan
from assignor_core.resources import Resource
from streaming import tables
from streaming.control.journal import Journal
from streaming.control.run import ControlLoop
from streaming.control.wiring import decider_of, journal_of
from streaming.errors import TableUnavailable
from streaming.settings import Settings
from tests.control.noted_cluster import SKEW, NotedCluster, approve_plan
from tests.control.test_deciding import NOON_MS, WINDOW_MS, crowded, last, settings, skewed, with_control
from tests.control.windows import write_windows

__all__ = ["settings"]  # the fixture

HOUR_MS = 3_600_000
NIGHT_MS = NOON_MS + 10 * HOUR_MS


class Failing:
    """Journal's `name` raises TableUnavailable, before or after it has written, until `mended`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *, written: bool = False) -> None:
        self._patched = monkeypatch.context()
        write = getattr(Journal, name)

        def fails(journal: Journal, *arguments: Any, **given: Any) -> None:
            if written:
                write(journal, *arguments, **given)
            raise TableUnavailable("the store does not answer")

        self._patched.__enter__().setattr(Journal, name, fails)

    def mended(self) -> None:
        self._patched.__exit__(None, None, None)


def loop_of(settings: Settings, now_ms: int) -> ControlLoop:
    """A control whose decisions see a cluster that is crowded; what it carries out is not looked at here."""
    loop = ControlLoop(NotedCluster(), settings, now_ms=now_ms)
    loop._decider = decider_of(crowded(), journal_of(settings), settings)
    return loop


def executions(settings: Settings, now_ms: int) -> list[Execution]:
    return journal_of(settings).executions(now_ms=now_ms)


def decided_and_not_approved(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> ControlLoop:
    """A control of which the store has refused the approval at noon."""
    write_windows(settings, crowded().live, end_ms=NOON_MS)
    loop = loop_of(settings, NOON_MS)
    store = Failing(monkeypatch, "approve")
    with pytest.raises(TableUnavailable):
        loop.tick(now_ms=NOON_MS)
    store.mended()
    return loop


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_approval_that_failed_is_made_up_for_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, written: bool, restarted: bool
) -> None:
    write_windows(settings, crowded().live, end_ms=NOON_MS)
    loop = loop_of(settings, NOON_MS)
    store = Failing(monkeypatch, "approve", written=written)
    with pytest.raises(TableUnavailable):
        loop.tick(now_ms=NOON_MS)
    store.mended()
    if restarted:
        loop = loop_of(settings, NOON_MS + 500)
    for second in range(1, 10):
        loop.tick(now_ms=NOON_MS + 1_000 * second)
    (execution,) = executions(settings, NOON_MS + 10_000)
    assert execution.plan_id == last(settings)["plan_id"]
    assert execution.events[0].detail.endswith("approved by mode apply")


def test_a_plan_that_waited_for_the_night_is_not_lost_with_its_approval(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = with_control(settings, maintenance_windows=["Mon-Fri 22:00-23:00"])
    write_windows(own, crowded().live, end_ms=NOON_MS)
    loop_of(own, NOON_MS).tick(now_ms=NOON_MS)
    made = last(own)["plan_id"]
    write_windows(own, skewed().live, end_ms=NIGHT_MS)
    store = Failing(monkeypatch, "approve")
    with pytest.raises(TableUnavailable):
        loop_of(own, NIGHT_MS).tick(now_ms=NIGHT_MS)
    store.mended()
    loop_of(own, NIGHT_MS + 1_000).tick(now_ms=NIGHT_MS + 1_000)
    assert [row.plan_id for row in executions(own, NIGHT_MS + 1_000)] == [made]


def test_what_a_person_has_ended_is_not_begun_again_by_the_next_control(settings: Settings) -> None:
    write_windows(settings, crowded().live, end_ms=NOON_MS)
    loop = loop_of(settings, NOON_MS)
    loop.tick(now_ms=NOON_MS)
    (execution,) = executions(settings, NOON_MS)
    journal_of(settings).request_abort(execution, "a person", now_ms=NOON_MS)
    for second in range(1, 4):
        loop.tick(now_ms=NOON_MS + 1_000 * second)
    loop_of(settings, NOON_MS + 5_000).tick(now_ms=NOON_MS + 5_000)
    (ended,) = executions(settings, NOON_MS + 5_000)
    assert ended.ended


@pytest.mark.parametrize("mode", ["observe", "propose"])
def test_other_modes_begin_nothing_that_mode_apply_had_decided(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    decided_and_not_approved(settings, monkeypatch)
    loop_of(with_control(settings, mode=mode), NOON_MS + 1_000).tick(now_ms=NOON_MS + 1_000)
    assert executions(settings, NOON_MS + 1_000) == []


def test_a_decided_plan_that_is_gone_holds_nothing_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = decided_and_not_approved(settings, monkeypatch)
    tables.delete(settings.storage.tables, "plan", tables.equal("plan_id", last(settings)["plan_id"]))
    assert not loop.tick(now_ms=NOON_MS + 1_000)
    write_windows(settings, crowded().live, end_ms=NOON_MS + WINDOW_MS)
    loop.tick(now_ms=NOON_MS + WINDOW_MS)
    assert last(settings)["window_end"] == tables.utc(NOON_MS + WINDOW_MS)


def spoil(settings: Settings, plan_id: str, damage: str) -> None:
    """The row of a plan is still there, and what it holds is no plan with its id."""
    root = settings.storage.tables
    [row] = tables.read(root, "plan", where=tables.equal("plan_id", plan_id))
    spoilt = {"another id": json.dumps(json.loads(row["plan_json"]) | {"plan_id": "0" * 64}), "no object": "[]"}
    tables.delete(root, "plan", tables.equal("plan_id", plan_id))
    row["plan_json"] = spoilt.get(damage, "{")
    tables.append(root, "plan", [row], transaction_id="a test", transaction_version=1)


DAMAGES = ("another id", "no object", "no json")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_decided_plan_that_can_not_be_read_ends_no_control(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    loop = decided_and_not_approved(settings, monkeypatch)
    spoil(settings, last(settings)["plan_id"], damage)
    loop = loop_of(settings, NOON_MS + 1_000)
    assert not loop.tick(now_ms=NOON_MS + 1_000)
    write_windows(settings, crowded().live, end_ms=NOON_MS + WINDOW_MS)
    loop.tick(now_ms=NOON_MS + WINDOW_MS)
    assert last(settings)["window_end"] == tables.utc(NOON_MS + WINDOW_MS)


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_plan_that_waits_for_the_night_and_can_not_be_read_ends_no_control(settings: Settings, damage: str) -> None:
    own = with_control(settings, maintenance_windows=["Mon-Fri 22:00-23:00"])
    write_windows(own, crowded().live, end_ms=NOON_MS)
    loop_of(own, NOON_MS).tick(now_ms=NOON_MS)
    spoil(own, last(own)["plan_id"], damage)
    write_windows(own, crowded().live, end_ms=NIGHT_MS)
    loop_of(own, NIGHT_MS).tick(now_ms=NIGHT_MS)
    assert last(own)["window_end"] == tables.utc(NIGHT_MS)


@pytest.mark.long
@pytest.mark.parametrize("row", ["write_plan", "write_decision"])
@pytest.mark.parametrize("written", [False, True])
def test_a_decision_that_the_store_refused_is_made_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, row: str, written: bool
) -> None:
    write_windows(settings, crowded().live, end_ms=NOON_MS)
    decider = decider_of(crowded(), journal_of(settings), settings)
    store = Failing(monkeypatch, row, written=written)
    with pytest.raises(TableUnavailable):
        decider.tick(now_ms=NOON_MS)
    store.mended()
    proposed = decider.tick(now_ms=NOON_MS + 1_000)
    assert proposed is not None
    assert (last(settings)["verdict"], last(settings)["plan_id"]) == ("plan", proposed.plan.plan_id)


@pytest.mark.long
def test_a_plan_that_was_never_written_does_not_wait_for_the_night(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = with_control(settings, maintenance_windows=["Mon-Fri 22:00-23:00"])
    write_windows(own, crowded().live, end_ms=NOON_MS)
    decider = decider_of(crowded(), journal_of(own), own)
    store = Failing(monkeypatch, "write_plan")
    with pytest.raises(TableUnavailable):
        decider.tick(now_ms=NOON_MS)
    store.mended()
    for hour in range(1, 10):
        write_windows(own, crowded().live, end_ms=NOON_MS + hour * HOUR_MS)
        decider.tick(now_ms=NOON_MS + hour * HOUR_MS)
    write_windows(own, skewed().live, end_ms=NIGHT_MS)
    due = decider.tick(now_ms=NIGHT_MS)
    assert due is not None


def test_in_mode_propose_a_plan_waits_and_a_restart_does_not_decide_twice(settings: Settings) -> None:
    own = with_control(settings, mode="propose")
    write_windows(own, crowded().live, end_ms=NOON_MS)
    for _ in range(2):
        loop_of(own, NOON_MS).tick(now_ms=NOON_MS)
        assert [len(tables.read(own.storage.tables, name)) for name in ("plan", "decision")] == [1, 1]
    assert executions(own, NOON_MS) == []


def test_automatic_mode_stops_after_plans_that_brought_nothing(settings: Settings) -> None:
    journal, before_ms = journal_of(settings), NOON_MS - HOUR_MS
    before, promised = ({**SKEW, "bytes_in": {"max_over_mean": ratio}} for ratio in (3.0, 1.0))
    for partition in range(settings.control.bad_plans_max):
        made = Plan("c", (Movement("t", partition, (1,), (2,), 1.0),), before, promised)
        record = approve_plan(journal, made, now_ms=before_ms + partition)
        for event in (Event.STARTED, Event.DONE):
            journal.write_event(record, event, event, now_ms=before_ms + partition)
        journal.write_measured(record, {Resource.BYTES_IN: 2.9}, now_ms=before_ms + partition)
    write_windows(settings, crowded().live, end_ms=NOON_MS)
    loop_of(settings, NOON_MS).tick(now_ms=NOON_MS)
    refused = executions(settings, NOON_MS)[-1]
    # In one row: killed between an approval and its refusal, the next control would begin it.
    assert [row.event for row in refused.events] == ["refused"]
    assert "the last 2 plans brought less than half" in refused.last.detail
