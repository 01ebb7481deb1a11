"""What plans cost: time at a throttle, and bytes by broker and wave."""

from collections.abc import Iterator

import pytest

from assignor_core.model import Broker, BrokerState
from assignor_core.plan import Movement, Plan, Wave
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.price import Copied, copied_by_broker, plan_duration_ms, schedule
from assignor_core.proposed_plan import Observed, ProposedPlan
from tests.core.planner.cases import cluster, founding

THROTTLE = 10.0


def test_who_only_gets_another_leader_copies_nothing() -> None:
    assert copied_by_broker([Movement("t", 0, (1, 2), (2, 1), 500.0)]) == {}
    assert Copied() == Copied(0.0, 0.0)


@pytest.mark.long
def test_a_wave_takes_as_long_as_the_broker_that_receives_or_sends_most() -> None:
    plan = propose(founding(), PlannerPolicy(throttle_bytes_per_sec=THROTTLE))
    copied = copied_by_broker(plan.movements)
    sent, received = (max(getattr(row, name) for row in copied.values()) for name in ("sent_bytes", "received_bytes"))
    assert sent > received, "broker 1 sheds to both others"
    (wave,) = plan.waves
    assert wave.duration_ms == pytest.approx(sent / THROTTLE * 1000)
    assert plan_duration_ms(plan) == wave.duration_ms
    assert sum(row.received_bytes for row in copied.values()) == pytest.approx(plan.bytes_to_move)
    assert sum(row.sent_bytes for row in copied.values()) == pytest.approx(plan.bytes_to_move)


def test_waves_begin_one_after_the_other_and_show_what_each_broker_copies() -> None:
    movements = (
        Movement("t", 0, (1,), (2,), 100.0),
        Movement("t", 1, (1, 2), (3, 4), 60.0, wave=1),
        Movement("t", 2, (2, 1), (1, 2), 0.0, wave=1),
    )
    plan = Plan("c", movements, waves=(Wave(1, 100.0, 10_000.0), Wave(2, 60.0, 6_000.0)))
    first, second = schedule(plan)
    assert (first["starts_after_ms"], second["starts_after_ms"], second["duration_ms"]) == (0.0, 10_000.0, 6_000.0)
    assert first["brokers"] == [
        {"broker": 1, "received_bytes": 0.0, "sent_bytes": 100.0},
        {"broker": 2, "received_bytes": 100.0, "sent_bytes": 0.0},
    ]
    assert [row["broker"] for row in second["brokers"]] == [1, 3, 4], "a change of leader copies nothing"
    assert plan_duration_ms(plan) == 16_000.0


def test_a_dead_broker_sends_nothing() -> None:
    """What it led is sent by the brokers that Kafka elects in its place, at the same time."""
    movements = [Movement("t", 0, (1, 2), (3, 2), 60.0), Movement("t", 1, (1, 3), (2, 3), 60.0)]
    copied = copied_by_broker(movements, {1})
    assert copied == {2: Copied(60.0, 60.0), 3: Copied(60.0, 60.0)}
    brokers = (Broker(1, state=BrokerState.DEAD), Broker(2), Broker(3), Broker(4))
    model = cluster(*[(1, 2 + number % 2) for number in range(12)], brokers=brokers)
    plan = propose(model, PlannerPolicy(throttle_bytes_per_sec=THROTTLE))
    assert plan.bytes_to_move
    for wave, row in zip(plan.waves, schedule(plan, {1}), strict=True):
        most = max(max(one["received_bytes"], one["sent_bytes"]) for one in row["brokers"])
        assert wave.duration_ms == pytest.approx(most / THROTTLE * 1000)
        assert 1 not in [one["broker"] for one in row["brokers"]]
    observed = Observed({}, {}, brokers_missing=frozenset({1}))
    assert ProposedPlan(plan, observed).to_json()["schedule"] == schedule(plan, {1})


@pytest.mark.long
def test_without_a_throttle_no_time_is_known() -> None:
    plan = propose(founding())
    assert plan_duration_ms(plan) is None
    assert [(row["starts_after_ms"], row["duration_ms"]) for row in schedule(plan)] == [(None, None)]


@pytest.mark.long
def test_the_price_stands_in_the_plan() -> None:
    plan = propose(founding(), PlannerPolicy(throttle_bytes_per_sec=1e6))
    content = ProposedPlan(plan).to_json()
    assert content["duration_ms"] == plan_duration_ms(plan)
    assert content["schedule"] == schedule(plan)


class Walked(tuple[Movement, ...]):
    """Movements that count how often they are walked through."""

    walks = 0

    def __iter__(self) -> Iterator[Movement]:
        type(self).walks += 1
        return super().__iter__()


def test_the_schedule_of_many_waves_walks_through_the_movements_once() -> None:
    movements = Walked(Movement("t", number, (1,), (2,), 100.0, wave=number) for number in range(50))
    plan = Plan("c", movements, waves=(Wave(1, 100.0, 10_000.0),) * 50)
    Walked.walks = 0
    assert len(schedule(plan)) == 50
    assert Walked.walks == 1
