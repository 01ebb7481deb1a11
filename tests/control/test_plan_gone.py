"""Executions that must not start or go on: their plan is gone or misfits, or the broker that it replaces is back."""

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.execution.life_cycle import begin
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, Observed, ProposedPlan
from streaming.control.journal import ExecutionRecord
from streaming.control.obstacles import misfit, reason_to_give_up
from streaming.control.run import ControlLoop
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import TableUnavailable
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, delete
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster, approve, approve_plan

HOUR_MS = 3_600_000


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return settings_over(tables_in_memory)


@pytest.fixture
def on_disk(tmp_path: Path) -> Settings:
    return settings_over(str(tmp_path / "tables"))


def settings_over(root: str) -> Settings:
    return Settings.model_validate(
        {
            "storage": {"tables": root},
            "kafka": {"cluster_name": "c"},
            "control": {"maintenance_windows": ["12:00-13:00", "14:00-15:00"]},
        }
    )


def lose(settings: Settings, *names: str) -> None:
    """Somebody removes all rows of these tables."""
    for name in names:
        delete(settings.storage.tables, name, ALL_ROWS)


def last(settings: Settings, record: ExecutionRecord) -> tuple[str, str]:
    event = journal_of(settings).execution(record.execution.execution_id).last
    return event.event.value, event.detail


def under_way(settings: Settings, cluster: NotedCluster) -> tuple[ExecutionRecord, ExecutionRecord]:
    """One execution whose reassignment is in flight, and an approval behind it. The control that took it up is gone."""
    journal = journal_of(settings)
    first, second = approve(journal, 0), approve(journal, 1, now_ms=NOON_MS + 1)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS)
    loop.tick(now_ms=NOON_MS + 2)
    assert cluster.describe().reassigning() == {("t", 0)}
    assert cluster.throttle_rates()
    return first, second


def test_an_execution_whose_plan_is_gone_is_cleared_up_and_the_next_has_its_turn(settings: Settings) -> None:
    cluster = NotedCluster()
    first, second = under_way(settings, cluster)
    lose(settings, "plan")
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 3)
    loop.tick(now_ms=NOON_MS + 3)
    assert last(settings, first) == (
        "aborted",
        "the plan of the execution is gone from the tables; 1 move in flight cancelled",
    )
    assert (cluster.throttle_rates(), cluster.throttled_replicas(["t"])) == ({}, {})
    assert not cluster.describe().reassigning()
    loop.tick(now_ms=NOON_MS + 4)
    assert last(settings, second) == ("refused", "the plan of the execution is gone from the tables")


def test_where_the_movements_are_gone_too_what_is_in_flight_is_named(settings: Settings) -> None:
    cluster = NotedCluster()
    first, _ = under_way(settings, cluster)
    lose(settings, "plan", "movement")
    ControlLoop(cluster, settings, now_ms=NOON_MS + 3).tick(now_ms=NOON_MS + 3)
    event, detail = last(settings, first)
    assert (event, detail.split("; ")[0]) == ("aborted", "the plan of the execution is gone from the tables")
    assert detail.endswith("its movements are not known: 1 partition is being reassigned, first t-0")
    assert cluster.throttle_rates() == {}


@pytest.mark.long
def test_movements_that_are_not_those_of_the_plan_cancel_nothing(on_disk: Settings) -> None:
    cluster, journal = NotedCluster(), journal_of(on_disk)
    first, _ = under_way(on_disk, cluster)
    cluster.reassign({("t", 2): (3,)})  # by somebody else
    lose(on_disk, "plan")
    DeltaTable(f"{on_disk.storage.tables}/movement").update({"partition": "2", "new_replicas": "make_array(3)"})
    assert journal.movements_of(first.execution) is None
    ControlLoop(cluster, on_disk, now_ms=NOON_MS + 3).tick(now_ms=NOON_MS + 3)
    assert last(on_disk, first)[0] == "aborted"
    assert ("t", 2) in cluster.describe().reassigning()


@pytest.mark.long
def test_a_plan_that_can_not_be_read_as_one_ends_its_execution(on_disk: Settings) -> None:
    cluster = NotedCluster()
    first, _ = under_way(on_disk, cluster)
    DeltaTable(f"{on_disk.storage.tables}/plan").update({"plan_json": "replace(plan_json, '[2]', '[3]')"})
    ControlLoop(cluster, on_disk, now_ms=NOON_MS + 3).tick(now_ms=NOON_MS + 3)
    assert last(on_disk, first)[0] == "aborted"
    assert not cluster.describe().reassigning()


@pytest.mark.long
def test_a_table_of_plans_that_is_not_there_ends_nothing(on_disk: Settings, tmp_path: Path) -> None:
    cluster = NotedCluster()
    first, _ = under_way(on_disk, cluster)
    loop = ControlLoop(cluster, on_disk, now_ms=NOON_MS + 3)
    (tmp_path / "tables" / "plan").rename(tmp_path / "away")
    with pytest.raises(TableUnavailable, match="table plan is gone"):
        loop.tick(now_ms=NOON_MS + 3)
    assert last(on_disk, first)[0] == "submitted"


def paused(settings: Settings, cluster: NotedCluster) -> tuple[KeptPlan, ExecutionRecord]:
    """One that makes the replica of broker 1, which is gone, anew; its hours are over."""
    cluster.cluster.kill_broker(1)
    cluster.cluster.advance(60_000)
    journal = journal_of(settings)
    made = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),), SKEW, SKEW)
    observed = Observed.of(made, cluster.describe())
    assert observed.brokers_missing == {1}
    kept = journal.write_plan(ProposedPlan(made, observed), decision=None, now_ms=NOON_MS)
    record = ExecutionRecord(journal.approve(kept, "a test", now_ms=NOON_MS, in_windows_only=True))
    executor = executor_of(cluster, journal, settings)
    assert executor.begin(record, kept, now_ms=NOON_MS)
    executor.tick(record, made, now_ms=NOON_MS + HOUR_MS)
    assert record.execution.last_event is Event.PAUSED
    return kept, record


@pytest.mark.parametrize("restarted", [False, True])
def test_a_plan_that_paused_ends_if_the_broker_that_it_replaces_is_back(settings: Settings, restarted: bool) -> None:
    cluster = NotedCluster()
    _, record = paused(settings, cluster)
    cluster.cluster.restart_broker(1)
    cluster.cluster.advance(60_000)
    loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2 * HOUR_MS)
    loop.tick(now_ms=NOON_MS + HOUR_MS + (0 if restarted else 1))
    cluster.changes.clear()
    if restarted:
        loop = ControlLoop(cluster, settings, now_ms=NOON_MS + 2 * HOUR_MS)
    loop.tick(now_ms=NOON_MS + 2 * HOUR_MS)
    assert last(settings, record) == (
        "aborted",
        "broker 1, which the plan replaces, is back; 0 moves in flight cancelled",
    )
    assert cluster.changes == ["clear"]


def test_a_plan_that_paused_goes_on_while_the_broker_that_it_replaces_is_away(settings: Settings) -> None:
    cluster = NotedCluster()
    _, record = paused(settings, cluster)
    ControlLoop(cluster, settings, now_ms=NOON_MS).tick(now_ms=NOON_MS + 2 * HOUR_MS)
    assert last(settings, record)[0] == "resumed"


def replacing(settings: Settings, cluster: NotedCluster, *, in_flight: int) -> ExecutionRecord:
    """An execution that makes the replicas of broker 1 on t-0 and t-1 anew; so many of them copy when it is back."""
    own = Settings.model_validate(
        {**settings.model_dump(), "control": {"movements_in_flight_max": in_flight, "elections_at_once_max": 1}}
    )
    for key in (("t", 0), ("t", 1)):
        cluster.cluster.reassign({key: (1, 3)})
        cluster.cluster.contents.topics["t"].partitions[key[1]].end_bytes = 10**9
    cluster.cluster.advance(3_600_000)
    cluster.cluster.kill_broker(1)
    cluster.cluster.advance(60_000)
    journal = journal_of(own)
    movements = tuple(Movement("t", number, (1, 3), (2, 3), 1e9) for number in (0, 1))
    made = Plan("c", movements, SKEW, SKEW)
    record = approve_plan(journal, made, live=cluster.describe())
    loop = ControlLoop(cluster, own, now_ms=NOON_MS)
    for tick in range(3):
        loop.tick(now_ms=NOON_MS + tick)
    assert len(cluster.describe().reassigning()) == in_flight
    cluster.cluster.restart_broker(1)
    cluster.cluster.advance(10)
    for tick in range(3, 6):
        loop.tick(now_ms=NOON_MS + tick)
    return record


def test_a_plan_under_way_ends_if_the_broker_that_it_replaces_is_back(settings: Settings) -> None:
    cluster = NotedCluster()
    record = replacing(settings, cluster, in_flight=1)
    assert last(settings, record) == (
        "aborted",
        "broker 1, which the plan replaces, is back; 1 move in flight cancelled",
    )
    assert not cluster.describe().reassigning()
    assert not cluster.throttle_rates()


def test_a_plan_of_which_all_copies_is_brought_to_its_end_though_the_broker_is_back(settings: Settings) -> None:
    cluster = NotedCluster()
    record = replacing(settings, cluster, in_flight=2)
    assert last(settings, record)[0] in ("submitted", "progress", "electing")
    assert len(cluster.describe().reassigning()) == 2


DAY_MS = 86_400_000
RESTING = LivePartition((1,), 1, (1,))
LIVE = LiveCluster("c", dict.fromkeys((1, 2, 3)), {("t", 0): RESTING, ("t", 1): RESTING})
PLAN = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),))


def kept_plan() -> KeptPlan:
    return KeptPlan(ProposedPlan(PLAN, Observed.of(PLAN, LIVE)), 0, DAY_MS)


def test_a_plan_does_not_start_while_partitions_of_others_are_reassigned() -> None:
    moving = replace(RESTING, replicas=(3, 1), adding_replicas=(3,), removing_replicas=(1,))
    assert misfit(kept_plan(), LIVE) is None
    other = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): moving})
    assert misfit(kept_plan(), other) == "1 other partition is being reassigned, first t-1"


def test_a_reassignment_that_waits_for_a_broker_which_is_away_keeps_no_plan_waiting() -> None:
    """It copies nothing, and Kafka refuses to cancel it."""
    waiting = LivePartition((3, 9), NO_LEADER, (), adding_replicas=(3,), removing_replicas=(9,))
    other = replace(LIVE, partitions={**LIVE.partitions, ("t", 1): waiting})
    assert misfit(kept_plan(), other) is None
    back = replace(other, broker_racks={**LIVE.broker_racks, 9: None})
    assert misfit(kept_plan(), back) == "1 other partition is being reassigned, first t-1"


def test_an_execution_gives_up_after_fourteen_days_with_its_pauses() -> None:
    execution = begin("e", "p", EventRecord(Event.APPROVED, 0, 0, "", Figures(1, 5))).after(
        EventRecord(Event.STARTED, 1, 1_000, "", Figures(1, 5)), EventRecord(Event.PAUSED, 2, 2_000, "", Figures(1, 5))
    )
    assert reason_to_give_up(execution, 14 * DAY_MS + 1_000) is None
    assert reason_to_give_up(execution, 14 * DAY_MS + 1_001) == "not finished 14 days after the start"
