"""Throttle rates that somebody else sets before, during and after an execution: never overwritten, never removed."""

from dataclasses import replace
from typing import Any

import pytest

from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE, is_tagged, tagged
from streaming.control.pressure import LagPressure
from streaming.control.run import ControlLoop
from streaming.control.sweeping import Sweeper
from streaming.control.throttle import RATE_READ_INTERVAL_MS
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, delete
from tests.control import test_movements_within_brokers as within
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.control.test_simulated_executions import MB, TICK_MS, TICKS_MAX, Carried
from tests.simulated_cluster import SimulatedCluster

THEIRS = 500_000
RATES = (LEADER_RATE, FOLLOWER_RATE)
LONGER_THAN_A_READ = 3 * RATE_READ_INTERVAL_MS // TICK_MS


def settings_of(tables: str, **control: Any) -> Settings:
    return Settings.model_validate({"storage": {"tables": tables}, "control": control})


@pytest.fixture
def carried(tables_in_memory: str) -> Carried:
    """A partition of 40 MB on its way from broker 1 to 2, for 40 s or more."""
    return between(settings_of(tables_in_memory))


def between(settings: Settings) -> Carried:
    cluster = SimulatedCluster.of(dict.fromkeys((1, 2, 3)), network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    cluster.create_topic("t", {0: (1,)}, size_bytes=40 * MB)
    return Carried(settings, cluster, Plan("c", (Movement("t", 0, (1,), (2,), 40.0 * MB),), SKEW, SKEW))


def within_broker(tables: str, **control: Any) -> within.Carried:
    """Three replicas on their way from one log dir of broker 1 to the other."""
    own = {"log_dir_throttle_bytes_per_sec": MB, "throttle_min_bytes_per_sec": MB, **control}
    made = within.Carried(settings_of(tables, **own), within.cluster_of_two_log_dirs())
    assert made.begin()
    return made


def rates_of(carried: Carried) -> dict[int, dict[str, int]]:
    """The rates that the controller keeps."""
    return carried.cluster.contents.throttle_rates


def test_every_rate_of_ours_bears_the_tag(carried: Carried, tables_in_memory: str) -> None:
    assert not carried.tick()
    assert {row for rates in rates_of(carried).values() for row in rates.values()} == {tagged(50_000_000)}
    assert carried.record.execution.figures.throttle_bytes_per_sec == tagged(50_000_000)
    inner = within_broker(tables_in_memory)
    assert not inner.tick()
    assert all(map(is_tagged, inner.client.log_dir_rates().values()))


@pytest.mark.parametrize("setting", RATES)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_rate_that_others_change_in_mid_copy_is_theirs_from_then_on(
    carried: Carried, setting: str, is_restarted: bool
) -> None:
    """Adaptive rates are sent again every ten seconds, and all of them after a restart."""
    for _ in range(3):
        assert not carried.tick()
    carried.cluster.set_throttle_rate(2, setting, THEIRS)
    if is_restarted:
        carried.be_killed()
    for _ in range(LONGER_THAN_A_READ):
        assert not carried.tick()
    [other] = {*RATES} - {setting}
    assert rates_of(carried)[2][setting] == THEIRS
    assert is_tagged(rates_of(carried)[2][other])
    carried.to_the_end()
    assert carried.record.execution.last_event is Event.DONE
    assert rates_of(carried) == {2: {setting: THEIRS}}
    assert not carried.record.execution.owes


def test_a_pressed_execution_lowers_its_own_rates_alone(carried: Carried, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        assert not carried.tick()
    carried.cluster.set_throttle_rate(1, LEADER_RATE, THEIRS)
    monkeypatch.setattr(LagPressure, "reason", lambda *_, **__: "group g falls behind")
    for _ in range(12):
        assert not carried.tick()
    assert rates_of(carried)[1][LEADER_RATE] == THEIRS
    assert rates_of(carried)[1][FOLLOWER_RATE] < tagged(50_000_000)


def test_an_abort_leaves_the_rates_of_others(carried: Carried) -> None:
    assert not carried.tick()
    for setting in RATES:
        carried.cluster.set_throttle_rate(1, setting, THEIRS)
    carried.journal.request_abort(carried.record.execution, "a person", now_ms=0)
    carried.be_killed()
    carried.to_the_end()
    assert carried.record.execution.last_event is Event.ABORTED
    assert rates_of(carried) == {1: dict.fromkeys(RATES, THEIRS)}


def test_what_a_broker_owed_and_others_have_set_since_is_owed_no_more(carried: Carried) -> None:
    for _ in range(3):
        assert not carried.tick()
    carried.cluster.kill_broker(2)
    carried.cluster.advance(60_000)
    carried.journal.request_abort(carried.record.execution, "a person", now_ms=0)
    carried.be_killed()
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
    for _ in range(LONGER_THAN_A_READ):
        assert not carried.tick()
    assert carried.client.log_dir_rates() == {1: THEIRS}
    carried.to_the_end()
    assert carried.client.log_dir_rates() == {1: THEIRS}


@pytest.mark.parametrize("lost", [("plan",), ("plan", "movement")])
def test_where_the_plan_is_gone_rates_of_others_of_either_kind_stay(carried: Carried, lost: tuple[str, ...]) -> None:
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


def test_the_rates_of_an_execution_that_an_earlier_version_began_are_removed(carried: Carried) -> None:
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
