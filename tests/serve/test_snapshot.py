"""What a snapshot shows of tables written by the test: the newest closed window, unknown kept apart from zero."""

import shutil
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from assignor_core.skew import skew_of
from streaming import tables
from streaming.commands.status import read_status
from streaming.control.upkeep import expire
from streaming.serve.samples import samples
from streaming.serve.snapshot import PARTS, Snapshot, SnapshotReader, read_snapshot
from streaming.settings import Settings
from streaming.views import group_store
from streaming.views.control import ControlPart
from streaming.views.group_ranking import GroupPart
from streaming.views.json_values import to_json
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

START_MS = NOW_MS - 10 * WINDOW_MS


def exported(snapshot: Snapshot, settings: Settings) -> dict[str, float]:
    """Metrics without labels by their names."""
    return {row.name: row.value for row in samples(snapshot, settings, ("0", "0", "0")) if not row.labels}


def test_without_tables_everything_is_empty_and_no_total_is_known(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    snapshot = read_snapshot(settings_for(tmp_path), NOW_MS)
    assert snapshot.load.window_end_ms is None
    assert snapshot.completeness is None
    assert snapshot.brokers_expected is None
    assert not snapshot.failures
    assert not snapshot.groups.topics
    assert snapshot.control == ControlPart(), "a volume may be yet to be mounted there"


def test_a_folder_that_is_not_there_or_goes_away_is_told_of_every_part_in_one_line(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    reader = SnapshotReader(settings)
    with capture_logs() as logged:
        away = reader.read(NOW_MS)
        reader.read(NOW_MS)
    assert away.failures.keys() == set(PARTS)
    assert "is its volume mounted" in away.failures["load"]
    assert (away.control, away.brokers_expected) == (ControlPart(), None)
    assert [row["event"] for row in logged] == ["snapshot_part_failed"]
    synthetic = Synthetic(settings.storage.tables)
    synthetic.broker_load(START_MS, {1: 10.0})
    synthetic.decision(NOW_MS)
    synthetic.plan(NOW_MS)
    synthetic.event(NOW_MS, 0, "approved")
    with capture_logs() as logged:
        whole = reader.read(NOW_MS)
    assert [(row["event"], row["part"]) for row in logged] == [("snapshot_part_recovered", ", ".join(PARTS))]
    Path(settings.storage.tables).rename(tmp_path / "elsewhere")
    again = reader.read(NOW_MS)
    assert again.failures.keys() == set(PARTS)
    assert whole.load.brokers, "figures stay"
    assert (again.load, again.control, again.streams) == (whole.load, whole.control, whole.streams)


@pytest.mark.long
@pytest.mark.parametrize("error", [pa.ArrowInvalid("5 not in range"), ValueError("no number"), IndexError("index 9")])
def test_rows_that_can_t_be_shown_hide_no_other_part(
    skewed_folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever the contract forgot: it is logged once, and the figures come back with the first rows that fit."""
    settings = settings_for(skewed_folder)
    reader = SnapshotReader(settings)
    with monkeypatch.context() as broken, capture_logs() as logged:
        broken.setattr(group_store, "picture_of", mock.Mock(side_effect=error))
        first, second = reader.read(NOW_MS), reader.read(NOW_MS)
    assert first.failures.keys() == second.failures.keys() == {"groups", "memberships"}
    assert first.failures["groups"] == f"table group_lag: rows can't be shown: {type(error).__name__}: {error}"
    assert (first.load.brokers != (), first.groups) == (True, GroupPart())
    assert [row["event"] for row in logged] == ["snapshot_part_failed"]
    mended = reader.read(NOW_MS)
    assert not mended.failures
    assert mended.groups == read_snapshot(settings, NOW_MS).groups != GroupPart()


def test_figures_are_those_of_the_newest_closed_window(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(START_MS, {1: 10.0, 2: 10.0})
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 30.0, 2: 10.0})
    synthetic.broker_load(START_MS + 2 * WINDOW_MS, {1: 99.0, 2: 0.0}, is_final=False)
    load = read_snapshot(settings, NOW_MS).load
    assert load.window_end_ms == START_MS + 2 * WINDOW_MS
    assert [broker.rates["bytes_in_per_sec"] for broker in load.brokers] == [30.0, 10.0]
    assert load.skew["bytes_in"] == skew_of({1: 30.0, 2: 10.0})
    assert [row.max_over_mean for row in load.history] == [1.0, 1.5]


def test_a_window_is_closed_by_later_events_before_its_rows_say_so(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(START_MS, {1: 10.0}, is_final=False)
    assert read_snapshot(settings, NOW_MS).load.window_end_ms is None
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 10.0}, is_final=False)
    assert read_snapshot(settings, NOW_MS).load.window_end_ms == START_MS + WINDOW_MS


def test_a_silent_broker_is_shown_without_figures(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(START_MS, {1: 10.0, 2: 10.0, 3: 10.0})
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 10.0, 2: None})
    snapshot = read_snapshot(settings, NOW_MS)
    assert [broker.rates["bytes_in_per_sec"] for broker in snapshot.load.brokers] == [10.0, None, None]
    assert [broker.last_sample_ms for broker in snapshot.load.brokers][2] == START_MS + 55_000
    assert snapshot.load.brokers_reporting == 1
    assert snapshot.completeness == pytest.approx(1 / 3)
    assert set(snapshot.load.skew["bytes_in"].deviation) == {1}


def test_brokers_whose_free_disk_space_is_unknown_are_counted(settings: Settings, synthetic: Synthetic) -> None:
    assert read_snapshot(settings, NOW_MS).load.brokers_log_dirs_unknown is None
    synthetic.broker_load(START_MS, {1: 10.0, 2: 10.0, 3: 10.0})
    assert read_snapshot(settings, NOW_MS).load.brokers_log_dirs_unknown == 0
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 10.0})
    synthetic.broker_load(START_MS + WINDOW_MS, {2: None}, log_dir_used_bytes=None, log_dir_usable_bytes=None)
    snapshot = read_snapshot(settings, NOW_MS)
    assert snapshot.load.brokers_log_dirs_unknown == 1, "broker 3 has no sample: it may be gone"
    assert exported(snapshot, settings)["brokers_log_dirs_unknown"] == 1


def test_a_stretched_interval_between_samples_is_shown_beside_the_one_that_is_set(
    settings: Settings, synthetic: Synthetic
) -> None:
    assert read_snapshot(settings, NOW_MS).load.sample_interval_ms is None
    synthetic.broker_load(START_MS, {1: 10.0}, covered_ms=60_000, sample_count=6)
    synthetic.broker_load(START_MS, {2: 10.0}, covered_ms=48_000, sample_count=2)
    synthetic.broker_load(START_MS, {3: None}, covered_ms=0, sample_count=6)
    snapshot = read_snapshot(settings, NOW_MS)
    assert exported(snapshot, settings)["sample_interval_seconds"] == 24.0
    assert exported(snapshot, settings)["sample_interval_set_seconds"] == 10.0


@pytest.mark.parametrize(
    ("covered_ms", "samples_taken", "twice"),
    [(60_000, 6, 0), (70_000, 7, 0), (120_000, 12, 1), (80_000, 4, 0), (120_000, 6, 1), (0, 6, 0)],
    ids=["one", "one, the first began before", "two", "one, stretched", "two, stretched", "unknown"],
)
def test_brokers_that_two_collectors_report_are_counted(
    settings: Settings, synthetic: Synthetic, covered_ms: int, samples_taken: int, twice: int
) -> None:
    synthetic.broker_load(START_MS, {1: 10.0}, covered_ms=60_000, sample_count=6)
    synthetic.broker_load(START_MS, {2: 10.0}, covered_ms=covered_ms, sample_count=samples_taken)
    snapshot = read_snapshot(settings, NOW_MS)
    assert snapshot.load.brokers_reported_twice == (2,) * twice
    assert exported(snapshot, settings)["brokers_reported_twice"] == twice


def test_lag_is_summed_by_topic_worst_first_and_unknown_is_none(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.group_lag(START_MS, [("g", "t", 0, 10, 100)])
    synthetic.group_lag(
        START_MS + WINDOW_MS, [("g", "t", 0, 90, 100), ("g", "t", 1, 60, 100), ("h", "t", 0, None, 100)]
    )
    known, unknown = read_snapshot(settings, NOW_MS).groups.topics
    assert (known.lag_records, known.lag_max_records, known.partitions) == (50, 40, 2)
    assert (unknown.group, unknown.lag_records, unknown.retention_ratio) == ("h", None, None)


def test_lag_per_records_retained(settings: Settings, synthetic: Synthetic) -> None:
    """Known only where some were deleted: a group that has read nothing of a young topic loses none of it. 0 where
    retention has removed all that was unread: the loss is in the past, the verdict reports it once, and an alert on the
    ratio ends. A streams application itself deletes what it has read of its repartition topics, and loses none.
    """
    written: list[tuple[int | None, list[tuple[str, str, int, int | None, int]]]] = [
        (0, [("young", "t", 0, 0, 100), ("unused", "w", 0, 0, 0)]),
        (50, [("old", "u", 0, 60, 100), ("old", "u", 1, 90, 100)]),
        (None, [("unknown", "v", 0, 60, 100)]),
        (100, [("lost", "x", 0, 60, 100), ("in time", "x", 0, 100, 100), ("no commit", "x", 0, None, 100)]),
        (60, [("app", "app-a-repartition", 0, 60, 100), ("app", "orders", 0, 60, 100)]),
        (60, [("other", "app-a-repartition", 0, 60, 100)]),
    ]
    for begin, rows in written:
        synthetic.group_lag(START_MS, rows, log_start_offset=begin)
    ratios = {(row.group, row.topic): row.retention_ratio for row in read_snapshot(settings, NOW_MS).groups.topics}
    assert ratios == {
        ("young", "t"): None, ("unused", "w"): None, ("old", "u"): pytest.approx(40 / 50), ("unknown", "v"): None,
        ("lost", "x"): 0.0, ("in time", "x"): 0.0, ("no commit", "x"): None,
        ("app", "app-a-repartition"): None, ("app", "orders"): 1.0, ("other", "app-a-repartition"): 1.0,
    }  # fmt: skip


def test_totals_are_counted_once_and_survive_a_restart(settings: Settings, synthetic: Synthetic) -> None:
    reader = SnapshotReader(settings)
    synthetic.decision(NOW_MS)
    synthetic.rejected(NOW_MS, ["future"])
    synthetic.plan(NOW_MS)
    assert reader.read(NOW_MS).control.decisions == {("hold", "balanced", "bytes_in"): 1}
    synthetic.decision(NOW_MS + 1_000, "plan", "skewed")
    synthetic.decision(NOW_MS + 2_000)
    synthetic.rejected(NOW_MS + 1_000, ["future", "not_json"])
    for again in (reader, SnapshotReader(settings)):
        snapshot = again.read(NOW_MS + 3_000)
        assert snapshot.control.decisions == {
            ("hold", "balanced", "bytes_in"): 2,
            ("plan", "skewed", "bytes_in"): 1,
        }
        assert snapshot.streams.rejected == {("byte_rate", "future"): 2, ("byte_rate", "not_json"): 1}
        assert snapshot.control.planning_seconds == (0.42,)


def test_totals_begin_anew_before_rows_expire_and_never_fall_otherwise(settings: Settings) -> None:
    """A counter that falls to anything but 0 adds all of the rest once more: Prometheus takes it for one begun anew."""
    synthetic, control, day_ms = Synthetic(settings.storage.tables), settings.control, 86_400_000
    running = SnapshotReader(settings)
    first_ms = NOW_MS - NOW_MS % (control.execution_retention_ms // 2)

    def totals(now_ms: int) -> list[tuple[int | None, ...]]:
        snapshots = (running.read(now_ms), SnapshotReader(settings).read(now_ms))
        return [
            (
                sum((shown.control.decisions or {}).values()), len(shown.control.planning_seconds or ()),
                shown.control.failures, sum(shown.streams.rejected.values()),
            )
            for shown in snapshots
        ]  # fmt: skip

    expected = []
    for number, days in enumerate((-1, 0, 1, 199, 200)):
        at_ms = first_ms + days * day_ms
        synthetic.decision(at_ms)
        synthetic.plan(at_ms)
        synthetic.event(at_ms, 0, "refused", execution_id=f"e-{number}")
        synthetic.rejected(at_ms, ["future"])
        expire(settings.storage.tables, "test", control, now_ms=at_ms)
        expected.append(totals(at_ms))
    assert [running for running, _ in expected] == [restarted for _, restarted in expected]
    assert [failures for (_, _, failures, _), _ in expected] == [1, 1, 2, 3, 1]
    assert [decisions for (decisions, _, _, _), _ in expected] == [1, 2, 3, 1, 2]


def test_an_execution_is_under_way_until_it_is_done(settings: Settings, synthetic: Synthetic) -> None:
    reader = SnapshotReader(settings)
    synthetic.event(NOW_MS, 0, "approved")
    first = reader.read(NOW_MS).control.execution
    assert first is not None
    assert not first["under_way"]
    synthetic.event(NOW_MS + 1_000, 1, "started")
    synthetic.event(NOW_MS + 1_000, 2, "submitted")
    second = reader.read(NOW_MS).control
    assert second.execution is not None
    assert second.execution["under_way"]
    assert [row["event"] for row in second.events] == ["submitted", "started", "approved"]
    synthetic.event(NOW_MS + 6_000, 3, "done", movements_done=6)
    third = reader.read(NOW_MS).control
    assert third.execution is not None
    assert not third.execution["under_way"]
    assert third.last_success_ms == NOW_MS + 6_000
    assert third.execution_seconds == (5.0,)
    synthetic.event(NOW_MS + 9_000, 0, "refused", execution_id="e-2")
    assert reader.read(NOW_MS).control.failures == 1


def test_a_plan_that_waits_for_its_turn_does_not_hide_the_one_that_is_carried_out(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.event(NOW_MS - 90_000, 0, "approved", execution_id="e-0")
    synthetic.event(NOW_MS - 90_000, 1, "started", execution_id="e-0")
    synthetic.event(NOW_MS - 80_000, 2, "done", execution_id="e-0")
    synthetic.event(NOW_MS - 1_000, 0, "approved")
    synthetic.event(NOW_MS, 1, "started")
    synthetic.event(NOW_MS + 1_000, 0, "approved", execution_id="e-2")
    synthetic.event(NOW_MS + 2_000, 1_000_000, "abort_requested", execution_id="e-2")
    shown = read_snapshot(settings, NOW_MS).control
    assert shown.execution is not None
    assert (shown.execution["execution_id"], shown.execution["under_way"]) == ("e-1", True)
    of_status = read_status(settings, now_ms=NOW_MS + 60_000)["execution"]
    assert of_status["execution_id"] == "e-1", "as on the page"
    assert [row["execution_id"] for row in shown.events] == ["e-1", "e-1"]
    synthetic.event(NOW_MS + 3_000, 2, "done")
    newest = read_snapshot(settings, NOW_MS).control.execution
    assert newest is not None
    assert newest["execution_id"] == "e-2"


def test_rejected_records_of_a_foreign_topic_are_those_of_a_query_that_reads_it(tables_in_memory: str) -> None:
    settings = settings_for(tables_in_memory, topics={"foreign": {"telegraf": "telegraf-json"}})
    synthetic = Synthetic(settings.storage.tables)
    for topic in ("rebalancer.byte-rate", "rebalancer.consumer-lag", "telegraf", "read-no-more"):
        synthetic.rejected(NOW_MS, ["not_json"], topic)
    counts = {("byte_rate", "not_json"): 2, ("consumer_lag", "not_json"): 1, ("other", "not_json"): 1}
    assert read_snapshot(settings, NOW_MS).streams.rejected == counts


@pytest.mark.long
def test_a_part_that_breaks_keeps_its_figures_and_is_named(skewed_folder: Path) -> None:
    settings = settings_for(skewed_folder)
    reader = SnapshotReader(settings)
    whole = reader.read(NOW_MS)
    assert not whole.failures
    lag = skewed_folder / "tables" / "group_lag"
    for file in lag.rglob("*.parquet"):
        file.write_bytes(b"no parquet")
    Synthetic(settings.storage.tables, _commits=1_000).group_lag(NOW_MS, [("g", "t", 0, 1, 2)])
    for file in lag.rglob("*.parquet"):
        file.write_bytes(b"no parquet")
    broken = reader.read(NOW_MS)
    assert list(broken.failures) == ["groups", "memberships"], "both rest on group_lag"
    assert broken.groups == whole.groups
    assert broken.load == whole.load


def test_tables_that_are_made_anew_are_read_anew(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    reader = SnapshotReader(settings)
    Synthetic(settings.storage.tables).broker_load(START_MS, {1: 10.0})
    assert len(reader.read(NOW_MS).load.brokers) == 1
    shutil.rmtree(settings.storage.tables)
    synthetic = Synthetic(settings.storage.tables)
    synthetic.broker_load(START_MS, {1: 10.0, 2: 10.0})
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 10.0, 2: 10.0})
    for _ in range(2):  # the first read may find the ruins
        snapshot = reader.read(NOW_MS)
    assert len(snapshot.load.brokers) == 2


def test_another_cluster_in_the_same_tables_is_not_ours_however_new_its_windows_are(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.broker_load(START_MS, {1: 10.0})
    synthetic.group_lag(START_MS, [("g", "t", 0, 60, 100)])
    other = Synthetic(settings.storage.tables, cluster="other", _commits=10)
    for hours in range(1, 7):
        other.broker_load(START_MS + hours * 3_600_000, {1: 10.0})
        other.group_lag(START_MS + hours * 3_600_000, [("h", "t", 0, 60, 100)])
    shown = read_snapshot(settings, NOW_MS)
    assert (shown.load.window_start_ms, [row.broker for row in shown.load.brokers]) == (START_MS, [1])
    assert [row.group for row in shown.groups.groups] == [row.group for row in shown.memberships] == ["g"]


@pytest.mark.long
def test_the_snapshot_becomes_json_types_only(skewed_snapshot: Snapshot) -> None:
    def check(value: object) -> None:
        if isinstance(value, dict):
            assert all(isinstance(key, str) for key in value)
            for entry in value.values():
                check(entry)
        elif isinstance(value, list):
            for entry in value:
                check(entry)
        else:
            assert value is None or isinstance(value, str | int | float | bool), value

    shown = to_json(skewed_snapshot)
    check(shown)
    assert shown["control"]["decisions"]["plan/skewed/bytes_in"] == 1
    assert shown["load"]["skew"]["bytes_in"]["deviation"].keys() == {"1", "2", "3"}


def test_all_tables_are_told_by_version_files_and_bytes(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    Synthetic(settings.storage.tables).broker_load(START_MS, {1: 10.0})
    tables.create_table(settings.storage.tables, "plan")
    by_name = {state.name: state for state in read_snapshot(settings, NOW_MS).tables}
    assert by_name.keys() == {"broker_load", "plan"}
    assert (by_name["broker_load"].files, by_name["broker_load"].version) == (1, 1)
    assert by_name["broker_load"].size_bytes > 0
    assert (by_name["plan"].files, by_name["plan"].size_bytes) == (0, 0)


def test_a_broker_shows_how_far_its_partitions_disagree_with_it(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(START_MS, {1: 1e6, 2: 3e6, 3: None})
    led = [(1, "t", 0, "leader", 1e6), (2, "t", 1, "leader", 1e6), (1, "t", 1, "follower", 9e6)]
    synthetic.partition_load(START_MS, led)
    brokers = read_snapshot(settings, NOW_MS).load.brokers
    assert [row.load_disagreement for row in brokers] == [-0.5, 0.5, None]


def test_ceilings_are_capacities_less_what_plans_leave_free(tables_in_memory: str) -> None:
    capacity = {"bytes_in_per_sec": 1e6, "disk_bytes": 4e9}
    planner = {"capacities": {1: capacity}, "headroom": 0.25, "disk_reserve": 0.1}
    settings = settings_for(tables_in_memory, planner=planner)
    synthetic = Synthetic(tables_in_memory)
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, {1: 10.0, 2: 10.0})
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, {3: 10.0}, log_dir_usable_bytes=None)
    known, others, unknown = read_snapshot(settings, NOW_MS).load.brokers
    assert known.ceilings == {"bytes_in": 750_000.0, "disk": 3e9}
    assert others.ceilings == {"disk": 9e9}, "of 10 GB that its volumes hold"
    assert unknown.ceilings == {}
