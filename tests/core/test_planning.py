"""Plans on loads of which some are unknown or not credible: any cluster, any silent broker. Pure."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.disks import LogDirDescription
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from assignor_core.live_plans.measured_loads import load_disagreement, mean_disagreement
from assignor_core.live_plans.planning import LeaderLoads, Model, build_model, propose_on
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy

MB = 1e6
BROKERS = tuple(range(1, 9))


@st.composite
def measured(
    draw: st.DrawFn,
    *,
    silent: frozenset[int],
    drained: frozenset[int] = frozenset(),
    hung: frozenset[int] = frozenset(),
) -> Model:
    """A cluster of eight brokers as control measures it while the brokers of `silent` send nothing and those that are
    `hung` do not show their log dirs.
    """
    partitions, rates = {}, {}
    for number in range(draw(st.integers(8, 20))):
        key = (f"t{number % 3}", number)
        replicas = tuple(draw(st.permutations(BROKERS))[: draw(st.integers(1, 3))])
        partitions[key] = LivePartition(replicas, replicas[0], replicas)
        rates[key] = draw(st.integers(1, 9)) * MB
    live = LiveCluster("c", dict.fromkeys(BROKERS), partitions)
    known = {key: rate for key, rate in rates.items() if partitions[key].leader not in silent}
    led = {
        broker: sum(rate for key, rate in known.items() if partitions[key].leader == broker)
        for broker in BROKERS
        if broker not in silent
    }
    hosted = {
        broker: sum(rate for key, rate in rates.items() if broker in partitions[key].replicas)
        for broker in BROKERS
        if broker not in silent
    }
    window = ClosedWindow(0, 10, frozenset(hosted), {"bytes_in": hosted}, led)
    return build_model(
        live,
        {
            broker: (
                LogDirDescription(
                    "/d", 10**9, 10**9, {key: 1_000 for key, row in partitions.items() if broker in row.replicas}
                ),
            )
            for broker in BROKERS
            if broker not in hung
        },
        LeaderLoads({key: (rate, 0.0) for key, rate in known.items()}, {0: led}),
        (window,),
        cluster_name="c",
        capacities={},
        disk_reserve=0.0,
        drained=drained,
        now_ms=10,
        disagreement_max=0.2,
    )


def planned(model: Model, policy: PlannerPolicy) -> Plan | None:
    """None where too little is known."""
    placed = {(row.topic, row.partition): row.replicas for row in model.cluster.partitions}
    live = LiveCluster(
        "c", dict.fromkeys(BROKERS), {key: LivePartition(row, row[0], row) for key, row in placed.items()}
    )
    try:
        return propose_on(model, live, policy, elapsed_s=lambda: 0.0).plan
    except NothingToPlanOn:
        return None


@pytest.mark.long
@given(measured(silent=frozenset({8})))
@settings(max_examples=12, deadline=None)
def test_what_is_unknown_is_moved_by_no_plan_for_balance(model: Model) -> None:
    plan = planned(model, PlannerPolicy())
    if plan is None:
        assert len(model.unknown) > 0.1 * len(model.cluster.partitions)
        return
    for row in plan.movements:
        assert row.key not in model.unknown
        if 8 in model.unreported:  # a broker that holds nothing carries nothing
            old, new = row.old_replicas, row.new_replicas
            assert (8 in new, new[0] == 8) == (8 in old, old[0] == 8)


@pytest.mark.long
@given(measured(silent=frozenset(), hung=frozenset({8})))
@settings(max_examples=12, deadline=None)
def test_a_broker_that_does_not_answer_takes_nothing_and_gives_nothing(model: Model) -> None:
    only_there = {(row.topic, row.partition) for row in model.cluster.partitions if row.replicas == (8,)}
    assert model.silent == {8}
    assert not model.unknown_disks
    assert model.unknown == only_there
    assert all(row.load and row.load.disk_bytes == 1_000 for row in model.cluster.partitions)
    plan = planned(model, PlannerPolicy())
    if plan is None:
        assert len(only_there) > 0.1 * len(model.cluster.partitions)
        return
    assert "brokers that take no replicas, as they did not answer when asked for their log dirs: 8" in plan.diagnosis
    for row in plan.movements:
        old, new = row.old_replicas, row.new_replicas
        assert (8 in new, new[0] == 8) == (8 in old, old[0] == 8)


@pytest.mark.long
@given(measured(silent=frozenset(), hung=frozenset({7, 8}), drained=frozenset({8})))
@settings(max_examples=6, deadline=None)
def test_a_drained_broker_that_does_not_answer_is_emptied_all_the_same(model: Model) -> None:
    plan = planned(model, PlannerPolicy(only_brokers=frozenset({8})))
    assert plan is not None
    assert {row.key for row in plan.movements} == {
        (row.topic, row.partition) for row in model.cluster.partitions if 8 in row.replicas
    }
    assert not {7, 8} & {broker for row in plan.movements for broker in set(row.new_replicas) - set(row.old_replicas)}


@pytest.mark.long
@given(measured(silent=frozenset({7, 8}), drained=frozenset({8})))
@settings(max_examples=12, deadline=None)
def test_a_drained_broker_is_emptied_whatever_is_unknown(model: Model) -> None:
    plan = planned(model, PlannerPolicy(only_brokers=frozenset({8})))
    assert plan is not None
    held = {(row.topic, row.partition) for row in model.cluster.partitions if 8 in row.replicas}
    assert {row.key for row in plan.movements} == held
    for row in plan.movements:
        assert set(row.new_replicas) - set(row.old_replicas) <= set(BROKERS) - {8} - model.unreported


@pytest.mark.long
@given(measured(silent=frozenset()))
@settings(max_examples=3, deadline=None)
def test_where_all_is_known_nothing_is_narrowed(model: Model) -> None:
    assert (model.unknown, model.unreported) == (frozenset(), frozenset())
    assert all(abs(figure) < 1e-9 for figure in model.disagreement.values())
    plan = planned(model, PlannerPolicy())
    assert plan is not None
    assert not any("unknown" in line or "disagree" in line for line in plan.diagnosis)


loads = st.dictionaries(st.integers(1, 9), st.floats(0, 1e12), min_size=1)


@given(loads, loads, st.floats(0.001, 1000))
def test_a_factor_in_common_is_no_disagreement(
    reported: dict[int, float], led: dict[int, float], factor: float
) -> None:
    scaled = {broker: load * factor for broker, load in led.items()}
    one, other = (load_disagreement(reported, rows) for rows in (led, scaled))
    assert one.keys() == other.keys()
    assert all(abs(one[broker] - other[broker]) < 1e-6 for broker in one)


@given(loads, st.data())
def test_one_liar_is_seen_by_what_it_claims_too_much(reported: dict[int, float], data: st.DataObject) -> None:
    """Of n brokers one claims to lead the load of k mean brokers more than it does: the difference shows it."""
    even = dict.fromkeys(reported, 1e6)
    liar = data.draw(st.sampled_from(sorted(even)))
    more = data.draw(st.floats(0.1, 100))
    disagreement = load_disagreement(even, even | {liar: 1e6 * (1 + more)})
    count = len(even)
    assert min(disagreement, key=lambda broker: disagreement[broker]) == liar or count == 1
    assert abs(disagreement[liar] - (1 - count * (1 + more) / (count + more))) < 1e-9


def test_loads_are_compared_from_a_floor_on() -> None:
    assert load_disagreement({}, {}) == {}
    assert load_disagreement({1: 1e5, 2: 99_999.0}, {1: 1.0}) == {}
    assert load_disagreement({1: 1e5, 2: 1e5}, {1: 1e5, 2: 1e5}) == {1: 0.0, 2: 0.0}


def test_a_broker_of_which_no_partition_reports_leads_nothing() -> None:
    assert load_disagreement({1: 1e6, 2: 1e6}, {1: 1e6, 3: 1e6}) == {1: -1.0, 2: 1.0}
    assert load_disagreement({1: 1e6, 2: 1e6}, {}) == {1: 1.0, 2: 1.0}
    assert load_disagreement({1: 1e6, 2: 1e6}, {1: 0.25, 2: 0.25}) == {1: 0.0, 2: 0.0}


def test_each_broker_is_compared_over_the_windows_in_which_it_reports() -> None:
    """Broker 2 is silent in the first window, and in the second none of its partitions reports."""
    windows = tuple(
        ClosedWindow(start_ms, start_ms + 10, frozenset(), {}, reported)
        for start_ms, reported in ((0, {1: 1e6}), (10, {1: 3e6, 2: 2e6}))
    )
    assert mean_disagreement(windows, {0: {1: 1e6}, 10: {1: 3e6}}) == {1: -1.0, 2: 1.0}
    assert mean_disagreement(windows, {0: {1: 1e6}, 10: {1: 3e6, 2: 2e6}}) == {1: 0.0, 2: 0.0}


GONE = {("t", number): LivePartition((3,), NO_LEADER, ()) for number in (1, 2)}


@pytest.mark.parametrize("there", [True, False], ids=["holds others too", "holds nothing else"])
def test_partitions_without_a_leader_are_named_among_what_is_left_out(there: bool) -> None:
    """A broker that is gone, with the only replica of some partitions: nothing can be copied from anywhere."""
    led = LivePartition((1, 3) if there else (1, 2), 1, (1,))
    live = LiveCluster("c", {1: None, 2: None}, {("t", 0): led, **GONE})
    disk = (LogDirDescription("/d", 10**9, 10**9, {("t", 0): 1_000}),)
    model = build_model(
        live, {1: disk, 2: disk}, LeaderLoads({("t", 0): (MB, 0.0)}, {0: {1: MB}}),
        (ClosedWindow(0, 10, frozenset({1, 2}), {"bytes_in": {1: MB, 2: 0.0}}, {1: MB}),), cluster_name="c",
        capacities={}, disk_reserve=0.0, drained=frozenset(), now_ms=10, disagreement_max=0.2,
    )  # fmt: skip
    for drain in (frozenset({3}), frozenset[int]()):
        policy = PlannerPolicy(only_brokers=drain, drain=drain)
        plan = propose_on(model, live, policy, elapsed_s=lambda: 0.0).plan
        assert "2 partitions are offline, first t-1: left out, as there is no replica to copy from" in plan.diagnosis
