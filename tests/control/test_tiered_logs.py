"""A plan on tables that know of remote storage: it is priced by what lies on disks, and names what it need not copy."""

from typing import Any

import pytest
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, RequestTimedOutError

from assignor_core.disks import NO_UPLOADS, Uploads
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy
from assignor_core.price import plan_duration_ms
from streaming.cluster.admin import Cluster
from streaming.control.planning import partition_loads, propose_live
from streaming.control.windows import closed_windows
from streaming.control.wiring import window_tables_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, DescribedCluster
from tests.control.windows import write_windows

TIERED, PLAIN = ("tiered", 0), ("plain", 0)


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return Settings.model_validate(
        {"storage": {"tables": tables_in_memory}, "pipeline": {"window_ms": 10_000, "watermark_ms": 1_000}}
    )


def cluster() -> DescribedCluster:
    partitions = {key: LivePartition((1, 2), 1, (1, 2)) for key in (TIERED, PLAIN)}
    return DescribedCluster(LiveCluster("c", dict.fromkeys((1, 2, 3)), partitions))


def test_remote_bytes_are_read_of_leaders_where_they_are_known(settings: Settings) -> None:
    described, window_tables = cluster(), window_tables_of(settings)
    write_windows(settings, described.live, end_ms=NOON_MS, remote_bytes={TIERED: 90_000})
    windows = closed_windows(window_tables, now_ms=NOON_MS)
    assert partition_loads(window_tables, windows, {"tiered", "plain"}).remote_bytes == {TIERED: 90_000.0}


def test_a_plan_is_priced_by_what_lies_on_disks_and_names_what_stays_in_remote_storage(settings: Settings) -> None:
    described = cluster()
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
    described = cluster()
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
    described = cluster()
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
