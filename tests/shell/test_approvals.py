"""`rebalancer apply` of a plan that begins later, or that another person has to approve, too: what it shows."""

import json
import re
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from assignor_core.execution.life_cycle import Execution
from streaming.commands.apply import abort, apply
from streaming.commands.status import status
from streaming.control.lease import Lease
from streaming.control.wiring import journal_of
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.settings import Settings
from streaming.views.approvals import instant_ms, instant_text
from tests.control.noted_cluster import NotedCluster, plan
from tests.tables_in_memory import given_to_commands

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Shell:
    """Commands of several people over the same tables and a cluster that moves at once; no control runs."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        given_to_commands(monkeypatch, root)
        self.root = root
        self.settings = Settings.model_validate({"kafka": {"cluster_name": "c"}, "storage": {"tables": self.root}})
        self.cluster, self.user = NotedCluster(moves=True), "ann"
        self.journal = journal_of(self.settings)
        monkeypatch.setattr("streaming.cluster.clients.admin_client", lambda _: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr("streaming.cluster.permissions.check_may_execute", lambda _admin: None)
        monkeypatch.setattr("streaming.commands.apply.check_writable", lambda _kafka, _plan: None)
        monkeypatch.setattr("streaming.control.identity.lease_of", lambda *_: Lease(self.root, "c", 15_000))
        monkeypatch.setattr("streaming.control.identity.leased_cluster", lambda _admin, _lease: self.cluster)
        monkeypatch.setattr("streaming.control.cluster_marker.ANNOUNCED_BEFORE_MS", 0)
        monkeypatch.setattr("streaming.commands.apply.POLL_INTERVAL_S", 0.01)
        monkeypatch.setattr("streaming.commands.acting.os_user", lambda: self.user)

    def run(self, command: Any, *arguments: str, approvals: int = 1) -> Result:
        given = ["kafka.cluster_name=c", f"control.approvals={approvals}"]
        sets = [part for row in given for part in ("--set", row)]
        return CliRunner().invoke(command, [*arguments, *sets], standalone_mode=False, catch_exceptions=False)

    def plan_id(self) -> str:
        return plan(self.journal, 0, now_ms=now_ms()).plan.plan_id

    def executions(self) -> list[Execution]:
        return self.journal.executions(now_ms=now_ms())


@pytest.fixture
def shell(tables_in_memory: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    yield Shell(tables_in_memory, monkeypatch)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_plan_with_a_time_is_left_to_control_and_shown_until_it_is_cancelled(shell: Shell) -> None:
    plan_id, begins_ms = shell.plan_id(), (now_ms() // DAY_MS + 2) * DAY_MS
    text = instant_text(begins_ms)
    done = shell.run(apply, plan_id, "--at", text.removesuffix(" UTC"), "--yes")
    (execution,) = shell.executions()
    assert done.return_value == 0
    assert re.search(rf"The plan begins in .+, at {text} or later. If it no longer fits, it is refused\.", done.output)
    assert f"execution {execution.execution_id} begins at {text} or later; no control holds the lease" in done.output
    assert f"to cancel it: rebalancer abort {execution.execution_id}" in done.output
    assert (execution.begins_ms, execution.last_event, shell.cluster.changes) == (begins_ms, "approved", [])
    shown = shell.run(status)
    assert f"execution {execution.execution_id} begins at {text} or later" in " ".join(shown.output.split())
    (waiting,) = json.loads(shell.run(status, "--json").output)["executions_waiting"]
    assert (waiting["plan_id"], waiting["begins_ms"], waiting["approvers"]) == (plan_id, begins_ms, ["ann"])
    again = shell.run(apply, plan_id, "--yes")
    assert (again.return_value, f"begins at {text} or later; no control" in again.output) == (0, True)
    assert shell.run(abort, execution.execution_id[:16]).return_value == 0
    assert shell.executions()[0].last.detail == "a person asked to stop before the execution began"


def test_at_a_time_that_has_come_a_command_begins_it_where_no_control_runs(shell: Shell) -> None:
    plan_id = shell.plan_id()
    kept = shell.journal.plan(plan_id)
    shell.journal.approve_once(kept, "ann", now_ms=now_ms() - HOUR_MS, begins_ms=now_ms() - 1_000)
    done = shell.run(apply, plan_id, "--yes")
    assert (done.return_value, shell.cluster.changes) == (0, ["throttle", "move t-0", "clear"])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("tomorrow", r"time 'tomorrow': allowed is a form like '2026-12-06 02:00' \(UTC\) or"),
        ("2026-02-30 02:00", "time '2026-02-30 02:00': allowed is a form like"),
        ("2026-12-06 02:00+99:00", ".+allowed is a form like"),
        ("2026-01-01 02:00", "time 2026-01-01 02:00 UTC has passed; it is "),
        ("2999-01-01 02:00+01:00", "time 2999-01-01 01:00 UTC is more than 14 days ahead; it is "),
    ],
)
def test_a_time_that_is_none_or_not_allowed_is_refused(shell: Shell, given: str, problem: str) -> None:
    plan_id = shell.plan_id()
    with pytest.raises(UsageProblem, match=f"--at: {problem}"):
        shell.run(apply, plan_id, "--at", given, "--yes")
    assert shell.executions() == []


def test_a_time_does_not_bring_an_expired_plan_back(shell: Shell) -> None:
    plan_id = plan(shell.journal, 0, now_ms=now_ms() - 30 * DAY_MS).plan.plan_id
    with pytest.raises(RefusedForSafety, match="has expired, which a time to begin does not change: make a new plan"):
        shell.run(apply, plan_id, "--at", instant_text(now_ms() + HOUR_MS), "--yes")


def test_two_users_approve_and_the_second_command_carries_it_out(shell: Shell) -> None:
    plan_id = shell.plan_id()
    first = shell.run(apply, plan_id, "--yes", "--json", approvals=2)
    end = json.loads(first.stdout)
    assert (first.return_value, end["event"], end["approvers"], end["approvals_needed"]) == (0, "endorsed", ["ann"], 2)
    assert "has 1 of 2 approvals, by ann; another person has to approve it: rebalancer apply" in first.stderr
    with pytest.raises(RefusedForSafety, match="has 1 of 2 approvals, by ann: another person has to approve it"):
        shell.run(apply, plan_id, "--yes", approvals=2)
    assert shell.cluster.changes == []
    shell.user = "ben"
    second = shell.run(apply, plan_id, "--yes", approvals=2)
    assert (second.return_value, shell.cluster.changes) == (0, ["throttle", "move t-0", "clear"])
    assert "is open (endorsed: " in second.output
    assert shell.executions()[0].approvers == ("ann", "ben")


def test_an_abort_of_one_execution_leaves_the_others(shell: Shell) -> None:
    kept = [plan(shell.journal, number, now_ms=now_ms()) for number in range(2)]
    rows = [shell.journal.approve_once(row, "ann", now_ms=now_ms(), begins_ms=now_ms() + HOUR_MS)[0] for row in kept]
    with pytest.raises(UsageProblem, match="execution 'x' is not open: see rebalancer status"):
        shell.run(abort, "x")
    assert shell.run(abort, rows[0].execution_id).return_value == 0
    assert [row.execution_id for row in shell.journal.open_executions(now_ms=now_ms())] == [rows[1].execution_id]


def test_an_instant_is_named_with_its_zone() -> None:
    texts = ("2026-12-06 02:00", "2026-12-06T02:00Z", "2026-12-06 03:00 +01:00", "2026-12-06 02:00 UTC")
    assert {instant_text(instant_ms(text)) for text in texts} == {"2026-12-06 02:00 UTC"}
