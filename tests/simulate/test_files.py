"""Scenario files: what they may say, how they are refused, and that those that come along show what they are for."""

import re
from pathlib import Path

import pytest

from assignor_core.group.consumer_protocol.messages import ConsumerGroupConfig
from assignor_core.group.scenario import Crash, Start, Stop
from assignor_core.group.simulation import Run, simulate
from streaming.errors import UsageProblem
from streaming.simulate.scenario_file import EventSection, load_scenarios
from tests.core.group.invariants import violations

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "conf" / "scenarios").glob("*.yaml"))
SMALL = """
title: Small
topics: {t: {partitions: 4}}
members: {count: 2, topics: [t]}
"""


def written(folder: Path, text: str, name: str = "scenario.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def runs_of(name: str) -> dict[str, Run]:
    file = next(file for file in SHIPPED if file.stem == name)
    return {variant.name: simulate(variant.scenario) for variant in load_scenarios(file)}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_scenarios_are_sound_and_come_to_rest(file: Path) -> None:
    for variant in load_scenarios(file):
        run = simulate(variant.scenario)
        assert violations(run.trace) == []
        assert run.settled
        assert run.totals.unsettled == 0
        assert variant.about


def test_rolling_restart_eager_stops_all_cooperative_what_moves_static_nobody() -> None:
    runs = runs_of("rolling-restart")
    eager, cooperative, static = (runs[name].totals for name in ("eager", "cooperative", "static"))
    assert (eager.rebalances, cooperative.rebalances, static.rebalances) == (20, 20, 0)
    assert (eager.members_stopped, static.members_stopped) == (180, 0)
    assert cooperative.revoked == cooperative.moved / 2 == 40, "each restart moves four away and takes four back"
    assert cooperative.idle_partition_ms < eager.idle_partition_ms


def test_a_rolling_restart_by_the_consumer_protocol_stops_what_moves_and_static_nobody() -> None:
    runs = runs_of("rolling-restart")
    cooperative, consumer = runs["cooperative"].totals, runs["consumer protocol"].totals
    assert (consumer.rebalances, consumer.revoked, consumer.moved) == (20, cooperative.revoked, cooperative.moved)
    assert consumer.rounds == 20, "one target assignment each: there is no second round"
    static = runs["consumer protocol, static"].totals
    assert (static.rebalances, static.members_stopped) == (0, 0)


def test_the_brokers_timeouts_and_the_assignor_of_the_consumer_protocol_are_read(tmp_path: Path) -> None:
    text = SMALL.replace("count: 2", "count: 2, protocol: consumer, remote_assignor: range")
    group = "group: {consumer_session_timeout_ms: 9000, consumer_heartbeat_interval_ms: 800, "
    (variant,) = load_scenarios(written(tmp_path, text + group + "consumer_assignment_interval_ms: 0}\n"))
    assert variant.scenario.consumer_group == ConsumerGroupConfig(9_000, 800, 0)
    config = variant.scenario.processes["c-0"].config
    assert (config.group_protocol, config.server_assignor) == ("consumer", "range")


@pytest.mark.long
def test_a_deployment_slower_than_the_session_undoes_static_membership() -> None:
    runs = runs_of("slow-deploy")
    totals = [runs[name].totals.rebalances for name in ("dynamic", "static, session 45 s", "static, session 90 s")]
    assert totals == [20, 20, 0]


def test_a_flapping_member_stops_everybody_if_eager_and_nobody_if_static() -> None:
    runs = runs_of("flapping")
    assert runs["eager"].totals.members_stopped == 25
    assert (runs["static"].totals.rebalances, runs["static"].totals.members_stopped) == (0, 0)


def test_the_upgrade_takes_two_bounces_and_one_is_refused() -> None:
    runs = runs_of("upgrade-to-cooperative")
    assert runs["two bounces"].totals.failed == 0
    assert runs["one bounce"].totals.failed == 3
    last = runs["two bounces"].rebalances[-1]
    assert (last.rounds, last.revoked) == (2, last.moved)


def test_toml_says_the_same_as_yaml(tmp_path: Path) -> None:
    toml = """
title = "Small"
[topics.t]
partitions = 4
[members]
count = 2
topics = ["t"]
[[events]]
at_s = 60
stop = {member = "c-1"}
"""
    yaml = SMALL + "events: [{at_s: 60, stop: {member: c-1}}]\n"
    from_toml = load_scenarios(written(tmp_path, toml, "scenario.toml"))
    assert from_toml == load_scenarios(written(tmp_path, yaml))
    assert from_toml[0].scenario.events[-1] == (60_000, Stop("c-1"))


def test_events_are_spelled_out(tmp_path: Path) -> None:
    events = """
events:
  - {at_s: 10, rolling_restart: {down_s: 2, apart_s: 5, strategies: [sticky]}}
  - {at_s: 100, flap: {member: c-0, times: 2, up_s: 8, down_s: 2}}
  - {at_s: 200, scale_out: {members: 2, apart_s: 1}}
  - {at_s: 300, start: {member: twin, group_instance_id: c-0}}
"""
    (variant,) = load_scenarios(written(tmp_path, SMALL + events))
    spelled = [(at_ms, type(event), event.name) for at_ms, event in variant.scenario.events[2:]]  # type: ignore[union-attr]
    assert spelled == [
        (10_000, Stop, "c-0"), (12_000, Start, "c-0"), (15_000, Stop, "c-1"), (17_000, Start, "c-1"),
        (100_000, Crash, "c-0"), (102_000, Start, "c-0"), (110_000, Crash, "c-0"), (112_000, Start, "c-0"),
        (200_000, Start, "c-2"), (201_000, Start, "c-3"), (300_000, Start, "twin"),
    ]  # fmt: skip
    restarted = variant.scenario.events[3][1]
    assert isinstance(restarted, Start)
    assert restarted.spec is not None
    assert restarted.spec.config.strategies == ("sticky",)


def test_events_mean_the_same_in_any_order(tmp_path: Path) -> None:
    """A rolling restart after a scale-out is of the new members too; one before it starts none of them."""
    scale_out, restart = "{at_s: 30, scale_out: {members: 2}}", "{at_s: %d, rolling_restart: {apart_s: 10}}"
    for at_s, members in ((60, 4), (5, 2)):
        lines = (scale_out, restart % at_s)
        files = (SMALL + f"events: [{', '.join(order)}]" for order in (lines, lines[::-1]))
        (one,), (other,) = (load_scenarios(written(tmp_path, text)) for text in files)
        assert one.scenario.events == other.scenario.events
        assert sum(isinstance(event, Stop) for _, event in one.scenario.events) == members


def test_members_that_are_added_take_no_name_that_is_taken(tmp_path: Path) -> None:
    text = SMALL.replace("count: 2", "names: [c-0, c-3, x]") + "events: [{at_s: 30, scale_out: {members: 2}}]"
    (variant,) = load_scenarios(written(tmp_path, text))
    assert list(variant.scenario.processes) == ["c-0", "c-3", "x", "c-4", "c-5"]


def test_variants_are_merged_key_by_key(tmp_path: Path) -> None:
    text = SMALL + "variants: {a: {members: {static: true}}, b: {members: {count: 3}, network: {delay_ms: 9}}}\n"
    a, b = load_scenarios(written(tmp_path, text))
    assert [config.config.group_instance_id for config in a.scenario.processes.values()] == ["c-0", "c-1"]
    assert (len(b.scenario.processes), b.scenario.network_ms) == (3, 9)
    assert (a.title, b.scenario.title) == ("Small", "Small: b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds nothing, must hold title"),
        ("- 1", "holds a list"),
        ("title: [", "line 1: "),
        ("title: a\ntitle: b", "line 2: key 'title' stands twice"),
        (SMALL + "colour: red", "colour: unknown key"),
        (SMALL.replace("count: 2", "count: -2"), "members.count: input should be greater than or equal to 0, found -2"),
        (SMALL.replace("count: 2, ", ""), "members: members need names or a count"),
        (SMALL.replace("count: 2", "count: 2, strategies: [best]"), "members.strategies: 'best' is none of range"),
        (SMALL.replace("count: 2", "count: 2, protocol: new"), "members.protocol: input should be 'classic' or"),
        (
            SMALL + "group: {consumer_session_timeout_ms: 1000}",
            "consumer_heartbeat_interval_ms is 5000, must be between 1 and 1000",
        ),
        (SMALL.replace("partitions: 4", "partitions: 0"), "partitions of all topics is 0, must be between 1"),
        (SMALL + "events: [{at_s: 1}]", "events.0: an event is one of start, stop"),
        (SMALL + "events: [{at_s: 1, crash: {member: x}}]", "member 'x' of an event is none of c-0, c-1"),
        (SMALL + "events: [{at_s: 1, pause: {member: c-0, for_s: 0}}]", "events.0.pause.for_s: input should be"),
        (SMALL + "variants: {}", "variants: must be 1 to 12"),
        (SMALL + "variants: {a: 1}", "variant 'a': must hold what differs"),
        (SMALL + "variants: {a: {members: {names: [x]}}}", "variant 'a': members: members need names or a count"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageProblem) as refused:
        load_scenarios(file)
    assert message in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_can_not_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="No such file"):
        load_scenarios(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageProblem, match="not UTF-8"):
        load_scenarios(tmp_path / "bytes.yaml")
    with pytest.raises(UsageProblem, match=r"scenario .*bad\.toml"):
        load_scenarios(written(tmp_path, "a = = 1", "bad.toml"))


def test_the_documentation_names_every_scenario_and_its_example_runs(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "groups.md").read_text(encoding="utf-8")
    assert {file.name for file in SHIPPED} == set(re.findall(r"^\| `([\w-]+\.yaml)`", text, re.MULTILINE))
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    names = [variant.name for variant in load_scenarios(written(tmp_path, example))]
    assert names == ["as it is", "cooperative", "cooperative and static", "consumer protocol"]
    kinds = [name for name in EventSection.model_fields if name != "at_s"]
    assert [kind for kind in kinds if f"`{kind}`" not in text] == []
