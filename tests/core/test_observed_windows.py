"""What a decision observes: windows and their skew, their noise, brokers that count, partitions that lag."""

import pytest

from assignor_core.deciding.gates import obstacle
from assignor_core.deciding.observation import Observation, brokers_counted, missing_brokers
from assignor_core.deciding.policy import DecisionPolicy, TriggerPolicy
from assignor_core.deciding.state import LAGGING_KEPT_MAX, TriggerState, with_lagging
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from assignor_core.load_history.windows import (
    ClosedWindow,
    SkewWindow,
    load_noise,
    skew_figures,
    skew_window,
    without_catch_up,
)
from assignor_core.model import Capacity
from assignor_core.resources import Resource
from tests.core.states import lagging_since, remembered

WINDOW = ClosedWindow(
    60_000,
    120_000,
    frozenset({1, 2, 3}),
    {"bytes_in": {1: 30.0, 2: 10.0, 9: 80.0}, "bytes_out": {3: 5.0}, "disk": {9: 1.0}},
)
BOTH = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.DISK)


def at(*replicas: int, leader: int | None = None) -> LivePartition:
    return LivePartition(replicas, replicas[0] if leader is None else leader, replicas)


def test_only_brokers_that_count_make_the_skew_of_a_window() -> None:
    skew = skew_window(WINDOW, BOTH, {}, {1, 2, 3})
    assert skew == SkewWindow(
        120_000,
        {"bytes_in": {1: 1.5, 2: 0.5}, "bytes_out": {3: 1.0}},
        {"bytes_in": 20.0, "bytes_out": 5.0},
        3,
        2,
        60_000,
    )
    # With twice the capacity the first one has a little over the mean utilisation.
    uneven = {1: Capacity(bytes_in_per_sec=20.0), 2: Capacity(bytes_in_per_sec=10.0)}
    assert skew_window(WINDOW, BOTH[:1], uneven, {1, 2}).ratios["bytes_in"] == pytest.approx({1: 1.125, 2: 0.75})
    assert skew_window(WINDOW, BOTH[:1], uneven, {1, 2, 3}).ratios["bytes_in"] == {1: 1.5, 2: 0.5}


def test_the_row_of_a_decision_has_all_figures_of_known_loads() -> None:
    assert skew_figures(WINDOW, {}, {1, 2}) == {
        "bytes_in": {"max_over_mean": 1.5, "coefficient_of_variation": 0.5, "deviation": {"1": 0.5, "2": -0.5}}
    }


def test_consumers_that_catch_up_never_read_more_than_all() -> None:
    window = ClosedWindow(0, 10, frozenset({1}), {"bytes_out": {1: 50.0, 2: 20.0}, "disk": {1: 3.0}})
    lasting = without_catch_up(window, {1: 60.0})
    assert lasting.loads == {"bytes_out": {1: 0.0, 2: 20.0}, "disk": {1: 3.0}}


def test_noise_is_that_of_brokers_with_a_load_in_both_windows() -> None:
    def noise(*rows: dict[int, float]) -> float:
        return load_noise([SkewWindow(10, {"bytes_in": row}, {}, 3, 3) for row in rows], "bytes_in")

    steady = {1: 1.0, 2: 1.0}
    assert noise(steady) == noise() == 0.0
    assert noise({1: 0.0, 2: 1.0}, steady) == noise(steady, {1: 0.0, 2: 1.0}) == 0.0
    assert noise({1: 3.0, 2: 1.0}, {2: 1.0}) == noise({2: 1.0}, {1: 3.0, 2: 1.0}) == 0.0
    assert noise({1: 0.9}, {1: 1.1}) == noise({1: 1.1}, {1: 0.9}) == pytest.approx(1.4826 * 0.2)
    assert load_noise([SkewWindow(10, {}, {}, 3, 3)] * 2, "disk") == 0.0


def test_brokers_that_count_are_alive_and_stay() -> None:
    live = LiveCluster(
        "c", dict.fromkeys((1, 2, 3)), {("t", 0): at(1, 4), ("t", 1): at(5, leader=NO_LEADER), ("t", 2): at(2, 6, 7)}
    )
    observed = Observation.of(live, (WINDOW,), DecisionPolicy(), drained=frozenset({3}), changed_ms=7, now_ms=130_000)
    assert observed.counted == brokers_counted(live, frozenset({3})) == {1, 2}
    assert observed.missing_brokers == missing_brokers(live) == {4, 6, 7}
    assert (observed.now_ms, observed.changed_ms, observed.skews[0].brokers_expected) == (130_000, 7, 2)
    assert Observation(0, live, (WINDOW,), ()).changed_ms == 0


def lagging_cluster(count: int) -> LiveCluster:
    rows = {("t", number): LivePartition((1, 2), 1, (1,)) for number in range(count)}
    return LiveCluster("c", {1: None, 2: None}, rows)


def test_partitions_are_known_to_lag_since_they_were_first_seen_to() -> None:
    policy, two = TriggerPolicy(), lagging_cluster(2)
    state = with_lagging(policy, remembered(lagging_since_ms=(("t", 1, 500), ("t", 7, 500))), two, 1_000)
    assert lagging_since(state) == (("t", 0, 1_000), ("t", 1, 500))
    assert lagging_since(with_lagging(policy, state, lagging_cluster(0), 2_000)) == ()
    # After a gap without evaluations nobody knows whether they lagged all the time.
    late_ms = policy.stale_after_ms + 1
    assert lagging_since(with_lagging(policy, state, two, late_ms)) == (("t", 0, late_ms), ("t", 1, late_ms))


def test_of_many_that_lag_those_behind_longest_are_kept() -> None:
    assert LAGGING_KEPT_MAX == 100
    before = remembered(lagging_since_ms=(("t", 150, 500), ("t", 149, 600)))
    state = with_lagging(TriggerPolicy(), before, lagging_cluster(151), 1_000)
    assert len(lagging_since(state)) == 100
    assert lagging_since(state)[-3:] == (("t", 97, 1_000), ("t", 149, 600), ("t", 150, 500))


def test_an_obstacle_is_named_with_its_first_partition_and_time() -> None:
    offline = {("t", number): at(3, leader=NO_LEADER) for number in (2, 1)}
    live = LiveCluster("c", {1: None, 2: None}, offline)
    assert obstacle(TriggerState(), live, 0, relieves=False) == "2 partitions are offline, first t-1"
    assert obstacle(TriggerState(), live, 0, relieves=True) is None
    state = remembered(lagging_since_ms=(("t", 0, 1_000), ("u", 0, 0), ("v", 0, 3_000)))
    found = obstacle(state, lagging_cluster(1), 3_000, relieves=False)
    assert found == "2 partitions are under-replicated, first u-0, for 0.1 min"
    assert obstacle(remembered(lagging_since_ms=(("t", 0, 5),)), lagging_cluster(1), 5, relieves=False) is None
