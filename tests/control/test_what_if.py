"""`rebalancer what-if` over tables that a pipeline could have written."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from assignor_core.execution.accuracy import Accuracy
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.resources import Resource
from assignor_core.what_if.changes import Changes
from assignor_core.what_if.outlook import DAYS_AHEAD
from streaming import cli, tables
from streaming.commands.what_if import since_ms_of
from streaming.control.intents import note_intent
from streaming.control.what_if import predict
from streaming.errors import UsageProblem
from streaming.settings import HOUR_MS, Settings
from streaming.views.intents import Intent
from streaming.views.recorded_hours import read_history
from tests.control.windows import window_columns, write_hours_before, write_windows
from tests.core.replays.histories import skewed
from tests.serve.synthetic import Synthetic

MB = 1e6
SKEWED = [(1, 2)] * 6 + [(1, 3)] * 3 + [(3, 1)] * 3
RACKS = {1: "a", 2: "b", 3: "c"}


def settings_in(folder: Path) -> Settings:
    content: dict[str, Any] = {
        "storage": {"tables": str(folder / "tables")},
        "trigger": {"resources": ["bytes_in"]},
        "planner": {"capacities": {broker: {"bytes_in_per_sec": 40 * MB} for broker in RACKS}},
    }
    (folder / "settings.json").write_text(json.dumps(content))
    return Settings.model_validate(content)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Six hours of three brokers; broker 1 has a replica of each partition: 1.5 times the mean. Only to be copied."""
    settings = settings_in(tmp_path_factory.mktemp("recorded"))
    partitions = {("orders", number): LivePartition(row, row[0], row) for number, row in enumerate(SKEWED)}
    live = LiveCluster("c", RACKS, partitions)
    now_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    write_windows(settings, live, end_ms=now_ms, windows=2)
    write_followers(settings, live, end_ms=now_ms)
    rates = dict.fromkeys(partitions, MB)
    write_hours_before(settings, now_ms, dict.fromkeys(range(1, 7), rates))
    return settings


@pytest.fixture
def recorded(settings: Settings, recorded_once: Settings) -> Settings:
    """Tables of the test's own with those six hours."""
    shutil.copytree(recorded_once.storage.tables, settings.storage.tables)
    return settings


def write_followers(settings: Settings, live: LiveCluster, *, end_ms: int) -> None:
    """Rows of followers in the newest window, beside those of `write_windows`."""
    window_ms = settings.pipeline.window_ms
    audit = window_columns(settings.kafka.cluster_name, end_ms - window_ms, window_ms)
    rows = [
        {**audit, "broker": broker, "topic": key[0], "partition": key[1], "role": "follower", "size_bytes": 10**9}
        for key, row in live.partitions.items()
        for broker in row.replicas[1:]
    ]
    tables.append(settings.storage.tables, "partition_load", rows, transaction_id="followers", transaction_version=1)


def what_if(tmp_path: Path, *arguments: str) -> int:
    return cli.run(["what-if", "--config", str(tmp_path / "settings.json"), *arguments])


def predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert what_if(tmp_path, "--json", *arguments) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        (Changes(), 3),
        (Changes(traffic=2.0), 6),
        (Changes(add_brokers=2), 3),
        (Changes(brokers_down=frozenset({2})), 3),
    ],
)
def test_where_no_capacity_is_known_a_broker_is_to_carry_what_it_carries_in_the_record(
    changes: Changes, needed: int
) -> None:
    steady = [1e12] * 5
    prediction = predict(skewed(), changes, Settings.model_validate({}), steady, Accuracy())
    rows = [row for row in prediction.brokers_needed if row.resource == "bytes_in"]
    assert [row.likely for row in rows] == [needed] * len(DAYS_AHEAD)


@pytest.mark.long
@pytest.mark.usefixtures("recorded")
def test_brokers_that_are_added_take_their_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_is = predicted(tmp_path, capsys, "--from", "-12h")
    assert (as_is["hours"], as_is["brokers"], as_is["partitions"]) == (6, 3, 12)
    more = predicted(tmp_path, capsys, "--add-brokers", "2", "--from", "-12h")
    assert more["brokers"] == 5
    assert more["bytes_copied"] == sum(plan["bytes_to_move"] for plan in more["plans"]) > 0
    assert more["max_over_mean"]["bytes_in"][-1] < 1.3
    lowest = min(row["left_share"] for row in as_is["headroom"])
    assert min(row["left_share"] for row in more["headroom"]) > lowest > 0


@pytest.mark.long
@pytest.mark.usefixtures("recorded")
def test_a_broker_without_a_capacity_gets_none_unless_it_is_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control compares plain loads where one is unknown: with a guess the replay would decide otherwise."""
    file = tmp_path / "settings.json"
    content = json.loads(file.read_text())
    content["planner"]["capacities"] = {1: {"bytes_in_per_sec": 100 * MB}, 2: {"bytes_in_per_sec": 10 * MB}}
    file.write_text(json.dumps(content))
    partly = predicted(tmp_path, capsys, "--add-brokers", "1")
    assert {row["broker"] for row in partly["headroom"]} == {1, 2, 4}
    assert partly["plans"][0]["detail"].startswith("bytes_in max/mean 2.000; broker 1 "), (
        "12 of 24 MB/s, of four brokers"
    )


@pytest.mark.long
@pytest.mark.usefixtures("recorded")
def test_an_execution_goes_on_each_second_however_seldom_control_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once a plan is under way, control ticks each second: `control.tick_interval_ms` is between its decisions."""
    often, seldom = (
        predicted(tmp_path, capsys, "--add-brokers", "2", "--from", "-12h", "--set", f"control.tick_interval_ms={ms}")
        for ms in (1_000, 40_000)
    )
    assert often["plans"] == seldom["plans"] != []


@pytest.mark.long
@pytest.mark.usefixtures("recorded")
def test_it_is_shown_in_words_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "whatif.png"
    arguments = ("--traffic", "2x", "--grow", "orders=24", "--rack-down", "b", "--png", str(picture))
    assert what_if(tmp_path, *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("6 recorded hours (")
    assert lines[1] == "assumed: rack b down, traffic x 2, orders with 24 partitions"
    assert any(line.startswith("bytes in max/mean: ") for line in lines)
    assert any(line.startswith("headroom of broker ") for line in lines)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--drop-topic", "order"), "--drop-topic: there is no topic 'order'; did you mean 'orders'?"),
        (("--rack-down", "z"), "--rack-down: there is no rack 'z', allowed are a, b, c"),
        (("--traffic", "lots"), "--traffic lots: found no factor, allowed are 2x, 1.5 or TOPIC=2x"),
        (("--traffic", "2x", "--traffic", "3x"), "--traffic: given twice for all topics, allowed is once"),
        (("--grow", "orders=24", "--grow", "orders=36"), "--grow: given twice for orders, allowed is once"),
        (("--grow", "orders"), "--grow orders: found no TOPIC=PARTITIONS, allowed is for instance orders=60"),
        (("--from", "yesterday"), "--from yesterday: found no time, allowed are -7d, -36h or 2026-11-21T14:00"),
        (("--add-brokers", "-1"), "Invalid value for '--add-brokers': -1 is not in the range x>=0."),
        (("--add-broker", "1", "--drop"), "No such option: --drop"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert what_if(tmp_path, *arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    if "--drop" in arguments:  # what click suggests besides depends on its release
        assert shown.err.startswith("error: ")
        assert shown.err.count("\n") == 1
    else:
        assert shown.err == f"error: {message}\n"


def backtest(tmp_path: Path, *arguments: str) -> int:
    return cli.run(["backtest", "--config", str(tmp_path / "settings.json"), *arguments])


@pytest.mark.long
@pytest.mark.usefixtures("recorded")
def test_policies_are_replayed_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "backtest.png"
    patient = "trigger.enter_ratio=1.9 trigger.exit_ratio=1.5"
    arguments = ("--plans", "--policy", patient, "--png", str(picture))
    assert backtest(tmp_path, "--json", *arguments) == 0
    as_set, other = json.loads(capsys.readouterr().out)["policies"]
    assert (as_set["policy"], other["policy"]) == ("as set", patient)
    assert (len(as_set["plans"]), len(other["plans"])) == (1, 0)
    assert picture.read_bytes().startswith(b"\x89PNG")
    # Without a change, what-if is this very replay.
    as_is = predicted(tmp_path, capsys)
    assert {key: as_is[key] for key in as_set if key != "policy"} == {
        key: value for key, value in as_set.items() if key != "policy"
    }
    assert backtest(tmp_path, "--plans", "--policy", patient) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "6 recorded hours of 3 brokers"
    assert [line.split()[0] for line in lines[1:]] == ["policy", "as", "trigger.enter_ratio=1.9"]


@pytest.mark.usefixtures("recorded")
def test_a_policy_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(tmp_path, "--plans", "--policy", "trigger.enter=1.9") == 2
    assert "trigger.enter" in capsys.readouterr().err
    assert backtest(tmp_path, "--policy", "trigger.enter_ratio=1.9") == 2
    assert capsys.readouterr().err == "error: --policy: goes with --plans only\n"


@pytest.mark.long
def test_brokers_vary_within_the_hour_as_recorded(settings: Settings) -> None:
    live = LiveCluster("c", RACKS, {("t", number): LivePartition((number,), number, (number,)) for number in RACKS})
    hour_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    write_hours_before(settings, hour_ms, {1: {("t", number): MB for number in RACKS}})
    for minute, rate in ((59, 1.5), (60, 0.5)):
        rates = {("t", 1): rate * MB, ("t", 2): MB, ("t", 3): MB}
        end_ms = hour_ms - (60 - minute) * 60_000
        write_windows(settings, live, end_ms=end_ms, windows=1, rates=rates)
    history = read_history(tables.TableReader(settings.storage.tables), settings, since_ms=hour_ms - HOUR_MS)
    factors = history.wander[Resource.BYTES_IN]
    assert factors.shape == (1, 60, 3)
    assert factors[0, 58:, 0].tolist() == [1.5, 0.5]
    assert factors[0, :58].min() == factors[0, :58].max() == 1.0
    assert factors[0, :, 1:].max() == 1.0


@pytest.mark.long
def test_a_broker_whose_replication_is_unknown_at_times_does_not_vary_for_that(settings: Settings) -> None:
    """Its load is unknown then, as in a decision: what clients send alone would pass for half of it."""
    live = LiveCluster("c", RACKS, {("t", number): LivePartition((number,), number, (number,)) for number in RACKS})
    hour_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    write_hours_before(settings, hour_ms, {1: {("t", number): MB for number in RACKS}})
    write_windows(settings, live, end_ms=hour_ms, windows=1)
    unknown = {1: (3,), 2: tuple(RACKS)}
    rows = [
        {**window_columns(settings.kafka.cluster_name, hour_ms - HOUR_MS + minute * 60_000, 60_000), "broker": broker,
         "bytes_in_per_sec": MB, "replication_bytes_in_per_sec": None if broker in unknown.get(minute, ()) else MB}
        for minute in range(59)
        for broker in RACKS
    ]  # fmt: skip
    tables.append(settings.storage.tables, "broker_load", rows, transaction_id="minutes", transaction_version=1)
    history = read_history(tables.TableReader(settings.storage.tables), settings, since_ms=hour_ms - HOUR_MS)
    factors = history.wander[Resource.BYTES_IN][0]
    assert factors[1].tolist() == [factors[0, 0], factors[0, 1], 1.0]
    # Where nobody knows it, clients' traffic is the best there is.
    assert factors[2].max() < 0.6
    assert factors[0, 2] == pytest.approx(factors[0, 0], rel=0.02)


def test_without_history_it_says_so(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert what_if(tmp_path) == 1
    place = settings.storage.tables
    assert capsys.readouterr().err == f"error: found no closed window in {place}: is the pipeline running?\n"


@pytest.mark.usefixtures("recorded")
def test_without_hours_it_says_so(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tables" / "partition_load_hourly").rename(tmp_path / "elsewhere")
    assert what_if(tmp_path) == 1
    assert capsys.readouterr().err.startswith("error: found no hour in the table partition_load_hourly since ")


@pytest.mark.long
def test_a_broker_that_is_silent_is_left_out_and_named(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its replicas are in no row of the newest window: taken for an empty broker it would be filled."""
    live = LiveCluster("c", RACKS, {("t", number): LivePartition((number,), number, (number,)) for number in RACKS})
    hour_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    write_windows(settings, live, end_ms=hour_ms - settings.pipeline.window_ms, windows=2)
    write_windows(settings, live, end_ms=hour_ms, windows=1, silent=(3,))
    write_hours_before(settings, hour_ms, {1: {("t", number): MB for number in RACKS}})
    data = predicted(tmp_path, capsys)
    assert (data["brokers"], data["brokers_left_out"], data["partitions"], data["plans"]) == (2, [3], 2, [])
    assert what_if(tmp_path) == 0
    assert "left out with their replicas: 3\n" in capsys.readouterr().out


def test_the_later_of_two_leaders_in_the_newest_window_leads(recorded: Settings) -> None:
    """A movement has ended in it: the broker that led before has no replica any more."""
    reader = tables.TableReader(recorded.storage.tables)
    begin = reader.newest("partition_load", "window_start")
    assert begin is not None
    window_ms, begin_ms = recorded.pipeline.window_ms, tables.to_ms(begin)
    audit = window_columns(recorded.kafka.cluster_name, begin_ms, window_ms)
    before = {
        **audit, "broker": 3, "topic": "orders", "partition": 0, "role": "leader", "size_bytes": 10**9,
        "last_event_time_ms": begin_ms + 1,
    }  # fmt: skip
    root = recorded.storage.tables
    tables.append(root, "partition_load", [before], transaction_id="moved", transaction_version=1)
    reader.look_again()
    history = read_history(reader, recorded, since_ms=begin_ms - 12 * HOUR_MS)
    placement = dict(zip(history.partitions, history.replicas, strict=True))
    assert placement["orders", 0] == (1, 2)
    assert placement["orders", 1] == (1, 2)


def test_times_are_read_as_utc() -> None:
    now_ms = 1_800_000_000_000
    assert since_ms_of("-2d", now_ms) == now_ms - 48 * HOUR_MS
    assert since_ms_of("2027-01-15T08:00+01:00", now_ms) == since_ms_of("2027-01-15T07:00", now_ms)
    for refused in ("-99999d", "2100-01-01"):
        with pytest.raises(UsageProblem):
            since_ms_of(refused, now_ms)


def write_load_hour(settings: Settings, start_ms: int, bytes_in: dict[int, float]) -> None:
    own = {"kafka_cluster": settings.kafka.cluster_name, "window_count": 60, "covered_ms": HOUR_MS}
    times = {"period_start": start_ms, "period_end": start_ms + HOUR_MS, "updated_at": start_ms + HOUR_MS}
    own |= {name: tables.utc(at_ms) for name, at_ms in times.items()}
    rows = [{**own, "broker": broker, "bytes_in_per_sec": rate} for broker, rate in bytes_in.items()]
    root = settings.storage.tables
    tables.append(root, "broker_load_hourly", rows, transaction_id="hour", transaction_version=start_ms)


def compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Figures of the one prediction that is kept."""
    assert what_if(tmp_path, "--compare", "--json") == 0
    [kept] = json.loads(capsys.readouterr().out)
    figures: dict[str, Any] = kept["figures"]
    return figures


@pytest.mark.long
def test_a_prediction_that_is_kept_is_compared_with_what_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recorded: Settings
) -> None:
    root = recorded.storage.tables
    predicted(tmp_path, capsys, "--add-brokers", "2")
    assert tables.read(root, "prediction") == [], "nothing is written unless asked for"
    assert what_if(tmp_path, "--compare") == 0
    assert "no prediction is kept yet" in capsys.readouterr().out
    made = predicted(tmp_path, capsys, "--add-brokers", "2", "--keep")
    [row] = tables.read(root, "prediction")
    assert (row["bytes_copied"], row["plans"], row["hours"]) == (made["bytes_copied"], len(made["plans"]), 6)
    assert json.loads(row["changes_json"])["add_brokers"] == 2
    assert json.loads(row["settings_json"])["trigger"]["resources"] == ["bytes_in"]
    shown = compared(tmp_path, capsys)
    assert shown["bytes_in_max_over_mean"]["predicted"] == made["max_over_mean"]["bytes_in"][-1]
    assert {name: figure["came"] for name, figure in shown.items() if figure["came"] is not None} == {}
    kept_ms = tables.to_ms(row["predicted_at"])
    write_load_hour(recorded, kept_ms + 1, {1: 8 * MB, 2: 12 * MB})
    synthetic = Synthetic(root, cluster=recorded.kafka.cluster_name)
    synthetic.measured_plan(1, kept_ms - 1_000_000, factor=1.0)
    synthetic.measured_plan(2, kept_ms + 1_000_000, factor=1.0)
    shown = compared(tmp_path, capsys)
    came = {name: figure["came"] for name, figure in shown.items()}
    assert came["bytes_in_max_over_mean"] == pytest.approx(1.2)
    assert (came["bytes_copied"], came["duration_ms"]) == (123_000_000, 50_000)
    assert came["bytes_in_headroom_left"] == pytest.approx(0.7)
    write_load_hour(recorded, kept_ms + 2, {1: 8 * MB, 2: 12 * MB, 3: 0.0})
    note_intent(root, recorded.kafka.cluster_name, 3, Intent.DRAIN, "a person", now_ms=kept_ms)
    assert compared(tmp_path, capsys)["bytes_in_max_over_mean"]["came"] == pytest.approx(1.2)
    assert what_if(tmp_path, "--compare") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("for 6 hours: 2 brokers more")
    assert any(line.startswith("  bytes copied: predicted ") and ", came 0.12 GB (" in line for line in lines)
