"""`rebalancer drain BROKER` and `undrain`, also of a log dir: the plan, the cordon, and what is refused."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from assignor_core.live import LiveCluster, LivePartition
from assignor_core.model import BrokerState, ClusterState
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming import tables
from streaming.commands import lifecycle
from streaming.commands.lifecycle import cordon
from streaming.commands.options import settings_from
from streaming.commands.plan import plan, plan_log_dirs_on
from streaming.control.intents import note_intent
from streaming.control.wiring import journal_of
from streaming.errors import ClusterRequestFailed, RefusedForSafety, UsageProblem
from streaming.runtime.own_process import os_user
from streaming.tables import TableReader
from streaming.views.intents import Intent, cordons_of, drained_brokers, newest_intents
from tests.control.carried import ERRORS, MB
from tests.core.planner.test_disk_room import full_cluster
from tests.simulated_cluster import LogDir, SimulatedBroker, SimulatedClient, SimulatedCluster
from tests.tables_in_memory import given_to_commands


def proposed(model: ClusterState) -> ProposedPlan:
    """What a drain of broker 6 plans on the model."""
    partitions = {
        (row.topic, row.partition): LivePartition(row.replicas, row.replicas[0], row.replicas)
        for row in model.partitions
    }
    alive = {row.broker_id: row.rack for row in model.brokers if row.state is BrokerState.ALIVE}
    only = frozenset({6})
    plan = propose(model, PlannerPolicy(only_brokers=only, drain=only))
    return ProposedPlan(plan, Observed.of(plan, LiveCluster("c", alive, partitions)))


def drained(model: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a drain that a person does not confirm."""
    monkeypatch.setattr(lifecycle, "plan_for_brokers", lambda *_, **_now: proposed(model))
    arguments = ["6", "--apply", "--set", f"storage.tables={tmp_path / 'tables'}"]
    result = CliRunner().invoke(lifecycle.drain, arguments, input="n\n", standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert "left out: t-" in result.output
    assert isinstance(result.return_value, int)
    return result.return_value


def test_a_broker_that_is_alive_is_not_emptied_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        RefusedForSafety, match=r"broker 6 can't be emptied: .*moving can't help, add brokers or disks$"
    ):
        drained(full_cluster(away=0, used=0.85), tmp_path, monkeypatch)


def test_of_a_broker_that_is_gone_as_much_is_made_anew_as_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drained(full_cluster(away=1, used=0.85), tmp_path, monkeypatch) == 3


def test_what_comes_next_is_named_only_where_there_is_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = ProposedPlan(Plan("c", ()))
    for planned, next_step in (
        (nothing, "and there is nothing to move; to have it noted alone: rebalancer drain 6 --apply"),
        (proposed(full_cluster(away=0, used=0.85)), "and --apply would be refused: broker 6 can't be emptied: "),
        (proposed(full_cluster(away=1, used=0.85)), "nothing has been changed; to carry it out: rebalancer drain 6"),
    ):
        monkeypatch.setattr(lifecycle, "plan_for_brokers", lambda *_, made=planned, **_now: made)
        result = CliRunner().invoke(lifecycle.drain, ["6", "--set", f"storage.tables={tmp_path / 'tables'}"])
        assert (result.exit_code, result.exception) == (0, None)
        assert next_step in result.stderr


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    """Broker 1 with one replica in each of its two log dirs."""
    brokers = [SimulatedBroker(row, None, [LogDir(100 * MB), LogDir(100 * MB)], 100 * MB, 100 * MB) for row in (1, 2)]
    made = SimulatedCluster("simulated", brokers)
    made.create_topic("t", {0: (1,), 1: (1,)}, size_bytes=5 * MB)

    @contextmanager
    def _cluster(_settings: object) -> Iterator[SimulatedClient]:
        yield SimulatedClient(made, errors=ERRORS)

    monkeypatch.setattr(lifecycle, "live_cluster", _cluster)
    return made


@pytest.fixture(autouse=True)
def _tables(tables_in_memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given_to_commands(monkeypatch, tables_in_memory)


def run(command: str, *arguments: str) -> Result:
    result = CliRunner().invoke(getattr(lifecycle, command), arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def test_the_plan_is_shown_and_nothing_is_changed(cluster: SimulatedCluster) -> None:
    result = run("drain", "1", "--log-dir", "/disk-0", "--json")
    shown = json.loads(result.stdout)
    (movement,) = shown["log_dir_movements"]
    assert (movement["partition"], movement["old_log_dir"], movement["new_log_dir"]) == (0, "/disk-0", "/disk-1")
    assert "to carry it out: rebalancer drain 1 --log-dir /disk-0 --apply" in result.stderr
    assert not cluster.contents.brokers[1].log_dirs[0].cordoned


def test_before_it_is_emptied_it_is_cordoned(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[bool] = []

    def apply(*_arguments: object, **_options: object) -> int:
        applied.append(cluster.contents.brokers[1].log_dirs[0].cordoned)
        return 0

    monkeypatch.setattr("click.Context.invoke", apply)
    with lifecycle.drain.make_context("drain", ["1", "--log-dir", "/disk-0", "--apply", "--yes"]) as context:
        of_brokers = ("brokers", "log_dir", "on_old_windows")
        options = {key: value for key, value in context.params.items() if key not in of_brokers}
        assert lifecycle.drain_log_dir(context, 1, "/disk-0", **options) == 0
    assert applied == [True]


def test_one_that_is_empty_is_cordoned_and_nothing_is_carried_out(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoked: list[object] = []
    monkeypatch.setattr(lifecycle, "apply", lambda **how: invoked.append(how))
    result = run("drain", "2", "--log-dir", "/disk-0", "--apply", "--yes")
    assert (result.return_value, invoked) == (0, [])
    assert cluster.contents.brokers[2].log_dirs[0].cordoned


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("3", "--log-dir", "/disk-0"), "broker 3: is not alive, or does not show its log dirs"),
        (("1", "--log-dir", "/nowhere"), "--log-dir /nowhere: broker 1 has no such log dir, it has /disk-0, /disk-1"),
    ],
)
def test_what_is_not_there_is_named(cluster: SimulatedCluster, arguments: tuple[str, ...], message: str) -> None:
    assert cluster.now_ms == 0
    with pytest.raises(UsageProblem) as problem:
        run("drain", *arguments)
    assert str(problem.value) == message


def test_without_room_nothing_is_begun(cluster: SimulatedCluster) -> None:
    cluster.contents.brokers[1].log_dirs[1].other_bytes = 88 * MB
    with pytest.raises(RefusedForSafety, match=r"log dir /disk-0 of broker 1 can't be emptied: .* no room"):
        run("drain", "1", "--log-dir", "/disk-0", "--apply", "--yes")
    assert not cluster.contents.brokers[1].log_dirs[0].cordoned


def test_one_that_is_offline_can_not_be_emptied(cluster: SimulatedCluster) -> None:
    cluster.fail_log_dir(1, 0)
    with pytest.raises(RefusedForSafety, match="log dir /disk-0 of broker 1 is offline"):
        run("drain", "1", "--log-dir", "/disk-0")


def test_undrain_ends_the_cordon(cluster: SimulatedCluster) -> None:
    cluster.contents.brokers[1].log_dirs[0].cordoned = True
    assert "broker 1 may put new replicas into /disk-0 again" in run("undrain", "1", "--log-dir", "/disk-0").stderr
    assert not cluster.contents.brokers[1].log_dirs[0].cordoned


def acts() -> list[tuple[str, ...]]:
    """What the audit has of acts that have ended: action, target and state of each, in their order."""
    rows = sorted(tables.read(settings_from(None, ()).storage.tables, "audit"), key=lambda row: row["event_time"])
    assert {(row["actor"], row["signed_in_by"]) for row in rows} == {(os_user(), "command line")}
    assert [row["stage"] for row in rows] == ["begun", "ended"] * (len(rows) // 2)
    return [(row["action"], row["target"], row["state"]) for row in rows if row["stage"] == "ended"]


def test_a_drain_of_a_log_dir_and_its_end_are_in_the_audit(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "apply", lambda **_how: 0)
    run("drain", "1", "--log-dir", "/disk-0", "--apply", "--yes")
    assert acts() == [("drain", "1 /disk-0", "planned"), ("drain", "1 /disk-0", "cordoned")]
    run("undrain", "1", "--log-dir", "/disk-0")
    assert acts()[2:] == [("undrain", "1 /disk-0", "undrained")]
    assert not cluster.contents.brokers[1].log_dirs[0].cordoned


def test_a_cordon_that_the_broker_refuses_is_in_the_audit_as_that(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def before_43(_settings: object) -> Iterator[SimulatedClient]:
        yield Unwilling(cluster, refuses=True)

    monkeypatch.setattr(lifecycle, "live_cluster", before_43)
    run("drain", "2", "--log-dir", "/disk-0", "--apply", "--yes")
    assert acts() == [("drain", "2 /disk-0", "not_cordoned")], "a plan that moves nothing is not stored"
    cluster.contents.brokers[2].log_dirs[0].cordoned = True
    with pytest.raises(RefusedForSafety, match="is still cordoned"):
        run("undrain", "2", "--log-dir", "/disk-0")
    assert acts()[1:] == [("undrain", "2 /disk-0", "failed")]


def test_a_log_dir_that_a_person_drains_or_frees_is_no_longer_of_the_drain_of_its_broker(
    cluster: SimulatedCluster,
) -> None:
    """Else `undrain 2` would remove the cordon of a log dir that is drained itself, or control would set it again."""
    settings = settings_from(None, ())
    root, name = settings.storage.tables, settings.kafka.cluster_name
    dirs = [f"/disk-{number}" for number in range(len(cluster.contents.brokers[2].log_dirs))]
    note_intent(root, name, 2, Intent.DRAIN, "a person", now_ms=1, cordons=dirs)
    run("drain", "2", "--log-dir", dirs[0], "--apply", "--yes")
    assert ours(root, name) == set(dirs[1:])
    run("undrain", "2", "--log-dir", dirs[1])
    assert ours(root, name) == set(dirs[2:])
    assert [row.cordoned for row in cluster.contents.brokers[2].log_dirs[:2]] == [True, False]


def ours(root: str, cluster_name: str) -> frozenset[str]:
    return cordons_of(newest_intents(TableReader(root), cluster_name)[2])


def test_undrain_of_a_broker_ends_its_drain_and_moves_nothing() -> None:
    settings = settings_from(None, ())
    note_intent(settings.storage.tables, settings.kafka.cluster_name, 1, Intent.DRAIN, "a person", now_ms=1)
    assert "broker 1 is noted for use" in run("undrain", "1").stderr
    with pytest.raises(UsageProblem, match="broker 1: is not drained, drained are none"):
        run("undrain", "1")


@pytest.fixture
def _nothing_to_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "plan_for_brokers", lambda *_, **_how: ProposedPlan(Plan("simulated", ())))


@pytest.mark.usefixtures("_nothing_to_move")
def test_several_brokers_are_noted_and_cordoned_together(cluster: SimulatedCluster) -> None:
    cluster.contents.brokers[2].log_dirs[1].cordoned = True
    result = run("drain", "1", "2", "1", "--apply", "--yes")
    assert [line for line in result.stderr.splitlines() if "noted" in line] == [
        "broker 1 is noted for drain", "broker 2 is noted for drain",
    ]  # fmt: skip
    assert cordons(cluster) == [[True, True], [True, True]]
    assert {(act, target) for act, target, _ in acts()} == {("drain", "1"), ("drain", "2")}
    result = run("undrain", "2", "1")
    assert "broker 2 is noted for use" in result.stderr
    assert cordons(cluster) == [[False, False], [False, True]], "the cordon of others stays"


@pytest.mark.usefixtures("_nothing_to_move")
def test_who_can_t_be_cordoned_is_named_and_drained_all_the_same(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def unwilling(_settings: object) -> Iterator[SimulatedClient]:
        yield Unwilling(cluster, refuses=True)

    monkeypatch.setattr(lifecycle, "live_cluster", unwilling)
    result = run("drain", "1", "--apply", "--yes")
    assert "broker 1 could not be cordoned, control tries again: cordoned.log.dirs of broker 1" in result.stderr
    settings = settings_from(None, ())
    assert drained_brokers(TableReader(settings.storage.tables), settings.kafka.cluster_name) == {1}


def test_a_log_dir_is_of_one_broker() -> None:
    for command in ("drain", "undrain"):
        with pytest.raises(UsageProblem, match="--log-dir: needs exactly one BROKER, found 2"):
            run(command, "1", "2", "--log-dir", "/disk-0")


def cordons(cluster: SimulatedCluster) -> list[list[bool]]:
    return [[row.cordoned for row in broker.log_dirs] for broker in cluster.contents.brokers.values()]


class Unwilling(SimulatedClient):
    """Brokers that refuse or forget the setting, as where `metadata.version` is too old."""

    def __init__(self, cluster: SimulatedCluster, *, refuses: bool) -> None:
        super().__init__(cluster, errors=ERRORS)
        self._refuses = refuses

    def cordon_log_dirs(self, broker_id: int, paths: Collection[str], *, cordoned: bool) -> None:
        if self._refuses:
            raise ClusterRequestFailed(f"cordoned.log.dirs of broker {broker_id} can't be changed: {paths} {cordoned}")


@pytest.mark.parametrize("refuses", [True, False])
def test_a_cordon_that_the_broker_does_not_show_is_none(cluster: SimulatedCluster, refuses: bool) -> None:
    client = Unwilling(cluster, refuses=refuses)
    assert not cordon(client, 1, "/disk-0", cordoned=True, pause=lambda _seconds: None)
    assert cordon(client, 1, "/disk-0", cordoned=False, pause=lambda _seconds: None), "it is not cordoned"


def test_a_broker_that_knows_no_cordon_is_not_asked_for_one(cluster: SimulatedCluster) -> None:
    """It would store the setting, and be cordoned by it once it is upgraded."""
    cluster.contents.release = (4, 2)
    client = SimulatedClient(cluster, errors=ERRORS)
    assert not cordon(client, 1, "/disk-0", cordoned=True, pause=lambda _seconds: None)
    assert cordon(client, 1, "/disk-0", cordoned=False, pause=lambda _seconds: None), "it is not cordoned"
    assert not cluster.contents.brokers[1].log_dirs[0].cordoned


def test_a_plan_evens_out_the_log_dirs_within_brokers(cluster: SimulatedCluster) -> None:
    """All that broker 1 holds lies in the first of its log dirs; broker 2 holds nothing."""
    cluster.create_topic("u", dict.fromkeys(range(6), (1,)), size_bytes=10 * MB)
    for _, row in cluster.contents.partitions():
        row.copies[1].log_dir = 0
    settings, client = settings_from(None, ()), SimulatedClient(cluster, errors=ERRORS)
    proposed = plan_log_dirs_on(client, settings, frozenset(), now_ms=1_000)
    assert proposed.plan.diagnosis[0] == "broker 1: /disk-0 70% -> 35%, /disk-1 0% -> 35%"
    assert {row.broker for row in proposed.plan.log_dir_movements} == {1}
    assert journal_of(settings).plan(proposed.plan.plan_id).plan == proposed.plan
    assert acts() == [("plan", proposed.plan.plan_id, "planned")]
    assert plan_log_dirs_on(client, settings, frozenset({2}), now_ms=1_000).plan.movement_count == 0
    with pytest.raises(UsageProblem, match="--only-broker 9: this broker does not show two log dirs, allowed are 1, 2"):
        plan_log_dirs_on(client, settings, frozenset({9}), now_ms=1_000)
    result = CliRunner().invoke(plan, ["--log-dirs", "--model", "-"], standalone_mode=False)
    assert "can't go with --model" in str(result.exception)


def test_where_no_broker_has_two_log_dirs_there_is_nothing_to_move_between() -> None:
    one_each = SimulatedCluster(
        "simulated", [SimulatedBroker(row, None, [LogDir(100 * MB)], 100 * MB, 100 * MB) for row in (1, 2)]
    )
    one_each.create_topic("t", {0: (1,)}, size_bytes=MB)
    client = SimulatedClient(one_each, errors=ERRORS)
    made = plan_log_dirs_on(client, settings_from(None, ()), frozenset(), now_ms=1_000).plan
    assert (made.movement_count, made.diagnosis[-1]) == (
        0, "no broker shows more than one log dir: there is nothing to move between",
    )  # fmt: skip


@pytest.mark.parametrize("option", [["--leaders-only"], ["--drain", "1"], ["--max-bytes", "5"], ["--only-topic", "t"]])
def test_options_that_would_count_for_nothing_are_refused(option: list[str]) -> None:
    result = CliRunner().invoke(plan, ["--log-dirs", *option], standalone_mode=False)
    assert isinstance(result.exception, UsageProblem)
    assert str(result.exception).endswith(f"so it can't go with {option[0]}")
