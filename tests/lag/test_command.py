"""`rebalancer lag` and the group part of a snapshot, on tables that tell small stories."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from assignor_core.lag import LagStatus
from assignor_core.lag.diagnosis import LagCause, LagFinding
from streaming import tables
from streaming.cli import run
from streaming.commands.lag import read_lag
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, TableReader, equal
from streaming.views.group_store import LagWindows, read_picture
from streaming.views.one_group import advice_of
from tests.lag.test_lag_windows import CountingReader
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

WINDOWS = 10


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Ten minutes: `well` keeps up, `stuck` commits nothing, `slow` reads half, `back` was set back, `new` is new.

    Nobody writes to these tables.
    """
    settings = settings_for(tmp_path_factory.mktemp("lag"))
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(WINDOWS):
            end = 1_000 * (index + 1)
            rows: list[tuple[str, str, int, int | None, int]] = [
                ("well", "t", 0, end, end),
                ("stuck", "t", 0, 500, end),
                ("slow", "t", 0, end // 2, end),
                ("back", "t", 0, end if index < 7 else 1_000, end),
                ("stuck", "t", 1, end, end),
                ("new", "t", 0, None, end),
            ]
            synthetic.group_lag(NOW_MS - (WINDOWS - index) * WINDOW_MS, rows)
    return settings


def command(settings: Settings, *arguments: str) -> int:
    return run(
        ["lag", "--set", f"storage.tables={settings.storage.tables}", "--set", "kafka.cluster_name=test", *arguments]
    )


def test_groups_worst_first_with_one_line_why(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(settings, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [(row["group"], row["status"]) for row in report["groups"]] == [
        ("back", "rewind"), ("stuck", "stall"), ("slow", "warn"), ("new", "unknown"), ("well", "ok"),
    ]  # fmt: skip
    assert {row["group"]: row["why"] for row in report["groups"]} == {
        "back": "1 of 1 partition; t-0: set back by 6,000 records, 9,000 to read again",
        "stuck": "1 of 2 partitions; t-0: 9,500 records wait, no commit for 10 min, though c owns it",
        "slow": "1 of 1 partition; t-0: 5,000 records (5 min) behind, reads 8/s of 15/s",
        "new": "1 of 1 partition; t-0: nothing committed yet",
        "well": "nothing to read",
    }
    assert command(settings) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[0].startswith("cluster test: 5 groups, 1 rewind, 1 stall, 1 warn, 1 unknown, 1 ok; newest sample ")
    assert [line.split()[:2] for line in drawn[2:]] == [
        ["rewind", "back"], ["stall", "stuck"], ["warn", "slow"], ["unknown", "new"], ["ok", "well"],
    ]  # fmt: skip


def test_lag_of_a_compacted_topic_is_a_number_of_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(WINDOWS):
            start_ms = NOW_MS - (WINDOWS - index) * WINDOW_MS
            synthetic.group_lag(
                start_ms, [("keys", "k", 0, 500, 9_000), ("both", "k", 0, 9, 9)], cleanup_policy="compact,delete"
            )
            synthetic.group_lag(start_ms, [("both", "t", 0, 400, 9_000)])
    assert command(settings, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert {row["group"]: (row["lag_records"], row["lag_unit"]) for row in report["groups"]} == {
        "keys": (8_500, "offsets"), "both": (8_600, "records"),
    }  # fmt: skip
    assert {row["group"]: row["why"].partition(": ")[2] for row in report["groups"]} == {
        "keys": "8,500 offsets wait, no commit for 10 min, though c owns it",
        "both": "8,600 records wait, no commit for 10 min, though c owns it",
    }
    topics = {(row.group, row.topic): row.lag_unit for row in read_snapshot(settings, NOW_MS).groups.topics}
    assert topics == {("keys", "k"): "offsets", ("both", "t"): "records", ("both", "k"): "offsets"}
    assert command(settings) == 0
    drawn = capsys.readouterr().out
    assert "lag, records" not in drawn
    assert "8,500 offsets" in drawn
    assert command(settings, "--group", "keys") == 0
    drawn = capsys.readouterr().out
    assert "8,500 offsets behind" in drawn
    assert "lag, offsets" in drawn
    assert command(settings, "--group", "both", "--json") == 0
    partitions = json.loads(capsys.readouterr().out)["partitions"]
    assert {row["topic"]: row["lag_unit"] for row in partitions} == {"t": "records", "k": "offsets"}


def test_the_worst_groups_are_shown_and_the_others_counted(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(settings, "--limit", "2") == 0
    shown = capsys.readouterr().out
    assert "5 groups, 1 rewind, 1 stall, 1 warn, 1 unknown, 1 ok" in shown
    assert [name for name in ("back", "stuck", "slow", "new", "well") if f" {name} " in shown] == ["back", "stuck"]
    assert "the 2 worst of 5" in shown
    assert command(settings, "--limit", "5") == 0
    assert "worst of" not in capsys.readouterr().out


def test_the_age_of_a_lag_is_that_of_all_windows_however_few_groups_are_shown(tmp_path: Path) -> None:
    """Verdicts look back twelve minutes, ages thirty."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(30):
            rows: list[tuple[str, str, int, int | None, int]] = [
                (group, "t", 0, 100 * (1 + index // 20), 100 + 10 * index) for group in ("a", "b", "c")
            ]
            synthetic.group_lag(NOW_MS - (30 - index) * WINDOW_MS, rows)
    whole, some = (read_lag(settings, group_id=None, matches=re.compile("[ab]"), groups_max=most) for most in (0, 1))
    assert some["groups"] == whole["groups"][:1]
    assert whole["groups"][0]["lag_seconds"] > 12 * 60
    one = read_lag(settings, group_id="a", matches=re.compile(""))
    assert one["partitions"][0]["lag_seconds"] == whole["groups"][0]["lag_seconds"]


def test_a_group_that_has_long_been_stalled_is_so_in_text_and_json_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of what is shown as text older windows are read too: they must not make a new commit out of an old one."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for window in range(40):
            at_ms = NOW_MS - (40 - window) * WINDOW_MS
            synthetic.group_lag(at_ms, [("stuck", "t", 0, 500, 1_000 * (window + 1))])
    for few in (0, 1, 200):
        for statuses in (frozenset[str](), frozenset({"stall"})):
            (group,) = read_lag(settings, groups_max=few, statuses=statuses)["groups"]
            assert group["status"] == "stall", (few, statuses)


def test_one_group_is_judged_as_among_all_and_read_alone(tmp_path: Path) -> None:
    """Whether the newest windows have it or not: verdicts are as of the newest sample of all groups."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(30):
            start_ms = NOW_MS - (30 - index) * WINDOW_MS
            rows: list[tuple[str, str, int, int | None, int]] = [("busy", "t", 0, 10 * index, 10 * index + 10)]
            rows += [("late", "t", n, 100, 100 + 10 * index) for n in range(2)] if index < 28 else []
            synthetic.group_lag(start_ms, rows)
    reader = CountingReader(settings.storage.tables)
    for group, rows_of_group in (("busy", 30), ("late", 2 * 28)):
        whole = LagWindows(reader, "test", window_ms=WINDOW_MS)
        whole.refresh()
        among_all = whole.picture([group])
        reader.rows_read = 0
        alone = read_picture(reader, "test", window_ms=WINDOW_MS, where=equal("group_id", group))
        assert among_all is not None
        assert alone is not None
        assert alone.newest_event_ms == among_all.newest_event_ms
        shown, expected = (one.with_figures().drop_columns(["row"]).to_pylist() for one in (alone, among_all))
        assert shown == expected
        # The newest window once more for its time, and windows again whose partitions newer ones lack.
        assert reader.rows_read <= rows_of_group + 4
    assert read_picture(reader, "test", window_ms=WINDOW_MS, where=equal("group_id", "nobody")) is None


def test_groups_of_a_topic_are_judged_as_among_all(tmp_path: Path) -> None:
    """Control reads only groups of topics that a broker leads, whose newest sample may be older than that of others."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(30):
            rows: list[tuple[str, str, int, int | None, int]] = [("busy", "u", 0, 10 * index, 10 * index + 10)]
            rows += [("late", "t", 0, 100, 110 if index > 18 else 100)] if index < 28 else []
            synthetic.group_lag(NOW_MS - (30 - index) * WINDOW_MS, rows)
    reader = TableReader(settings.storage.tables)
    alone, whole = (
        read_picture(reader, "test", window_ms=WINDOW_MS, where=where) for where in (equal("topic", "t"), ALL_ROWS)
    )
    assert alone is not None
    assert whole is not None
    assert alone.newest_event_ms == whole.newest_event_ms
    assert alone.partitions["status"].to_pylist() == [LagStatus.STALL]
    assert whole.of_topic("t").partitions["status"].to_pylist() == [LagStatus.STALL]


def test_one_group_by_partition(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(settings, "--group", "stuck", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["partitions"]
    assert [(row["partition"], row["status"], row["lag_records"]) for row in rows] == [
        (0, "stall", 9_500),
        (1, "ok", 0),
    ]
    assert rows[0]["catch_up_seconds"] is None
    assert command(settings, "--group", "stuck") == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[0].startswith("group stuck: Stable, 1 member, 2 partitions, 9,500 records behind; newest sample ")
    assert drawn[-1].split() == ["ok", "t-1", "0", "0", "s", "c", "nothing", "to", "read"]


def test_the_lag_of_a_group_that_has_committed_nothing_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(tmp_path)
    Synthetic(settings.storage.tables).group_lag(NOW_MS - WINDOW_MS, [("new", "t", 0, None, 9_000)])
    assert command(settings, "--group", "new") == 0
    assert capsys.readouterr().out.startswith("group new: Stable, 1 member, 1 partition, lag unknown; newest sample ")


CONSUMER_GROUP = {
    "group_type": "consumer", "group_members": 3, "assignor": "uniform", "generation_id": 7, "group_instance_id": "i",
    "rack_id": "r", "target_member_id": "m-2", "subscribed_topic_regex": "t.*", "group_state": "Reconciling",
}  # fmt: skip


def test_a_group_of_the_consumer_protocol_has_its_members_targets_and_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(tmp_path)
    Synthetic(settings.storage.tables).group_lag(NOW_MS, [("g", "t", 0, 5, 9)], **CONSUMER_GROUP)
    assert command(settings, "--group", "g", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    of_group = ("group_type", "group_members", "assignor", "generation_id", "topology_epoch")
    assert [report[name] for name in of_group] == ["consumer", 3, "uniform", 7, None]
    (row,) = report["partitions"]
    of_member = ("member_id", "group_instance_id", "rack_id", "target_member_id", "subscribed_topic_regex")
    assert [row[name] for name in of_member] == ["m", "i", "r", "m-2", "t.*"]
    assert command(settings, "--group", "g") == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[0].startswith("consumer group g: Reconciling, 3 members, 1 partition")
    assert "c (moves)" in drawn[-1]


def test_members_that_could_not_be_read_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    unread = {"member_id": None, "client_id": None, "group_type": "consumer"}
    Synthetic(settings.storage.tables).group_lag(NOW_MS, [("g", "t", 0, 5, 9)], **unread)
    assert command(settings, "--group", "g") == 0
    assert "consumer group g: Stable, members unknown, 1 partition" in capsys.readouterr().out
    snapshot = read_snapshot(settings, now_ms=NOW_MS)
    assert [row.members for row in snapshot.memberships] == [None]


def test_reasons_of_a_share_group_blame_no_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    queue = {"member_id": None, "client_id": None, "group_type": "share"}
    with synthetic.together():
        for index in range(WINDOWS):
            start_ms, end = NOW_MS - (WINDOWS - index) * WINDOW_MS, 1_000 * (index + 1)
            synthetic.group_lag(start_ms, [("stuck", "t", 0, 500, end)], **queue, group_members=2)
            synthetic.group_lag(start_ms, [("left", "t", 0, 500, end)], **queue, group_members=0, group_state="Empty")
            synthetic.group_lag(start_ms, [("slow", "t", 0, end // 2, end)], **queue, group_members=4)
    assert command(settings, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["groups"]
    assert {row["group_type"] for row in rows} == {"share"}
    groups = {row["group"]: (row["status"], row["why"]) for row in rows}
    assert groups["stuck"][0] == "stall"
    assert groups["stuck"][1].endswith("none acknowledged for 10 min, though the group's members (2) share it")
    assert groups["left"][0] == "stop"
    assert groups["left"][1].endswith("none acknowledged for 10 min, and the group has no member")
    assert command(settings, "--group", "slow", "--json") == 0
    (cause,) = json.loads(capsys.readouterr().out)["causes"]
    assert cause["cause"] == "too few members"
    assert cause["figure"].startswith("4 members share 1 partition;")


def test_a_group_that_is_not_there_is_told_from_no_groups_at_all(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(settings, "--group", "stuk") == 2
    assert "group 'stuk' is not among the 5 seen lately: did you mean 'stuck'?" in capsys.readouterr().err
    assert command(settings, "--group", "zzz") == 2
    assert "group 'zzz' is not among the 5 seen lately: `rebalancer lag` lists them" in capsys.readouterr().err
    elsewhere = settings_for(tmp_path / "elsewhere")
    tables.create_table(elsewhere.storage.tables, "group_lag")
    assert command(elsewhere, "--group", "stuck") == 2
    assert "no group of cluster test is in the tables yet" in capsys.readouterr().err


def test_burrow_calls_them_otherwise(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(settings, "--compat", "burrow", "--json") == 0
    groups = {row["group"]: row for row in json.loads(capsys.readouterr().out)["groups"]}
    assert {name: (row["status"], row["why"]) for name, row in groups.items()} == {
        "stuck": ("err", "t-0: STOP"),  # one commit seen, then silence
        "back": ("err", "t-0: REWIND"),
        "slow": ("warn", "t-0: WARN"),
        "new": ("ok", "t-0: OK"),
        "well": ("ok", "t-0: OK"),
    }
    assert command(settings, "--compat", "burrow", "--group", "slow") == 0
    assert ["warn", "t-0"] in [line.split()[:2] for line in capsys.readouterr().out.splitlines()]


def test_the_state_of_a_group_is_that_of_its_newest_sample_by_either_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    synthetic.group_lag(NOW_MS, [("g", "t", 0, 0, 100)], group_state="Stable")
    synthetic.group_lag(NOW_MS + WINDOW_MS, [("g", "t", 1, 100, 100)], group_state="Empty")
    states = []
    for rules in ((), ("--compat", "burrow")):
        assert command(settings, "--json", *rules) == 0
        states += [row["state"] for row in json.loads(capsys.readouterr().out)["groups"]]
    assert states == ["Empty", "Empty"]


def test_only_what_matches_and_a_bad_pattern_is_told(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(settings, "--match", "^s", "--json") == 0
    assert [row["group"] for row in json.loads(capsys.readouterr().out)["groups"]] == ["stuck", "slow"]
    assert command(settings, "--match", "^s") == 0
    assert capsys.readouterr().out.startswith("cluster test: 2 of 5 groups, 1 stall, 1 warn; newest sample ")
    assert command(settings, "--match", "^z") == 0
    assert capsys.readouterr().out.startswith("cluster test: none of 5 groups matches; newest sample ")
    assert command(settings, "--match", "(") == 2
    assert "is no regular expression" in capsys.readouterr().err


def listed(settings: Settings, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Groups in the order of the report, whose counts must fit them; on the terminal the same in the same order."""
    assert command(settings, "--json", *arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["groups_seen"] == 5
    assert report["groups_matching"] == len(report["groups"]) == sum(report["statuses"].values())
    names = [row["group"] for row in report["groups"]]
    assert command(settings, *arguments) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]] == names
    return names


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--status", "STALL", "--status", "warn"], ["stuck", "slow"]),
        (["--status", "ok", "--match", "^s"], []),
        (["--sort", "lag"], ["stuck", "back", "slow", "new", "well"]),
        (["--sort", "name"], ["back", "new", "slow", "stuck", "well"]),
        (["--topic", "t", "--sort", "name", "--status", "unknown", "--status", "rewind"], ["back", "new"]),
        (["--topic", "other"], []),
    ],
)
def test_groups_are_chosen_and_put_in_order(
    arguments: list[str], names: list[str], settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(settings, capsys, *arguments) == names


def test_burrows_verdicts_are_chosen_and_put_in_order_too(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    every = listed(settings, capsys, "--compat", "burrow")
    assert listed(settings, capsys, "--compat", "burrow", "--sort", "name") == sorted(every)
    assert command(settings, "--compat", "burrow", "--json") == 0
    status = {row["group"]: row["status"] for row in json.loads(capsys.readouterr().out)["groups"]}
    errors = [name for name in every if status[name] == "err"]
    assert errors
    assert listed(settings, capsys, "--compat", "burrow", "--status", "err") == errors


def test_the_oldest_lag_first_is_that_of_all_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdicts look back twelve minutes: both lags are older, one far older."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(30):
            commits = {"a": 100 + 10 * min(index, 14), "b": 100 + 10 * min(index, 4), "c": 110 + 10 * index}
            rows: list[tuple[str, str, int, int | None, int]] = [
                (group, "t", 0, committed, 110 + 10 * index) for group, committed in commits.items()
            ]
            synthetic.group_lag(NOW_MS - (30 - index) * WINDOW_MS, rows)
    assert command(settings, "--sort", "time", "--limit", "1") == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[2].split()[1] == "b"
    assert "the 1 first of 3" in drawn[3]
    assert command(settings, "--sort", "time", "--json") == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [row["group"] for row in groups] == ["b", "a", "c"]
    assert groups[0]["lag_seconds"] > groups[1]["lag_seconds"] > 12 * 60


def test_a_group_is_shown_as_it_does_on_one_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(WINDOWS):
            end = 1_000 * (index + 1)
            rows: list[tuple[str, str, int, int | None, int]] = [
                ("both", "bad", 0, 500, end), ("both", "good", 0, end, end), ("both", "good", 1, end - 7, end),
                ("one", "bad", 0, end, end),
            ]  # fmt: skip
            synthetic.group_lag(NOW_MS - (WINDOWS - index) * WINDOW_MS, rows)
    found = {}
    for topic in ("bad", "good"):
        for limit in ("0", "9"):
            assert command(settings, "--topic", topic, "--limit", limit) == 0
            found[topic] = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:]]
        assert command(settings, "--topic", topic, "--json") == 0
        groups = json.loads(capsys.readouterr().out)["groups"]
        assert [[row["status"], row["group"]] for row in groups] == found[topic]
    assert found == {"bad": [["stall", "both"], ["ok", "one"]], "good": [["ok", "both"]]}
    for arguments, partitions in (
        (["--topic", "good"], [("good", 1), ("good", 0)]), (["--status", "stall"], [("bad", 0)]),
        (["--sort", "name"], [("bad", 0), ("good", 0), ("good", 1)]),
    ):  # fmt: skip
        assert command(settings, "--group", "both", "--json", *arguments) == 0
        rows_shown = json.loads(capsys.readouterr().out)["partitions"]
        assert [(row["topic"], row["partition"]) for row in rows_shown] == partitions
    assert command(settings, "--group", "both", "--topic", "typo") == 2
    assert "group 'both' was not seen to read topic 'typo'" in capsys.readouterr().err


def test_an_unknown_verdict_is_refused_with_the_known_ones(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(settings, "--status", "err") == 2
    assert "'err' is not a verdict; verdicts are ok, unknown, warn, stop, stall, rewind" in capsys.readouterr().err
    assert command(settings, "--status", "rewound", "--compat", "burrow") == 2


def test_before_the_first_window_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    tables.create_table(settings.storage.tables, "group_lag")
    assert command(settings) == 0
    assert "no consumer group in the tables yet" in capsys.readouterr().out


def test_the_snapshot_holds_the_same(settings: Settings) -> None:
    groups = read_snapshot(settings, NOW_MS).groups
    assert groups.statuses == {"rewind": 1, "stall": 1, "stop": 0, "warn": 1, "unknown": 1, "ok": 1}
    assert [row.group for row in groups.groups] == ["back", "stuck", "slow", "new", "well"]
    stuck = next(row for row in groups.topics if row.group == "stuck")
    assert stuck.statuses == {"stall": 1, "ok": 1}
    assert stuck.lag_records == 9_500


def test_a_lagging_group_is_told_which_broker_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(WINDOWS):
            start_ms, end = NOW_MS - (WINDOWS - index) * WINDOW_MS, 1_000 * (index + 1)
            synthetic.broker_load(start_ms, {1: 9e6, 2: 3e6})
            synthetic.partition_load(start_ms, [(1 if p < 2 else 2, "t", p, "leader", 1e6) for p in range(6)])
            synthetic.group_lag(start_ms, [("g", "t", p, end // 2 if p < 2 else end, end) for p in range(6)])
    assert command(settings, "--group", "g", "--json") == 0
    causes = json.loads(capsys.readouterr().out)["causes"]
    assert [(one["cause"], one["subject"], one["helps"]) for one in causes] == [
        ("hot broker", "broker 1", "rebalancer plan")
    ]
    assert causes[0]["figure"] == "2 of 2 partitions behind are led by it, 2 of 6 in all; load 1.50 x mean"
    assert command(settings, "--group", "g") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("hot broker: broker 1, 2 of 2 partitions behind")


def test_a_group_with_too_few_members_is_told_how_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(WINDOWS):
            end = 1_000 * (index + 1)
            rows: list[tuple[str, str, int, int | None, int]] = [("g", "t", p, end // 2, end) for p in range(8)]
            synthetic.group_lag(NOW_MS - (WINDOWS - index) * WINDOW_MS, rows)
    assert command(settings, "--group", "g", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["cause"] for one in report["causes"]] == ["too few members"]
    # One member reads half of eight equal partitions, so three are what a member can be given: 8 = 3 + 3 + 2.
    assert report["members"]["needed"] == 3
    assert report["members"]["options"][0]["heaviest_ratio"] == pytest.approx(0.75)
    assert report["members"]["options"][0]["r_score"] == pytest.approx(5 / 4)
    assert command(settings, "--group", "g") == 0
    assert "members: 3 needed; 3: fullest 75%, R-score 1.25" in capsys.readouterr().out


def test_where_one_member_is_slow_no_number_of_members_is_advised() -> None:
    rows: list[dict[str, Any]] = [
        {
            "topic": "t", "partition": p, "member_id": f"m{p % 3}", "produced_per_sec": 10.0,
            "status": LagStatus.WARN if p % 3 == 1 else LagStatus.OK, "consumed_per_sec": 4.0 if p % 3 == 1 else 10.0,
        }
        for p in range(6)
    ]  # fmt: skip
    slow = LagFinding(LagCause.SLOW_MEMBER, "m1", "reads 8/s of 20/s", "look at it")
    assert advice_of(rows, [slow]) is None
    advice = advice_of(rows, [])
    assert advice is not None
    assert advice.needed == 6  # one that keeps up was seen to read 20/s: two partitions fill it, one fills it by half


def test_the_group_without_a_name_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    Synthetic(settings.storage.tables).group_lag(
        NOW_MS - WINDOW_MS, [("", "t", 0, 5, 9), ("g", "t", 0, 9, 9)], client_host="10.0.0.7"
    )
    assert command(settings, "--group", "", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["group"], [row["lag_records"] for row in report["partitions"]]) == ("", [4])
    assert command(settings, "--group", "") == 0
    assert "c at 10.0.0.7" in capsys.readouterr().out
