"""Whole runs of the consumer protocol (KIP-848): what must hold of any, and what it is known for in small ones."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from assignor_core.group.consumer_protocol.messages import ConsumerGroupConfig
from assignor_core.group.member import CONSUMER_PROTOCOL, ConsumerConfig
from assignor_core.group.scenario import (
    Crash,
    GrowTopic,
    Happening,
    Pause,
    ProcessSpec,
    Scenario,
    Stall,
    Start,
    Stop,
    Subscribe,
    TopicSpec,
)
from assignor_core.group.simulation import Run, simulate
from assignor_core.group.trace import What
from tests.core.group.invariants import owners_at_end
from tests.core.group.scenarios import by_consumer_protocol, random_consumer_scenario, spec_of

SEEDS = st.integers(min_value=0, max_value=2**32)
CONFIG = ConsumerGroupConfig(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, assignment_interval_ms=1_000)
Events = list[tuple[int, Happening]]


def scenario_of(names: str, events: Events, *, static: bool = False, config: ConsumerGroupConfig = CONFIG) -> Scenario:
    """Members a, b and c read the six partitions of `t`; those named start at 0."""
    specs = {name: spec_of(name, ("range",), static=static) for name in "abc"}
    starts = tuple((0, Start(name)) for name in names)
    return by_consumer_protocol(Scenario("", {"t": TopicSpec(6, 10.0)}, specs, (*starts, *events)), config)


def run_of(names: str, events: Events, *, static: bool = False, config: ConsumerGroupConfig = CONFIG) -> Run:
    return simulate(scenario_of(names, events, static=static, config=config))


def entries(run: Run, what: What, who: str, after_ms: int = 0) -> list[tuple[int, int]]:
    """(ms, how many partitions) of such entries."""
    return [
        (entry.at_ms, len(entry.partitions))
        for entry in run.trace
        if entry.what is what and entry.who == who and entry.at_ms > after_ms
    ]


@settings(max_examples=30, deadline=None)
@given(SEEDS)
@example(5)
def test_every_partition_that_somebody_reads_is_owned_at_the_end(seed: int) -> None:
    """All who still run read `t`; a static member that is away is removed when its session ends."""
    scenario = random_consumer_scenario(seed)
    scenario = replace(
        scenario, events=tuple(event for event in scenario.events if not isinstance(event[1], Subscribe))
    )
    run = simulate(scenario)
    ended = {What.STARTED: False, What.STOPPED: True, What.CRASHED: True, What.FAILED: True}
    last = {entry.who: ended[entry.what] for entry in run.trace if entry.what in ended}
    if all(last.values()):
        return
    grown = [event.partitions for _, event in scenario.events if isinstance(event, GrowTopic) and event.topic == "t"]
    partitions = max([scenario.topics["t"].partitions, *grown])
    assert {("t", number) for number in range(partitions)} <= owners_at_end(run.trace).keys()


def test_a_join_moves_only_what_must_move_and_nobody_else_stops() -> None:
    run = run_of("ab", [(60_000, Start("c"))])
    joining = run.rebalances[-1]
    assert joining.cause == "c joins"
    assert (joining.rounds, joining.revoked, joining.moved, joining.kept) == (1, 2, 2, 4)
    assert joining.idle_longest_ms <= CONFIG.heartbeat_interval_ms + 200


def test_partitions_are_taken_over_with_a_heartbeat_after_they_were_given_up() -> None:
    """So the brokers' heartbeat interval decides how long what moves is idle."""
    slow = replace(CONFIG, heartbeat_interval_ms=6_000)
    idle = [run_of("ab", [(60_000, Start("c"))], config=config).totals.idle_longest_ms for config in (CONFIG, slow)]
    assert idle[0] <= 3_200 < idle[1] <= 6_200


def test_a_leave_stops_nobody() -> None:
    run = run_of("abc", [(60_000, Stop("c"))])
    assert [(one.cause, one.members_stopped, one.moved) for one in run.rebalances[1:]] == [("c leaves", 0, 2)]


def test_a_crash_is_noticed_after_the_brokers_session_timeout() -> None:
    run = run_of("ab", [(60_000, Crash("b"))])
    assert run.rebalances[-1].cause == "b session timed out"
    assert 60_000 + 10_000 - 3_200 <= run.rebalances[-1].started_ms <= 70_000


def test_a_static_restart_is_no_rebalance() -> None:
    run = run_of("abc", [(60_000, Stop("b")), (65_000, Start("b"))], static=True)
    assert run.totals.rebalances == 0
    (_, before), (back_ms, after) = entries(run, What.ASSIGNED, "b")[-2:]
    assert (before, after) == (2, 2)
    assert back_ms <= 65_010


def test_a_static_restart_past_the_session_is_two() -> None:
    run = run_of("abc", [(60_000, Stop("b")), (90_000, Start("b"))], static=True)
    assert [one.cause for one in run.rebalances[1:]] == ["b session timed out", "b joins"]


def test_a_static_member_that_crashed_is_refused_until_its_session_ends() -> None:
    """Unlike in the classic protocol, where the new process takes the place of the old one."""
    run = run_of(
        "ab", [(60_000, Crash("b")), (65_000, Start("b")), (66_000, Stop("b")), (80_000, Start("b"))], static=True
    )
    assert [(entry.who, entry.detail) for entry in run.trace if entry.what is What.FAILED] == [
        ("b", "UNRELEASED_INSTANCE_ID")
    ]
    assert [one.cause for one in run.rebalances[1:]] == ["b session timed out", "b joins"]


def test_the_second_of_two_processes_with_one_instance_id_is_refused() -> None:
    config = ConsumerConfig((), "same", group_protocol=CONSUMER_PROTOCOL)
    specs = {name: ProcessSpec(config, ("t",)) for name in ("old", "new")}
    run = simulate(Scenario("", {"t": TopicSpec(4)}, specs, ((0, Start("old")), (60_000, Start("new")))))
    assert [(entry.who, entry.detail) for entry in run.trace if entry.what is What.FAILED] == [
        ("new", "UNRELEASED_INSTANCE_ID")
    ]
    assert (run.totals.rebalances, run.totals.idle_partition_ms) == (0, 0)


def test_a_slow_revoke_delays_only_what_moves() -> None:
    quick = scenario_of("ab", [(60_000, Start("c"))])
    slow = {name: replace(spec, revoke_ms=8_000) for name, spec in quick.processes.items()}
    run = simulate(replace(quick, processes=slow))
    (joining,) = run.rebalances[1:]
    assert (joining.revoked, joining.kept) == (2, 4)
    assert 8_000 <= joining.idle_longest_ms <= 8_000 + CONFIG.heartbeat_interval_ms + 200


def test_who_takes_longer_to_revoke_than_max_poll_interval_is_removed_and_comes_back() -> None:
    """It does not poll, so it leaves by itself; its partitions go to the others meanwhile."""
    run = run_of("ab", [(60_000, Stall("b", 45_000))])
    assert [one.cause for one in run.rebalances[1:]] == ["b leaves", "b joins"]
    assert run.rebalances[1].started_ms == 90_001
    assert run.totals.overlap_partition_ms == 3 * (60_000 + 45_000 - 90_001)


def test_a_member_that_neither_polls_nor_revokes_keeps_what_it_shall_give_up_for_its_rebalance_timeout() -> None:
    run = run_of("ab", [(60_000, Stall("b", 25_000)), (61_000, Start("c"))])
    (joining,) = run.rebalances[1:]
    assert joining.cause == "c joins"
    assert joining.ended_ms is not None
    assert 85_000 <= joining.ended_ms <= 85_000 + CONFIG.heartbeat_interval_ms + 200
    assert joining.idle_longest_ms <= CONFIG.heartbeat_interval_ms + 200, "b reads on until it gives up"


def test_a_pause_longer_than_the_session_costs_the_partitions_and_a_shorter_one_does_not() -> None:
    short, long = (run_of("ab", [(60_000, Pause("b", pause_ms))]) for pause_ms in (5_000, 15_000))
    assert (short.totals.rebalances, short.totals.idle_partition_ms) == (0, 3 * 5_000)
    assert [one.cause for one in long.rebalances[1:]] == ["b session timed out", "b joins"]
    assert entries(long, What.LOST, "b")


def test_partitions_that_are_added_are_noticed_by_the_brokers_with_the_next_heartbeat() -> None:
    (grown,) = run_of("ab", [(50_000, GrowTopic("t", 8))]).rebalances[1:]
    assert grown.cause.endswith("sees partitions that were added")
    assert (grown.revoked, grown.moved) == (0, 0)
    assert grown.started_ms <= 50_000 + CONFIG.heartbeat_interval_ms + 200
