"""Approvals: several at the same moment begin one execution; by two people, and with a time to begin."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from streaming import tables
from streaming.commands.acting import JournalActions
from streaming.control.carrier import Carrier
from streaming.control.journal import Journal
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import RefusedForSafety
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, NotedCluster, plan
from tests.racing import at_once
from tests.tables_in_memory import in_memory

ANN, BEN = "ann (token 1)", "ben (token 2)"
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def journal_at(root: str, approvals: int = 1) -> Journal:
    return Journal(root, "c", mode="propose", plan_ttl_ms=HOUR_MS, approvals=approvals)


@pytest.fixture
def at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Runs two writers in threads: each has looked at the journal and at its transactions before the other commits."""
    return partial(at_once, monkeypatch)


@pytest.mark.long
def test_two_processes_that_approve_one_plan_at_the_same_moment_begin_one_execution(
    tmp_path: Path, at_the_same_moment: Callable[..., list[Any]]
) -> None:
    root = str(tmp_path)
    made = journal_at(root)
    made.make_tables()
    kept = plan(made, 0)

    def by_command() -> Execution:
        return journal_at(root).approve(kept, "a person", now_ms=NOON_MS)

    def by_http() -> tuple[str, str]:
        settings = Settings.model_validate({"kafka": {"cluster_name": "c"}, "storage": {"tables": root}})
        outcome = JournalActions(settings).approve(kept.plan.plan_id, "operator-1", now_ms=NOON_MS + 5)
        return outcome.state, outcome.fields["execution_id"]

    begun, (state, execution_id) = at_the_same_moment(by_command, by_http)
    executions = journal_at(root).executions(now_ms=NOON_MS + 10)
    assert [row.execution_id for row in executions] == [begun.execution_id] == [execution_id]
    named = executions[0].last.detail.rpartition(" by ")[2]
    assert (named, state) in [("a person", "already_approved"), ("operator-1", "accepted")]


def test_a_plan_whose_execution_has_ended_can_be_approved_again() -> None:
    """`rebalancer apply` may carry on what was stopped, and control may make the same plan again."""
    from streaming.control.journal import ExecutionRecord

    journal = journal_at(in_memory())
    kept = plan(journal, 0)
    ids = []
    for number in range(3):
        record = ExecutionRecord(journal.approve(kept, f"person {number}", now_ms=NOON_MS + number))
        journal.write_event(record, Event.REFUSED, "it no longer fits", now_ms=NOON_MS + number)
        ids.append(record.execution.execution_id)
    assert len(set(ids)) == 3
    again = plan(journal, 0, now_ms=NOON_MS + 7_200_000)
    assert journal.approve(again, "a person", now_ms=NOON_MS + 7_200_000).execution_id not in ids


def test_two_people_have_to_approve_where_the_settings_want_it() -> None:
    journal = journal_at(in_memory(), approvals=2)
    kept = plan(journal, 0)
    first, is_new = journal.approve_once(kept, ANN, now_ms=NOON_MS)
    assert (is_new, first.phase.value, first.needs_approval, first.may_begin(NOON_MS)) == (True, "pending", True, False)
    assert first.last.detail == f"plan {kept.plan.plan_id[:12]} approved by {ANN}: 1 of 2 approvals"
    second, is_new = journal.approve_once(kept, BEN, now_ms=NOON_MS + MINUTE_MS)
    assert (is_new, second.phase.value, second.approvers) == (True, "waiting", ("ann", "ben"))
    assert second.last.detail == f"plan {kept.plan.plan_id[:12]} approved by {BEN}: 2 of 2 approvals"
    assert second.may_begin(NOON_MS)
    assert journal.approve_once(kept, "eve (token 3)", now_ms=NOON_MS + MINUTE_MS) == (second, False)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (ANN, ANN),
        (ANN, "Ann (session 9)"),
        (ANN, "ann (command line on h)"),
        (ANN, "root, signed in as ann (command line on h)"),
        ("Ann (oidc 17)", "Ann (oidc 17)"),
        ("Ann (oidc 17)", "ANN (token 1)"),
        ("Ann (oidc 17)", "Ann Other (oidc 17)"),
    ],
)
def test_one_person_approves_once_however_signed_in(first: str, again: str) -> None:
    """A person of an issuer has a name and a subject."""
    journal = journal_at(in_memory(), approvals=2)
    kept = plan(journal, 0)
    pending = journal.approve(kept, first, now_ms=NOON_MS)
    with pytest.raises(RefusedForSafety, match=r"has 1 of 2 approvals, by .*: another person has to approve it"):
        journal.approve(kept, again, now_ms=NOON_MS + MINUTE_MS)
    assert journal.open_executions(now_ms=NOON_MS + MINUTE_MS) == [pending]
    assert not journal.approve(kept, "Ben (oidc 18)", now_ms=NOON_MS).needs_approval


def test_the_second_person_may_approve_until_the_time_though_the_plan_is_old() -> None:
    carried = Carried(approvals=2)
    begins_ms = NOON_MS + 5 * HOUR_MS
    carried.journal.approve_once(carried.kept, ANN, now_ms=NOON_MS, begins_ms=begins_ms)
    late = JournalActions(carried.settings).approve(carried.kept.plan.plan_id, BEN, now_ms=NOON_MS + 4 * HOUR_MS)
    assert (late.state, late.fields["begins_ms"]) == ("accepted", begins_ms)
    assert carried.tick(5 * HOUR_MS).started_ms == begins_ms


@pytest.mark.long
def test_who_approves_at_the_same_moment_is_counted_once_each(
    tmp_path: Path, at_the_same_moment: Callable[..., list[Any]]
) -> None:
    root = str(tmp_path)
    made = journal_at(root)
    made.make_tables()
    kept = plan(made, 0)

    def by(person: str) -> Execution:
        return journal_at(root, approvals=2).approve(kept, person, now_ms=NOON_MS)

    rows = at_the_same_moment(partial(by, ANN), partial(by, BEN))
    assert sorted(row.phase.value for row in rows) == ["pending", "waiting"]
    (execution,) = journal_at(root).executions(now_ms=NOON_MS)
    assert sorted(execution.approvers) == ["ann", "ben"]


def test_mode_apply_is_no_person_and_needs_no_other() -> None:
    journal = journal_at(in_memory(), approvals=2)
    automatic = journal.approve(plan(journal, 0), "mode apply", now_ms=NOON_MS, in_windows_only=True)
    assert automatic.phase.value == "waiting"
    pending = journal.approve(plan(journal, 1), ANN, now_ms=NOON_MS)
    completed = journal.approve(plan(journal, 1), "mode apply", now_ms=NOON_MS, in_windows_only=True)
    assert (completed.execution_id, completed.phase.value) == (pending.execution_id, "waiting")
    assert completed.in_windows_only


def test_executions_of_earlier_versions_have_neither_time_nor_approvers() -> None:
    root = in_memory()
    row = {
        "execution_id": "e-1", "sequence": 0, "plan_id": "p", "kafka_cluster": "c", "owner": "o",
        "event_time": tables.utc(NOON_MS), "event": "approved", "detail": "by a person", "movements_total": 1,
        "movements_done": 0, "bytes_total": 1, "bytes_moved": 0,
    }  # fmt: skip
    tables.append(root, "execution", [row], transaction_id="e-1", transaction_version=0)
    (execution,) = journal_at(root, approvals=2).open_executions(now_ms=NOON_MS)
    assert (execution.phase.value, execution.approvers, execution.begins_ms) == ("waiting", (), None)
    assert execution.may_begin(NOON_MS), "what was approved before the setting changed stays approved"


class Carried:
    """A carrier over a cluster that moves at once, for a plan that is set to begin in an hour and lives for one."""

    def __init__(self, approvals: int = 1) -> None:
        settings = {"kafka": {"cluster_name": "c"}, "storage": {"tables": in_memory()}}
        limits = {"control": {"approvals": approvals}, "planner": {"plan_ttl_ms": HOUR_MS}}
        self.settings = Settings.model_validate({**settings, **limits})
        self.cluster = NotedCluster(moves=True)
        self.journal = journal_of(self.settings)
        self.kept = plan(self.journal, 0)
        self.restart()

    def restart(self) -> None:
        """Another process takes over, which knows nothing but the journal."""
        journal = journal_of(self.settings)
        self.carrier = Carrier(executor_of(self.cluster, journal, self.settings), journal)

    def tick(self, after_ms: int) -> Execution:
        self.carrier.tick(now_ms=NOON_MS + after_ms)
        (execution,) = self.journal.executions(now_ms=NOON_MS + after_ms)
        return execution


def test_an_execution_begins_at_its_time_and_outlives_its_plan_and_a_restart() -> None:
    carried = Carried()
    carried.journal.approve_once(carried.kept, ANN, now_ms=NOON_MS, begins_ms=NOON_MS + 5 * HOUR_MS)
    for after_ms in (0, HOUR_MS, 5 * HOUR_MS - 1):
        carried.restart()
        assert carried.tick(after_ms).last_event == "approved"
    assert carried.cluster.changes == []
    assert carried.tick(5 * HOUR_MS).started_ms == NOON_MS + 5 * HOUR_MS


def test_an_execution_whose_time_is_over_for_as_long_as_plans_live_is_refused() -> None:
    carried = Carried()
    carried.journal.approve_once(carried.kept, ANN, now_ms=NOON_MS, begins_ms=NOON_MS + 5 * HOUR_MS)
    refused = carried.tick(6 * HOUR_MS + 1)
    assert (refused.last_event, "has expired" in refused.last.detail) == ("refused", True)


def test_what_waits_for_its_time_keeps_nobody_waiting() -> None:
    carried = Carried()
    journal, late_ms = carried.journal, NOON_MS + HOUR_MS // 2
    dated, _ = journal.approve_once(carried.kept, ANN, now_ms=NOON_MS, begins_ms=NOON_MS + HOUR_MS)
    other = journal.approve(plan(journal, 1, now_ms=late_ms), BEN, now_ms=late_ms)
    for second in range(20):
        carried.carrier.tick(now_ms=late_ms + 1_000 * second)
    assert journal.execution(other.execution_id).done_ms is not None
    assert journal.execution(dated.execution_id).last_event == "approved"


def test_an_abort_cancels_what_waits_for_its_time() -> None:
    carried = Carried()
    execution, _ = carried.journal.approve_once(carried.kept, ANN, now_ms=NOON_MS, begins_ms=NOON_MS + HOUR_MS)
    carried.journal.request_abort(execution, BEN, now_ms=NOON_MS + MINUTE_MS)
    ended = carried.tick(2 * MINUTE_MS)
    assert (ended.last_event, ended.last.detail) == ("aborted", "a person asked to stop before the execution began")


def test_another_time_needs_an_abort_first() -> None:
    carried = Carried()
    journal, begins_ms = carried.journal, NOON_MS + HOUR_MS
    dated = journal.approve_once(carried.kept, ANN, now_ms=NOON_MS, begins_ms=begins_ms)[0]
    assert journal.approve_once(carried.kept, BEN, now_ms=NOON_MS, begins_ms=begins_ms) == (dated, False)
    with pytest.raises(RefusedForSafety, match="begins at 2026-11-23 13:00 UTC: to choose another"):
        journal.approve_once(carried.kept, BEN, now_ms=NOON_MS, begins_ms=begins_ms + 1)


def test_approvals_that_do_not_come_in_time_end_the_execution() -> None:
    carried = Carried(approvals=2)
    carried.journal.approve_once(carried.kept, ANN, now_ms=NOON_MS, begins_ms=NOON_MS + HOUR_MS)
    assert carried.tick(2 * HOUR_MS).last_event == "endorsed"
    refused = carried.tick(2 * HOUR_MS + 1)
    assert (refused.last_event, refused.last.detail) == (
        "refused", "only 1 of 2 approvals came in time: make a new plan",
    )  # fmt: skip
