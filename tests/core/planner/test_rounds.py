"""The search: hard rules, no harm, empty second plans, equal bytes, budgets; compared with all placements."""

import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config

from assignor_core.model import Broker, BrokerState, ClusterState, Partition, PartitionLoad
from assignor_core.plan import apply_to
from assignor_core.planner import PlannerPolicy, round_trials
from assignor_core.planner.balance import balance
from assignor_core.planner.compiled import InstalledCacheLocator, compiled
from assignor_core.planner.failover import takeovers
from assignor_core.planner.policy import FailoverHeadroom
from assignor_core.planner.proposal import propose as planned
from assignor_core.planner.repair import repair
from assignor_core.planner.replica_rows import copies_more
from assignor_core.planner.round_task import changed_of, loads_of
from assignor_core.planner.rounds import Rounds
from assignor_core.planner.targets import above_lines, targets_of
from assignor_core.planner.tuning import TUNING, Turn
from tests.benchmarks.models import Kind, generate
from tests.core.planner.cases import (
    all_outcomes,
    are_reads_divided,
    case_of,
    cluster,
    clusters,
    founding,
    search_of,
    with_room,
)
from tests.core.planner.invariants import check_plan

ROUNDING = 1e-9
SPREAD = frozenset({"t0", "t1"})


@pytest.mark.long
@given(clusters(reads=True))
@settings(max_examples=20, deadline=None)
def test_no_load_ends_further_above_its_target_than_it_was(state: ClusterState) -> None:
    repaired, search = search_of(state), search_of(state)
    repair(repaired)
    if not search.problem.arrays.alive.any():
        return
    targets = targets_of(repaired.problem, repaired.placement)
    balance(search)
    above = above_lines(search.problem, search.placement.loads, targets)
    assert above <= max(TUNING.near, above_lines(search.problem, repaired.placement.loads, targets)) + ROUNDING


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_a_second_plan_is_empty(seed: int) -> None:
    state = generate(Kind(6 + 3 * seed, 300, replication_factor=2), seed)
    plan = planned(state)
    assert plan.movements
    assert planned(apply_to(state, plan)).movements == ()


@pytest.mark.long
@given(clusters(reads=True), st.sampled_from(("none", "broker", "rack")))
@settings(max_examples=30, deadline=None)
def test_what_follows_from_rows_stays_true_through_rounds(state: ClusterState, headroom: FailoverHeadroom) -> None:
    """Loads, copies and what each broker holds; leaders and replicas of topics; what brokers would take over."""
    policy = PlannerPolicy(spread_topics=SPREAD, leaders_min=((SPREAD, 1),), failover_headroom=headroom)
    search = search_of(with_room(state, 1.2), policy)
    if not len(search.placement.original) or not search.problem.arrays.alive.any():
        return
    case = case_of(search)
    task, rounds = case.task, Rounds(case, case.task, search.placement.replicas)
    assert (loads_of(task, search.placement.replicas) == search.placement.loads).all()
    for turn in TUNING.ramp:
        rounds.run(turn)
    kept, anew = rounds.state, Rounds(case, task, rounds.state.rows).state
    for name in ("loads", "held_count", "foreign", "topic_replicas", "topic_leaders", "inherited"):
        assert (getattr(kept, name) == getattr(anew, name)).all(), name
    assert kept.inflow == pytest.approx(anew.inflow)
    assert kept.totals == pytest.approx(anew.totals)
    assert kept.failover == pytest.approx(anew.failover, abs=ROUNDING)
    count = int(kept.totals[0])
    assert count == changed_of(task, kept.rows).sum()
    assert sorted(kept.changed[:count]) == sorted(anew.changed[:count])
    for broker, held in enumerate(kept.held_count.tolist()):
        assert sorted(kept.held[broker, :held]) == sorted(anew.held[broker, :held])
    # Of what a dead broker's rack reads the diagnosis says what others would serve, which the search does not count.
    dead_serve = (
        search.placement.in_racks is not None and not search.problem.arrays.alive[kept.rows[kept.rows >= 0]].all()
    )
    if len(task.zones) and not are_reads_divided(search) and not dead_serve:
        taken, table = takeovers(search.placement, kept.rows), np.zeros_like(anew.inherited)
        table[taken.broker, taken.zone] = taken.load
        assert (anew.inherited == table).all(), "the diagnosis has the figures of the search"


@pytest.mark.long
@given(st.data())
@settings(max_examples=10, deadline=None)
def test_no_placement_of_a_small_cluster_is_better(data: st.DataObject) -> None:
    """By distance above targets, then by cost: all placements of up to four partitions on three brokers."""
    figure = st.integers(1, 9).map(float)
    rows = [data.draw(st.sampled_from(tuple(permutations((1, 2, 3), 1 + number % 2)))) for number in range(4)]
    partitions = tuple(
        Partition("t", number, row, PartitionLoad(data.draw(figure), data.draw(figure), data.draw(figure)))
        for number, row in enumerate(rows)
    )
    search = search_of(ClusterState("few", 0, tuple(Broker(broker) for broker in (1, 2, 3)), partitions))
    case = case_of(search)
    best = min(outcome.key for outcome in all_outcomes(case))
    balance(search)
    above, cost = Rounds(case, case.task, search.placement.replicas).outcome().key
    assert above <= best[0] + 1e-3
    assert above < best[0] - ROUNDING or cost <= best[1] + TUNING.worth + TUNING.worth_share * case.start.cost


def test_what_leaves_home_is_one_copy_more_and_what_comes_home_one_less() -> None:
    """A partition of broker 1 of four: from home to elsewhere, between two others, and back."""
    search = search_of(cluster((1,), brokers=tuple(Broker(number) for number in (1, 2, 3, 4))))
    task = case_of(search).task
    moves = ((0, 1), (1, 2), (2, 0))
    assert [int(copies_more(task.original, 0, old, new)) for old, new in moves] == [1, 0, -1]


def test_two_brokers_exchange_leaderships() -> None:
    """Each leads what the other follows: 6 + 4 and 4 + 2 become 8 and 8 by one exchange, and by no single hand-over."""
    brokers = (Broker(1), Broker(2))
    loads = (6.0, 4.0, 4.0, 2.0)
    plan = planned(
        cluster((1, 2), (1, 2), (2, 1), (2, 1), brokers=brokers, loads=loads), PlannerPolicy(leaders_only=True)
    )
    assert plan.skew_after["leader_bytes_in"]["max_over_mean"] == pytest.approx(1.0)
    assert len(plan.movements) == 2


def test_a_broker_that_is_emptied_leaves_its_leaderships_to_several() -> None:
    """Broker 3 leads all. Broker 4 is empty and takes its replicas; what brokers 1 and 2 follow they may lead now."""
    brokers = (*map(Broker, (1, 2, 4)), Broker(3, state=BrokerState.DRAINING))
    state = cluster((3, 2), (3, 2), (3, 1), (3, 1), (3, 1), (3, 2), brokers=brokers)
    plan = planned(state, PlannerPolicy(rules_only=True))
    check_plan(state, PlannerPolicy(rules_only=True), plan)
    assert plan.bytes_to_move == 6 * 1000.0
    assert plan.skew_after["leader_bytes_in"]["max_over_mean"] == pytest.approx(1.0)


KIND, SEED = Kind(12, 600, replication_factor=2), 4


def ramped(state: ClusterState) -> Rounds:
    """Rounds after the ramp, of fewer trials than usual."""
    case = case_of(search_of(state))
    rounds = Rounds(case, case.guided_task, case.start.rows, 0.02)
    for turn in TUNING.ramp:
        rounds.run(turn)
    return rounds


@pytest.mark.long
def test_machine_code_does_what_the_python_code_says_to_the_bit() -> None:
    """Whatever the processor: so a plan is one on all machines."""
    by_machine = ramped(generate(KIND, SEED))
    program = (
        "from tests.core.planner.test_rounds import *\n"
        "assert not hasattr(round_trials.run_round, 'py_func')\n"
        "state = ramped(generate(KIND, SEED)).state\n"
        "print(state.rows.tolist(), state.loads.tolist(), state.cost.tolist())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    state = by_machine.state
    assert ran.stdout.strip() == f"{state.rows.tolist()} {state.loads.tolist()} {state.cost.tolist()}"
    assert (state.rows != by_machine.task.original).any()


@pytest.mark.long
def test_numba_compiles_once_for_all_models() -> None:
    """It would compile anew, for seconds, for arrays that are laid out otherwise or can't be written, and for whole
    numbers where a figure is meant.
    """
    for state in (generate(KIND, SEED), founding(), hourly(founding(), 24)):
        planned(state)
        planned(state, PlannerPolicy(bytes_max=300.0))
        ramped(state).run(Turn(1, 1, 0))
    for function in (round_trials.run_round, round_trials.price_loads):
        assert len(function.signatures) == 1  # type: ignore[union-attr]  # of numba's dispatcher


def hourly(state: ClusterState, hours: int) -> ClusterState:
    """`state` with so many windows, in each of which every partition has the rates that it has in `state`."""

    def column(figure: float | tuple[float, ...]) -> tuple[float, ...]:
        assert isinstance(figure, float)
        return (figure,) * hours

    partitions = tuple(
        replace(
            row,
            load=PartitionLoad(
                column(row.load.bytes_in_per_sec), column(row.load.bytes_out_per_sec), row.load.disk_bytes
            ),
        )
        for row in state.partitions
    )
    return replace(state, partitions=partitions)


def test_where_no_folder_can_be_written_machine_code_is_made_for_this_process_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config, "CACHE_LOCATOR_CLASSES", "IPythonCacheLocator")

    def twice(figure: int) -> int:
        return 2 * figure

    assert compiled(twice)(21) == 42


def test_an_installed_folder_that_can_only_be_read_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing there is compiled for this process."""
    monkeypatch.setattr(InstalledCacheLocator, "get_cache_path", lambda _: "/missing/installed")
    monkeypatch.setattr(InstalledCacheLocator, "ensure_cache_path", lambda _: None)

    def thrice(figure: int) -> int:
        return 3 * figure

    assert compiled(thrice)(14) == 42


@pytest.mark.parametrize("racks", [(None,) * 5, tuple("abcab")], ids=("no racks", "three racks"))
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_an_empty_broker_is_filled_though_loads_differ_a_little(seed: int, racks: tuple[str | None, ...]) -> None:
    """Sixteen partitions of about the same load, two replicas each, on four of five brokers."""
    draws = random.Random(seed)
    brokers = tuple(map(Broker, range(1, 6), racks))
    placed = [((1, 2), (2, 3), (3, 4), (4, 1))[number % 4] for number in range(16)]
    state = cluster(*placed, brokers=brokers, loads=tuple(draws.gauss(10.0, 0.5) for _ in placed))
    policy = PlannerPolicy().to_fill(frozenset({5}), 5)
    after = check_plan(state, policy, planned(state, policy))
    assert sum(5 in row.replicas for row in after.partitions) >= 5
