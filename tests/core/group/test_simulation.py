"""Whole runs: what must hold of any, and what the protocol is known for in small ones."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assignor_core.group.consumer_protocol.messages import ConsumerGroupConfig
from assignor_core.group.member import CONSUMER_PROTOCOL, ConsumerConfig
from assignor_core.group.scenario import (
    Crash,
    GrowTopic,
    Happening,
    InvalidScenario,
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
from assignor_core.group.states import GroupState
from assignor_core.group.trace import What, trace_text
from tests.core.group.invariants import owners_at_end, violations
from tests.core.group.scenarios import (
    SESSION_MS,
    by_consumer_protocol,
    group_of,
    random_consumer_scenario,
    random_scenario,
    spec_of,
)

SEEDS = st.integers(min_value=0, max_value=2**32)
EAGER, COOPERATIVE = "range", "cooperative-sticky"
OF_EITHER_PROTOCOL = (random_scenario, random_consumer_scenario)
BY_CONSUMER = ConsumerConfig((), group_protocol=CONSUMER_PROTOCOL)
BY_EITHER_PROTOCOL = pytest.mark.parametrize(
    "by_protocol",
    [lambda scenario: scenario, partial(by_consumer_protocol, config=ConsumerGroupConfig())],
    ids=["classic", "consumer"],
)


def states(run: Run) -> list[tuple[str, int]]:
    return [(entry.state.value, entry.generation_id) for entry in run.trace if entry.state is not None]


def partitions_of(run: Run, what: What, who: str | None = None) -> list[tuple[str, int]]:
    """Partitions of such entries after the group was first stable."""
    stable_ms = run.rebalances[0].ended_ms
    assert stable_ms is not None
    return [
        tp
        for entry in run.trace
        if entry.what is what and entry.at_ms > stable_ms and who in (None, entry.who)
        for tp in entry.partitions
    ]


@pytest.mark.long
@pytest.mark.parametrize("scenario_of", OF_EITHER_PROTOCOL)
@settings(max_examples=60, deadline=None)
@given(SEEDS)
@example(17)  # a static member stops polling while it has to revoke: what it leaves is free, and it reads on
def test_no_partition_has_two_owners_generations_grow_and_every_run_ends(
    scenario_of: Callable[[int], Scenario], seed: int
) -> None:
    run = simulate(scenario_of(seed))
    assert violations(run.trace) == []
    assert run.settled
    assert run.totals.unsettled == 0
    assert all(rebalance.ended_ms is None or rebalance.ended_ms <= run.end_ms for rebalance in run.rebalances)
    assert min(run.totals.idle_partition_ms, run.totals.overlap_partition_ms, run.totals.lag_records) >= 0


def test_a_run_lasts_until_its_last_rebalance_has_ended() -> None:
    """The only member gets nothing, so nothing is noted at the end: what nobody reads was idle for less than 0 ms."""
    specs = {"a": spec_of("a", (EAGER,), topics=("u",)), "b": spec_of("b", (EAGER,))}
    run = simulate(Scenario("nothing for a", {"t": TopicSpec(4, 10.0), "u": TopicSpec(0)}, specs, ((0, Start("a")),)))
    assert run.end_ms == run.rebalances[0].ended_ms
    assert (run.totals.idle_partition_ms, run.totals.lag_records) == (0, 0.0)


@pytest.mark.long
@settings(max_examples=100)
@given(SEEDS)
@example(100_000_000)  # a static member misses a generation and keeps what it owns
def test_every_partition_is_owned_once_the_group_is_stable(seed: int) -> None:
    """Static members are left out of growth: a static leader that restarts does not notice it (KIP-814)."""
    scenario = random_scenario(seed, static_may_miss_growth=False)
    run = simulate(scenario)
    last = [entry.state for entry in run.trace if entry.state is not None][-1]
    if last is not GroupState.STABLE:
        return
    topics = {topic: spec.partitions for topic, spec in scenario.topics.items()}
    for _, event in scenario.events:
        if isinstance(event, GrowTopic):
            topics[event.topic] = max(topics[event.topic], event.partitions)
    if any(isinstance(event, Subscribe) for _, event in scenario.events):
        return  # who reads what then is told by test_another_subscription_is_a_rebalance
    assert {("t", number) for number in range(topics["t"])} <= owners_at_end(run.trace).keys()


@pytest.mark.parametrize("scenario_of", OF_EITHER_PROTOCOL)
@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_the_same_seed_gives_the_same_trace_byte_for_byte(scenario_of: Callable[[int], Scenario], seed: int) -> None:
    first, second = (simulate(scenario_of(seed)) for _ in range(2))
    assert trace_text(first.trace).encode() == trace_text(second.trace).encode()
    assert first.totals == second.totals


def test_another_seed_gives_other_times() -> None:
    def times(seed: int) -> list[int]:
        specs = {name: spec_of(name, (EAGER,)) for name in ("a", "b")}
        events = tuple((0, Start(name)) for name in specs)
        run = simulate(Scenario("", {"t": TopicSpec(2)}, specs, events, network_jitter_ms=500, seed=seed))
        return [entry.at_ms for entry in run.trace]

    assert times(1) != times(2)


def test_eager_stops_everybody_when_one_joins() -> None:
    run = simulate(group_of(["a", "b", "c"], EAGER, [(60_000, Stop("c")), (80_000, Start("c"))]))
    joining = run.rebalances[-1]
    assert (joining.cause, joining.rounds, joining.members_stopped, joining.revoked) == ("c starts", 1, 2, 6)


def test_cooperative_stops_only_what_moves_and_needs_two_rounds() -> None:
    run = simulate(group_of(["a", "b", "c"], COOPERATIVE, [(60_000, Stop("c")), (80_000, Start("c"))]))
    joining = run.rebalances[-1]
    assert (joining.rounds, joining.revoked, joining.moved, joining.kept) == (2, 2, 2, 4)
    assert set(partitions_of(run, What.ASSIGNED, "c")) == set(partitions_of(run, What.REVOKED))


def test_a_cooperative_leave_takes_one_round_and_stops_nobody() -> None:
    run = simulate(group_of(["a", "b", "c"], COOPERATIVE, [(60_000, Stop("c"))]))
    assert [(one.rounds, one.members_stopped, one.moved) for one in run.rebalances[1:]] == [(1, 0, 2)]


def test_a_crash_is_noticed_after_the_session_timeout_and_a_leave_at_once() -> None:
    crash, leave = (
        simulate(group_of(["a", "b"], COOPERATIVE, [(60_000, event)])).rebalances[-1]
        for event in (Crash("b"), Stop("b"))
    )
    assert leave.started_ms == 60_001
    assert 60_000 + SESSION_MS - 3_100 <= crash.started_ms <= 60_000 + SESSION_MS
    assert crash.idle_partition_ms > leave.idle_partition_ms


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE, "sticky"])
def test_a_static_restart_within_the_session_timeout_is_no_rebalance(strategy: str) -> None:
    events: list[tuple[int, Happening]] = [(60_000, Stop("b")), (65_000, Start("b"))]
    run = simulate(group_of(["a", "b", "c"], strategy, events, static=True))
    assert run.totals.rebalances == 0
    before = [entry.partitions for entry in run.trace if entry.what is What.ASSIGNED and entry.who == "b"]
    assert len(before) == 2
    assert before[0] == before[1]
    assert run.totals.idle_partition_ms == pytest.approx(2 * 5_004)


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_a_static_restart_past_the_session_timeout_is_two(strategy: str) -> None:
    """One when the session ends, one when the member is back."""
    events: list[tuple[int, Happening]] = [(60_000, Stop("b")), (90_000, Start("b"))]
    run = simulate(group_of(["a", "b", "c"], strategy, events, static=True))
    assert [one.cause for one in run.rebalances[1:]] == ["b session timed out", "b starts"]


def test_a_static_restart_during_which_the_session_ends_is_one_if_it_is_back_in_the_same_round() -> None:
    events: list[tuple[int, Happening]] = [(60_000, Stop("b")), (60_000 + SESSION_MS, Start("b"))]
    run = simulate(group_of(["a", "b", "c"], EAGER, events, static=True))
    assert run.totals.rebalances == 1


def test_the_first_of_two_processes_with_one_instance_id_is_fenced() -> None:
    specs = {name: spec_of("same" if name != "a" else "a", (COOPERATIVE,), static=True) for name in ("a", "old", "new")}
    events = ((0, Start("a")), (0, Start("old")), (60_000, Start("new")))
    run = simulate(Scenario("", {"t": TopicSpec(4)}, specs, events))
    assert [(entry.who, entry.detail) for entry in run.trace if entry.what is What.FAILED] == [
        ("old", "FENCED_INSTANCE_ID")
    ]
    assert run.totals.rebalances == 0
    assert run.totals.overlap_partition_ms > 0, "both read until the first one's next heartbeat"


def test_partitions_that_are_added_are_noticed_by_the_leaders_next_metadata() -> None:
    run = simulate(group_of(["a", "b"], COOPERATIVE, [(50_000, GrowTopic("t", 8))]))
    (grown,) = run.rebalances[1:]
    assert (grown.cause, grown.started_ms, grown.revoked) == ("a partitions were added", 60_001, 0)


@BY_EITHER_PROTOCOL
def test_a_topic_that_comes_and_matches_a_pattern_is_read(by_protocol: Callable[[Scenario], Scenario]) -> None:
    specs = {name: spec_of(name, (COOPERATIVE,), topics=("orders-*",)) for name in ("a", "b")}
    events = ((0, Start("a")), (0, Start("b")), (50_000, GrowTopic("orders-eu", 4)))
    topics = {"orders-us": TopicSpec(2), "orders-eu": TopicSpec(0)}
    scenario = by_protocol(Scenario("", topics, specs, events))
    run = simulate(scenario)
    assert {tp for tp in owners_at_end(run.trace) if tp[0] == "orders-eu"} == {("orders-eu", n) for n in range(4)}
    came = {"classic": "a topic that its pattern matches has come", "consumer": "a subscribes to other topics"}
    assert any(one.cause.endswith(came[scenario.group_protocol]) for one in run.rebalances)


@BY_EITHER_PROTOCOL
def test_another_subscription_is_a_rebalance(by_protocol: Callable[[Scenario], Scenario]) -> None:
    specs = {name: spec_of(name, (COOPERATIVE,)) for name in ("a", "b")}
    events = ((0, Start("a")), (0, Start("b")), (50_000, Subscribe("b", ("u",))))
    run = simulate(by_protocol(Scenario("", {"t": TopicSpec(4), "u": TopicSpec(2)}, specs, events)))
    assert run.rebalances[-1].cause == "b subscribes to other topics"
    assert owners_at_end(run.trace) == {**{("t", n): "a" for n in range(4)}, **{("u", n): "b" for n in range(2)}}


def test_a_pause_longer_than_the_session_costs_the_partitions_and_a_shorter_one_does_not() -> None:
    short, long = (
        simulate(group_of(["a", "b"], COOPERATIVE, [(60_000, Pause("b", pause_ms))])) for pause_ms in (5_000, 15_000)
    )
    assert short.totals.rebalances == 0
    assert short.totals.idle_partition_ms == 3 * 5_000
    assert [one.cause for one in long.rebalances[1:]] == ["b session timed out", "b was put out"]
    assert partitions_of(long, What.LOST, "b")


def test_who_does_not_poll_in_time_leaves_and_its_late_work_overlaps() -> None:
    run = simulate(group_of(["a", "b"], COOPERATIVE, [(60_000, Stall("b", 45_000))]))
    assert run.rebalances[1].cause == "b did not poll in time"
    assert run.rebalances[1].started_ms == 90_001
    assert run.totals.overlap_partition_ms == 3 * (60_000 + 45_000 - 90_001)


def test_two_rolling_bounces_bring_an_eager_group_to_cooperative() -> None:
    names = ["a", "b", "c"]
    both, cooperative = (("cooperative-sticky", "range"), ("cooperative-sticky",))
    events: list[tuple[int, Start | Stop]] = [(0, Start(name)) for name in names]
    for bounce, offers in enumerate((both, cooperative)):
        for number, name in enumerate(names):
            at_ms = 60_000 + (bounce * len(names) + number) * 30_000
            events += [(at_ms, Stop(name)), (at_ms + 5_000, Start(name, spec_of(name, offers)))]
    events += [(400_000, Stop("c")), (420_000, Start("c"))]
    specs = {name: spec_of(name, ("range",)) for name in names}
    run = simulate(Scenario("", {"t": TopicSpec(6)}, specs, tuple(events)))
    assert violations(run.trace) == []
    assert not [entry for entry in run.trace if entry.what is What.FAILED]
    assert (run.rebalances[-1].rounds, run.rebalances[-1].revoked) == (2, 2), "cooperative at last"


def test_one_bounce_straight_to_cooperative_is_refused() -> None:
    names = ["a", "b"]
    specs = {name: spec_of(name, ("range",)) for name in names}
    events = ((0, Start("a")), (0, Start("b")), (60_000, Stop("b")), (65_000, Start("b", spec_of("b", (COOPERATIVE,)))))
    run = simulate(Scenario("", {"t": TopicSpec(2)}, specs, events))
    assert [entry.detail for entry in run.trace if entry.what is What.FAILED] == ["INCONSISTENT_GROUP_PROTOCOL"]


def test_states_of_a_join_in_order() -> None:
    run = simulate(group_of(["a"], EAGER, []))
    assert states(run) == [("PreparingRebalance", 0), ("CompletingRebalance", 1), ("Stable", 1)]


def test_lag_is_what_was_written_while_nobody_read() -> None:
    run = simulate(group_of(["a", "b"], COOPERATIVE, [(60_000, Crash("b"))]))
    assert run.totals.lag_records == pytest.approx(run.totals.idle_partition_ms * 10.0 / 1000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network_ms": 0}, "network_ms is 0, must be between 1 and 60000"),
        ({"events": ((0, Start("x")),)}, "member 'x' of an event is none of a"),
        ({"events": ((9, Start("a")), (3, Stop("a")))}, "at_ms of an event is 3, must be between 9"),
        ({"events": ((0, GrowTopic("u", 3)),)}, "topic 'u' of an event is none of t"),
        ({"events": ((0, GrowTopic("t", 1)),)}, "'t' in an event are 1, must be more than the 1 that it has by then"),
        (
            {"events": ((0, GrowTopic("t", 8)), (5, GrowTopic("t", 6)))},
            "'t' in an event are 6, must be more than the 8 that it has by then",
        ),
        ({"topics": {"t": TopicSpec(-1)}}, "partitions of topic 't' is -1"),
        ({"processes": {"a": spec_of("a", ("best",))}}, "strategy of 'a' is 'best', must be one of range"),
        (
            {"processes": {"a": ProcessSpec(ConsumerConfig((), group_protocol="new"), ("t",))}},
            "group_protocol of 'a' is 'new', must be classic or consumer",
        ),
        (
            {"processes": {"a": ProcessSpec(replace(BY_CONSUMER, server_assignor="best"), ("t",))}},
            "server_assignor of 'a' is 'best', must be one of uniform, range",
        ),
        (
            {"processes": {"a": ProcessSpec(BY_CONSUMER, ("t",)), "b": spec_of("b", ("range",))}},
            "group_protocol of 'b' is 'classic', must be 'consumer' as for all members",
        ),
    ],
)
def test_scenarios_that_can_not_be_are_refused(change: dict[str, object], message: str) -> None:
    whole: dict[str, object] = {
        "title": "",
        "topics": {"t": TopicSpec(1)},
        "processes": {"a": spec_of("a", ("range",))},
        "events": ((0, Start("a")),),
    }
    with pytest.raises(InvalidScenario, match=message):
        Scenario(**{**whole, **change})  # type: ignore[arg-type]


def test_a_run_in_which_nothing_happens_is_a_run() -> None:
    run = simulate(Scenario("", {"t": TopicSpec(1)}, {"a": spec_of("a", (EAGER,))}, ((5, Stop("a")),)))
    assert (run.trace, run.rebalances, run.end_ms, run.settled) == ([], [], 0, True)
