"""A plan on tables that know of remote storage: it is priced by what lies on disks, and names what it need not copy."""

import pytest

from assignor_core.live import LiveCluster, LivePartition
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
