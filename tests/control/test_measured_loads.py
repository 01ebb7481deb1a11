"""What plans read of loads in the tables: bytes of followers, hours of past days, and what remote storage holds."""

from collections.abc import Mapping
from typing import Any

import pytest
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, RequestTimedOutError

from assignor_core.disks import NO_UPLOADS, Uploads
from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.live_plans.measured_loads import NO_FOLLOWERS, NO_HOURS, FollowerLoads
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy
from assignor_core.price import plan_duration_ms
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.resources import Resource
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.control import planning
from streaming.control.planning import follower_loads, hourly_rates, partition_loads, propose_live
from streaming.control.windows import closed_windows
from streaming.control.wiring import window_tables_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, DescribedCluster
from tests.control.windows import window_columns, write_hours_before, write_lag, write_windows

WINDOW_MS = 10_000
READ, LED = ("read", 0), ("led", 0)
WINDOWS = 3
SERVED = (30.0, 0.0, 60.0)
"""By broker 2 in each window."""


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return Settings.model_validate(
        {"storage": {"tables": tables_in_memory}, "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000}}
    )


def read_from_followers() -> DescribedCluster:
    partitions = {key: LivePartition((1, 2), 1, (1, 2)) for key in (READ, LED)}
    return DescribedCluster(LiveCluster("c", {1: "a", 2: "b", 3: "b"}, partitions))


def write_followers(settings: Settings) -> None:
    rows = [
        {
            **window_columns(settings.kafka.cluster_name, NOON_MS - (WINDOWS - index) * WINDOW_MS, WINDOW_MS),
            "broker": 2, "topic": topic, "partition": 0, "role": "follower", "bytes_in_per_sec": 1e6,
            "bytes_out_per_sec": rate, "size_bytes": 1_000,
        }
        for index, served in enumerate(SERVED)
        for topic, rate in (("read", served), ("led", None))
    ]  # fmt: skip
    tables.append(
        settings.storage.tables, "partition_load", rows, transaction_id="followers", transaction_version=NOON_MS
    )


def test_a_cluster_whose_followers_serve_nobody_has_none(settings: Settings) -> None:
    write_windows(settings, read_from_followers().live, end_ms=NOON_MS, windows=WINDOWS)
    window_tables = window_tables_of(settings)
    windows = closed_windows(window_tables, now_ms=NOON_MS)
    assert follower_loads(window_tables, windows) is NO_FOLLOWERS


def test_followers_have_their_mean_and_readers_their_racks(settings: Settings) -> None:
    """The mean counts windows in which nobody read from a follower, too; None stands for consumers without a rack."""
    write_windows(settings, read_from_followers().live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    window_tables = window_tables_of(settings)
    windows = closed_windows(window_tables, now_ms=NOON_MS)
    assert follower_loads(window_tables, windows) == FollowerLoads({READ: {2: 30.0}})
    write_lag(settings, "g", READ, end_ms=NOON_MS, consumed_per_window=101, windows=WINDOWS)
    write_lag(settings, "near", READ, end_ms=NOON_MS, consumed_per_window=51, windows=WINDOWS, rack_id="b")
    write_lag(settings, "g", LED, end_ms=NOON_MS, consumed_per_window=11, windows=WINDOWS, rack_id="b")
    assert follower_loads(window_tables, windows) == FollowerLoads({READ: {2: 30.0}}, {READ: {None: 300.0, "b": 150.0}})


@pytest.mark.parametrize("mixed", [0, 1, 2])
def test_a_replica_that_led_within_a_window_served_nobody_as_a_follower(settings: Settings, mixed: int) -> None:
    """After a leader changed, the window's row is of a follower and has the bytes of both roles."""
    write_windows(settings, read_from_followers().live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    rows = [
        {
            **window_columns(settings.kafka.cluster_name, NOON_MS - (WINDOWS - index) * WINDOW_MS, WINDOW_MS),
            "broker": 2, "topic": topic, "partition": 1, "role": "follower", "bytes_in_per_sec": 1e6,
            "bytes_out_per_sec": 70.0, "messages_in_per_sec": 5.0 if index == mixed else None, "size_bytes": 1_000,
        }
        for topic, indexes in (("read", range(WINDOWS)), ("led", (mixed,)))
        for index in indexes
    ]  # fmt: skip
    tables.append(settings.storage.tables, "partition_load", rows, transaction_id="m", transaction_version=NOON_MS)
    window_tables = window_tables_of(settings)
    loads = follower_loads(window_tables, closed_windows(window_tables, now_ms=NOON_MS))
    followed = {READ: {2: 30.0}, ("read", 1): {2: 70.0}}
    if mixed == WINDOWS - 1:
        del followed["read", 1]
    assert loads == FollowerLoads(followed)


@pytest.mark.parametrize(
    ("first", "newest", "read"),
    [(100, 10**17, 1_900.0), (10**17, 10**17, None), (10**17, 1_500, 500.0), (100, 600, 500.0)],
)
def test_a_commit_beyond_the_end_of_the_log_reads_to_that_end(
    settings: Settings, first: int, newest: int, read: float | None
) -> None:
    write_windows(settings, read_from_followers().live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    row = {
        **window_columns(settings.kafka.cluster_name, NOON_MS - WINDOW_MS, WINDOW_MS),
        "group_id": "g", "topic": READ[0], "partition": READ[1], "rack_id": "b",
        "committed_offset_first": first, "committed_offset": newest,
        "log_end_offset_first": 1_000, "log_end_offset": 2_000,
    }  # fmt: skip
    tables.append(settings.storage.tables, "group_lag", [row], transaction_id="lag", transaction_version=NOON_MS)
    window_tables = window_tables_of(settings)
    loads = follower_loads(window_tables, closed_windows(window_tables, now_ms=NOON_MS))
    assert loads == FollowerLoads({READ: {2: 30.0}}, {READ: {"b": read}} if read is not None else {})


def test_a_plan_has_the_bytes_out_of_each_replica(settings: Settings) -> None:
    """Leaders send nothing to consumers here, and 1 MB/s of each partition to its follower. Broker 2 is emptied, and
    broker 3 leads one partition then; rack b goes on reading from its own replica."""
    described = read_from_followers()
    write_windows(settings, described.live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    plan = propose_live(
        described, described.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS, drained=frozenset({2})
    ).plan
    assert plan.loads_before[Resource.BYTES_OUT] == {1: 2e6, 2: 30.0, 3: 0.0}
    assert plan.loads_after[Resource.BYTES_OUT] == {1: 1e6, 2: 0.0, 3: 1e6 + 30}
    assert plan.least_bytes == plan.bytes_to_move, "all that broker 2 holds is copied"
    assert "followers serve consumers of 1 partition: for balance their replicas stay in their racks" in plan.diagnosis


PARTITIONS, RATE = 48, 1e6
DAY_HOURS, NIGHT_HOURS = range(8, 20), (*range(8), *range(20, 24))


def day_and_night() -> DescribedCluster:
    """Topic day lies on brokers 1 and 2 for the most part, night on 3 and 4: all four carry the same over 24 hours."""
    partitions = {}
    for topic, brokers in (("day", (1, 1, 1, 2, 2, 3, 3, 4)), ("night", (3, 3, 3, 4, 4, 4, 1, 2))):
        for number in range(PARTITIONS):
            broker = brokers[number % len(brokers)]
            partitions[topic, number] = LivePartition((broker,), broker, (broker,))
    return DescribedCluster(LiveCluster("c", dict.fromkeys((1, 2, 3, 4)), partitions))


def rates(hour: int) -> dict[PartitionKey, float]:
    """By day topic day takes ten times what the other takes, by night it is the other way round; none two alike."""
    busy = "day" if hour in DAY_HOURS else "night"
    return {
        (topic, number): RATE * (1 + number / PARTITIONS) * (1.0 if topic == busy else 0.1)
        for topic in ("day", "night")
        for number in range(PARTITIONS)
    }


def write_hours(settings: Settings, by_hour: Mapping[int, Mapping[PartitionKey, float | None]]) -> None:
    """Rows of hours that began so many hours before noon."""
    write_hours_before(settings, NOON_MS, by_hour)


def proposed(settings: Settings, described: DescribedCluster) -> ProposedPlan:
    write_windows(settings, described.live, end_ms=NOON_MS, rates=rates(12))
    return propose_live(described, described.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS)


def max_over_mean(plan: Plan, live: LiveCluster, hour: int) -> float:
    """Bytes in of the brokers in this hour once the plan is done."""
    placed = {key: row.replicas for key, row in live.partitions.items()}
    placed |= {movement.key: movement.new_replicas for movement in plan.movements}
    loads = dict.fromkeys(live.broker_racks, 0.0)
    for key, rate in rates(hour).items():
        loads[placed[key][0]] += rate
    return max(loads.values()) / (sum(loads.values()) / len(loads))


@pytest.mark.long
def test_the_worst_hour_of_a_plan_on_all_hours_is_even_where_one_on_the_windows_leaves_the_night(
    settings: Settings,
) -> None:
    described = day_and_night()
    write_hours(settings, {before: rates((12 - before) % 24) for before in range(1, 49)})
    plan = proposed(settings, described).plan
    assert max(max_over_mean(plan, described.live, hour) for hour in range(24)) <= 1.05
    alone = settings.model_copy(update={"planner": settings.planner.model_copy(update={"days": 0})})
    by_day = proposed(alone, described).plan
    assert max_over_mean(by_day, described.live, 12) <= 1.05
    assert max_over_mean(by_day, described.live, 0) >= 1.1


@pytest.mark.long
def test_what_the_plan_promises_is_what_is_measured_next_and_the_worst_hour_stands_beside_it(
    settings: Settings,
) -> None:
    described = day_and_night()
    write_hours(settings, {before: rates((12 - before) % 24) for before in range(1, 25)})
    made = proposed(settings, described)
    now = max_over_mean(Plan("c", ()), described.live, 12)
    assert made.plan.skew_before["bytes_in"]["max_over_mean"] == pytest.approx(now)
    assert made.plan.skew_after["bytes_in"]["max_over_mean"] == pytest.approx(
        max_over_mean(made.plan, described.live, 12)
    )
    assert made.plan.lower_bound["bytes_in"] <= made.plan.skew_after["bytes_in"]["max_over_mean"] + 1e-9
    assert made.worst_hour is not None
    worst = max(max_over_mean(made.plan, described.live, hour) for hour in range(24))
    assert made.worst_hour["after"]["bytes_in"]["max_over_mean"] == pytest.approx(worst)
    assert ProposedPlan.from_json(made.to_json()).worst_hour == made.worst_hour
    line = "planned on the newest windows and on 24 parts of the day (UTC), means of the last 7 days"
    assert line in made.plan.diagnosis


@pytest.mark.long
def test_without_hours_a_plan_rests_on_the_windows_alone(settings: Settings) -> None:
    made = proposed(settings, day_and_night())
    assert made.worst_hour is None
    assert "worst_hour" not in made.to_json()


def test_hours_are_means_over_the_days_of_what_is_known(settings: Settings) -> None:
    key, gone = ("t", 0), ("t", 9)
    write_hours(settings, {1: {key: 2.0, gone: 5.0}, 2: {key: None}, 25: {key: 6.0}, 24 * 9 + 1: {key: 99.0}})
    found = hourly_rates(settings.storage.tables, "main", [key], days=7, now_ms=NOON_MS)
    assert (found.hours, found.days) == ((10, 11), 7), "bytes out of ten o'clock are known"
    assert found.rates[0, 1, 0] == 4.0
    (known,) = hourly_rates(settings.storage.tables, "main", [key], days=1, now_ms=NOON_MS).rates[:, 1, 0]
    assert known == 2.0
    assert hourly_rates(settings.storage.tables, "other", [key], days=7, now_ms=NOON_MS).hours == ()


def test_fewer_days_are_read_of_a_large_cluster_and_none_of_a_huge_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ("t", 0)
    write_hours(settings, {1: {key: 2.0}, 25: {key: 6.0}})
    monkeypatch.setattr(planning, "HOURLY_ROWS_MAX", 30)
    found = hourly_rates(settings.storage.tables, "main", [key], days=7, now_ms=NOON_MS)
    assert (found.days, found.rates[0, 0, 0]) == (1, 2.0)
    assert hourly_rates(settings.storage.tables, "main", [key, ("t", 1)], days=7, now_ms=NOON_MS) is NO_HOURS


TIERED, PLAIN = ("tiered", 0), ("plain", 0)


def tiered_cluster() -> DescribedCluster:
    partitions = {key: LivePartition((1, 2), 1, (1, 2)) for key in (TIERED, PLAIN)}
    return DescribedCluster(LiveCluster("c", dict.fromkeys((1, 2, 3)), partitions))


def test_remote_bytes_are_read_of_leaders_where_they_are_known(settings: Settings) -> None:
    described, window_tables = tiered_cluster(), window_tables_of(settings)
    write_windows(settings, described.live, end_ms=NOON_MS, remote_bytes={TIERED: 90_000})
    windows = closed_windows(window_tables, now_ms=NOON_MS)
    assert partition_loads(window_tables, windows, {"tiered", "plain"}).remote_bytes == {TIERED: 90_000.0}


def test_a_plan_is_priced_by_what_lies_on_disks_and_names_what_stays_in_remote_storage(settings: Settings) -> None:
    described = tiered_cluster()
    write_windows(settings, described.live, end_ms=NOON_MS, remote_bytes={TIERED: 90_000})
    drained = frozenset({2})
    plan = propose_live(
        described, described.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS, drained=drained
    ).plan
    (size,) = {size for shown in described.log_dirs()[2] for size in shown.replica_bytes.values()}
    assert {row.key: row.bytes_to_move for row in plan.movements} == {TIERED: size, PLAIN: size}
    assert (
        f"1 movement is of a tiered log and copies local bytes only: {size} of {90_000 + size} bytes, the rest stays "
        "in remote storage"
    ) in plan.diagnosis


def test_new_replicas_that_begin_behind_uploads_are_priced_by_what_waits_for_remote_storage(settings: Settings) -> None:
    """KIP-1023; brokers 2 and 4 say so, and the one that gets the replicas counts."""
    described = tiered_cluster()
    write_windows(settings, described.live, end_ms=NOON_MS, remote_bytes={TIERED: 90_000})
    local = propose_drain(described, settings)
    size = local.movements[0].bytes_to_move
    described.shown_uploads = Uploads(frozenset({2, 4}), {TIERED: 0.1})
    assert propose_drain(described, settings) == local
    described.shown_uploads = Uploads(frozenset({3}), {TIERED: 0.1})
    plan = propose_drain(described, settings)
    assert {row.key: row.bytes_to_move for row in plan.movements} == {TIERED: pytest.approx(size / 10), PLAIN: size}
    assert sum(wave.bytes_to_move for wave in plan.waves) == pytest.approx(1.1 * size)
    before_ms, after_ms = plan_duration_ms(local), plan_duration_ms(plan)
    assert before_ms is not None
    assert after_ms == pytest.approx(0.55 * before_ms)
    assert plan.least_bytes is None
    assert (
        f"1 movement is of a tiered log and copies only what is not uploaded yet: {size / 10:.0f} of "
        f"{90_000 + size:.0f} bytes, as brokers say with follower.fetch.last.tiered.offset.enable"
    ) in plan.diagnosis


def test_a_partition_whose_uploads_are_unknown_is_priced_by_its_local_bytes(settings: Settings) -> None:
    described = tiered_cluster()
    write_windows(settings, described.live, end_ms=NOON_MS, remote_bytes={TIERED: 90_000})
    local = propose_drain(described, settings)
    described.shown_uploads = Uploads(frozenset({3}), {})
    assert propose_drain(described, settings) == local


def test_a_plan_names_leaders_that_begin_behind_uploads(settings: Settings) -> None:
    partitions = {TIERED: LivePartition((2,), 2, (2,)), PLAIN: LivePartition((1, 2), 1, (1, 2))}
    described = DescribedCluster(LiveCluster("c", dict.fromkeys((1, 2, 3)), partitions))
    described.shown_uploads = Uploads(frozenset({1, 2, 3}), {TIERED: 0.1})
    write_windows(settings, described.live, end_ms=NOON_MS, remote_bytes={TIERED: 90_000})
    plan = propose_drain(described, settings)
    leader = next(row.new_replicas[0] for row in plan.movements if row.key == TIERED)
    assert (
        f"1 partition gets a new leader that begins there (broker {leader}): until local retention has refilled, it "
        "reads older records from remote storage for its consumers"
    ) in plan.diagnosis


def propose_drain(described: DescribedCluster, settings: Settings) -> Plan:
    """What empties broker 2, at a throttle."""
    policy = PlannerPolicy(throttle_bytes_per_sec=1_000.0)
    return propose_live(
        described, described.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS, policy=policy,
        drained=frozenset({2}),
    ).plan  # fmt: skip


@pytest.mark.parametrize("error", [ClusterAuthorizationFailedError, RequestTimedOutError])
def test_uploads_are_unknown_where_brokers_do_not_show_their_setting(error: type[KafkaError]) -> None:
    class Admin:
        def describe_cluster(self) -> dict[str, Any]:
            return {"brokers": [{"broker_id": 1, "rack": None}]}

        def describe_configs(self, *_given: Any, **_options: Any) -> None:
            raise error

    assert Cluster(Admin()).uploads({TIERED: 1}) == NO_UPLOADS
