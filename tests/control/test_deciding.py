"""Decisions on windows in tables and a cluster that is only described: no broker, no Spark.

Time is what a test says. Eight partitions of two replicas on brokers 1 to 4; partitions 0 to 3 are led by broker 1.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from assignor_core.deciding.observation import brokers_counted
from assignor_core.disks import NO_UPLOADS, LogDirDescription, Uploads
from assignor_core.errors import InputError
from assignor_core.execution.events import Event
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey
from assignor_core.plan import Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.commands.plan import plan as plan_command
from streaming.commands.plan import plan_on
from streaming.control.deciding import Decider
from streaming.control.intents import note_intent
from streaming.control.journal import ExecutionRecord
from streaming.control.measuring import measured_skew
from streaming.control.planning import propose_live
from streaming.control.policies import decision_policy, relief_policy
from streaming.control.windows import closed_windows
from streaming.control.wiring import decider_of, journal_of, window_tables_of
from streaming.errors import ClusterRequestFailed
from streaming.runtime.own_process import os_user
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.intents import Intent, drained_brokers
from tests.control.noted_cluster import approve
from tests.control.windows import RATE, window_columns, write_lag, write_windows

WINDOW_MS = 10_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
NOON_MS = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()) * 1000
"""A Monday."""


TOTAL_BYTES = 1_000_000


@dataclass
class DescribedCluster(Cluster):
    """What control asks a cluster, without one."""

    live: LiveCluster

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        if topics is None:
            return self.live
        return replace(
            self.live, partitions={key: row for key, row in self.live.partitions.items() if key[0] in topics}
        )

    shown_uploads: Uploads = NO_UPLOADS

    def uploads(self, leaders: Mapping[PartitionKey, int]) -> Uploads:
        assert leaders.keys() <= self.live.partitions.keys()
        return self.shown_uploads

    usable_bytes: int | None = TOTAL_BYTES
    """What is free on the one log dir of each broker; None where brokers do not show it."""

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        assert brokers is None
        shown = self.live.partitions.items()
        held = {
            broker: {
                key: 1_000 for key, row in shown if broker in row.replicas and (partitions is None or key in partitions)
            }
            for broker in self.live.broker_racks
        }
        total_bytes = None if self.usable_bytes is None else TOTAL_BYTES
        return {
            broker: (LogDirDescription("/d", total_bytes, self.usable_bytes, sizes),) for broker, sizes in held.items()
        }


def skewed() -> DescribedCluster:
    replicas = [(1, 2), (1, 3), (1, 4), (1, 2), (2, 3), (3, 4), (4, 1), (2, 4)]
    partitions = {("t", number): LivePartition(row, row[0], row) for number, row in enumerate(replicas)}
    return DescribedCluster(LiveCluster("c", {1: "a", 2: "b", 3: "c", 4: "d"}, partitions))


def without(cluster: DescribedCluster, broker: int) -> None:
    """`broker` dies: the next replica leads, or none."""
    partitions = {}
    for key, row in cluster.live.partitions.items():
        isr = tuple(other for other in row.isr if other != broker)
        leader = row.leader if row.leader != broker else (isr[0] if isr else NO_LEADER)
        partitions[key] = replace(row, isr=isr, leader=leader)
    racks = {other: rack for other, rack in cluster.live.broker_racks.items() if other != broker}
    cluster.live = LiveCluster("c", racks, partitions)


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return Settings.model_validate(
        {
            "storage": {"tables": tables_in_memory},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "trigger": {"resources": ["bytes_in"], "windows_over": 2, "windows_considered": 3, "cooldown_ms": 60_000},
            "planner": {"windows": 3},
            "control": {"mode": "apply"},
        }
    )


def with_control(settings: Settings, **control: Any) -> Settings:
    return Settings.model_validate(
        {**settings.model_dump(), "control": {**settings.model_dump()["control"], **control}}
    )


def with_trigger(settings: Settings, **trigger: Any) -> Settings:
    return Settings.model_validate({**settings.model_dump(), "trigger": settings.model_dump()["trigger"] | trigger})


def with_planner(settings: Settings, **planner: Any) -> Settings:
    return Settings.model_validate({**settings.model_dump(), "planner": settings.model_dump()["planner"] | planner})


def decide(settings: Settings, cluster: DescribedCluster, now_ms: int, **given: Any) -> ProposedPlan | None:
    """One evaluation by a control that has just started, on windows that end now."""
    write_windows(settings, cluster.live, end_ms=now_ms, **given)
    return decider_of(cluster, journal_of(settings), settings).tick(now_ms=now_ms)


def last(settings: Settings) -> Mapping[str, Any]:
    row = journal_of(settings).last_decision()
    assert row is not None
    return row


def crowded() -> DescribedCluster:
    """Broker 1 takes part in nearly everything, so that its bytes in stand out."""
    cluster = skewed()
    replicas = [(1, 2), (1, 3), (1, 4), (1, 2), (2, 1), (3, 1), (4, 1), (2, 4)]
    partitions = {("t", number): LivePartition(row, row[0], row) for number, row in enumerate(replicas)}
    cluster.live = replace(cluster.live, partitions=partitions)
    return cluster


@pytest.mark.long
def test_a_person_gets_the_plan_that_control_would_make_unless_options_say_otherwise(settings: Settings) -> None:
    own = with_planner(settings, movements_max=1)
    cluster = crowded()
    write_windows(own, cluster.live, end_ms=NOON_MS)

    def asked(*options: str) -> Plan:
        with plan_command.make_context("plan", list(options)) as context:
            return plan_on(cluster, own, context.params, now_ms=NOON_MS).plan

    policy = decision_policy(own, ("t",)).planner
    ours = propose_live(cluster, cluster.live, window_tables_of(own), own.planner, now_ms=NOON_MS, policy=policy)
    assert len(ours.plan.movements) == 1
    assert asked().plan_id == ours.plan.plan_id
    assert len(asked("--max-movements", "2").movements) == 2
    assert asked("--max-bytes", "0").bytes_to_move == 0
    assert journal_of(own).plan(ours.plan.plan_id).plan == ours.plan
    stored = [row["plan_id"] for row in tables.read(own.storage.tables, "plan")]
    acts = [row for row in tables.read(own.storage.tables, "audit") if row["stage"] == "ended"]
    assert {(row["action"], row["target"], row["actor"], row["state"]) for row in acts} == {
        ("plan", plan_id, os_user(), "planned") for plan_id in stored
    }
    with pytest.raises(InputError, match="--exclude-topic: there is no topic 'tt'; did you mean 't'"):
        asked("--exclude-topic", "tt")


def test_a_plan_waits_for_the_maintenance_window_and_is_then_carried_out(settings: Settings) -> None:
    own = with_control(settings, maintenance_windows=["Mon-Fri 22:00-23:00"])
    cluster = crowded()
    assert decide(own, cluster, NOON_MS) is None
    made = last(own)
    assert (made["verdict"], made["reason"]) == ("plan", "maintenance_window")
    assert made["detail"].endswith("the plan waits for maintenance window Mon-Fri 22:00-23:00, which opens in 10.0 h")

    # At lower load the plan of the day stays; control has been started anew in between.
    assert decide(own, cluster, NOON_MS + 3_600_000, rate=RATE / 2) is None
    later = last(own)
    assert (later["verdict"], later["reason"], later["plan_id"]) == ("hold", "maintenance_window", None)
    assert later["detail"].startswith(f"plan {made['plan_id'][:12]}, made at a higher load, waits for")

    # The night is even, and yet the plan for the day is due.
    even = skewed()
    write_windows(own, even.live, end_ms=NOON_MS + 10 * 3_600_000)
    due = decider_of(cluster, journal_of(own), own).tick(now_ms=NOON_MS + 10 * 3_600_000)
    assert due is not None
    assert due.plan.plan_id == made["plan_id"]
    assert last(own)["detail"] == (
        f"maintenance window Mon-Fri 22:00-23:00 is open: plan {made['plan_id'][:12]}, made 10.0 h ago, is carried out"
    )
    assert journal_of(own).plan(made["plan_id"]).expires_ms == NOON_MS + 11 * 3_600_000
    # Once only.
    assert decide(own, cluster, NOON_MS + 10 * 3_600_000 + 3 * WINDOW_MS) is None
    assert last(own)["reason"] == "cooldown"


@pytest.mark.long
def test_replicas_of_a_failed_broker_are_made_anew_after_the_grace_time(settings: Settings) -> None:
    cluster = skewed()
    lone = {("t", 8): LivePartition((4,), 4, (4,)), ("u", 0): LivePartition((4, 1), 4, (4, 1))}
    cluster.live = replace(cluster.live, partitions={**cluster.live.partitions, **lone})
    without(cluster, 4)
    assert decide(settings, cluster, NOON_MS) is None
    assert (last(settings)["reason"], last(settings)["breached"]) == ("incomplete", True)
    assert last(settings)["detail"] == "broker 4 has been offline for 0 s: it may come back"
    proposal = after_the_grace_time(settings, cluster, since_ms=NOON_MS)
    assert proposal is not None
    assert last(settings)["reason"] == "broker_failed"
    assert last(settings)["detail"] == "away for longer than 30 min: broker 4 (31 min)"
    held = {key for key, row in cluster.live.partitions.items() if 4 in row.replicas}
    # What only broker 4 had can't be copied from anywhere.
    assert {(row.topic, row.partition) for row in proposal.plan.movements} == held - {("t", 8)}
    for row in proposal.plan.movements:
        assert len(row.new_replicas) == len(row.old_replicas)
        assert set(row.old_replicas) - {4} <= set(row.new_replicas)
        assert 4 not in row.new_replicas


def after_the_grace_time(settings: Settings, cluster: DescribedCluster, *, since_ms: int) -> ProposedPlan | None:
    """What is proposed after 31 minutes in which control has evaluated without a gap."""
    ends = (*range(since_ms + 100_000, since_ms + 1_800_000, 100_000), since_ms + 1_790_000)
    assert all(decide(settings, cluster, end_ms, windows=1) is None for end_ms in ends)
    return decide(settings, cluster, since_ms + 31 * MINUTE_MS)


def after_brokers_failed(settings: Settings, *brokers: int) -> tuple[Settings, str]:
    """A plan that replaces these brokers waits for ten in the evening; its id."""
    own = with_control(with_trigger(settings, relief_max_away_share=0.5), maintenance_windows=["Mon-Fri 22:00-23:00"])
    cluster = skewed()
    for broker in brokers:
        without(cluster, broker)
    assert decide(own, cluster, NOON_MS) is None
    assert after_the_grace_time(own, cluster, since_ms=NOON_MS) is None
    assert last(own)["reason"] == "maintenance_window"
    return own, last(own)["plan_id"]


@pytest.mark.long
def test_with_too_many_brokers_away_no_replica_is_made_anew(settings: Settings) -> None:
    cluster = skewed()
    for broker in (3, 4):
        without(cluster, broker)
    assert decide(settings, cluster, NOON_MS) is None
    assert after_the_grace_time(settings, cluster, since_ms=NOON_MS) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "too_many_away")
    assert last(settings)["detail"] == "2 of 4 brokers are away, replicas are re-created while at most 40% are"


@pytest.mark.long
def test_lost_replicas_are_made_anew_as_far_as_the_disks_have_room(settings: Settings) -> None:
    """Four replicas of 1,000 bytes are lost, and each of three disks has room for one above its reserve."""
    cluster = skewed()
    cluster.usable_bytes = TOTAL_BYTES // 10 + 1_500
    without(cluster, 4)
    assert decide(settings, cluster, NOON_MS) is None
    proposal = after_the_grace_time(settings, cluster, since_ms=NOON_MS)
    assert proposal is not None
    receiving = [set(row.new_replicas) - set(row.old_replicas) for row in proposal.plan.movements]
    assert sorted(broker for brokers in receiving for broker in brokers) == [1, 2, 3]
    detail = last(settings)["detail"]
    assert "broker 4 is dead and keeps 1 replica: " in detail
    assert "no broker's disks have room for more than 500; left out: t-" in detail
    assert "nothing" not in detail


@pytest.mark.long
def test_where_no_disk_has_room_moving_cannot_help(settings: Settings) -> None:
    cluster = skewed()
    cluster.usable_bytes = TOTAL_BYTES // 10
    without(cluster, 4)
    assert decide(settings, cluster, NOON_MS) is None
    assert after_the_grace_time(settings, cluster, since_ms=NOON_MS) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "no_room")
    assert last(settings)["detail"].startswith("nothing can be re-created: broker 4 is dead and keeps 4 replicas: ")
    assert last(settings)["detail"].endswith("moving can't help, add brokers or disks")


@pytest.mark.long
def test_skew_that_only_full_disks_keep_is_held_with_the_brokers_by_name(settings: Settings) -> None:
    cluster = crowded()
    cluster.usable_bytes = TOTAL_BYTES // 10
    assert decide(settings, cluster, NOON_MS) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "min_gain")
    named = "brokers that take no replicas, as their disks have no room above the reserve: 1, 2, 3, 4"
    assert last(settings)["detail"].endswith(f"; {named}")


def test_log_dirs_that_can_not_be_read_stop_no_decision(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = crowded()
    shown = cluster.log_dirs

    def refused(brokers: Any = None, partitions: Any = None) -> Any:
        if partitions == ():  # how full log dirs are; a plan asks for what lies in them, too
            raise ClusterRequestFailed("log dirs can't be described: ClusterAuthorizationFailedError")
        return shown(brokers, partitions)

    monkeypatch.setattr(cluster, "log_dirs", refused)
    assert decide(settings, cluster, NOON_MS) is not None
    assert last(settings)["verdict"] == "plan"


@pytest.mark.long
def test_brokers_that_do_not_show_what_is_free_take_nothing_unless_their_disks_have_a_capacity(
    settings: Settings,
) -> None:
    cluster = crowded()
    cluster.usable_bytes = None
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    window_tables = window_tables_of(settings)
    plan = propose_live(cluster, cluster.live, window_tables, settings.planner, now_ms=NOON_MS).plan
    assert not any(row.kind == "replica" for row in plan.movements)
    assert "their log dirs do not show what is free: 1, 2, 3, 4; " in plan.diagnosis[-1]
    by_hand = with_planner(settings, capacities={row: {"disk_bytes": 1e6} for row in (1, 2, 3, 4)})
    plan = propose_live(cluster, cluster.live, window_tables, by_hand.planner, now_ms=NOON_MS).plan
    assert any(row.kind == "replica" for row in plan.movements)


EVENING_MS = NOON_MS + 10 * 60 * MINUTE_MS


@pytest.mark.long
def test_of_two_failed_brokers_one_comes_back_and_the_other_is_planned_for_anew(settings: Settings) -> None:
    own, waiting = after_brokers_failed(settings, 3, 4)
    cluster = skewed()
    without(cluster, 4)
    assert decide(own, cluster, EVENING_MS) is None  # nobody knows whether it was away all the time
    decided = after_the_grace_time(own, cluster, since_ms=EVENING_MS)
    assert decided is not None
    assert decided.plan.plan_id != waiting
    assert last(own)["reason"] == "broker_failed"
    # What broker 3 holds stays there.
    for row in decided.plan.movements:
        assert set(row.old_replicas) - set(row.new_replicas) == {4}


@pytest.mark.long
def test_a_broker_that_is_drained_gets_nothing_and_does_not_count_as_skew(settings: Settings) -> None:
    cluster = skewed()
    partitions = {
        key: replace(row, replicas=tuple(3 if broker == 4 else broker for broker in row.replicas), leader=1)
        for key, row in cluster.live.partitions.items()
    }
    replicas = [(1, 2), (3, 1), (2, 3), (1, 3), (2, 1), (3, 2)]
    partitions = {("t", number): LivePartition(row, row[0], row) for number, row in enumerate(replicas)}
    cluster.live = replace(cluster.live, partitions=partitions)  # even over 1, 2, 3; broker 4 is empty
    now_ms = NOON_MS
    assert decide(settings, cluster, now_ms) is not None
    note_intent(settings.storage.tables, settings.kafka.cluster_name, 4, Intent.DRAIN, "a person", now_ms=now_ms)
    assert decide(settings, cluster, now_ms + 5 * MINUTE_MS) is None
    assert last(settings)["reason"] == "balanced"
    drained = drained_brokers(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    assert brokers_counted(cluster.live, drained) == {1, 2, 3}
    windows = closed_windows(window_tables_of(settings), now_ms=now_ms + 5 * MINUTE_MS)
    # Three partitions at each of the two replicas; broker 4 is empty, and doesn't count.
    measured = measured_skew(windows, cluster.live, {}, drained)
    resources = (Resource.BYTES_IN, Resource.LEADERS, Resource.REPLICAS)
    assert {resource: measured[resource] for resource in resources} == pytest.approx(dict.fromkeys(resources, 1.0))
    plan = propose_live(
        cluster, cluster.live, window_tables_of(settings), settings.planner, now_ms=now_ms + 5 * MINUTE_MS
    ).plan
    assert all(4 not in row.new_replicas for row in plan.movements)
    note_intent(
        settings.storage.tables, settings.kafka.cluster_name, 4, Intent.USE, "a person", now_ms=now_ms + 6 * MINUTE_MS
    )
    assert decide(settings, cluster, now_ms + 10 * MINUTE_MS) is not None


def test_a_plan_holds_what_it_was_made_on(settings: Settings) -> None:
    cluster = crowded()
    proposal = decide(settings, cluster, NOON_MS)
    assert proposal is not None
    record = journal_of(settings).plan(proposal.plan.plan_id)
    assert record.misfits(cluster.live) == ()
    moved = proposal.plan.movements[0]
    key = (moved.topic, moved.partition)
    row = cluster.live.partitions[key]
    grown = {**cluster.live.partitions, key: replace(row, leader=row.replicas[1]), ("t", 8): row}
    assert record.misfits(replace(cluster.live, partitions=grown)) == (
        f"t-{moved.partition} is led by broker {row.replicas[1]}, by broker {row.replicas[0]} when planned",
        "t has 9 partitions, 8 when planned",
    )


def test_draining_moves_everything_off_and_nothing_else(settings: Settings) -> None:
    cluster = skewed()
    internal = {("__consumer_offsets", 0): LivePartition((3, 4), 3, (3, 4))}
    cluster.live = replace(cluster.live, partitions={**cluster.live.partitions, **internal})
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    policy = relief_policy(frozenset({3}), drain=True)
    plan = propose_live(
        cluster, cluster.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS, policy=policy
    ).plan
    held = {key for key, row in cluster.live.partitions.items() if 3 in row.replicas}
    assert {(row.topic, row.partition) for row in plan.movements} == held
    assert all(3 not in row.new_replicas for row in plan.movements)
    assert plan.problems == ()


@pytest.mark.long
def test_what_cannot_be_mended_is_planned_for_ever_more_seldom_until_control_starts_again(settings: Settings) -> None:
    cluster = crowded()
    cluster.usable_bytes = TOTAL_BYTES // 10
    decider = decider_of(cluster, journal_of(settings), settings)
    details = []
    for window in range(8):
        now_ms = NOON_MS + window * WINDOW_MS
        write_windows(settings, cluster.live, end_ms=now_ms)
        assert decider.tick(now_ms=now_ms) is None
        details.append(last(settings)["detail"])
    assert ["the next try is in" in detail for detail in details] == [False] * 5 + [True, False, True]
    decide(settings, cluster, NOON_MS + 8 * WINDOW_MS)
    assert (last(settings)["reason"], "the next try is in" in last(settings)["detail"]) == ("min_gain", False)


def in_two_windows_of_three(settings: Settings) -> tuple[Settings, Decider]:
    """Three windows of skew are asked for, two where it is urgent; there are two."""
    content = settings.model_dump()
    content["trigger"] |= {"windows_over": 3, "windows_considered": 5}
    own = Settings.model_validate(content)
    cluster = crowded()
    write_windows(own, cluster.live, end_ms=NOON_MS, windows=2)
    return own, decider_of(cluster, journal_of(own), own)


def test_a_group_that_falls_behind_on_the_hot_broker_makes_it_urgent(settings: Settings) -> None:
    own, decider = in_two_windows_of_three(settings)
    write_lag(own, "billing", ("t", 0), end_ms=NOON_MS, consumed_per_window=400)  # broker 1 leads it, and is hot
    write_lag(own, "audit", ("t", 1), end_ms=NOON_MS, consumed_per_window=1_000)
    assert decider.tick(now_ms=NOON_MS) is not None
    assert last(own)["detail"] == (
        "bytes_in max/mean 1.750; broker 1 over 1.3 in 2 of the last 2 windows; urgent, 2 windows are enough: groups "
        "that read from it fall behind (billing: 7,200 records, 1 of 2 groups)"
    )


@pytest.mark.parametrize(
    ("key", "consumed", "age_ms"),
    [
        pytest.param(("t", 4), 400, 0, id="behind on a broker that is not hot"),
        pytest.param(("t", 0), 1_000, 0, id="not behind"),
        pytest.param(("t", 0), 400, 20 * MINUTE_MS, id="behind long ago"),
    ],
)
def test_other_lag_is_no_reason_to_hurry(settings: Settings, key: tuple[str, int], consumed: int, age_ms: int) -> None:
    own, decider = in_two_windows_of_three(settings)
    write_lag(own, "billing", key, end_ms=NOON_MS - age_ms, consumed_per_window=consumed)
    assert decider.tick(now_ms=NOON_MS) is None
    assert last(own)["reason"] == "not_enough_windows"


def executed(settings: Settings, plan_id: str, *, end_ms: int) -> None:
    """An execution of that plan, which ended then."""
    journal = journal_of(settings)
    record = ExecutionRecord(journal.approve(journal.plan(plan_id), "a test", now_ms=end_ms - 1_000))
    journal.write_event(record, Event.STARTED, "", now_ms=end_ms - 1_000, throttled_brokers=())
    journal.write_event(record, Event.DONE, "", now_ms=end_ms, throttled_brokers=())


@pytest.mark.long
def test_what_an_execution_mended_makes_no_second_plan(settings: Settings) -> None:
    """A breach outlives the execution that mended it; windows from before and during it show the old load."""
    first = decide(settings, crowded(), NOON_MS)
    assert first is not None
    executed(settings, first.plan.plan_id, end_ms=NOON_MS + 65_000)
    still = crowded()
    # The cooldown of a minute is over. The newest window was half over when the execution ended, its load is the old.
    assert decide(settings, still, NOON_MS + 70_000) is None
    assert (last(settings)["reason"], last(settings)["breached"]) == ("not_enough_windows", True)
    # The load of after is between the thresholds: still skewed for alerts, and no reason for a plan.
    even = skewed()
    for end_ms in range(NOON_MS + 80_000, NOON_MS + 130_000, WINDOW_MS):
        assert decide(settings, even, end_ms, windows=1) is None
        assert last(settings)["reason"] == "balanced"
    # A skew of after that lasts is mended as ever, on its own windows.
    assert decide(settings, still, NOON_MS + 130_000, windows=1) is None
    again = decide(settings, still, NOON_MS + 140_000, windows=1)
    assert again is not None
    assert again.window_span_ms is not None
    assert again.window_span_ms[0] >= NOON_MS + 70_000


def read_by_consumers(settings: Settings, *, end_ms: int, catching_up: bool) -> DescribedCluster:
    """Windows in which broker 1 sends most of what is read; a group's lag there falls, or stays as it is."""
    cluster = DescribedCluster(
        LiveCluster(
            "c",
            {1: "a", 2: "b", 3: "c"},
            {("t", number): LivePartition((number + 1,), number + 1, (number + 1,)) for number in range(3)}
            | {("t", 3): LivePartition((1,), 1, (1,))},
        )
    )
    for index in range(3):
        start_ms = end_ms - (3 - index) * WINDOW_MS
        audit = window_columns(settings.kafka.cluster_name, start_ms, WINDOW_MS)
        sent = {1: 8e6, 2: 2e6, 3: 2e6}
        brokers = [
            {**audit, "broker": broker, "bytes_in_per_sec": 1e6, "bytes_out_per_sec": rate}
            for broker, rate in sent.items()
        ]
        part = {1: 0.5, 2: 1.0, 3: 1.0}  # broker 1 leads two
        partitions = [
            {**audit, "broker": row.leader, "topic": key[0], "partition": key[1], "role": "leader",
             "bytes_in_per_sec": part[row.leader] * 1e6, "bytes_out_per_sec": part[row.leader] * sent[row.leader],
             "messages_in_per_sec": part[row.leader] * 1_000, "size_bytes": 1_000}
            for key, row in cluster.live.partitions.items()
        ]  # fmt: skip
        fallen = 60_000 if catching_up else 0
        lag = {
            **audit, "group_id": "billing", "topic": "t", "partition": 3, "group_state": "Stable",
            "log_end_offset_first": 900_000 + 10_000 * index, "log_end_offset": 909_999 + 10_000 * index,
            "committed_offset_first": 500_000 + (10_000 + fallen) * index,
            "committed_offset": 509_999 + (10_000 + fallen) * index + fallen,
            "lag_records": 400_000 - fallen * (index + 1),
        }  # fmt: skip
        for name, rows in (("broker_load", brokers), ("partition_load", partitions), ("group_lag", [lag])):
            tables.append(settings.storage.tables, name, rows, transaction_id="read", transaction_version=start_ms)
    return cluster


def test_consumers_that_catch_up_are_no_lasting_load(settings: Settings) -> None:
    content = settings.model_dump()
    content["trigger"]["resources"] = ["bytes_in", "bytes_out"]
    own = Settings.model_validate(content)
    cluster = read_by_consumers(own, end_ms=NOON_MS, catching_up=True)
    assert decider_of(cluster, journal_of(own), own).tick(now_ms=NOON_MS) is None
    assert (last(own)["verdict"], last(own)["reason"], last(own)["resource"]) == ("hold", "catching_up", "bytes_out")
    # 6,000 records of 1,000 bytes a second beyond what is produced: without them the three send 2 MB/s each.
    assert last(own)["detail"].endswith("6.0 MB/s of that is read by consumers that catch up")
    assert last(own)["breached"]


@pytest.mark.long
def test_what_consumers_read_for_good_is_a_load(settings: Settings) -> None:
    """A lag that stays as it is shows that nobody catches up."""
    own = with_trigger(settings, resources=["bytes_in", "bytes_out"])
    cluster = read_by_consumers(own, end_ms=NOON_MS, catching_up=False)
    assert decider_of(cluster, journal_of(own), own).tick(now_ms=NOON_MS) is not None
    assert (last(own)["reason"], last(own)["resource"]) == ("skewed", "bytes_out")


@pytest.mark.long
def test_what_automatic_plans_copied_lately_is_taken_off_the_budget_of_the_day(settings: Settings) -> None:
    own, journal = with_control(settings, bytes_per_day_max=5_000), journal_of(settings)
    record = approve(journal, 0, now_ms=NOON_MS - HOUR_MS, in_windows_only=True)
    for event in (Event.STARTED, Event.DONE):
        journal.write_event(record, event, "", now_ms=NOON_MS - HOUR_MS, bytes_moved=5_000)
    assert decide(own, crowded(), NOON_MS) is None
    assert (last(own)["verdict"], last(own)["reason"]) == ("hold", "day_budget")
    assert last(own)["detail"].startswith("automatic plans have copied 0.00 of 0.00 GB in the last 24 h; ")
    assert decide(own, crowded(), NOON_MS + 24 * HOUR_MS) is not None


def with_isr(cluster: DescribedCluster, isr: tuple[int, ...]) -> None:
    """Partition t-5 has these replicas in sync; without any it is offline."""
    row = replace(cluster.live.partitions["t", 5], isr=isr, leader=isr[0] if isr else NO_LEADER)
    cluster.live = replace(cluster.live, partitions={**cluster.live.partitions, ("t", 5): row})


def test_no_plan_starts_while_a_partition_stays_under_replicated(settings: Settings) -> None:
    cluster = crowded()
    sound = cluster.live
    with_isr(cluster, (3,))
    assert decide(settings, cluster, NOON_MS, windows=1) is None
    assert last(settings)["reason"] == "not_enough_windows"
    assert decide(settings, cluster, NOON_MS + MINUTE_MS) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "unhealthy")
    assert last(settings)["detail"].startswith("1 partition is under-replicated, first t-5, for 1.0 min; bytes_in ")
    cluster.live = sound
    assert decide(settings, cluster, NOON_MS + 2 * MINUTE_MS) is not None


def test_after_a_gap_nobody_knows_whether_it_stayed_so(settings: Settings) -> None:
    cluster = crowded()
    with_isr(cluster, (3,))
    assert decide(settings, cluster, NOON_MS, windows=1) is None
    assert decide(settings, cluster, NOON_MS + 10 * MINUTE_MS) is not None


@pytest.mark.long
def test_what_failed_brokers_held_does_not_hold_back_the_plan_that_replaces_them(settings: Settings) -> None:
    """t-9 is offline, though it has a replica on a broker that is alive: it was not in sync."""
    cluster = skewed()
    torn = {("t", 9): LivePartition((4, 1), 4, (4,)), ("t", 10): LivePartition((4,), 4, (4,))}
    cluster.live = replace(cluster.live, partitions={**cluster.live.partitions, **torn})
    without(cluster, 4)
    assert decide(settings, cluster, NOON_MS) is None
    assert after_the_grace_time(settings, cluster, since_ms=NOON_MS) is not None
    assert last(settings)["reason"] == "broker_failed"
