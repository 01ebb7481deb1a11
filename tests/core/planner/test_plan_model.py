"""`rebalancer plan --model`: the contract's JSON in and out, options, and errors in one line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assignor_core.errors import InputError
from assignor_core.model import Broker, Capacity, ClusterState, Partition, PartitionLoad, cluster_to_json
from assignor_core.plan import plan_from_json
from streaming import cli
from streaming.commands.plan import plan
from streaming.commands.plan_text import _wave_rows
from streaming.errors import UsageProblem
from tests.core.planner.cases import cluster, founding

FOUNDING = json.dumps(cluster_to_json(founding()))


def run(model: object, *options: str) -> dict[str, Any]:
    text = model if isinstance(model, str) else json.dumps(model)
    result = CliRunner().invoke(plan, ["--model", "-", "--json", *options], input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


@pytest.mark.long
def test_the_founding_model_gives_the_contracts_result() -> None:
    result = run(cluster_to_json(founding()))
    assert len(result["movements"]) == 4
    assert result["skew_before"]["bytes_in"]["max_over_mean"] == pytest.approx(1.25)
    assert result["skew_after"]["bytes_in"]["max_over_mean"] == pytest.approx(1.0)
    assert result["bytes_to_move"] == 1000.0
    assert result["elapsed_ms"] > 0
    assert result["reassignment"]["version"] == 1
    assert plan_from_json(result).plan_id == result["plan_id"]


@pytest.mark.long
def test_options_reach_the_policy() -> None:
    model = cluster_to_json(founding())
    assert run(model, "--leaders-only")["movements"] == []
    assert all(movement["topic"] == "topic-B" for movement in run(model, "--only-topic", "topic-B")["movements"])
    assert run(model, "--max-bytes", "300")["bytes_to_move"] <= 300
    drained = run(model, "--drain", "3")
    assert {tuple(movement["old_replicas"]) for movement in drained["movements"]} == {(3,)}
    assert len(drained["movements"]) == 20
    assert {movement["new_replicas"][0] for movement in run(model, "--add", "2")["movements"]} == {2}


@pytest.mark.long
def test_what_no_option_says_the_settings_say(tmp_path: Path) -> None:
    model = cluster_to_json(founding())
    assert len(run(model)["movements"]) == 4
    one, two = ("--set", "planner.movements_max=1"), ("--max-movements", "2")
    assert len(run(model, *one)["movements"]) == 1
    assert len(run(model, *one, *two)["movements"]) == 2
    file = tmp_path / "rebalancer.yaml"
    file.write_text("planner: {bytes_max: 300, excluded_topics: B$}")
    limited = run(model, "--config", str(file))
    assert 0 < limited["bytes_to_move"] <= 300
    assert {movement["topic"] for movement in limited["movements"]} == {"topic-A"}
    assert run(model, "--config", str(file), "--exclude-topic", "topic-A")["movements"] == []


@pytest.mark.long
def test_internal_topics_of_a_model_may_be_moved_unless_somebody_says_otherwise() -> None:
    model = cluster_to_json(founding())
    for partition in model["partitions"]:
        partition["topic"] = f"__{partition['topic']}"
    assert len(run(model, "--set", "planner.movements_max=10")["movements"]) == 4
    assert run(model, "--set", "planner.excluded_topics=^__")["movements"] == []


def test_the_limit_of_counts_is_an_option_and_a_setting() -> None:
    """Nothing of it has a load, so only counts say that broker 2 holds too much."""
    rows = [Partition("t", number, (2,), PartitionLoad(0.0, 0.0, 0.0)) for number in range(12)]
    model = cluster_to_json(ClusterState("idle", 0, tuple(map(Broker, (1, 2, 3, 4))), tuple(rows)))

    def most(*options: str) -> int:
        return int(max(run(model, *options)["loads_after"]["replicas"].values()))

    assert most("--count-band", "0.1") == most("--set", "planner.count_band=0.1") == 3
    assert most("--count-band", "2.5") == 10


@pytest.mark.long
def test_a_plan_that_drains_keeps_the_rules_of_drain() -> None:
    model = cluster_to_json(founding())
    held_back = ("--set", "planner.movements_max=1", "--set", "planner.excluded_topics=^topic-A")
    assert len(run(model, "--drain", "3", *held_back)["movements"]) == 20
    assert len(run(model, "--drain", "3", *held_back, "--max-movements", "2")["movements"]) == 2


@pytest.mark.long
def test_the_result_goes_to_a_file_as_well(tmp_path: Path) -> None:
    source, target = tmp_path / "model.json", tmp_path / "plan.json"
    source.write_text(json.dumps(cluster_to_json(founding())))
    arguments = ["--model", str(source), "--out", str(target)]
    as_json = CliRunner().invoke(plan, [*arguments, "--json"], catch_exceptions=False).output
    assert target.read_text() == as_json
    as_text = CliRunner().invoke(plan, arguments, catch_exceptions=False).output
    assert as_text.splitlines()[0].strip().startswith("Plan ")
    assert json.loads(target.read_text())["plan_id"] == json.loads(as_json)["plan_id"]


def test_a_bad_model_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text(FOUNDING.replace('"replicas": [1]', '"replicas": [9]', 1))
    assert cli.run(["plan", "--model", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch("error: partition topic-A-0: found replica on unknown broker 9.*\n", printed.err)


def test_rates_that_have_decayed_to_the_smallest_floats_are_no_load() -> None:
    model = cluster_to_json(founding())
    for partition in model["partitions"]:
        partition["load"] = {"bytes_in_per_sec": 5e-324, "bytes_out_per_sec": 5e-324, "disk_bytes": 0.0}
    assert run(model)["skew_before"]["bytes_in"]["max_over_mean"] == 1.0


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        *(
            (FOUNDING, (option, "99"), f"{option} 99: this broker does not exist, allowed are 1, 2, 3$")
            for option in ("--drain", "--only-broker", "--exclude-broker", "--add")
        ),
        *(
            (
                FOUNDING.replace('"state": "alive"', f'"state": "{state}"', 1),
                ("--add", "1"),
                "--add 1: this broker is dead or draining, so it takes no replicas$",
            )
            for state in ("dead", "draining")
        ),
        (FOUNDING, ("--drain", "1", "--drain", "2", "--drain", "3"), "--drain: names every broker that is alive"),
        ("{", (), "model: found no valid JSON"),
        ("[" * 100_000, (), "model: found no valid JSON"),
        (
            FOUNDING.replace('"disk_bytes"', '"disk_bytes": 0.0, "disk_bytes"', 1),
            (),
            'model: "disk_bytes" occurs twice',
        ),
        ("[]", (), "cluster model: found"),
        ('{"brokers":[],"partitions":[]}', (), "brokers: found none"),
        (FOUNDING, ("--band", "-1"), "planner policy band: found -1"),
        (FOUNDING, ("--throttle", "1e-300"), "planner policy throttle_bytes_per_sec: found 1e-300"),
        (FOUNDING, ("--only-topic", "topc-A"), "--only-topic: there is no topic 'topc-A'; did you mean 'topic-A'?"),
        (FOUNDING, ("--broker-set", "topic-A=7"), "--broker-set topic-A=7: there is no broker 7, allowed are 1, 2, 3"),
        (FOUNDING, ("--broker-set", "topic-A=2147483647"), "there is no broker 2147483647, allowed are 1, 2, 3"),
        (FOUNDING, ("--broker-set", "topic-A"), "--broker-set topic-A: must be like TOPIC=1,2,3 or TOPIC=rack:a,b"),
        (FOUNDING, ("--broker-set", "topc-A=1"), "--broker-set: there is no topic 'topc-A'; did you mean 'topic-A'?"),
        (FOUNDING, ("--only-topic", "(x"), r"--only-topic: there is no topic '\(x', and as a pattern it is wrong"),
        (FOUNDING, ("--only-topic", ".*A", "--exclude-topic", ".*"), "--only-topic .*A: --exclude-topic keeps it from"),
        (FOUNDING, ("--replication-factor", "topic-A=4"), "replication factor 4 needs 4 brokers, 3 may take replicas"),
        (FOUNDING, ("--replication-factor", "topic-A"), "--replication-factor topic-A: allowed is TOPIC=NUMBER"),
        (
            FOUNDING,
            ("--replication-factor", "topic-A=2", "--replication-factor", ".*=3"),
            "asks for 2 and for 3 of topic topic-A",
        ),
        (
            FOUNDING,
            ("--replication-factor", "topic-A=2", "--drain", "1"),
            "--replication-factor: changes just what it names, so it can't go with --drain",
        ),
    ],
)
def test_bad_input_is_one_line(model: str, options: tuple[str, ...], message: str) -> None:
    with pytest.raises((InputError, UsageProblem), match=message) as raised:
        CliRunner().invoke(plan, ["--model", "-", *options], input=model, catch_exceptions=False)
    assert "\n" not in str(raised.value)


@pytest.mark.long
def test_a_file_that_is_not_there_is_one_line_with_its_name_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^model nowhere\.json: No such file or directory$"):
        CliRunner().invoke(plan, ["--model", "nowhere.json"], catch_exceptions=False)
    nowhere = str(tmp_path / "nowhere" / "plan.json")
    with pytest.raises(UsageProblem, match=rf"^--out {nowhere}: No such file or directory$"):
        CliRunner().invoke(plan, ["--model", "-", "--out", nowhere], input=FOUNDING, catch_exceptions=False)


def test_waves_that_copy_nothing_are_shown_between_those_that_do() -> None:
    schedule = [
        {
            "starts_after_ms": 0.0,
            "duration_ms": 5_000.0,
            "brokers": [{"broker": 1, "received_bytes": 5e6, "sent_bytes": 0.0}],
        },
        {"starts_after_ms": 5_000.0, "duration_ms": 0.0, "brokers": []},
    ]
    assert list(_wave_rows(schedule)) == [
        ("1", "0 s", "5 s", "1", "5.0 MB", "0 B"),
        ("2", "5 s", "0 s", "none", "0 B", "0 B"),
    ]
    assert list(_wave_rows(schedule[1:])) == [], "leaders alone change"


@pytest.mark.long
def test_topics_may_be_named_by_a_pattern_that_matches_the_whole_name() -> None:
    moved = {row["topic"] for row in run(FOUNDING, "--only-topic", ".*-A")["movements"]}
    assert moved == {"topic-A"}
    assert {row["topic"] for row in run(FOUNDING, "--exclude-topic", "topic.A")["movements"]} == {"topic-B"}


@pytest.mark.long
def test_topics_live_on_the_brokers_of_an_option_or_else_of_the_settings() -> None:
    def brokers(*options: str) -> set[int]:
        moved = {(row["topic"], row["partition"]): row["new_replicas"] for row in run(FOUNDING, *options)["movements"]}
        rows = ((row.topic, moved.get((row.topic, row.partition), row.replicas)) for row in founding().partitions)
        return {broker for topic, replicas in rows if topic == "topic-A" for broker in replicas}

    of_settings = ("--set", 'planner.broker_sets={"A$": {"brokers": [1, 2]}}')
    assert brokers(*of_settings) == {1, 2}
    assert brokers(*of_settings, "--broker-set", ".*-A=2,3") == {2, 3}
    assert brokers("--broker-set", "topic-A=rack:x") == {1, 2, 3}, "no broker is in that rack"


@pytest.mark.long
def test_options_name_topics_that_should_be_spread_and_least_numbers_of_leaders() -> None:
    def leaders(*options: str) -> dict[int, int]:
        moved = {(row["topic"], row["partition"]): row["new_replicas"] for row in run(FOUNDING, *options)["movements"]}
        rows = [
            moved.get((row.topic, row.partition), row.replicas)[0]
            for row in founding().partitions
            if row.topic == "topic-B"
        ]
        return {broker: rows.count(broker) for broker in (1, 2, 3)}

    assert set(leaders("--spread-topic", ".*-B").values()) == {10}
    assert min(leaders("--min-leaders", "topic-B=9").values()) >= 9
    assert min(leaders("--set", 'planner.leaders_min={"B$": 9}').values()) >= 9
    result = CliRunner().invoke(plan, ["--model", "-", "--min-leaders", "topic-B"], input=FOUNDING)
    assert str(result.exception) == "--min-leaders topic-B: must be like TOPIC=3"


def test_an_option_and_a_setting_ask_for_failover_headroom() -> None:
    brokers = tuple(Broker(number, capacity=Capacity(bytes_out_per_sec=50.0)) for number in (1, 2))
    model = cluster_to_json(cluster((1, 2), (2, 1), brokers=brokers))
    of_setting = ("--set", "planner.failover_headroom=broker")
    assert not any("offline" in line for line in run(model)["diagnosis"])
    assert any("with broker 1 offline" in line for line in run(model, "--failover-headroom", "broker")["diagnosis"])
    assert any("with broker 1 offline" in line for line in run(model, *of_setting)["diagnosis"])
    assert not any("offline" in line for line in run(model, *of_setting, "--failover-headroom", "none")["diagnosis"])


def test_settings_name_the_racks_that_should_lead_in_a_model_too() -> None:
    model = cluster_to_json(cluster((1, 2), (1, 2), brokers=(Broker(1, "a"), Broker(2, "b"))))
    wide = ("--set", "planner.band=5", "--set", "planner.count_band=5", "--set", 'planner.leader_racks={"t": ["b"]}')
    assert {row["new_replicas"][0] for row in run(model, *wide)["movements"]} == {2}


def test_a_model_gets_another_replication_factor_or_the_lists_of_a_file(tmp_path: Path) -> None:
    raised = run(FOUNDING, "--replication-factor", "topic-A=2")
    assert {row["topic"] for row in raised["movements"]} == {"topic-A"}
    assert {len(set(row["new_replicas"])) for row in raised["movements"]} == {2}
    file = tmp_path / "moves.json"
    file.write_text(json.dumps(raised["reassignment"]))
    again = run(FOUNDING, "--reassignment", str(file))
    assert [row["new_replicas"] for row in again["movements"]] == [row["new_replicas"] for row in raised["movements"]]
    assert again["bytes_to_move"] == raised["bytes_to_move"]
