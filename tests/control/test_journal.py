"""What the journal keeps of an execution, and what follows from it, on real tables without a broker."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from deltalake import DeltaTable

from assignor_core.deciding.state import Futile, TriggerState, Wanted
from assignor_core.disks import LogDirDescription
from assignor_core.execution.caution import SkewOutcome
from assignor_core.execution.events import Event
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource
from streaming import tables
from streaming.commands.status import read_status
from streaming.contract import TABLES
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.wiring import journal_of
from streaming.errors import LeaseLost, UsageProblem
from streaming.settings import Settings
from streaming.views.executions import folded
from streaming.views.log_dirs import read_log_dirs
from tests.core.states import remembered
from tests.serve.synthetic import Synthetic

NEW_COLUMNS = {"in_windows_only", "disk_max_over_mean_predicted"}
BEFORE = {"bytes_in": 1.5, "bytes_out": 1.2, "disk": 1.1, "leaders": 3.0, "replicas": 1.0}
AFTER = {"bytes_in": 1.1, "bytes_out": 1.1, "disk": 1.1, "leaders": 1.0, "replicas": 1.0}


@pytest.fixture
def on_disk(tmp_path: Path) -> Settings:
    return Settings.model_validate({"storage": {"tables": str(tmp_path / "tables")}})


def approved(journal: Journal, *, in_windows_only: bool = False, topic: str = "t") -> ExecutionRecord:
    plan = Plan(
        "c",
        (Movement(topic, 0, (1,), (2,), 5.0),),
        {name: {"max_over_mean": ratio} for name, ratio in BEFORE.items()},
        {name: {"max_over_mean": ratio} for name, ratio in AFTER.items()},
    )
    journal.write_plan(ProposedPlan(plan), decision=None, now_ms=1_000)
    return ExecutionRecord(
        journal.approve(journal.plan(plan.plan_id), "a test", now_ms=1_000, in_windows_only=in_windows_only)
    )


def carried_out(journal: Journal, record: ExecutionRecord) -> None:
    """Started, and every movement made."""
    journal.write_event(record, Event.STARTED, "plan with 1 movement", now_ms=1_500)
    journal.write_event(record, Event.DONE, "every movement has been made", now_ms=1_800)


@pytest.mark.parametrize("beginning", ["", "1", "12345"])
def test_too_little_of_an_id_is_no_id(settings: Settings, beginning: str) -> None:
    journal = journal_of(settings)
    approved(journal)
    with pytest.raises(UsageProblem, match=f"plan '{beginning}': at least 6 characters of its id are needed"):
        journal.plan(beginning)


def test_the_newest_plans_are_named_first(settings: Settings) -> None:
    journal, ids = journal_of(settings), []
    for number in range(7):
        plan = Plan("c", (Movement("t", number, (1,), (2,), 5.0),))
        journal.write_plan(ProposedPlan(plan), decision=None, now_ms=number)
        ids.append(plan.plan_id[:12])
    with pytest.raises(UsageProblem) as caught:
        journal.plan("no-such-plan")
    assert str(caught.value).endswith(f"is unknown; the newest are {', '.join(ids[:1:-1])}")


def column_reads(monkeypatch: pytest.MonkeyPatch, column: str) -> list[int]:
    """Rows of each read that has this column, from now on."""
    reads: list[int] = []
    arrow = tables.TableReader.arrow

    def counted(reader: tables.TableReader, name: str, **asked: Any) -> pa.Table:
        rows = arrow(reader, name, **asked)
        if column in rows.column_names:
            reads.append(rows.num_rows)
        return rows

    monkeypatch.setattr(tables.TableReader, "arrow", counted)
    return reads


def test_of_decisions_the_json_of_the_newest_alone_is_read(on_disk: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A year of them, 8 kB each with 100 brokers, was read at each start."""
    synthetic = Synthetic(on_disk.storage.tables, cluster=on_disk.kafka.cluster_name)
    for day in range(3):
        with synthetic.together():
            for minute in range(50):
                synthetic.decision(86_400_000 * day + 60_000 * minute, state_json=f'{{"changed_ms": {minute}}}')
    journal = journal_of(on_disk)
    reads = column_reads(monkeypatch, "state_json")
    newest = journal.last_decision()
    assert newest is not None
    assert newest["decided_at"] == tables.utc(86_400_000 * 2 + 60_000 * 49)
    assert reads == [1]
    assert journal.trigger_state().changed_ms == 49
    assert reads == [1, 1]


@pytest.mark.long
def test_of_plans_the_json_of_the_one_that_is_asked_for_is_read(
    on_disk: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = journal_of(on_disk)
    plans = [Plan("c", (Movement("t", number, (1,), (2,), 5.0),)) for number in range(5)]
    for number, plan in enumerate(plans):
        journal.write_plan(ProposedPlan(plan), decision=None, now_ms=number)
    reads = column_reads(monkeypatch, "plan_json")
    assert journal.plan(plans[2].plan_id[:12]).plan == plans[2]
    assert reads == [1]


def test_pauses_are_no_work_and_survive_a_restart(settings: Settings) -> None:
    journal = journal_of(settings)
    record = approved(journal, in_windows_only=True)
    shown = record.execution
    assert (shown.worked_ms(4_000), shown.paused, shown.in_windows_only) == (3_000, False, True)
    journal.write_event(record, Event.STARTED, "plan with 1 movement", now_ms=4_000)
    journal.write_event(record, Event.PAUSED, "closed", now_ms=5_000)
    assert (record.execution.worked_ms(9_000), record.execution.paused) == (1_000, True)
    journal.write_event(record, Event.RESUMED, "open", now_ms=10_000)
    journal.write_event(record, Event.PAUSED, "closed", now_ms=11_000)
    journal.write_event(record, Event.RESUMED, "open", now_ms=20_000)
    execution = journal_of(settings).executions(now_ms=30_000)[0]
    assert (execution.worked_ms(22_000), execution.paused, execution.in_windows_only) == (
        1_000 + 1_000 + 2_000,
        False,
        True,
    )


def test_bytes_of_the_last_day_are_those_of_automatic_plans_that_were_at_work_in_it(settings: Settings) -> None:
    journal, day_ms = journal_of(settings), 86_400_000
    carried_out(journal, approved(journal))  # by a person
    done, aborted, waits = (approved(journal, in_windows_only=True, topic=name) for name in ("u", "v", "w"))
    journal.write_event(done, Event.STARTED, "", now_ms=1_500)
    journal.write_event(done, Event.DONE, "", now_ms=2_000, bytes_moved=5)
    journal.write_event(aborted, Event.STARTED, "", now_ms=1_500)
    assert waits.execution.started_ms is None

    def copied(now_ms: int) -> int:
        return journal.automatic_bytes(since_ms=now_ms - day_ms, now_ms=now_ms)

    assert copied(3_000) == 10, "all that the open one is to copy"
    journal.write_event(aborted, Event.ABORTED, "", now_ms=4_000, bytes_moved=2)
    assert (copied(5_000), copied(day_ms + 2_000), copied(day_ms + 4_000)) == (7, 2, 0)


def test_what_was_promised_stands_beside_what_was_measured_and_judges_by_the_greatest_promise(
    settings: Settings,
) -> None:
    journal = journal_of(settings)
    record = approved(journal)
    carried_out(journal, record)
    measured = {Resource.BYTES_IN: 1.4, Resource.BYTES_OUT: 1.1, Resource.LEADERS: 1.0}
    journal.write_measured(record, measured, now_ms=2_000)
    row = max(tables.read(settings.storage.tables, "execution"), key=lambda row: int(row["sequence"]))
    assert (
        row["detail"]
        == "max/mean measured (promised): bytes_in 1.400 (1.100), bytes_out 1.100 (1.100), leaders 1.000 (1.000)"
    )
    assert (row["disk_max_over_mean_predicted"], row["disk_max_over_mean_measured"]) == (1.1, None)
    # Leaders promised more, and keep it by themselves.
    assert journal.outcomes(now_ms=3_000) == [SkewOutcome(1.5, 1.1, 1.4)]


def test_a_table_of_an_earlier_version_gets_the_new_columns(on_disk: Settings) -> None:
    fields = [field for field in tables.arrow_schema(TABLES["execution"]) if field.name not in NEW_COLUMNS]
    old = pa.schema(field.with_metadata({"comment": "as it was said then"}) for field in fields)
    uri = tables.table_uri(on_disk.storage.tables, "execution")
    DeltaTable.create(uri, old)
    journal = journal_of(on_disk)
    record = approved(journal, in_windows_only=True)
    table = tables.open_table(on_disk.storage.tables, "execution")
    assert table is not None
    assert {field.name for field in table.schema().fields} >= NEW_COLUMNS
    assert journal.executions(now_ms=2_000)[0].execution_id == record.execution.execution_id


def test_an_execution_of_an_earlier_version_goes_on(settings: Settings) -> None:
    journal = journal_of(settings)
    record = approved(journal)
    row = tables.read(settings.storage.tables, "execution")[0]
    record.execution = folded([{name: value for name, value in row.items() if name not in NEW_COLUMNS}])[0]
    assert not record.execution.in_windows_only
    carried_out(journal, record)
    journal.write_measured(record, {Resource.BYTES_IN: 1.1, Resource.DISK: 1.1}, now_ms=2_000)
    assert "disk" not in record.execution.last.detail


def test_status_shows_what_was_promised_beside_what_was_measured(settings: Settings) -> None:
    journal = journal_of(settings)
    record = approved(journal)
    carried_out(journal, record)
    journal.write_measured(record, {Resource.BYTES_IN: 1.4}, now_ms=2_000)
    shown = read_status(settings, now_ms=3_000)["execution_max_over_mean"]
    assert shown["bytes_in"] == {"before": 1.5, "predicted": 1.1, "measured": 1.4}
    assert shown["replicas"] == {"before": 1.0, "predicted": 1.0, "measured": None}


def test_a_plan_within_brokers_is_kept_with_its_movements(settings: Settings) -> None:
    journal = journal_of(settings)
    moves = (LogDirMovement(1, "t", 0, "/a", "/b", 5.0, "why"), LogDirMovement(2, "t", 0, "/a", "/b", 6.0))
    plan = Plan("main", (), log_dir_movements=moves)
    journal.make_tables()
    journal.write_plan(ProposedPlan(plan), decision=None, now_ms=1_000)
    kept = journal.plan(plan.plan_id)
    assert kept.plan == plan
    execution = journal.approve(kept, "a test", now_ms=1_000)
    assert (execution.figures.movements_total, execution.figures.bytes_total) == (2, 11)
    assert journal.movements_of(execution) == plan
    (row,) = tables.TableReader(settings.storage.tables).rows("plan")
    assert (row["movement_count"], row["leader_movement_count"], row["bytes_in_max_over_mean_before"]) == (2, 0, None)
    rows = tables.TableReader(settings.storage.tables).rows("movement")
    assert {(row["kind"], row["old_log_dir"], row["new_log_dir"]) for row in rows} == {("log_dir", "/a", "/b")}


def test_after_a_clock_was_ahead_log_dirs_are_shown_as_they_are_now(settings: Settings) -> None:
    journal, ahead_ms, now_ms = journal_of(settings), 100_000_000, 1_000
    journal.write_log_dirs({1: (LogDirDescription("/d", 100, 90),)}, now_ms=ahead_ms)
    for usable in (2, 1):
        now_ms += 60_000
        journal_of(settings).write_log_dirs({1: (LogDirDescription("/d", 100, usable),)}, now_ms=now_ms)
    (row,) = read_log_dirs(tables.TableReader(settings.storage.tables), settings.kafka.cluster_name)
    assert (row.usable_bytes, row.event_ms) == (1, now_ms)


def test_a_plan_that_a_clock_ahead_has_made_is_kept_when_its_rows_have_gone_and_it_is_made_again(
    settings: Settings,
) -> None:
    journal, root = journal_of(settings), settings.storage.tables
    plan = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),))
    for now_ms in (50_000, 100_000_000, 60_000):
        for name in ("plan", "movement"):
            tables.delete(root, name, tables.ALL_ROWS)
        journal.write_plan(ProposedPlan(plan), decision=None, now_ms=now_ms)
        assert journal.plan(plan.plan_id).plan == plan
        assert len(tables.read(root, "movement")) == 1


@pytest.mark.long
@pytest.mark.parametrize("restored", [False, True])
def test_an_event_that_is_there_already_is_told_from_one_that_a_restored_table_lacks(
    on_disk: Settings, restored: bool
) -> None:
    journal = journal_of(on_disk)
    record = approved(journal)
    other = ExecutionRecord(record.execution)
    journal.write_event(record, Event.STARTED, "a test", now_ms=1_000)
    if restored:
        table = DeltaTable(f"{on_disk.storage.tables}/execution")
        table.restore(table.version() - 1)
    problem = "event 1 was written before, and is gone" if restored else "carried out by another process"
    with pytest.raises(LeaseLost, match=problem):
        journal.write_event(other, Event.STARTED, "a test", now_ms=1_000)


def state_that_was_kept(settings: Settings, state_json: str) -> TriggerState:
    """What a control starts from where the newest decision holds this."""
    row = {
        "decision_id": "main-1", "kafka_cluster": settings.kafka.cluster_name, "decided_at": tables.utc(1),
        "window_end": tables.utc(1), "verdict": "hold", "reason": "balanced", "detail": "", "threshold_enter": 1.0,
        "threshold_exit": 1.0, "breached": False, "brokers_expected": 0, "brokers_reporting": 0, "mode": "observe",
        "skew_json": "{}", "state_json": state_json,
    }  # fmt: skip
    tables.append(settings.storage.tables, "decision", [row], transaction_id="a test", transaction_version=1)
    return journal_of(settings).trigger_state()


def test_a_state_of_a_newer_release_is_read_without_what_this_one_does_not_know(settings: Settings) -> None:
    futile = Futile(Wanted("skewed", "bytes_in", 1, 3, 12, 0), 1.0, 2, 3, 4, "why")
    kept = replace(remembered(cooldown_end_ms=7, waiting_plan_id="p"), futile=(futile,))
    content = asdict(kept) | {"something_new": 1}
    content["futile"][0]["something_else"] = [2]
    assert state_that_was_kept(settings, json.dumps(content)) == kept


@pytest.mark.parametrize("state_json", ["{", "[]", '{"missing_since_ms": 3}', "null"])
def test_a_state_that_can_not_be_read_ends_no_control(settings: Settings, state_json: str) -> None:
    with structlog.testing.capture_logs() as logs:
        assert state_that_was_kept(settings, state_json) == TriggerState()
    assert [row["event"] for row in logs] == ["trigger_state_unreadable"]
