"""Plans for the placement: crowded racks, empty brokers, leaders that are not the preferred ones.

Time is what a test says. Plans are made by the planner itself, on a model in which each partition takes the same load.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.deciding.needs import placement_states
from assignor_core.deciding.observation import Observation, PlanRequest
from assignor_core.deciding.policy import DecisionPolicy, LastingPolicy, Mode, TriggerPolicy
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import Decision, step
from assignor_core.errors import InputError
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.live_plans.planning import propose_elections
from assignor_core.load import broker_loads, cluster_arrays
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.maintenance import window_of
from assignor_core.model import Broker, BrokerState, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.policy import BrokerSet
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.racks import RackSpread
from tests.core.judging import NothingKnown

MINUTE_MS, RATE = 60_000, 1e6
NOON_MS = 720 * MINUTE_MS
POLICY = DecisionPolicy(trigger=TriggerPolicy(cooldown_ms=5 * MINUTE_MS), mode=Mode.APPLY)


def at(*replicas: int, leader: int | None = None) -> LivePartition:
    return LivePartition(replicas, replicas[0] if leader is None else leader, replicas)


def cluster(*rows: LivePartition, racks: dict[int, str | None]) -> LiveCluster:
    return LiveCluster("c", racks, {("t", number): row for number, row in enumerate(rows)})


def even(brokers: int, empty: int = 1, *, per_broker: int = 20) -> LiveCluster:
    """Brokers 1 to `brokers` hold the same, two replicas of each partition; then `empty` ones that hold nothing."""
    rows = [at(1 + number % brokers, 1 + (number + 1) % brokers) for number in range(brokers * per_broker)]
    return cluster(*rows, racks=dict.fromkeys(range(1, brokers + empty + 1)))


FIFTH_EMPTY = even(4)
CROWDED = cluster(*[at(1, 2), at(2, 3), at(3, 1), at(4, 1)] * 3, racks={1: "a", 2: "a", 3: "b", 4: "b"})
"""Three partitions lie in one rack alone: t-0, t-4, t-8."""
MOVED_LEADERS = cluster(at(1, 2), at(2, 3), at(3, 1, leader=1), racks={1: None, 2: None, 3: None})
ELECTED = cluster(at(1, 2), at(2, 3), at(3, 1), racks={1: None, 2: None, 3: None})


def model(live: LiveCluster, drained: frozenset[int] = frozenset()) -> ClusterState:
    brokers = tuple(
        Broker(broker, rack, BrokerState.DRAINING if broker in drained else BrokerState.ALIVE)
        for broker, rack in live.broker_racks.items()
    )
    rows = live.partitions.items()
    load = PartitionLoad(RATE, RATE, 1e9)
    return ClusterState("main", 0, brokers, tuple(Partition(*key, row.replicas, load) for key, row in rows))


@dataclass
class Planner(NothingKnown):
    """Evidence that plans for the cluster as it is."""

    live: LiveCluster
    requests: list[PlanRequest] = field(default_factory=list)
    kept: dict[str, KeptPlan] = field(default_factory=dict)

    def kept_plan(self, plan_id: str) -> KeptPlan | None:
        return self.kept.get(plan_id)

    def propose(self, request: PlanRequest) -> ProposedPlan:
        self.requests.append(request)
        if request.elections:
            return propose_elections(self.live, request.elections, cluster_name="main", span_ms=(0, 1))
        proposed = ProposedPlan(propose(model(self.live, request.drained), request.policy))
        self.kept[proposed.plan.plan_id] = KeptPlan(proposed, 0, 2**60)
        return proposed


class Deciding:
    """A cluster whose windows are even, minute after minute."""

    def __init__(self, live: LiveCluster, policy: DecisionPolicy = POLICY) -> None:
        self.live = live
        self.policy = policy
        self.state = TriggerState()
        self.planner = Planner(live)
        self.now_ms = NOON_MS
        self.drained: frozenset[int] = frozenset()

    def after(self, minutes: int) -> Decision:
        """The decision once so many minutes have passed, with a window in each."""
        for _ in range(minutes):
            self.now_ms += MINUTE_MS
            decision = self.decide()
        return decision

    def decide(self) -> Decision:
        self.planner.live = self.live
        loads = dict.fromkeys(self.live.broker_racks, RATE)
        for broker in self.live.broker_racks:
            if not any(broker in row.replicas for row in self.live.partitions.values()):
                loads[broker] = 0.0
        windows = tuple(
            ClosedWindow(end_ms - MINUTE_MS, end_ms, frozenset(loads), {"bytes_in": loads, "bytes_out": loads})
            for end_ms in range(self.now_ms - 4 * MINUTE_MS, self.now_ms + 1, MINUTE_MS)
        )
        observation = Observation.of(
            self.live, windows, self.policy, drained=self.drained, changed_ms=0, now_ms=self.now_ms
        )
        self.state, decision = step(self.state, observation, self.policy, self.planner)
        return decision

    def carry_out(self, decision: Decision) -> None:
        """The cluster after the plan of `decision`; leaders are the preferred ones."""
        assert decision.proposed is not None
        new = {movement.key: at(*movement.new_replicas) for movement in decision.proposed.plan.movements}
        self.live = replace(self.live, partitions={**self.live.partitions, **new})


def with_lasting(**changed: object) -> DecisionPolicy:
    return replace(POLICY, lasting=replace(LastingPolicy(), **changed))  # type: ignore[arg-type]


def of(decision: Decision) -> tuple[Verdict, Reason]:
    return decision.evaluation.verdict, decision.evaluation.reason


@pytest.mark.long
def test_an_empty_broker_is_filled_once_it_has_been_empty_for_long_enough() -> None:
    deciding = Deciding(FIFTH_EMPTY)
    decision = deciding.after(10)
    assert of(decision) == (Verdict.HOLD, Reason.BALANCED), "one of five is max/mean 1.25"
    decision = deciding.after(1)
    assert of(decision) == (Verdict.PLAN, Reason.EMPTY_BROKER)
    assert decision.evaluation.detail == "brokers that are empty or nearly so, for 10 min: 5"
    assert decision.may_act
    assert decision.proposed is not None
    plan = decision.proposed.plan
    assert {broker for row in plan.movements for broker in set(row.new_replicas) - set(row.old_replicas)} == {5}
    assert plan.skew_after["bytes_in"]["max_over_mean"] <= 1.03
    deciding.carry_out(decision)
    assert of(deciding.after(30)) == (Verdict.HOLD, Reason.BALANCED)


@pytest.mark.parametrize(
    ("brokers", "empty"),
    [(2, 1), (4, 3), *(pytest.param(*many, marks=pytest.mark.long) for many in ((30, 1), (60, 1), (60, 2)))],
)
def test_it_is_filled_however_many_others_there_are(brokers: int, empty: int) -> None:
    """Among sixty no other is above its band without it: all have 1.7 % too much."""
    unskewed = replace(with_lasting(placement_grace_ms=0), trigger=TriggerPolicy(enter_ratio=3.0))
    deciding = Deciding(even(brokers, empty), unskewed)
    decision = deciding.after(1)
    assert of(decision) == (Verdict.PLAN, Reason.EMPTY_BROKER)
    deciding.carry_out(decision)
    arrays = cluster_arrays(model(deciding.live))
    bytes_in = broker_loads(arrays)[:, 0]
    assert bytes_in[brokers:].min() >= 0.8 * bytes_in.mean()


def test_one_that_holds_little_counts_as_empty_and_one_that_carries_much_does_not() -> None:
    rows = [at(1, 2), at(2, 3), at(3, 1)] * 10
    live = cluster(*rows, at(4, 1), racks=dict.fromkeys((1, 2, 3, 4)))

    def empty(load: float) -> tuple[int, ...]:
        window = ClosedWindow(0, 1, frozenset(), {"bytes_in": {1: RATE, 2: RATE, 3: RATE, 4: load}})
        counted = frozenset(live.broker_racks)
        return placement_states(live, window, LastingPolicy(), counted=counted, planner=PlannerPolicy()).empty

    assert empty(0.1 * RATE) == (4,)
    assert empty(0.5 * RATE) == ()


def test_a_drained_broker_is_meant_to_be_empty() -> None:
    deciding = Deciding(FIFTH_EMPTY)
    deciding.drained = frozenset({5})
    assert of(deciding.after(30)) == (Verdict.HOLD, Reason.BALANCED)


ARRIVED = replace(FIFTH_EMPTY, partitions={**FIFTH_EMPTY.partitions, ("new", 0): at(5, 1), ("new", 1): at(2, 5)})
"""Two replicas have come to broker 5."""


def test_what_comes_to_a_drained_broker_is_planned_away_and_nothing_else_moves() -> None:
    """Internal topics too, and whatever the settings say of other states of the placement."""
    none_set = replace(
        with_lasting(placement_reasons=frozenset()), planner=PlannerPolicy(excluded_topics=frozenset({"new"}))
    )
    deciding = Deciding(ARRIVED, none_set)
    deciding.drained = frozenset({5, 6})
    assert deciding.after(1).evaluation.verdict is Verdict.HOLD, "whoever drained it may be about to approve its plan"
    decision = deciding.after(1)
    assert (of(decision), decision.may_act) == ((Verdict.PLAN, Reason.DRAINED_BROKER), True)
    assert decision.evaluation.detail == "drained brokers that hold replicas, for 1 min: 5"
    assert decision.proposed is not None
    assert {row.key for row in decision.proposed.plan.movements} == {("new", 0), ("new", 1)}
    deciding.carry_out(decision)
    assert not any(5 in row.replicas for row in deciding.live.partitions.values())
    assert of(deciding.after(30)) == (Verdict.HOLD, Reason.BALANCED)


@pytest.mark.long
def test_a_drain_under_new_topics_all_the_time_ends_once_they_end() -> None:
    deciding = Deciding(FIFTH_EMPTY, replace(POLICY, trigger=TriggerPolicy(cooldown_ms=0)))
    deciding.drained = frozenset({5})
    for minute in range(20):
        new = {("new", minute): at(5, 1 + minute % 4)} if minute < 15 else {}
        deciding.live = replace(deciding.live, partitions={**deciding.live.partitions, **new})
        decision = deciding.after(1)
        if decision.proposed is not None:
            deciding.carry_out(decision)
    assert not any(5 in row.replicas for row in deciding.live.partitions.values())


def test_budgets_hold_back_what_nobody_approves() -> None:
    deciding = Deciding(ARRIVED, replace(POLICY, planner=PlannerPolicy(movements_max=1)))
    deciding.drained = frozenset({5})
    decision = deciding.after(2)
    assert decision.proposed is not None
    assert decision.proposed.plan.movement_count == 1


def test_crowded_racks_are_spread_and_nothing_else_moves() -> None:
    deciding = Deciding(CROWDED)
    decision = deciding.after(11)
    assert of(decision) == (Verdict.PLAN, Reason.CROWDED_RACKS)
    words = "3 partitions have more replicas in one rack than they need, for 10 min: t-0, t-4, t-8"
    assert decision.evaluation.detail == words
    assert decision.proposed is not None
    assert sorted(row.key for row in decision.proposed.plan.movements) == [("t", 0), ("t", 4), ("t", 8)]
    deciding.carry_out(decision)
    spread = RackSpread(CROWDED.broker_racks, CROWDED.broker_racks)
    assert not any(spread.is_crowded(row.replicas) for row in deciding.live.partitions.values())
    assert of(deciding.after(30)) == (Verdict.HOLD, Reason.BALANCED)


@pytest.mark.long
def test_what_is_outside_the_set_of_its_topic_is_brought_there_and_nothing_else_moves() -> None:
    """Both brokers of the set are in one rack: that is not crowded."""
    brokers = frozenset(broker for broker, rack in CROWDED.broker_racks.items() if rack == CROWDED.broker_racks[1])
    policy = replace(POLICY, planner=PlannerPolicy(broker_sets=(BrokerSet(frozenset({"t"}), brokers=brokers),)))
    outside = [key for key, row in CROWDED.partitions.items() if not brokers.issuperset(row.replicas)]
    deciding = Deciding(CROWDED, policy)
    assert of(deciding.after(10)) == (Verdict.HOLD, Reason.BALANCED)
    decision = deciding.after(1)
    assert of(decision) == (Verdict.PLAN, Reason.OUTSIDE_SET)
    assert f"{len(outside)} partitions are on brokers outside the set of their topic" in decision.evaluation.detail
    assert decision.proposed is not None
    assert sorted(row.key for row in decision.proposed.plan.movements) == sorted(outside)
    deciding.carry_out(decision)
    held = deciding.after(30).evaluation
    assert (held.verdict, held.reason) == (Verdict.HOLD, Reason.MIN_GAIN)
    assert "; its lower bound is 2.0" in held.detail, "two of four brokers carry all that there is"


def test_topics_that_are_never_moved_may_stay_crowded() -> None:
    policy = replace(POLICY, planner=PlannerPolicy(excluded_topics=frozenset({"t"})))
    assert of(Deciding(CROWDED, policy).after(30)) == (Verdict.HOLD, Reason.BALANCED)


def test_what_no_plan_mends_is_a_decision_to_hold_that_names_it() -> None:
    policy = replace(POLICY, planner=PlannerPolicy(bytes_max=0.0))
    decision = Deciding(CROWDED, policy).after(11)
    assert of(decision) == (Verdict.HOLD, Reason.MIN_GAIN)
    assert decision.evaluation.detail.startswith("3 partitions have more replicas in one rack than they need, for 10")
    assert "no plan changes that" in decision.evaluation.detail
    assert "the budget does not suffice" in decision.evaluation.detail


@pytest.mark.long
def test_a_state_without_a_plan_holds_no_other_back() -> None:
    moved = {("t", 1): at(2, 3, leader=3)}
    policy = replace(POLICY, planner=PlannerPolicy(bytes_max=0.0))
    deciding = Deciding(replace(CROWDED, partitions={**CROWDED.partitions, **moved}), policy)
    assert of(deciding.after(31)) == (Verdict.PLAN, Reason.UNPREFERRED_LEADERS)


def test_preferred_leaders_are_elected_after_a_longer_time_and_nothing_is_copied() -> None:
    deciding = Deciding(MOVED_LEADERS)
    assert of(deciding.after(30)) == (Verdict.HOLD, Reason.BALANCED)
    decision = deciding.after(1)
    assert of(decision) == (Verdict.PLAN, Reason.UNPREFERRED_LEADERS)
    assert decision.proposed is not None
    (movement,) = decision.proposed.plan.movements
    assert (movement.key, movement.kind, movement.old_replicas, movement.new_replicas) == (
        ("t", 2), "leader", (3, 1), (3, 1)
    )  # fmt: skip
    assert decision.proposed.plan.bytes_to_move == 0
    assert movement.reason == "broker 1 leads it, broker 3 is its preferred leader"
    deciding.carry_out(decision)
    assert of(deciding.after(60)) == (Verdict.HOLD, Reason.BALANCED)


@pytest.mark.parametrize(
    "row",
    [
        LivePartition((3, 1), 1, (1,)),  # not in sync
        LivePartition((3, 1), -1, ()),  # nobody leads
        LivePartition((4, 1), 1, (1, 4)),  # not a broker in use
    ],
)
def test_a_preferred_leader_that_could_not_lead_is_not_elected(row: LivePartition) -> None:
    live = cluster(row, racks={1: None, 3: None})
    window = ClosedWindow(0, 1, frozenset(), {})
    states = placement_states(live, window, LastingPolicy(), counted=frozenset({1, 3}), planner=PlannerPolicy())
    assert states.unpreferred == ()


def test_what_ends_in_between_begins_anew_and_a_gap_without_decisions_too() -> None:
    deciding = Deciding(MOVED_LEADERS)
    deciding.after(20)
    deciding.live = ELECTED
    deciding.after(1)
    deciding.live = MOVED_LEADERS
    assert of(deciding.after(30)) == (Verdict.HOLD, Reason.BALANCED)
    deciding.now_ms += 60 * MINUTE_MS
    assert of(deciding.after(30)) == (Verdict.HOLD, Reason.BALANCED)
    assert of(deciding.after(1)) == (Verdict.PLAN, Reason.UNPREFERRED_LEADERS)


def test_only_the_reasons_that_are_set_count() -> None:
    others = frozenset({Reason.CROWDED_RACKS, Reason.UNPREFERRED_LEADERS})
    assert of(Deciding(FIFTH_EMPTY, with_lasting(placement_reasons=others)).after(30)) == (
        Verdict.HOLD,
        Reason.BALANCED,
    )
    with pytest.raises(InputError, match="reasons: found skewed, allowed are outside_set, crowded_racks, "):
        LastingPolicy((Reason.SKEWED,))
    with pytest.raises(InputError, match=r"empty_broker_share: found 1\.0, allowed is 0 to below 1"):
        LastingPolicy(empty_broker_share=1.0)


def test_while_a_broker_is_away_or_replicas_move_the_placement_waits() -> None:
    deciding = Deciding(FIFTH_EMPTY)
    away = LivePartition((1, 9), 1, (1,))
    deciding.live = replace(FIFTH_EMPTY, partitions={**FIFTH_EMPTY.partitions, ("t", 0): away})
    assert deciding.after(20).evaluation.verdict is Verdict.HOLD
    moving = LivePartition((5, 1, 2), 1, (1, 2), adding_replicas=(5,), removing_replicas=(1,))
    deciding.live = replace(FIFTH_EMPTY, partitions={**FIFTH_EMPTY.partitions, ("t", 0): moving})
    assert deciding.after(20).evaluation.verdict is Verdict.HOLD
    assert deciding.planner.requests == []


@pytest.mark.long
def test_the_cooldown_holds_for_these_plans_too() -> None:
    deciding = Deciding(FIFTH_EMPTY, with_lasting(placement_grace_ms=0))
    assert of(deciding.after(1)) == (Verdict.PLAN, Reason.EMPTY_BROKER)
    decision = deciding.after(1)  # nobody has carried it out
    assert of(decision) == (Verdict.HOLD, Reason.COOLDOWN)
    assert decision.evaluation.detail.endswith("brokers that are empty or nearly so, for 1 min: 5")


def test_in_mode_observe_the_decision_names_what_there_would_be_a_plan_for() -> None:
    decision = Deciding(FIFTH_EMPTY, replace(with_lasting(placement_grace_ms=0), mode=Mode.OBSERVE)).after(1)
    assert of(decision) == (Verdict.HOLD, Reason.DRY_RUN)
    assert "brokers that are empty" in decision.evaluation.detail


@pytest.mark.long
def test_a_plan_for_the_placement_waits_for_its_hours_and_keeps_its_reason() -> None:
    policy = replace(with_lasting(placement_grace_ms=0), maintenance=(window_of("12:20-13:00"),))
    deciding = Deciding(FIFTH_EMPTY, policy)
    decision = deciding.after(1)
    assert of(decision) == (Verdict.PLAN, Reason.MAINTENANCE_WINDOW)
    assert not decision.may_act
    assert of(deciding.after(10)) == (Verdict.HOLD, Reason.MAINTENANCE_WINDOW)
    decision = deciding.after(9)
    assert (of(decision), decision.may_act) == ((Verdict.PLAN, Reason.EMPTY_BROKER), True)


@st.composite
def placements(draw: st.DrawFn) -> LiveCluster:
    """Any placement over a few racked brokers, leaders anywhere among the replicas."""
    count = draw(st.integers(2, 7))
    racks = {broker: draw(st.sampled_from(("a", "b", "c", None))) for broker in range(1, count + 1)}
    factor = draw(st.integers(1, min(3, count)))
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        replicas = tuple(draw(st.permutations(sorted(racks)))[:factor])
        rows.append(at(*replicas, leader=draw(st.sampled_from(replicas))))
    return cluster(*rows, racks=racks)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(placements())
def test_plans_for_the_placement_end_and_leave_nothing_that_one_could_mend(live: LiveCluster) -> None:
    """Each plan mends something, keeps replication factors, and none makes a partition crowded."""
    deciding = Deciding(
        live, replace(with_lasting(placement_grace_ms=0, leaders_grace_ms=0), trigger=TriggerPolicy(cooldown_ms=0))
    )
    spread = RackSpread(live.broker_racks, live.broker_racks)
    for _ in range(3 * len(live.partitions)):
        before = deciding.live
        decision = deciding.after(1)
        if decision.evaluation.verdict is Verdict.HOLD:
            break
        deciding.carry_out(decision)
        for key, row in deciding.live.partitions.items():
            assert len(set(row.replicas)) == len(before.partitions[key].replicas)
            if not spread.is_crowded(before.partitions[key].replicas):
                assert not spread.is_crowded(row.replicas)
    assert decision.evaluation.verdict is Verdict.HOLD
    assert decision.evaluation.reason in (Reason.BALANCED, Reason.MIN_GAIN)
