"""Throttle rates that somebody else sets are never overwritten or removed; ours that no execution knows are removed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from assignor_core.execution.events import Event
from assignor_core.live import PartitionKey
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.marker import MARKER_TTL_MS, Marker
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE, is_tagged, tagged
from streaming.commands.check import _throttles
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.journal import ExecutionRecord
from streaming.control.lease import Lease
from streaming.control.pressure import LagPressure
from streaming.control.run import ENDED_READ_INTERVAL_MS, ControlLoop
from streaming.control.sweeping import Sweeper
from streaming.control.throttle import RATE_READ_INTERVAL_MS
from streaming.control.wiring import journal_of
from streaming.errors import LeaseLost
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, delete
from streaming.views.executions import WHOLE_READ_INTERVAL_MS
from tests.control import test_movements_within_brokers as within
from tests.control.carried import ERRORS, MB, TICK_MS, TICKS_MAX, BothMoved
from tests.control.noted_cluster import NOON_MS, SKEW, approve_plan
from tests.control.test_movements_within_brokers import cluster_of_two_log_dirs
from tests.simulated_cluster import SimulatedClient, SimulatedCluster
from tests.tables_in_memory import MemoryTable, memory_store

THEIRS = 500_000
RATES = (LEADER_RATE, FOLLOWER_RATE)
LONGER_THAN_A_READ = 3 * RATE_READ_INTERVAL_MS // TICK_MS


def settings_of(tables: str, **control: Any) -> Settings:
    return Settings.model_validate({"storage": {"tables": tables}, "control": control})


@pytest.fixture
def carried(tables_in_memory: str) -> BothMoved:
    """A partition of 40 MB on its way from broker 1 to 2, for 40 s or more."""
    return between(settings_of(tables_in_memory))


def between(settings: Settings) -> BothMoved:
    cluster = SimulatedCluster.of(dict.fromkeys((1, 2, 3)), network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    cluster.create_topic("t", {0: (1,)}, size_bytes=40 * MB)
    return BothMoved(settings, cluster, Plan("c", (Movement("t", 0, (1,), (2,), 40.0 * MB),), SKEW, SKEW))


def within_broker(tables: str, **control: Any) -> within.MovedWithin:
    """Three replicas on their way from one log dir of broker 1 to the other."""
    own = {"log_dir_throttle_bytes_per_sec": MB, "throttle_min_bytes_per_sec": MB, **control}
    made = within.MovedWithin(settings_of(tables, **own), within.cluster_of_two_log_dirs())
    assert made.begin()
    return made


def rates_of(carried: BothMoved) -> dict[int, dict[str, int]]:
    """The rates that the controller keeps."""
    return carried.cluster.contents.throttle_rates


def test_every_rate_of_ours_bears_the_tag(carried: BothMoved, tables_in_memory: str) -> None:
    assert not carried.tick()
    assert {row for rates in rates_of(carried).values() for row in rates.values()} == {tagged(50_000_000)}
    assert carried.record.execution.figures.throttle_bytes_per_sec == tagged(50_000_000)
    inner = within_broker(tables_in_memory)
    assert not inner.tick()
    assert all(map(is_tagged, inner.client.log_dir_rates().values()))


@pytest.mark.parametrize("setting", RATES)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_rate_that_others_change_in_mid_copy_is_theirs_from_then_on(
    carried: BothMoved, setting: str, is_restarted: bool
) -> None:
    """Adaptive rates are sent again every ten seconds, and all of them after a restart."""
    carried.ticks(3)
    carried.cluster.set_throttle_rate(2, setting, THEIRS)
    if is_restarted:
        carried.be_killed()
    carried.ticks(LONGER_THAN_A_READ)
    [other] = {*RATES} - {setting}
    assert rates_of(carried)[2][setting] == THEIRS
    assert is_tagged(rates_of(carried)[2][other])
    carried.to_the_end()
    assert carried.record.execution.last_event is Event.DONE
    assert rates_of(carried) == {2: {setting: THEIRS}}
    assert not carried.record.execution.owes


def test_a_pressed_execution_lowers_its_own_rates_alone(carried: BothMoved, monkeypatch: pytest.MonkeyPatch) -> None:
    carried.ticks(3)
    carried.cluster.set_throttle_rate(1, LEADER_RATE, THEIRS)
    monkeypatch.setattr(LagPressure, "reason", lambda *_, **__: "group g falls behind")
    carried.ticks(12)
    assert rates_of(carried)[1][LEADER_RATE] == THEIRS
    assert rates_of(carried)[1][FOLLOWER_RATE] < tagged(50_000_000)


def test_an_abort_leaves_the_rates_of_others(carried: BothMoved) -> None:
    assert not carried.tick()
    for setting in RATES:
        carried.cluster.set_throttle_rate(1, setting, THEIRS)
    carried.request_abort()
    carried.to_the_end()
    assert carried.record.execution.last_event is Event.ABORTED
    assert rates_of(carried) == {1: dict.fromkeys(RATES, THEIRS)}


def test_what_a_broker_owed_and_others_have_set_since_is_owed_no_more(carried: BothMoved) -> None:
    carried.ticks(3)
    carried.cluster.kill_broker(2)
    carried.cluster.advance(60_000)
    carried.request_abort()
    carried.to_the_end()
    assert carried.record.execution.throttled_brokers == (2,)
    carried.cluster.restart_broker(2)
    carried.cluster.set_throttle_rate(2, FOLLOWER_RATE, THEIRS)
    carried.cluster.advance(60_000)
    assert Sweeper(carried.client, carried.journal).sweep(carried.record, now_ms=0)
    assert rates_of(carried) == {2: {FOLLOWER_RATE: THEIRS}}
    assert not carried.record.execution.owes


def test_within_brokers_a_rate_that_others_change_is_theirs(tables_in_memory: str) -> None:
    carried = within_broker(tables_in_memory)
    assert not carried.tick()
    carried.cluster.set_log_dir_rate(1, THEIRS)
    carried.be_killed()
    carried.ticks(LONGER_THAN_A_READ)
    assert carried.client.log_dir_rates() == {1: THEIRS}
    carried.to_the_end()
    assert carried.client.log_dir_rates() == {1: THEIRS}


@pytest.mark.parametrize("lost", [("plan",), ("plan", "movement")])
def test_where_the_plan_is_gone_rates_of_others_of_either_kind_stay(carried: BothMoved, lost: tuple[str, ...]) -> None:
    assert not carried.tick()
    carried.cluster.set_log_dir_rate(1, THEIRS)
    carried.cluster.set_throttle_rate(2, LEADER_RATE, THEIRS)
    for name in lost:
        delete(carried.settings.storage.tables, name, ALL_ROWS)
    loop = ControlLoop(carried.client, carried.settings, now_ms=NOON_MS + carried.cluster.now_ms)
    while not carried.journal.execution(carried.record.execution.execution_id).ended:
        carried.cluster.advance(TICK_MS)
        assert carried.cluster.now_ms < TICKS_MAX * TICK_MS
        loop.tick(now_ms=NOON_MS + carried.cluster.now_ms)
    assert rates_of(carried) == {2: {LEADER_RATE: THEIRS}}
    assert carried.client.log_dir_rates() == {1: THEIRS}


def test_the_rates_of_an_execution_that_an_earlier_version_began_are_removed(carried: BothMoved) -> None:
    """The rates of such an execution bear no tag; the event of its start says so."""
    execution = carried.record.execution
    events = tuple(
        replace(row, figures=replace(row.figures, throttle_bytes_per_sec=50_000_000)) if row.sequence else row
        for row in execution.events
    )
    carried.record.execution = replace(execution, events=events)
    for broker in (1, 2):
        for setting in RATES:
            carried.cluster.set_throttle_rate(broker, setting, 50_000_000)
    assert any(carried.tick() for _ in range(TICKS_MAX))
    assert rates_of(carried) == {}


KEY: PartitionKey = ("t", 0)
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
        approve_plan(journal_of(self.settings), plan, live=self.client.describe())
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
    """Gives the tables the rows of before, while transactions stay known, as RESTORE of Delta does."""
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


@pytest.mark.long
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
