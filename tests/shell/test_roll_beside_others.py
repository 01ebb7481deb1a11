# ruff: noqa: F401, F811 - fixtures of other files
"""`roll`, `demote` and `undemote` beside approvals and executions of other people, and interrupts at a bad moment."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.commands import apply as apply_module
from streaming.commands import demotion
from streaming.commands import roll as roll_module
from streaming.commands.demotion import reorder
from streaming.control.carrier import Carrier
from streaming.control.lease import Lease
from streaming.control.wiring import journal_of
from streaming.errors import RefusedForSafety, RollStopped
from streaming.settings import Settings
from tests.control.carried import ERRORS
from tests.control.noted_cluster import plan
from tests.shell.test_approvals import DAY_MS, Shell, now_ms, shell
from tests.shell.test_demotion import carried_out, cluster, own, plans_of, run
from tests.shell.test_roll import Rolled, rolled
from tests.simulated_cluster import SimulatedClient, SimulatedCluster, controller
from tests.tables_in_memory import given_to_commands


def let_apply_act(monkeypatch: pytest.MonkeyPatch, cluster: SimulatedCluster, own: Settings) -> None:
    """`apply` changes the simulated cluster."""
    client = SimulatedClient(cluster, errors=ERRORS)
    lease = Lease(own.storage.tables, own.kafka.cluster_name, 15_000)
    for name, value in {
        "cluster.clients.admin_client": lambda _: SimpleNamespace(close=lambda: None),
        "cluster.permissions.check_may_execute": lambda _: None,
        "commands.apply.check_writable": lambda *_: None,
        "control.identity.lease_of": lambda *_: lease,
        "control.identity.leased_cluster": lambda *_: client,
        "control.cluster_marker.ANNOUNCED_BEFORE_MS": 0,
    }.items():
        monkeypatch.setattr(f"streaming.{name}", value)


def test_the_order_of_before_is_kept_until_the_second_person_has_approved(
    cluster: SimulatedCluster, own: Settings, carried_out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("demote", "3", "--apply", "--yes")
    before = plans_of(own, 3)
    monkeypatch.undo()
    given_to_commands(monkeypatch, own.storage.tables)
    monkeypatch.setenv("REBALANCER_CONTROL__APPROVALS", "2")

    @contextmanager
    def connected(_settings: Settings) -> Iterator[SimulatedClient]:
        yield SimulatedClient(cluster, errors=ERRORS)

    monkeypatch.setattr(demotion, "live_cluster", connected)
    let_apply_act(monkeypatch, cluster, own)
    result = run("undemote", "3", "--apply", "--yes")
    assert (result.return_value, "another person has to approve the plan first" in result.stderr) == (3, True)
    assert journal_of(own).executions(now_ms=now_ms())[-1].last_event == "endorsed"
    assert plans_of(own, 3) == before


def bounded(monkeypatch: pytest.MonkeyPatch, at_third: Callable[[], None] = lambda: None) -> None:
    """Waits of `apply` take no time; the twenty-first fails, and before the third `at_third` is called."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            at_third()
        assert len(waits) <= 20, "it still waits"

    monkeypatch.setattr(apply_module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))


def test_a_roll_waits_for_no_execution_whose_time_has_not_come(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = plan(shell.journal, 0, now_ms=now_ms())
    shell.journal.approve_once(kept, "ben", now_ms=now_ms(), begins_ms=now_ms() + 13 * DAY_MS)
    bounded(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with roll_module._own_handlers():
        apply_module.finish_open(shell.settings, 60)
    assert not shell.executions()[0].abort_requested


def test_a_roll_begins_though_an_execution_waits_for_its_time(rolled: Rolled) -> None:
    journal = journal_of(rolled.settings)
    kept = plan(journal, 0, now_ms=now_ms())
    journal.approve_once(kept, "ben", now_ms=now_ms(), begins_ms=now_ms() + 13 * DAY_MS)
    assert rolled.by_command("1", "--wait", "30s").return_value == 0


def test_an_interrupt_in_the_last_second_of_the_demotion_stops_the_roll(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_id, tick = shell.plan_id(), Carrier.tick

    def last(self: Carrier, *, now_ms: int) -> Any:
        record = tick(self, now_ms=now_ms)
        if record is not None and record.execution.ended:
            os.kill(os.getpid(), signal.SIGINT)
        return record

    monkeypatch.setattr(Carrier, "tick", last)
    with pytest.raises(KeyboardInterrupt), roll_module._own_handlers():
        apply_module.carry_out_stored(shell.settings, plan_id)


def test_a_demotion_that_is_refused_is_tried_again(
    cluster: SimulatedCluster, own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("x", {0: (1, 2)}, size_bytes=10**12)
    cluster.reassign({("x", 0): (1, 4)})  # somebody else moves a partition that broker 3 does not hold
    let_apply_act(monkeypatch, cluster, own)
    with pytest.raises(RefusedForSafety, match="1 other partition is being reassigned"):  # the roll waits on that
        reorder(own, "demote", 3, 60)


def test_a_restart_that_is_shorter_than_looks_at_a_large_cluster_is_seen(rolled: Rolled) -> None:
    describe = rolled.describe

    def slow() -> Any:
        rolled.sleep(3.0)
        return describe()

    def restart(broker: int) -> None:
        rolled.done.append(("restart", broker))

        def stop() -> None:
            rolled.cluster.kill_broker(broker)
            controller.fence(rolled.cluster.contents, broker)

        rolled.cluster.plan(5_000, stop)
        rolled.cluster.plan(14_000, lambda: rolled.cluster.restart_broker(broker))

    rolled.describe, rolled.restart = slow, restart  # type: ignore[method-assign]
    assert rolled.by_command("1", "--wait", "10m").return_value == 0


def test_a_roll_can_be_ended_once_two_people_have_to_approve(rolled: Rolled, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled.comes_back = False
    with pytest.raises(RollStopped):
        rolled.by_command("1", "--wait", "30s")
    control = rolled.settings.control.model_copy(update={"approvals": 2})
    by_two = rolled.settings.model_copy(update={"control": control})
    monkeypatch.setattr(roll_module, "settings_from", lambda *_: by_two)
    rolled.run("--abort")
    assert rolled.status() == {"roll_id": None}


def test_a_broker_that_nobody_has_restarted_is_a_refusal(rolled: Rolled) -> None:
    with pytest.raises(RefusedForSafety, match=r"\(--wait\); it was not restarted"):
        rolled.run("1", "--yes", "--wait", "30s")
