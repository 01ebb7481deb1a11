"""`rebalancer status` over tables that the test writes: the plan and the execution that matter now are shown."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from streaming import tables
from streaming.cli import run
from streaming.commands.in_words import bytes_out_finding, bytes_out_text, bytes_out_unknown, price_texts
from streaming.commands.status import LoadTable, drawn, plan_line, read_groups_status, read_status
from streaming.control.intents import note_intent
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.broker_load import read_load
from streaming.views.intents import Intent
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

PLAN = "5ec398fbaf13" + "0" * 52
TOLD = "plan 5ec398fbaf13: 6 movements, 123.0 MB, bytes in max/mean 1.45 -> 1.02, expires in 41 min: rebalancer apply "


@pytest.mark.long
def test_the_plan_that_waits_is_shown_with_the_command_that_carries_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(tmp_path)
    now_ms = time.time_ns() // 1_000_000
    synthetic = Synthetic(settings.storage.tables)
    synthetic.plan(now_ms - 300_000, "b" * 64)
    synthetic.plan(now_ms - 200_000, PLAN, expires_at=tables.utc(now_ms + 41 * 60_000 + 20_000))
    synthetic.decision(now_ms - 200_000, "plan", "skewed", plan_id=PLAN)
    synthetic.decision(now_ms - 100_000, "hold", "cooldown")
    options = ["--set", "kafka.cluster_name=test", "--set", f"storage.tables={settings.storage.tables}"]
    assert run(["status", *options]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("plan "))
    assert line.startswith(f"{TOLD}5ec398fbaf13 --set kafka.cluster_name=test --set storage.tables=")
    assert run(["status", "--json", *options]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["plan"]["plan_id"], status["plan"]["movements"]) == (PLAN, 6)
    assert status["plan"]["max_over_mean"]["bytes_in"] == {"before": 1.45, "after": 1.02}
    assert status["decision"]["plan_id"] is None, "what the newest evaluation has made"


def test_what_people_want_of_brokers_is_shown_with_what_is_left_to_do(settings: Settings) -> None:
    root, window_ms = settings.storage.tables, settings.pipeline.window_ms
    synthetic = Synthetic(root)

    def window(start_ms: int, *of_broker_1: tuple[str, int]) -> None:
        synthetic.broker_load(start_ms, {1: 1.0, 2: 1.0})
        rows = [(1, topic, number, "follower", 0.0) for topic, number in of_broker_1]
        synthetic.partition_load(start_ms, [*rows, (2, "t", 0, "leader", 1.0), (2, "t", 1, "leader", 1.0)])

    def shown() -> tuple[list[str], list[dict[str, Any]]]:
        target, status = StringIO(), read_status(settings, now_ms=NOW_MS)
        Console(file=target, width=200).print(drawn(status))
        return [line.rstrip() for line in target.getvalue().splitlines() if "is d" in line], status["drained"]

    start_ms = NOW_MS // window_ms * window_ms - 4 * window_ms
    window(start_ms, ("t", 0), ("t", 1))
    note_intent(root, "test", 1, Intent.DRAIN, "a person", now_ms=start_ms + window_ms + 1)
    note_intent(root, "test", 2, Intent.DEMOTE, "a person", now_ms=start_ms)
    window(start_ms + window_ms, ("t", 1), ("new", 0), ("new", 1))
    lines, drained = shown()
    assert lines == [
        "broker 1 is drained and holds 3 replicas; arrived since: new-0, new-1",
        "broker 2 is demoted and leads 2 partitions",
    ]
    assert drained == [{"broker": 1, "replicas": 3, "arrived": 2, "arrived_first": ["new-0", "new-1"]}]
    window(start_ms + 2 * window_ms)
    assert shown()[0][0] == "broker 1 is drained and holds no replica"


def test_with_why_each_need_is_shown_with_the_gate_that_held_it(settings: Settings, synthetic: Synthetic) -> None:

    def shown(*, why: bool) -> str:
        target = StringIO()
        Console(file=target, width=200).print(drawn(read_status(settings, now_ms=NOW_MS, why=why)))
        return target.getvalue()

    assert "skewed" not in shown(why=True), "no decision yet"
    synthetic.decision(NOW_MS - 120_000)
    assert "  no trace: an earlier version decided" in shown(why=True)
    denied = {"need": "broker_failed", "is_found": False, "text": "", "passed": [], "held_by": None, "why": ""}
    held = {**denied, "need": "skewed", "is_found": True, "text": "hot", "passed": ["sound data", "low load"]}
    held = {**held, "held_by": "cooldown", "why": "for 8 s more"}
    synthetic.decision(NOW_MS - 60_000, reason="cooldown", trace=json.dumps([denied, held]))
    lines = shown(why=True).splitlines()
    assert "  broker failed: no need" in map(str.rstrip, lines)
    assert "  skewed: hot; passed: sound data, low load; held by cooldown: for 8 s more" in map(str.rstrip, lines)
    assert "passed" not in shown(why=False)
    assert read_status(settings, now_ms=NOW_MS, why=True)["decision"]["trace"] == [denied, held]
    assert "trace" not in read_status(settings, now_ms=NOW_MS)["decision"]


def test_the_price_of_the_plan_that_waits_is_shown_beside_it(settings: Settings, synthetic: Synthetic) -> None:
    cheaper = [{"gain_share": 0.81, "movements": 2, "bytes_to_move": 24_600_000.0}]
    waves = [{"duration_ms": 60_000.0}, {"duration_ms": 90_000.0}]
    content = {"least_bytes": 98_400_000.0, "waves": waves, "cheaper": cheaper}
    synthetic.plan(NOW_MS - 60_000, plan_json=json.dumps(content))
    shown = read_status(settings, now_ms=NOW_MS)["plan"]
    assert (shown["least_bytes"], shown["duration_ms"], shown["cheaper"]) == (98_400_000.0, 150_000.0, cheaper)
    line = (
        "no plan as good copies less than 98.4 MB (80% of its bytes), "
        "about 2.5 min at its throttle, "
        "a plan with --max-bytes 24600000 copies 20% of the bytes for at least 81% of the gain"
    )
    assert line in plan_line(shown)
    plan = read_snapshot(settings, NOW_MS).control.plan
    assert plan is not None
    assert (plan["duration_ms"], plan["cheaper"]) == (150_000.0, cheaper)


def test_a_part_of_the_bytes_that_rounds_to_nothing_is_shown_as_less_than_one_percent() -> None:
    price = {"duration_ms": 0, "cheaper": [{"gain_share": 0.87, "movements": 1, "bytes_to_move": 30.0}]}
    (text,) = price_texts(price, whole_bytes=100_000.0)
    assert text == "a plan with --max-bytes 30 copies less than 1% of the bytes for at least 87% of the gain"


def test_where_hardly_less_can_be_copied_no_figure_is_shown() -> None:
    price = {"least_bytes": 99_500.0, "duration_ms": 0, "cheaper": []}
    assert list(price_texts(price, whole_bytes=100_000.0)) == ["no plan as good copies less"]
    assert not list(price_texts(price | {"least_bytes": None}, whole_bytes=100_000.0))


@pytest.mark.parametrize("mode", ["apply", "propose"])
def test_a_pause_after_executions_that_were_given_up_is_shown(tables_in_memory: str, mode: str) -> None:
    settings = settings_for(tables_in_memory, control={"mode": mode})
    synthetic = Synthetic(settings.storage.tables)
    for sequence, event in enumerate(("approved", "started", "aborted")):
        synthetic.event(NOW_MS, sequence, event, in_windows_only=True)
    shown = read_status(settings, now_ms=NOW_MS + 600_000)
    line = "mode apply gave up the last execution and makes no plan for 300 s more"
    assert shown["pause"] == (line if mode == "apply" else None)
    page = StringIO()
    Console(width=200, file=page).print(drawn(shown))
    assert (line in page.getvalue()) == (mode == "apply")
    assert read_status(settings, now_ms=NOW_MS + 900_000)["pause"] is None


def test_what_came_of_plans_is_shown_beside_what_they_promised(settings: Settings, synthetic: Synthetic) -> None:
    waves = json.dumps({"waves": [{"duration_ms": 30_000}, {"duration_ms": 10_000}]})
    for number in range(3):
        of: dict[str, Any] = {"execution_id": f"e-{number}", "plan_id": f"{number}" * 64}
        at_ms = NOW_MS + number * 100_000
        synthetic.plan(at_ms, of["plan_id"], plan_json=waves)
        synthetic.event(at_ms, 0, "approved", **of)
        synthetic.event(at_ms, 1, "started", **of)
        synthetic.event(at_ms + 50_000, 2, "done", bytes_moved=123_000_000, **of)
        synthetic.event(
            at_ms + 60_000, 3, "measured", bytes_moved=123_000_000, bytes_in_max_over_mean_measured=1.122, **of
        )
    shown = read_status(settings, now_ms=NOW_MS + 400_000)
    assert shown["accuracy"]["bytes_copied"] == dict.fromkeys(("median", "off_median", "likely", "off_max"), 0.0) | {
        "count": 3
    }
    assert shown["accuracy"]["duration"]["median"] == pytest.approx(0.25)
    with StringIO() as page:
        Console(file=page, width=200).print(drawn(shown))
        line = (
            "predictions of the last 3 plans were off: max/mean by 10 % (median), 10 % at most; "
            "bytes by 0 % (median), 0 % at most; duration by 25 % (median), 25 % at most"
        )
        assert line in page.getvalue()


def test_a_plan_waits_until_it_expires_or_an_execution_takes_it(settings: Settings, synthetic: Synthetic) -> None:

    def waiting(after_ms: int) -> str | None:
        plan = read_status(settings, now_ms=NOW_MS + after_ms)["plan"]
        return None if plan is None else plan["plan_id"][:1]

    synthetic.plan(NOW_MS, "a" * 64)
    assert (waiting(1_000), waiting(3_600_001)) == ("a", None)
    synthetic.event(NOW_MS + 1_000, 0, "approved", execution_id="e-1", plan_id="a" * 64)
    assert waiting(2_000) is None, "taken"
    synthetic.plan(NOW_MS + 2_000, "b" * 64)
    assert waiting(3_000) == "b", "e-1 has moved nothing yet"
    synthetic.event(NOW_MS + 4_000, 1, "started", execution_id="e-1", plan_id="a" * 64)
    synthetic.event(NOW_MS + 5_000, 2, "done", execution_id="e-1", plan_id="a" * 64)
    assert waiting(6_000) is None, "made of what e-1 has changed"
    synthetic.plan(NOW_MS + 7_000, "c" * 64)
    synthetic.event(NOW_MS + 8_000, 3, "measured", execution_id="e-1", plan_id="a" * 64)
    assert waiting(9_000) == "c"
    synthetic.event(NOW_MS + 10_000, 0, "refused", execution_id="e-2", plan_id="c" * 64)
    assert waiting(11_000) is None


START_MS = NOW_MS - NOW_MS % WINDOW_MS - 3 * WINDOW_MS


def test_the_newest_window_is_shown_however_old_it_is_as_on_the_page(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(START_MS, {1: 3.0, 2: 1.0})
    shown = read_status(settings, now_ms=START_MS + 6 * 3_600_000)
    assert shown["window_end_ms"] == read_snapshot(settings, NOW_MS).load.window_end_ms == START_MS + WINDOW_MS
    assert (shown["window_age_s"], shown["bytes_in_max_over_mean"]) == (6 * 3_600 - 60, 1.5)


def test_a_window_whose_rates_are_unknown_is_one(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(START_MS, {1: None, 2: None})
    assert text(settings).splitlines()[1] == "bytes in max/mean unknown, window ended 2 min ago"


def test_what_control_did_last_has_its_age(settings: Settings, synthetic: Synthetic) -> None:
    """A control that is silent for days would pass for one that has just judged this window."""
    synthetic.broker_load(START_MS, {1: 3.0, 2: 1.0})
    synthetic.decision(NOW_MS - 3 * 86_400_000)
    synthetic.event(NOW_MS - 9_000_000, 0, "approved")
    shown = text(settings).splitlines()
    assert "decision 3.0 d ago: hold, balanced: all brokers are below the threshold of 1.30" in shown
    assert "execution 2.5 h ago: approved: approved by ada" in shown


def test_max_over_mean_is_that_of_page_and_metrics_where_capacities_are_set(tables_in_memory: str) -> None:
    capacities = {1: {"bytes_in_per_sec": 300.0}, 2: {"bytes_in_per_sec": 100.0}}
    settings = settings_for(tables_in_memory, planner={"capacities": capacities})
    Synthetic(settings.storage.tables).broker_load(START_MS, {1: 3.0, 2: 1.0})
    shown = read_status(settings, now_ms=NOW_MS)["bytes_in_max_over_mean"]
    assert shown == read_snapshot(settings, NOW_MS).load.skew["bytes_in"].max_over_mean == 1.0


def test_a_broker_without_a_sample_in_the_newest_window_is_shown_without_figures(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.broker_load(START_MS, {1: 3.0, 2: 1.0})
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 3.0})
    assert len(read_snapshot(settings, NOW_MS).load.brokers) == 2
    assert read_status(settings, now_ms=NOW_MS)["brokers"] == {
        "1": {"bytes_in_per_sec": 3.0, "bytes_out_per_sec": 6.0, "disk_bytes": 1e9, "bytes_in_per_mean": 1.0},
        "2": dict.fromkeys(("bytes_in_per_sec", "bytes_out_per_sec", "disk_bytes", "bytes_in_per_mean")),
    }


def test_how_many_members_a_group_has_is_unknown_where_its_state_is(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.group_lag(START_MS, [("g", "t", 0, 1, 2)], group_state="Unknown", member_id=None)
    assert [row.members for row in read_snapshot(settings, NOW_MS).memberships] == [None]
    assert [row["members"] for row in read_groups_status(settings)] == [None]


def test_everything_as_data_for_programs(skewed_folder: Path) -> None:
    """What `--json` prints, byte for byte: others parse it."""
    settings = settings_for(skewed_folder)
    shown = json.dumps(read_status(settings, now_ms=NOW_MS), indent=2, default=str)
    assert shown == (Path(__file__).parent / "status.json").read_text().removesuffix("\n")


def test_what_nobody_knows_of_bytes_out_is_named_with_how_to_know_it(settings: Settings, synthetic: Synthetic) -> None:
    """Broker 3 has counters; what is read of some partitions of the others nobody commits."""
    start_ms = NOW_MS - 2 * WINDOW_MS
    nothing_known = "bytes out of brokers 1, 2: unknown; to know it, set collect.jmx_endpoints or "
    synthetic.broker_load(start_ms, {1: 10.0, 2: 10.0}, bytes_out_per_sec=None)
    synthetic.broker_load(start_ms, {3: 10.0})
    (line,) = lines(settings)
    assert line.startswith(nothing_known)
    leaders = [(broker, topic, number, "leader", 5.0) for number, (broker, topic) in enumerate(UNREAD)]
    synthetic.partition_load(start_ms, leaders, bytes_out_per_sec=None)
    synthetic.partition_load(start_ms, [(1, "committed", 0, "leader", 5.0)])
    (line,) = lines(settings)
    told = (
        "bytes out of brokers 1, 2: unknown, as no group commits what is read of 9 partitions (b, a, c, d, e); "
        "to know it, set collect.jmx_endpoints or collect.prometheus_url, or let the readers commit"
    )
    assert line == told
    unknown = read_status(settings, now_ms=NOW_MS)["bytes_out_unknown"]
    assert unknown == {"brokers": [1, 2], "partitions": 9, "topics": ["b", "a", "c", "d", "e"], "bounds": {}}
    assert bytes_out_finding(read_load(TableReader(settings.storage.tables), settings)) == (True, told)


UNREAD = [*[(1, "b")] * 3, *[(2, "a")] * 2, (2, "c"), (2, "d"), (2, "e"), (2, "f")]


def test_bounds_of_bytes_out_that_nobody_knows_are_shown(
    tables_in_memory: str, settings: Settings, synthetic: Synthetic
) -> None:
    """Consumers read at least what groups commit; of broker 2 nobody knows what is written to one partition."""
    start_ms = NOW_MS - 2 * WINDOW_MS
    unknown = {"bytes_out_per_sec": None, "replication_bytes_out_per_sec": None}
    synthetic.broker_load(start_ms, {1: 10e6, 2: 10e6, 3: 10e6}, **unknown)
    leaders = [(broker, "read", broker, "leader", 3e6) for broker in (1, 2, 3)]
    synthetic.partition_load(start_ms, leaders, bytes_out_per_sec=2e6)
    size = {"bytes_out_per_sec": None, "size_bytes": 360_000_000}
    synthetic.partition_load(start_ms, [(broker, "unread", broker, "leader", 1e5) for broker in (1, 3)], **size)
    synthetic.partition_load(start_ms, [(2, "unread", 2, "leader", 1e5)], **size | {"size_bytes": None})
    load = read_load(TableReader(settings.storage.tables), settings)
    line = bytes_out_text(bytes_out_unknown(load))
    assert line == (
        "bytes out of brokers 1, 2, 3: unknown, as no group commits what is read of 3 partitions (unread); "
        "broker 1 sends at least 2.0 MB/s and at most 4.0 MB/s, broker 2 at least 2.0 MB/s, "
        "broker 3 at least 2.0 MB/s and at most 4.0 MB/s; "
        "to know it, set collect.jmx_endpoints or collect.prometheus_url, or let the readers commit"
    )
    bounds = {"1": [2e6, 4e6], "2": [2e6, None], "3": [2e6, 4e6]}
    assert read_status(settings, now_ms=NOW_MS)["bytes_out_unknown"]["bounds"] == bounds
    assert line.startswith(lines(settings)[0])
    assert bytes_out_finding(load) == (True, line)
    assert [[row.bytes_out_at_least_per_sec, row.bytes_out_at_most_per_sec] for row in load.brokers] == [
        *bounds.values()
    ]
    without = settings_for(tables_in_memory, trigger={"readers_without_commits_max": None})
    unbounded = bytes_out_unknown(read_load(TableReader(settings.storage.tables), without))["bounds"]
    assert unbounded == {broker: [2e6, None] for broker in ("1", "2", "3")}
    synthetic.broker_load(start_ms + WINDOW_MS, {1: 10e6})
    known = read_load(TableReader(settings.storage.tables), settings).brokers
    assert {row.bytes_out_at_least_per_sec for row in known} == {None}


def test_bytes_out_that_are_known_are_no_news(settings: Settings, synthetic: Synthetic) -> None:
    load = read_load(TableReader(settings.storage.tables), settings)
    assert bytes_out_finding(load) == (True, "no window of load has closed yet")
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, {1: 10.0})
    synthetic.partition_load(NOW_MS - 2 * WINDOW_MS, [(1, "t", 0, "leader", 5.0)], bytes_out_per_sec=None)
    assert lines(settings) == []
    load = read_load(TableReader(settings.storage.tables), settings)
    assert bytes_out_finding(load) == (True, "known of each broker with samples")


def test_brokers_that_no_collector_reports_or_two_are_named(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, dict.fromkeys((1, 2, 3, 4), 10.0))
    assert lines(settings) == []
    synthetic.broker_load(NOW_MS - WINDOW_MS, {1: 10.0}, covered_ms=WINDOW_MS, sample_count=6)
    synthetic.broker_load(NOW_MS - WINDOW_MS, {3: 10.0}, covered_ms=2 * WINDOW_MS, sample_count=12)
    status = read_status(settings, now_ms=NOW_MS)
    assert (status["silent_brokers"], status["brokers_reported_twice"]) == ([2, 4], [3])
    silent, twice = lines(settings)
    assert silent == (
        "no samples from brokers 2, 4 in this window: `rebalancer check` shows if it is a broker that is down, "
        "or a shard that is not taken"
    )
    assert twice == "more than one collector reports broker 3: collect.shard must differ"


def test_bars_are_of_load_per_capacity_where_all_brokers_have_one(tables_in_memory: str) -> None:
    """Broker 1 has twice the bytes of each other one, and room for twice as many: its bar is like theirs, and green."""
    content = settings_for(tables_in_memory).model_dump(mode="json", exclude_unset=True)
    capacities = {1: {"bytes_in_per_sec": 2e6}, 2: {"bytes_in_per_sec": 1e6}, 3: {"bytes_in_per_sec": 1e6}}
    settings = Settings.model_validate({**content, "planner": {"capacities": capacities}})
    Synthetic(settings.storage.tables).broker_load(NOW_MS - 2 * WINDOW_MS, {1: 2e5, 2: 1e5, 3: 1e5})
    Synthetic(settings.storage.tables).broker_load(NOW_MS - WINDOW_MS, {1: 2e5, 2: 1e5, 3: 1e5})
    output = StringIO()
    Console(file=output, width=200, force_terminal=True, color_system="standard").print(
        drawn(read_status(settings, now_ms=NOW_MS))
    )
    bars = [line for line in output.getvalue().splitlines() if "█" in line]
    assert [line.count("█") for line in bars] == [30, 30, 30]
    assert not any("\x1b[31m" in line for line in bars)


def test_bars_take_the_room_that_is_left_and_show_the_skew_or_are_not_there() -> None:
    loads = {"1": 4e6, "2": 2e6, "3": None}
    row = {
        broker: dict.fromkeys(("bytes_in_per_sec", "bytes_out_per_sec", "disk_bytes", "bytes_in_per_mean"), rate)
        for broker, rate in loads.items()
    }
    for width, longest in ((200, 30), (60, 16), (48, 0)):
        shown = table_shown(row, width)
        assert ["bytes in" in line.replace("bytes in/s", "") for line in shown] == [longest > 0, False, False, False]
        bars = [line.count("█") for line in shown[1:]]
        assert bars[0] == 2 * bars[1] or not longest
        assert bars[2] == 0, "an unknown rate has no bar"
        assert (bars[0] > 0) == (longest > 0)
        assert max(map(len, shown)) <= width


def table_shown(loads: Mapping[str, Mapping[str, float | None]], width: int) -> list[str]:
    output = StringIO()
    Console(file=output, width=width).print(LoadTable(loads, 1.2))
    return [line.rstrip() for line in output.getvalue().splitlines()]


@pytest.mark.long
def test_where_nothing_but_ascii_can_be_shown_bars_still_are(skewed_folder: Path) -> None:
    settings = settings_for(skewed_folder)
    chosen = ["--set", f"storage.tables={settings.storage.tables}", "--set", "kafka.cluster_name=test"]
    command = [sys.executable, "-m", "streaming", "status", *chosen]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"#####" in shown.stdout


def test_of_many_silent_brokers_the_first_are_named(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, dict.fromkeys(range(1, 60), 10.0))
    synthetic.broker_load(NOW_MS - WINDOW_MS, {1: 10.0})
    (line,) = lines(settings)
    assert ", 20, 21 and 38 more in this window" in line


def text(settings: Settings) -> str:
    output = StringIO()
    Console(file=output, width=200).print(drawn(read_status(settings, now_ms=NOW_MS)))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def lines(settings: Settings) -> list[str]:
    """What is shown of brokers that not exactly one collector reports."""
    return [
        line.strip()
        for line in text(settings).splitlines()
        if " broker" in line and "bytes in" not in line and "cluster" not in line
    ]
