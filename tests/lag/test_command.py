"""`rebalancer lag` and the group part of a snapshot, on tables that tell small stories."""

import json
import re
from collections.abc import Callable, Sequence
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
from streaming.views.one_group import advice_of
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

WINDOWS = 10
LagRow = tuple[str, str, int, int | None, int]


def write_windows(synthetic: Synthetic, rows_of: Callable[[int], Sequence[LagRow]], windows: int = WINDOWS) -> None:
    """Rows of the windows 0, 1, ..., of which the last ends now."""
    with synthetic.together():
        for index in range(windows):
            synthetic.group_lag(NOW_MS - (windows - index) * WINDOW_MS, rows_of(index))


class Lag:
    """The command on some tables: what it prints."""

    def __init__(self, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        self.settings, self._capsys = settings, capsys

    def text(self, *arguments: str, code: int = 0) -> str:
        """What is printed; of a refusal the error."""
        chosen = ("--set", f"storage.tables={self.settings.storage.tables}", "--set", "kafka.cluster_name=test")
        assert run(["lag", *chosen, *arguments]) == code
        printed = self._capsys.readouterr()
        return printed.err if code else printed.out

    def lines(self, *arguments: str) -> list[str]:
        return self.text(*arguments).splitlines()

    def report(self, *arguments: str) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.text("--json", *arguments))
        return report

    def by_group(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Rows of the report by group, in its order."""
        return {row["group"]: row for row in self.report(*arguments)["groups"]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Over Delta: no command takes tables in memory."""
    return settings_for(tmp_path)


@pytest.fixture
def lag(settings: Settings, capsys: pytest.CaptureFixture[str]) -> Lag:
    return Lag(settings, capsys)


@pytest.fixture(scope="module")
def five_groups(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Ten minutes: `well` keeps up, `stuck` commits nothing, `slow` reads half, `back` was set back, `new` is new.

    Nobody writes to these tables.
    """

    def rows(index: int) -> list[LagRow]:
        end = 1_000 * (index + 1)
        return [
            ("well", "t", 0, end, end), ("stuck", "t", 0, 500, end), ("stuck", "t", 1, end, end),
            ("slow", "t", 0, end // 2, end), ("back", "t", 0, end if index < 7 else 1_000, end),
            ("new", "t", 0, None, end),
        ]  # fmt: skip

    settings = settings_for(tmp_path_factory.mktemp("lag"))
    write_windows(Synthetic(settings.storage.tables), rows)
    return settings


@pytest.fixture
def five(five_groups: Settings, capsys: pytest.CaptureFixture[str]) -> Lag:
    return Lag(five_groups, capsys)


@pytest.mark.long
def test_groups_worst_first_with_one_line_why(five: Lag) -> None:
    shown = [(name, row["status"]) for name, row in five.by_group().items()]
    assert shown == [("back", "rewind"), ("stuck", "stall"), ("slow", "warn"), ("new", "unknown"), ("well", "ok")]
    assert {name: row["why"] for name, row in five.by_group().items()} == {
        "back": "1 of 1 partition; t-0: set back by 6,000 records, 9,000 to read again",
        "stuck": "1 of 2 partitions; t-0: 9,500 records wait, no commit for 10 min, though c owns it",
        "slow": "1 of 1 partition; t-0: 5,000 records (5 min) behind, reads 8/s of 15/s",
        "new": "1 of 1 partition; t-0: nothing committed yet",
        "well": "nothing to read",
    }
    head, _, *drawn = five.lines()
    assert head.startswith("cluster test: 5 groups, 1 rewind, 1 stall, 1 warn, 1 unknown, 1 ok; newest sample ")
    assert [line.split()[:2] for line in drawn] == [[status, name] for name, status in shown]


def test_the_snapshot_holds_the_same(five_groups: Settings) -> None:
    groups = read_snapshot(five_groups, NOW_MS).groups
    assert groups.statuses == {"rewind": 1, "stall": 1, "stop": 0, "warn": 1, "unknown": 1, "ok": 1}
    assert [row.group for row in groups.groups] == ["back", "stuck", "slow", "new", "well"]
    stuck = next(row for row in groups.topics if row.group == "stuck")
    assert (stuck.statuses, stuck.lag_records) == ({"stall": 1, "ok": 1}, 9_500)


@pytest.mark.long
def test_lag_of_a_compacted_topic_is_a_number_of_offsets(lag: Lag, synthetic: Synthetic) -> None:
    with synthetic.together():
        for index in range(WINDOWS):
            start_ms, compacted = NOW_MS - (WINDOWS - index) * WINDOW_MS, {"cleanup_policy": "compact,delete"}
            synthetic.group_lag(start_ms, [("keys", "k", 0, 500, 9_000), ("both", "k", 0, 9, 9)], **compacted)
            synthetic.group_lag(start_ms, [("both", "t", 0, 400, 9_000)])
    assert {name: (row["lag_records"], row["lag_unit"]) for name, row in lag.by_group().items()} == {
        "keys": (8_500, "offsets"), "both": (8_600, "records"),
    }  # fmt: skip
    assert {name: row["why"].partition(": ")[2] for name, row in lag.by_group().items()} == {
        "keys": "8,500 offsets wait, no commit for 10 min, though c owns it",
        "both": "8,600 records wait, no commit for 10 min, though c owns it",
    }
    topics = {(row.group, row.topic): row.lag_unit for row in read_snapshot(lag.settings, NOW_MS).groups.topics}
    assert topics == {("keys", "k"): "offsets", ("both", "t"): "records", ("both", "k"): "offsets"}
    drawn = lag.text()
    assert ("lag, records" in drawn, "8,500 offsets" in drawn) == (False, True)
    drawn = lag.text("--group", "keys")
    assert ("8,500 offsets behind" in drawn, "lag, offsets" in drawn) == (True, True)
    partitions = lag.report("--group", "both")["partitions"]
    assert {row["topic"]: row["lag_unit"] for row in partitions} == {"t": "records", "k": "offsets"}


@pytest.mark.long
def test_the_worst_groups_are_shown_and_the_others_counted(five: Lag) -> None:
    shown = five.text("--limit", "2")
    assert "5 groups, 1 rewind, 1 stall, 1 warn, 1 unknown, 1 ok" in shown
    assert [name for name in ("back", "stuck", "slow", "new", "well") if f" {name} " in shown] == ["back", "stuck"]
    assert "the 2 worst of 5" in shown
    assert "worst of" not in five.text("--limit", "5")


@pytest.mark.long
def test_the_age_of_a_lag_is_that_of_all_windows_however_few_groups_are_shown(
    settings: Settings, synthetic: Synthetic
) -> None:
    """Verdicts look back twelve minutes, ages thirty."""

    def rows(index: int) -> list[LagRow]:
        return [(group, "t", 0, 100 * (1 + index // 20), 100 + 10 * index) for group in ("a", "b", "c")]

    write_windows(synthetic, rows, 30)
    whole, some = (read_lag(settings, group_id=None, matches=re.compile("[ab]"), groups_max=most) for most in (0, 1))
    assert some["groups"] == whole["groups"][:1]
    assert whole["groups"][0]["lag_seconds"] > 12 * 60
    one = read_lag(settings, group_id="a", matches=re.compile(""))
    assert one["partitions"][0]["lag_seconds"] == whole["groups"][0]["lag_seconds"]


@pytest.mark.long
def test_a_group_that_has_long_been_stalled_is_so_in_text_and_json_alike(
    settings: Settings, synthetic: Synthetic
) -> None:
    """Of what is shown as text older windows are read too: they must not make a new commit out of an old one."""
    write_windows(synthetic, lambda index: [("stuck", "t", 0, 500, 1_000 * (index + 1))], 40)
    for few in (0, 1):
        for statuses in (frozenset[str](), frozenset({"stall"})):
            (group,) = read_lag(settings, groups_max=few, statuses=statuses)["groups"]
            assert group["status"] == "stall", (few, statuses)


@pytest.mark.long
def test_one_group_by_partition(five: Lag) -> None:
    stalled, well = five.report("--group", "stuck")["partitions"]
    assert (stalled["partition"], stalled["status"], stalled["lag_records"]) == (0, "stall", 9_500)
    assert (well["partition"], well["status"], well["lag_records"]) == (1, "ok", 0)
    assert stalled["catch_up_seconds"] is None
    drawn = five.lines("--group", "stuck")
    assert drawn[0].startswith("group stuck: Stable, 1 member, 2 partitions, 9,500 records behind; newest sample ")
    assert drawn[-1].split() == ["ok", "t-1", "0", "0", "s", "c", "nothing", "to", "read"]


def test_the_lag_of_a_group_that_has_committed_nothing_is_unknown(lag: Lag, synthetic: Synthetic) -> None:
    synthetic.group_lag(NOW_MS - WINDOW_MS, [("new", "t", 0, None, 9_000)])
    assert lag.text("--group", "new").startswith("group new: Stable, 1 member, 1 partition, lag unknown; newest sample")


CONSUMER_GROUP = {
    "group_type": "consumer", "group_members": 3, "assignor": "uniform", "generation_id": 7, "group_instance_id": "i",
    "rack_id": "r", "target_member_id": "m-2", "subscribed_topic_regex": "t.*", "group_state": "Reconciling",
}  # fmt: skip


@pytest.mark.long
def test_a_group_of_the_consumer_protocol_has_its_members_targets_and_epoch(lag: Lag, synthetic: Synthetic) -> None:
    synthetic.group_lag(NOW_MS, [("g", "t", 0, 5, 9)], **CONSUMER_GROUP)
    report = lag.report("--group", "g")
    of_group = ("group_type", "group_members", "assignor", "generation_id", "topology_epoch")
    assert [report[name] for name in of_group] == ["consumer", 3, "uniform", 7, None]
    (row,) = report["partitions"]
    of_member = ("member_id", "group_instance_id", "rack_id", "target_member_id", "subscribed_topic_regex")
    assert [row[name] for name in of_member] == ["m", "i", "r", "m-2", "t.*"]
    drawn = lag.lines("--group", "g")
    assert drawn[0].startswith("consumer group g: Reconciling, 3 members, 1 partition")
    assert "c (moves)" in drawn[-1]


def test_members_that_could_not_be_read_are_unknown(lag: Lag, synthetic: Synthetic) -> None:
    unread = {"member_id": None, "client_id": None, "group_type": "consumer"}
    synthetic.group_lag(NOW_MS, [("g", "t", 0, 5, 9)], **unread)
    assert "consumer group g: Stable, members unknown, 1 partition" in lag.text("--group", "g")
    assert [row.members for row in read_snapshot(lag.settings, now_ms=NOW_MS).memberships] == [None]


@pytest.mark.long
def test_reasons_of_a_share_group_blame_no_owner(lag: Lag, synthetic: Synthetic) -> None:
    queue = {"member_id": None, "client_id": None, "group_type": "share"}
    with synthetic.together():
        for index in range(WINDOWS):
            start_ms, end = NOW_MS - (WINDOWS - index) * WINDOW_MS, 1_000 * (index + 1)
            synthetic.group_lag(start_ms, [("stuck", "t", 0, 500, end)], **queue, group_members=2)
            synthetic.group_lag(start_ms, [("left", "t", 0, 500, end)], **queue, group_members=0, group_state="Empty")
            synthetic.group_lag(start_ms, [("slow", "t", 0, end // 2, end)], **queue, group_members=4)
    groups = lag.by_group()
    assert {row["group_type"] for row in groups.values()} == {"share"}
    assert (groups["stuck"]["status"], groups["left"]["status"]) == ("stall", "stop")
    assert groups["stuck"]["why"].endswith("none acknowledged for 10 min, though the group's members (2) share it")
    assert groups["left"]["why"].endswith("none acknowledged for 10 min, and the group has no member")
    (cause,) = lag.report("--group", "slow")["causes"]
    assert cause["cause"] == "too few members"
    assert cause["figure"].startswith("4 members share 1 partition;")


@pytest.mark.long
def test_a_group_that_is_not_there_is_told_from_no_groups_at_all(five: Lag, lag: Lag) -> None:
    lacking = five.text("--group", "stuk", code=2)
    assert "group 'stuk' is not among the 5 seen lately: did you mean 'stuck'?" in lacking
    lacking = five.text("--group", "zzz", code=2)
    assert "group 'zzz' is not among the 5 seen lately: `rebalancer lag` lists them" in lacking
    tables.ensure_table(lag.settings.storage.tables, "group_lag")
    assert "no group of cluster test is in the tables yet" in lag.text("--group", "stuck", code=2)
    assert "no consumer group in the tables yet" in lag.text()


@pytest.mark.long
def test_burrow_calls_them_otherwise(five: Lag) -> None:
    groups = five.by_group("--compat", "burrow")
    assert {name: (row["status"], row["why"]) for name, row in groups.items()} == {
        "stuck": ("err", "t-0: STOP"),  # one commit seen, then silence
        "back": ("err", "t-0: REWIND"),
        "slow": ("warn", "t-0: WARN"),
        "new": ("ok", "t-0: OK"),
        "well": ("ok", "t-0: OK"),
    }
    drawn = five.lines("--compat", "burrow", "--group", "slow")
    assert ["warn", "t-0"] in [line.split()[:2] for line in drawn]


@pytest.mark.long
def test_the_state_of_a_group_is_that_of_its_newest_sample_by_either_rules(lag: Lag, synthetic: Synthetic) -> None:
    synthetic.group_lag(NOW_MS, [("g", "t", 0, 0, 100)], group_state="Stable")
    synthetic.group_lag(NOW_MS + WINDOW_MS, [("g", "t", 1, 100, 100)], group_state="Empty")
    assert [lag.by_group(*rules)["g"]["state"] for rules in ((), ("--compat", "burrow"))] == ["Empty", "Empty"]


@pytest.mark.long
def test_only_what_matches_and_a_bad_pattern_is_told(five: Lag) -> None:
    assert [*five.by_group("--match", "^s")] == ["stuck", "slow"]
    assert five.text("--match", "^s").startswith("cluster test: 2 of 5 groups, 1 stall, 1 warn; newest sample ")
    assert five.text("--match", "^z").startswith("cluster test: none of 5 groups matches; newest sample ")
    assert "is no regular expression" in five.text("--match", "(", code=2)


def listed(lag: Lag, *arguments: str) -> list[str]:
    """Groups in the order of the report, whose counts must fit them; on the terminal the same in the same order."""
    report = lag.report(*arguments)
    assert report["groups_seen"] == 5
    assert report["groups_matching"] == len(report["groups"]) == sum(report["statuses"].values())
    names = [row["group"] for row in report["groups"]]
    assert [line.split()[1] for line in lag.lines(*arguments)[2:]] == names
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
def test_groups_are_chosen_and_put_in_order(arguments: list[str], names: list[str], five: Lag) -> None:
    assert listed(five, *arguments) == names


@pytest.mark.long
def test_burrows_verdicts_are_chosen_and_put_in_order_too(five: Lag) -> None:
    burrow = ("--compat", "burrow")
    every = listed(five, *burrow)
    assert listed(five, *burrow, "--sort", "name") == sorted(every)
    errors = [name for name, row in five.by_group(*burrow).items() if row["status"] == "err"]
    assert errors
    assert listed(five, *burrow, "--status", "err") == errors


@pytest.mark.long
def test_the_oldest_lag_first_is_that_of_all_windows(lag: Lag, synthetic: Synthetic) -> None:
    """Verdicts look back twelve minutes: both lags are older, one far older."""

    def rows(index: int) -> list[LagRow]:
        commits = {"a": 100 + 10 * min(index, 14), "b": 100 + 10 * min(index, 4), "c": 110 + 10 * index}
        return [(group, "t", 0, committed, 110 + 10 * index) for group, committed in commits.items()]

    write_windows(synthetic, rows, 30)
    drawn = lag.lines("--sort", "time", "--limit", "1")
    assert drawn[2].split()[1] == "b"
    assert "the 1 first of 3" in drawn[3]
    groups = lag.by_group("--sort", "time")
    assert [*groups] == ["b", "a", "c"]
    assert groups["b"]["lag_seconds"] > groups["a"]["lag_seconds"] > 12 * 60


@pytest.mark.long
def test_a_group_is_shown_as_it_does_on_one_topic(lag: Lag, synthetic: Synthetic) -> None:
    def rows(index: int) -> list[LagRow]:
        end = 1_000 * (index + 1)
        good: list[LagRow] = [("both", "good", 0, end, end), ("both", "good", 1, end - 7, end)]
        return [("both", "bad", 0, 500, end), *good, ("one", "bad", 0, end, end)]

    write_windows(synthetic, rows)
    found = {}
    for topic in ("bad", "good"):
        groups = lag.by_group("--topic", topic)
        found[topic] = [[row["status"], name] for name, row in groups.items()]
        for limit in ("0", "9"):
            drawn = lag.lines("--topic", topic, "--limit", limit)[2:]
            assert [line.split()[:2] for line in drawn] == found[topic]
    assert found == {"bad": [["stall", "both"], ["ok", "one"]], "good": [["ok", "both"]]}
    for arguments, partitions in (
        (["--topic", "good"], [("good", 1), ("good", 0)]), (["--status", "stall"], [("bad", 0)]),
        (["--sort", "name"], [("bad", 0), ("good", 0), ("good", 1)]),
    ):  # fmt: skip
        rows_shown = lag.report("--group", "both", *arguments)["partitions"]
        assert [(row["topic"], row["partition"]) for row in rows_shown] == partitions
    refused = lag.text("--group", "both", "--topic", "typo", code=2)
    assert "group 'both' was not seen to read topic 'typo'" in refused


def test_an_unknown_verdict_is_refused_with_the_known_ones(five: Lag) -> None:
    known = "'err' is not a verdict; verdicts are ok, unknown, warn, stop, stall, rewind"
    assert known in five.text("--status", "err", code=2)
    five.text("--status", "rewound", "--compat", "burrow", code=2)


@pytest.mark.long
def test_a_lagging_group_is_told_which_broker_it_is(lag: Lag, synthetic: Synthetic) -> None:
    with synthetic.together():
        for index in range(WINDOWS):
            start_ms, end = NOW_MS - (WINDOWS - index) * WINDOW_MS, 1_000 * (index + 1)
            synthetic.broker_load(start_ms, {1: 9e6, 2: 3e6})
            synthetic.partition_load(start_ms, [(1 if p < 2 else 2, "t", p, "leader", 1e6) for p in range(6)])
            synthetic.group_lag(start_ms, [("g", "t", p, end // 2 if p < 2 else end, end) for p in range(6)])
    (cause,) = lag.report("--group", "g")["causes"]
    assert cause == {
        "cause": "hot broker", "subject": "broker 1", "helps": "rebalancer plan",
        "figure": "2 of 2 partitions behind are led by it, 2 of 6 in all; load 1.50 x mean",
    }  # fmt: skip
    assert lag.lines("--group", "g")[1].startswith("hot broker: broker 1, 2 of 2 partitions behind")


@pytest.mark.long
def test_a_group_with_too_few_members_is_told_how_many(lag: Lag, synthetic: Synthetic) -> None:
    write_windows(synthetic, lambda index: [("g", "t", p, 500 * (index + 1), 1_000 * (index + 1)) for p in range(8)])
    report = lag.report("--group", "g")
    assert [one["cause"] for one in report["causes"]] == ["too few members"]
    # One member reads half of eight equal partitions, so three are what a member can be given: 8 = 3 + 3 + 2.
    assert report["members"]["needed"] == 3
    assert report["members"]["options"][0]["heaviest_ratio"] == pytest.approx(0.75)
    assert report["members"]["options"][0]["r_score"] == pytest.approx(5 / 4)
    assert "members: 3 needed; 3: fullest 75%, R-score 1.25" in lag.text("--group", "g")


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


@pytest.mark.long
def test_the_group_without_a_name_is_shown(lag: Lag, synthetic: Synthetic) -> None:
    rows: list[LagRow] = [("", "t", 0, 5, 9), ("g", "t", 0, 9, 9)]
    synthetic.group_lag(NOW_MS - WINDOW_MS, rows, client_host="10.0.0.7")
    report = lag.report("--group", "")
    assert (report["group"], [row["lag_records"] for row in report["partitions"]]) == ("", [4])
    assert "c at 10.0.0.7" in lag.text("--group", "")
