"""Replays of recorded hours: what must hold whatever the history."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.deciding.policy import DecisionPolicy, TriggerPolicy
from assignor_core.errors import InputError
from assignor_core.execution.reconcile import Limits
from assignor_core.maintenance import window_of
from assignor_core.replays.copying import Pace
from assignor_core.replays.history import HOUR_MS, RecordedHistory
from assignor_core.replays.placed_cluster import Planning, ReplayedHours, replay
from assignor_core.resources import Resource
from assignor_core.what_if.changes import Changes, changed
from assignor_core.what_if.outlook import bounds
from assignor_core.what_if.predictions import predicted_outlook
from tests.core.replays.histories import MB, SIZE_BYTES, START_MS, history, skewed

pytestmark = pytest.mark.long

POLICY = DecisionPolicy(resources=(Resource.BYTES_IN,))
PACE = Pace(50 * MB)
FIVE_MIN_MS = 300_000
"""Windows so long that a replay has few."""


def run(
    recorded: RecordedHistory, changes: Changes | None = None, policy: DecisionPolicy = POLICY, **options: Any
) -> ReplayedHours:
    assumed, away = changed(recorded, changes or Changes())
    return replay(assumed, policy, pace=options.pop("pace", PACE), away=away, **options)


@cache
def of_skewed() -> ReplayedHours:
    """The replay of `skewed()` without a change, made once for all tests: they only read it."""
    return run(skewed())


def same(one: ReplayedHours, other: ReplayedHours) -> bool:
    return one.plans == other.plans and all(
        np.array_equal(values, other.max_over_mean[name]) for name, values in one.max_over_mean.items()
    )


def test_a_skew_is_mended_by_a_plan_that_copies_at_the_throttle() -> None:
    result = of_skewed()
    assert [(plan.reason, plan.movements) for plan in result.plans] == [("skewed", 2)]
    plan = result.plans[0]
    assert result.copied_bytes == plan.bytes_to_move == 2 * SIZE_BYTES
    # Both leave broker 1, whose throttle they share, while producers write 1 MB/s to each.
    seconds = 2 * SIZE_BYTES / (50 * MB)
    assert plan.duration_ms == pytest.approx(seconds * 1000, rel=0.1)
    assert result.max_over_mean["bytes_in"][0] > 1.01
    assert result.max_over_mean["bytes_in"][-1] == pytest.approx(1.0)
    assert result.even_after_ms == result.windows_in_skew * 60_000
    assert 0 < result.even_after_ms < HOUR_MS


def test_nothing_moves_where_nothing_is_skewed() -> None:
    result = run(history([(1,), (2,), (3,)]))
    assert (result.plans, result.windows_in_skew, result.even_after_ms) == ((), 0, 0)


def test_without_a_change_a_what_if_is_the_replay_of_what_was_recorded() -> None:
    assert same(of_skewed(), replay(skewed(), POLICY, pace=PACE))


def test_a_broker_that_is_added_gets_its_share() -> None:
    result = run(history([(1, 2), (2, 1)] * 10), Changes(add_brokers=1))
    assert {plan.reason for plan in result.plans} <= {"skewed", "empty_broker"}
    held = [broker for replicas in result.final_replicas for broker in replicas]
    assert held.count(3) >= 12
    assert result.max_over_mean["bytes_in"][-1] < 1.1


def test_no_broker_is_added_to_a_rack_that_is_down() -> None:
    """All of its brokers are away: one that is up there would get replicas that lie in no such rack."""
    assumed, away = changed(history([(1, 2, 3)], racks="abc"), Changes(add_brokers=3, racks_down=frozenset("b")))
    assert [row.rack for row in assumed.brokers if row.broker_id not in away] == ["a", "c", "a", "c", "a"]


def test_replicas_of_a_rack_that_is_down_are_made_anew_after_the_grace_time() -> None:
    recorded = history([(1, 3), (2, 4), (3, 2), (4, 1)], racks="aabbcc", brokers=6)
    result = run(recorded, Changes(racks_down=frozenset("b")))
    assert result.offline_count == 0
    assert [plan.reason for plan in result.plans][:1] == ["broker_failed"]
    assert not {3, 4} & {broker for replicas in result.final_replicas for broker in replicas}
    assert np.isnan(result.broker_load["bytes_in"][:, 2:4]).all()


def test_partitions_whose_only_broker_is_away_are_offline_and_carry_nothing() -> None:
    result = run(history([(1,), (2,), (3,)]), Changes(brokers_down=frozenset({3})))
    assert result.offline_count == 1
    assert np.nansum(result.broker_load["bytes_in"][-1]) == pytest.approx(2 * MB)


def test_a_plan_waits_for_its_maintenance_hours() -> None:
    hour = (START_MS // HOUR_MS + 3) % 24
    policy = replace(POLICY, maintenance=(window_of(f"Mon-Sun {hour:02}:00-{(hour + 1) % 24:02}:00"),))
    result = run(skewed(), policy=policy)
    assert result.plans[0].begun_ms >= START_MS + 3 * HOUR_MS
    assert result.holds["maintenance_window"] > 60


def test_a_duration_is_without_pauses_and_without_hours_that_nobody_recorded() -> None:
    """Executions are measured so: a prediction would be off by the nights between."""
    one_by_one = Pace(4 * MB, limits=Limits(movements_in_flight_max=1))
    night = replace(POLICY, maintenance=(window_of("14:00-15:00"),))
    recorded = history([(1,)] * 12 + [(2,)] * 6 + [(3,)] * 6, hours=60)
    starts = recorded.hour_start_ms
    with_gap = replace(recorded, hour_start_ms=(starts[0], *(at + 48 * HOUR_MS for at in starts[1:])))
    at_once, paused, gap = (
        run(assumed, policy=policy, pace=one_by_one, window_ms=FIVE_MIN_MS)
        for assumed, policy in ((recorded, POLICY), (recorded, night), (with_gap, POLICY))
    )
    [plan] = at_once.plans
    assert plan.duration_ms is not None
    assert plan.ended_ms == plan.begun_ms + plan.duration_ms
    for result, longer_ms in ((paused, 23 * HOUR_MS), (gap, 48 * HOUR_MS)):
        [other] = result.plans
        assert other.duration_ms == pytest.approx(plan.duration_ms, rel=0.02)
        assert other.ended_ms is not None
        assert other.ended_ms - other.begun_ms > longer_ms - HOUR_MS
        assert predicted_outlook(result, ()).duration_ms == other.duration_ms


def test_a_plan_that_waits_is_carried_out_though_another_one_gained_nothing_meanwhile() -> None:
    alone = history([(1,)] * 6 + [(2,)] * 3 + [(3,)] * 3 + [(4,)], bytes_in=[1.0] * 12 + [3.0], hours=16)
    rates = alone.rates.copy()
    rates[3:6, 12] = 30 * MB  # on a broker of its own: no plan helps
    night = replace(POLICY, maintenance=(window_of("22:00-23:00"),))
    result = run(replace(alone, rates=rates), policy=night, planning=Planning(days=0), window_ms=FIVE_MIN_MS)
    assert result.holds["min_gain"] > 0
    assert [(plan.begun_ms - START_MS, plan.movements) for plan in result.plans] == [(14 * HOUR_MS, 2)]
    assert "made 13." in result.plans[0].detail


def test_a_budget_of_bytes_holds_plans_back() -> None:
    result = run(skewed(), policy=replace(POLICY, bytes_per_day_max=round(SIZE_BYTES)))
    assert result.copied_bytes <= SIZE_BYTES
    assert result.max_over_mean["bytes_in"][-1] > 1.1


def test_an_execution_that_its_deadline_ends_keeps_what_is_done() -> None:
    limits = Limits(deadline_ms=180_000, movements_per_broker_max=1)
    result = run(skewed(), pace=Pace(50 * MB, limits=limits))
    first = result.plans[0]
    assert first.given_up
    assert first.copied_bytes == SIZE_BYTES
    assert of_skewed().plans[0].given_up is False


@pytest.mark.long
def test_a_burst_of_each_night_is_known_after_some_days() -> None:
    recorded = history([(1,), (2,), (3,)] * 4, hours=5 * 24)
    factors = np.ones((5 * 24, 12, 3))
    factors[2::24, 2:7, 0] = 2.5
    nights = replace(recorded, wander={Resource.BYTES_IN: factors})
    assert run(nights, window_ms=FIVE_MIN_MS).holds.get("recurring", 0) > 0


def test_another_policy_makes_other_plans() -> None:
    patient = replace(POLICY, trigger=TriggerPolicy(enter_ratio=1.6))
    assert run(skewed(), policy=patient).plans == ()


@settings(max_examples=8, deadline=None)
@given(
    placed=st.lists(st.permutations([1, 2, 3, 4]).map(lambda row: tuple(row[:2])), min_size=4, max_size=16),
    rates=st.lists(st.integers(1, 9), min_size=16, max_size=16),
    added=st.integers(0, 2),
)
def test_what_holds_of_every_replay(placed: list[tuple[int, ...]], rates: list[int], added: int) -> None:
    recorded = history(placed, hours=2, bytes_in=[float(rate) for rate in rates[: len(placed)]], brokers=4)
    result = run(recorded, Changes(add_brokers=added), window_ms=FIVE_MIN_MS)
    # Bytes copied are those of the plans that ended; what had no time left copied at most its plan.
    assert result.copied_bytes <= sum(plan.bytes_to_move for plan in result.plans)
    ended = [plan for plan in result.plans if plan.ended_ms is not None and not plan.given_up]
    assert sum(plan.copied_bytes for plan in ended) == pytest.approx(sum(plan.bytes_to_move for plan in ended))
    # Nothing is lost on the way: what clients write arrives at each replica, wherever it lies.
    written = 2 * recorded.total_bytes_in[-1]
    assert np.nansum(result.broker_load["bytes_in"][-1]) == pytest.approx(written)
    assert all(len(set(replicas)) == 2 for replicas in result.final_replicas)
    assert (result.max_over_mean["bytes_in"] >= 1.0 - 1e-9).all()


@settings(max_examples=8, deadline=None)
@given(rates=st.lists(st.integers(1, 9), min_size=6, max_size=12), added=st.integers(1, 3))
def test_a_broker_added_never_raises_what_the_most_loaded_one_must_carry(rates: list[int], added: int) -> None:
    placed = [(1 + number % 3, 1 + (number + 1) % 3) for number in range(len(rates))]
    recorded = history(placed, hours=1, bytes_in=[float(rate) for rate in rates])
    before = bounds(recorded, run(recorded, window_ms=FIVE_MIN_MS), frozenset())
    assumed, _ = changed(recorded, Changes(add_brokers=added))
    after = bounds(assumed, replay(assumed, POLICY, pace=PACE, window_ms=FIVE_MIN_MS), frozenset())
    for one, other in zip(before, after, strict=True):
        assert other.load <= one.load * (1 + 1e-9)


def test_plans_may_rest_on_the_newest_windows_alone() -> None:
    assert run(skewed(), planning=Planning(days=0)).plans[0].movements == 2


def test_traffic_that_doubles_doubles_loads_and_no_ratio() -> None:
    once, twice = of_skewed(), run(skewed(), Changes(traffic=2.0))
    assert np.nansum(twice.broker_load["bytes_in"][0]) == pytest.approx(2 * np.nansum(once.broker_load["bytes_in"][0]))
    assert twice.max_over_mean["bytes_in"][-1] == pytest.approx(once.max_over_mean["bytes_in"][-1])


def test_a_topic_that_grows_has_its_traffic_on_all_its_partitions() -> None:
    recorded = history([(1,), (2,)], bytes_in=[9.0, 1.0])
    assumed, _ = changed(recorded, Changes(grow={"t": 4}))
    assert assumed.partitions == (("t", 0), ("t", 1), ("t", 2), ("t", 3))
    assert assumed.rates[0, :, 0].tolist() == [2.5 * MB] * 4
    assert assumed.size_bytes.tolist() == [SIZE_BYTES, SIZE_BYTES, 0.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(drop_topics=frozenset({"tt"})), "--drop-topic: there is no topic 'tt'; did you mean 't'?"),
        (Changes(drop_topics=frozenset({"t"})), "--drop-topic: no topic would be left, at least one is needed"),
        (Changes(grow={"t": 2}), "--grow t: found 2, allowed is more than its 3 to 50000"),
        (Changes(racks_down=frozenset({"z"})), "--rack-down: there is no rack 'z', allowed are a, b, c"),
        (Changes(racks_down=frozenset("abc")), "what-if: no broker would be left, at least one is needed"),
        (Changes(brokers_down=frozenset({9})), "--broker-down: there is no broker 9, allowed are 1, 2, 3"),
        (
            Changes(drain=frozenset({1, 2}), brokers_down=frozenset({3})),
            "--drain: no broker would be left that takes replicas, at least one is needed",
        ),
        (Changes(traffic=0.0), "--traffic: found 0, allowed is above 0 to 1000"),
        (Changes(add_brokers=5000), "--add-brokers: found 5000, allowed is 0 to 1000"),
    ],
)
def test_what_does_not_exist_is_refused_in_one_line(changes: Changes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        changed(history([(1,), (2,), (3,)], racks="abc"), changes)
    assert str(refused.value) == message
