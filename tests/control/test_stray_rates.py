"""Tables that are rolled back, or lose the table `execution`, while an execution runs: its rates are removed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from assignor_core.execution.events import Event
from assignor_core.live import PartitionKey
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.marker import MARKER_TTL_MS, Marker
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE
from streaming.commands.check import _throttles
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.journal import ExecutionRecord
from streaming.control.lease import Lease
from streaming.control.run import ENDED_READ_INTERVAL_MS, ControlLoop
from streaming.control.wiring import journal_of
from streaming.errors import LeaseLost
from streaming.settings import Settings
from streaming.views.executions import WHOLE_READ_INTERVAL_MS
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.control.test_movements_within_brokers import ERRORS, cluster_of_two_log_dirs
from tests.simulated_cluster import SimulatedClient
from tests.tables_in_memory import MemoryTable, memory_store

MB = 1_000_000
TICK_MS = 1_000
KEY: PartitionKey = ("t", 0)
THEIRS = 700_000
BETWEEN = Plan("main", (Movement(*KEY, (1,), (2,), 5.0 * MB),), SKEW, SKEW)
WITHIN = Plan("main", (), log_dir_movements=(LogDirMovement(1, *KEY, "/disk-0", "/disk-1", 5.0 * MB),))


class Controlled:
    """A control whose execution of `plan` has just begun to copy, at 0.1 MB/s."""

    def __init__(self, tables: str, plan: Plan) -> None:
        control = {"throttle_bytes_per_sec": MB // 10, "log_dir_throttle_bytes_per_sec": MB // 10}
        self.settings = Settings.model_validate({"storage": {"tables": tables}, "control": control})
        self.cluster = cluster_of_two_log_dirs()
        self.lease = Lease(tables, "main", 10**9, lambda: self.now_ms, lambda: self.now_ms)
        assert self.lease.try_acquire()
        self.client = SimulatedClient(self.cluster, errors=ERRORS, may_act=self.lease.check)
        self.restart()
        proposed, journal = ProposedPlan(plan, Observed.of(plan, self.client.describe())), journal_of(self.settings)
        journal.approve(journal.write_plan(proposed, decision=None, now_ms=NOON_MS), "a test", now_ms=NOON_MS)
        for _ in range(6):
            self.tick()
        assert self.rates()
        assert self.is_copying()

    @property
    def now_ms(self) -> int:
        return NOON_MS + self.cluster.now_ms

    def restart(self) -> None:
        """Start control anew, as happens where memory and tables no longer agree, and where its process ends."""
        self.loop = ControlLoop(self.client, self.settings, now_ms=self.now_ms, lease=self.lease)

    def tick(self) -> None:
        with suppress(*RETRIED_ERRORS):
            try:
                self.loop.tick(now_ms=self.now_ms)
            except LeaseLost:
                self.restart()
        self.cluster.advance(TICK_MS)

    def wait(self, duration_ms: int) -> None:
        """Let time pass, then tick once."""
        self.cluster.advance(duration_ms)
        self.tick()

    def rates(self) -> dict[int, object]:
        """The rates of both kinds that the controller keeps."""
        return {**self.cluster.contents.throttle_rates, **self.cluster.contents.log_dir_rates}

    def is_copying(self) -> bool:
        row = self.cluster.contents.partition(KEY)
        assert row is not None
        return row.reassigning or any(copy.future is not None for copy in row.copies.values())

    def lose_execution(self, lose: Callable[["Controlled"], None]) -> None:
        """And control starts again."""
        lose(self)
        self.tick()
        self.restart()


def roll_back(controlled: Controlled) -> None:
    """As Delta's RESTORE does: rows are those of before, and transactions stay known."""
    store = memory_store(controlled.settings.storage.tables)
    assert store is not None
    for name in ("execution", "plan", "movement"):
        store.tables[name] = replace(store.tables[name], rows=(), version=store.tables[name].version + 1)


def lose_the_table(controlled: Controlled) -> None:
    store = memory_store(controlled.settings.storage.tables)
    assert store is not None
    del store.tables["execution"]


def empty_the_table(controlled: Controlled) -> None:
    store = memory_store(controlled.settings.storage.tables)
    assert store is not None
    store.tables["execution"] = MemoryTable()


LOSSES = (roll_back, lose_the_table, empty_the_table)


def slow_down(controlled: Controlled) -> None:
    """What copies does so for longer than a test lasts."""
    controlled.cluster.set_log_dir_rate(1, 973)
    controlled.cluster.set_throttle_rate(2, FOLLOWER_RATE, 973)


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("plan", [BETWEEN, WITHIN], ids=["between", "within"])
def test_rates_of_an_execution_that_the_tables_forgot_go_once_nothing_copies(
    tables_in_memory: str, plan: Plan, lose: Callable[[Controlled], None]
) -> None:
    controlled = Controlled(tables_in_memory, plan)
    controlled.lose_execution(lose)
    assert controlled.rates()
    assert controlled.is_copying()
    controlled.wait(ENDED_READ_INTERVAL_MS)  # 5 MB at 0.1 MB/s are copied by then
    assert not controlled.is_copying()
    assert controlled.rates() == {}


@pytest.mark.parametrize("lose", LOSSES)
def test_a_control_that_runs_goes_on_without_what_the_table_forgot_and_waits_for_a_missing_table(
    tables_in_memory: str, lose: Callable[[Controlled], None]
) -> None:
    controlled = Controlled(tables_in_memory, BETWEEN)
    before = controlled.loop
    lose(controlled)
    controlled.wait(WHOLE_READ_INTERVAL_MS)
    assert (controlled.loop is before) == (lose is lose_the_table)


@pytest.mark.parametrize("kept", [0, 1])
def test_no_event_is_written_behind_those_that_the_table_forgot(tables_in_memory: str, kept: int) -> None:
    """A history with a gap could be read by nobody, and would keep control from any other work."""
    controlled = Controlled(tables_in_memory, BETWEEN)
    journal, store = journal_of(controlled.settings), memory_store(tables_in_memory)
    assert store is not None
    (execution,) = journal.open_executions(now_ms=controlled.now_ms)
    table = store.tables["execution"]
    store.tables["execution"] = replace(table, rows=table.rows[:kept], version=table.version + 1)
    with pytest.raises(LeaseLost, match="was written before, and is gone from the table execution"):
        journal.write_event(ExecutionRecord(execution), Event.PROGRESS, "a test", now_ms=controlled.now_ms)
    assert len(journal_of(controlled.settings).executions(now_ms=controlled.now_ms)) == kept


@pytest.mark.parametrize("plan", [BETWEEN, WITHIN], ids=["between", "within"])
def test_what_still_copies_keeps_its_rates_until_it_is_made(tables_in_memory: str, plan: Plan) -> None:
    controlled = Controlled(tables_in_memory, plan)
    slow_down(controlled)
    controlled.lose_execution(roll_back)
    controlled.wait(ENDED_READ_INTERVAL_MS)
    assert controlled.is_copying()
    assert controlled.rates()
    while controlled.is_copying():
        controlled.cluster.advance(ENDED_READ_INTERVAL_MS)
    controlled.wait(ENDED_READ_INTERVAL_MS)
    assert controlled.rates() == {}


def test_rates_of_others_stay(tables_in_memory: str) -> None:
    controlled = Controlled(tables_in_memory, BETWEEN)
    controlled.cluster.set_throttle_rate(1, LEADER_RATE, THEIRS)
    controlled.cluster.set_log_dir_rate(2, THEIRS)
    controlled.lose_execution(roll_back)
    controlled.wait(ENDED_READ_INTERVAL_MS)
    assert controlled.cluster.contents.throttle_rates == {1: {LEADER_RATE: THEIRS}}
    assert controlled.cluster.contents.log_dir_rates == {2: THEIRS}


def test_rates_on_a_cluster_that_these_tables_never_changed_stay(tables_in_memory: str) -> None:
    """The tables are gone altogether, or the rates are those of another rebalancer."""
    controlled = Controlled(tables_in_memory, BETWEEN)
    controlled.cluster.contents.markers[:] = [Marker("f" * 32, "other/1", 1, 2, is_released=True)]
    controlled.lose_execution(roll_back)
    controlled.cluster.contents.markers[:] = [Marker("f" * 32, "other/1", 1, 2, is_released=True)]
    controlled.wait(ENDED_READ_INTERVAL_MS)
    assert controlled.rates()


def test_rates_stay_while_another_rebalancer_changes_the_cluster(tables_in_memory: str) -> None:
    controlled = Controlled(tables_in_memory, BETWEEN)
    controlled.lose_execution(roll_back)
    at_work = Marker("f" * 32, "other/1", 1, 2)
    controlled.cluster.contents.markers.append(at_work)
    controlled.wait(ENDED_READ_INTERVAL_MS)
    assert controlled.rates()
    controlled.cluster.contents.markers.remove(at_work)
    controlled.wait(ENDED_READ_INTERVAL_MS + MARKER_TTL_MS)
    assert controlled.rates() == {}


def test_check_names_rates_that_no_execution_accounts_for_and_who_removes_them(tables_in_memory: str) -> None:
    controlled = Controlled(tables_in_memory, BETWEEN)
    controlled.lose_execution(roll_back)
    controlled.cluster.set_log_dir_rate(2, THEIRS)
    passed, detail = _throttles(controlled.client, controlled.settings)
    assert not passed
    assert detail == (
        "brokers [1, 2] and topics ['t'] are throttled, and no execution of ours is under way. A rebalancer has set "
        "the rates of brokers [1, 2], and control removes them within 10 minutes once nothing copies"
    )
    controlled.cluster.contents.markers.clear()
    assert "not from these tables" in _throttles(controlled.client, controlled.settings)[1]
