"""`rebalancer demote` and `undemote`: the plan, the note, the order of before, and what is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest
from click.testing import CliRunner, Result

from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.live import PartitionKey
from streaming import tables
from streaming.commands import demotion
from streaming.commands.demotion import DEMOTIONS_MAX, reorder
from streaming.commands.lifecycle import BrokerAct
from streaming.commands.options import settings_from
from streaming.control.intents import note_intent
from streaming.control.planning import untouched
from streaming.control.policies import planner_policy, relief_policy
from streaming.control.wiring import journal_of
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.intents import Intent, brokers_by_intent, demotions_of, newest_intents
from tests.control.carried import ERRORS, MB
from tests.simulated_cluster import SimulatedClient, SimulatedCluster
from tests.tables_in_memory import given_to_commands

REPLICAS = {0: (3, 1), 1: (1, 3), 2: (3, 4), 3: (2, 1), 4: (4, 2)}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tables_in_memory: str) -> SimulatedCluster:
    made = SimulatedCluster.of(dict.fromkeys(range(1, 5)))
    made.create_topic("t", REPLICAS, size_bytes=MB)
    made.create_topic("single", {0: (3,)}, size_bytes=MB)

    @contextmanager
    def connected(_settings: object) -> Iterator[SimulatedClient]:
        yield SimulatedClient(made, errors=ERRORS)

    monkeypatch.setattr(demotion, "live_cluster", connected)
    given_to_commands(monkeypatch, tables_in_memory)
    journal_of(settings_from(None, ())).make_tables()
    return made


@pytest.fixture
def own() -> Settings:
    return settings_from(None, ())


def run(command: str, *arguments: str) -> Result:
    result = CliRunner().invoke(getattr(demotion, command), arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


@pytest.fixture
def carried_out(cluster: SimulatedCluster, own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rebalancer apply` gives replicas their order at once, and their preferred leaders."""

    def apply(*_arguments: object, plan: str, **_options: object) -> int:
        for row in journal_of(own).plan(plan).plan.movements:
            cluster.reassign({row.key: row.new_replicas})
            cluster.elect_preferred([row.key])
        cluster.advance(5_000)
        return 0

    monkeypatch.setattr("click.Context.invoke", lambda self, called, *args, **how: (
        apply(**how) if "plan" in how else called.invoke(self) if hasattr(called, "invoke") else called(*args, **how)
    ))  # fmt: skip


def lists(cluster: SimulatedCluster) -> dict[PartitionKey, tuple[tuple[int, ...], int]]:
    """Replicas and leader by partition."""
    return {key: (row.replicas, row.leader) for key, row in cluster.contents.partitions()}


def leaders(cluster: SimulatedCluster) -> dict[PartitionKey, tuple[int, int]]:
    """The preferred leader and the leader by partition."""
    return {key: (row[0], leader) for key, (row, leader) in lists(cluster).items()}


def demoted(own: Settings) -> frozenset[int]:
    return brokers_by_intent(TableReader(own.storage.tables), own.kafka.cluster_name)[Intent.DEMOTE]


def plans_of(own: Settings, broker: int) -> tuple[str, ...]:
    return demotions_of(newest_intents(TableReader(own.storage.tables), own.kafka.cluster_name).get(broker))


def test_the_plan_is_shown_and_nothing_is_noted(cluster: SimulatedCluster, own: Settings) -> None:
    before = lists(cluster)
    result = run("demote", "3")
    assert "1 partition has one replica and stays where it is: single-0" in result.output
    assert "to carry it out: rebalancer demote 3 --apply" in result.stderr
    assert (lists(cluster), demoted(own)) == (before, frozenset())


@pytest.mark.usefixtures("carried_out")
def test_leadership_leaves_and_comes_back(cluster: SimulatedCluster, own: Settings) -> None:
    before = lists(cluster)
    run("demote", "3", "--apply", "--yes")
    assert demoted(own) == {3}
    assert [key for key, (_, leader) in lists(cluster).items() if leader == 3] == [("single", 0)]
    acts = [(row["action"], row["target"], row["stage"]) for row in tables.read(own.storage.tables, "audit")]
    assert acts.count(("demote", "3", "ended")) == 2, "the plan is kept, and the broker is noted"
    run("undemote", "3", "--apply", "--yes")
    assert (lists(cluster), demoted(own), plans_of(own, 3)) == (before, frozenset(), ())


@pytest.mark.usefixtures("carried_out")
def test_several_come_back_whichever_was_demoted_first_and_however_often(
    cluster: SimulatedCluster, own: Settings
) -> None:
    before = lists(cluster)
    run("demote", "3", "--apply", "--yes")
    cluster.create_topic("u", {0: (3, 1)}, size_bytes=MB)
    run("demote", "3", "2", "--apply", "--yes")
    assert (len(plans_of(own, 3)), len(plans_of(own, 2))) == (2, 2), "a row lists the plans of the others, too"
    run("undemote", "2", "3", "--apply", "--yes")
    assert lists(cluster) == {**before, ("u", 0): ((3, 1), 3)}


@pytest.mark.usefixtures("carried_out")
@pytest.mark.parametrize("back", [("1", "4"), ("4", "1")])
def test_demotions_that_overlap_bring_each_list_back(
    cluster: SimulatedCluster, own: Settings, back: tuple[str, str]
) -> None:
    """The second demotion sees lists that the first one has changed: the order of before is older than its plan."""
    cluster.create_topic("u", {0: (1, 4, 3), 1: (4, 1, 2), 2: (3, 4, 1)}, size_bytes=MB)
    before = lists(cluster)
    run("demote", "1", "--apply", "--yes")
    run("demote", "4", "--apply", "--yes")
    for broker in back:
        run("undemote", broker, "--apply", "--yes")
    assert demoted(own) == frozenset()
    assert leaders(cluster) == {key: (row[0], leader) for key, (row, leader) in before.items()}


@pytest.mark.usefixtures("carried_out")
def test_an_undemotion_that_was_not_carried_out_can_be_asked_for_again(
    cluster: SimulatedCluster, own: Settings
) -> None:
    """A person ends the command, or an execution is aborted: the order of before stays in the row until it is back."""
    before = lists(cluster)
    run("demote", "3", "--apply", "--yes")
    with pytest.MonkeyPatch.context() as patched:
        invoke = click.Context.invoke
        patched.setattr(
            "click.Context.invoke", lambda self, *args, **how: 1 if "plan" in how else invoke(self, *args, **how)
        )
        assert run("undemote", "3", "--apply", "--yes").return_value == 1
    assert demoted(own) == frozenset()
    assert lists(cluster) != before
    run("undemote", "3", "--apply", "--yes")
    assert (lists(cluster), plans_of(own, 3)) == (before, ())
    with pytest.raises(UsageProblem, match="broker 3: is not demoted, demoted are none"):
        run("undemote", "3")


@pytest.mark.usefixtures("carried_out")
def test_an_undemotion_whose_command_was_killed_at_its_end_leaves_nothing_to_bring_back(
    cluster: SimulatedCluster, own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("demote", "3", "--apply", "--yes")
    with monkeypatch.context() as patched:
        patched.setattr(BrokerAct, "note_end", lambda *_: None)
        run("undemote", "3", "--apply", "--yes")
    assert plans_of(own, 3) != ()
    run("undemote", "3", "--apply", "--yes")
    assert plans_of(own, 3) == ()


def test_a_roll_demotes_and_undemotes_without_a_question(
    cluster: SimulatedCluster, own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [Event.DONE, Event.DONE, Event.ABORTED, Event.DONE]
    finished: list[int] = []

    def carry_out(settings: Settings, plan_id: str) -> EventRecord:
        event = ends.pop(0)
        if event is Event.DONE:
            for row in journal_of(settings).plan(plan_id).plan.movements:
                cluster.reassign({row.key: row.new_replicas})
                cluster.elect_preferred([row.key])
        return EventRecord(event, 0, 0, "for a test", Figures(1, 0))

    monkeypatch.setattr("streaming.commands.apply.carry_out_stored", carry_out)
    monkeypatch.setattr("streaming.commands.apply.finish_open", lambda *_: finished.append(1))
    before = lists(cluster)
    assert reorder(own, "demote", 3, 60) is None
    assert (demoted(own), len(plans_of(own, 3))) == (frozenset({3}), 1)
    assert reorder(own, "undemote", 3, 60) is None
    assert (demoted(own), plans_of(own, 3), lists(cluster)) == (frozenset(), (), before)
    assert reorder(own, "demote", 3, 60) == "aborted: for a test"
    assert demoted(own) == {3}, "the roll stays open, and is continued or aborted"
    assert reorder(own, "undemote", 3, 60) is None
    assert len(finished) == 4
    note_intent(own.storage.tables, own.kafka.cluster_name, 4, Intent.DEMOTE, "a person", now_ms=1)
    with pytest.raises(RefusedForSafety, match="broker 3 can't be demoted: 1 partition has no other replica in sync"):
        reorder(own, "demote", 3, 60)
    assert demoted(own) == {4}


def test_who_may_not_be_demoted(cluster: SimulatedCluster, own: Settings) -> None:
    root, name = own.storage.tables, own.kafka.cluster_name
    with pytest.raises(UsageProblem, match="broker 9: is not alive, allowed are 1, 2, 3, 4"):
        run("demote", "9")
    note_intent(root, name, 4, Intent.DEMOTE, "a person", now_ms=1)
    with pytest.raises(
        RefusedForSafety,
        match="broker 3 can't be demoted: 1 partition has no other replica in sync that may lead: t-2",
    ):
        run("demote", "3", "--apply", "--yes")
    assert demoted(own) == {4}
    note_intent(root, name, 1, Intent.DRAIN, "a person", now_ms=1)
    with pytest.raises(UsageProblem, match="broker 1: is drained and will lead nothing, undrain it first"):
        run("demote", "1")
    note_intent(root, name, 3, Intent.DEMOTE, "a person", now_ms=1, demotions=map(str, range(DEMOTIONS_MAX)))
    with pytest.raises(UsageProblem, match="broker 3: 100 plans have demoted it, undemote it first"):
        run("demote", "3")
    with pytest.raises(UsageProblem, match="broker 2: is not demoted, demoted are 3, 4"):
        run("undemote", "2")


def test_plans_that_are_gone_leave_the_order_as_it_is(cluster: SimulatedCluster, own: Settings) -> None:
    note_intent(own.storage.tables, own.kafka.cluster_name, 3, Intent.DEMOTE, "a person", now_ms=1, demotions=["gone"])
    before = lists(cluster)
    assert (
        "there is nothing to move; to have it noted alone: rebalancer undemote 3 --apply" in run("undemote", "3").stderr
    )
    run("undemote", "3", "--apply", "--yes")
    assert (lists(cluster), demoted(own)) == (before, frozenset())


def test_no_plan_touches_a_demoted_broker_unless_it_is_about_that_broker(
    cluster: SimulatedCluster, own: Settings
) -> None:
    live = SimulatedClient(cluster, errors=ERRORS).describe()
    policy = planner_policy(own.planner, {"t", "single"})
    assert untouched(policy, frozenset({3, 9}), live).excluded_brokers == {3}, (
        "one that is away may have to be replaced"
    )
    assert untouched(policy, frozenset(), live) == policy
    for named in (relief_policy(frozenset({3}), drain=True), policy.to_fill(frozenset({3}), 4)):
        assert untouched(named, frozenset({3, 4}), live).excluded_brokers == {4}
