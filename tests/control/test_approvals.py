"""One plan that several approve at the same moment, by HTTP, by a command or in mode `apply`: one execution begins."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from streaming.commands.acting import JournalActions
from streaming.control.journal import Journal
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, plan
from tests.racing import at_once
from tests.tables_in_memory import in_memory


def journal_at(root: str) -> Journal:
    return Journal(root, "c", mode="propose", plan_ttl_ms=3_600_000)


@pytest.fixture
def at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Runs two writers in threads: each has looked at the journal and at its transactions before the other commits."""
    return partial(at_once, monkeypatch)


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


def test_who_comes_later_gets_the_open_execution() -> None:
    root = in_memory()
    kept = plan(journal_at(root), 0)
    first, is_new = journal_at(root).approve_once(kept, "one", now_ms=NOON_MS)
    assert is_new
    assert journal_at(root).approve_once(kept, "two", now_ms=NOON_MS + 60_000) == (first, False)


def test_a_plan_whose_execution_has_ended_can_be_approved_again() -> None:
    """`rebalancer apply` may carry on what was stopped, and control may make the same plan again."""
    from streaming.control.records import ExecutionRecord

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
