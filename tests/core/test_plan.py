"""Plans as data: identity, checks against the cluster, applying, and Kafka's own form."""

from dataclasses import replace

import pytest

from assignor_core.errors import InputError, PlanTampered
from assignor_core.model import Broker, BrokerState
from assignor_core.plan import (
    Movement,
    Plan,
    apply_to,
    plan_from_json,
    plan_from_reassignment,
    plan_to_json,
    reassignment_json,
    validate,
)
from assignor_core.planner import propose
from tests.core.planner.cases import cluster, founding

STATE = cluster((1, 2), (2, 3))
MOVE = Movement("t", 0, (1, 2), (3, 2), 1000.0, "because")
LEAD = Movement("t", 1, (2, 3), (3, 2), 0.0, "because")


def test_kind_tells_leadership_from_copying() -> None:
    assert (MOVE.kind, LEAD.kind) == ("replica", "leader")


def test_the_id_is_that_of_what_is_executed_and_of_nothing_else() -> None:
    plan = Plan("small", (MOVE,))
    assert Plan("small", (replace(MOVE, reason="other", gain=3.0),)).plan_id == plan.plan_id
    assert Plan("other", (MOVE,)).plan_id != plan.plan_id
    assert Plan("small", (replace(MOVE, new_replicas=(2, 3)),)).plan_id != plan.plan_id
    assert Plan("small", (MOVE, LEAD)).plan_id != Plan("small", (LEAD, MOVE)).plan_id


def test_applying_gives_the_new_replicas_and_leaves_the_rest() -> None:
    after = apply_to(STATE, Plan("small", (MOVE,)))
    assert [partition.replicas for partition in after.partitions] == [(3, 2), (2, 3)]


@pytest.mark.parametrize(
    ("movement", "problem"),
    [
        (replace(MOVE, topic="x"), "x-0: is not in the cluster"),
        (replace(MOVE, old_replicas=(2, 1)), r"t-0: has replicas \[1, 2\], planned for \[2, 1\]"),
        (replace(MOVE, new_replicas=(3,)), "replication factor would change from 2 to 1"),
        (replace(MOVE, new_replicas=(3, 3)), "name a broker twice"),
        (replace(MOVE, new_replicas=(9, 2)), "unknown broker 9"),
    ],
)
def test_a_plan_that_does_not_fit_is_not_applied(movement: Movement, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        apply_to(STATE, Plan("small", (movement,)))


def test_a_plan_for_another_cluster_or_with_a_partition_twice_is_invalid() -> None:
    assert "cluster 'other'" in validate(Plan("other", ()), STATE)[0]
    assert validate(Plan("small", (MOVE, MOVE)), STATE)[0] == "t-0: planned 2 times"


def test_nothing_new_goes_to_a_broker_that_is_not_alive() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=BrokerState.DRAINING), Broker(4))
    assert "is draining" in validate(Plan("small", (MOVE,)), replace(STATE, brokers=brokers))[0]


def test_a_plan_reads_back_equal_and_a_tampered_one_is_refused() -> None:
    plan = propose(founding())
    written = plan_to_json(plan)
    assert plan_from_json(written) == plan
    written["movements"][0]["new_replicas"] = [1]
    with pytest.raises(PlanTampered, match="hashes to"):
        plan_from_json(written)


def test_a_tampered_reassignment_is_refused_too() -> None:
    written = plan_to_json(Plan("small", (MOVE,)))
    written["reassignment"]["partitions"][0]["replicas"] = [4, 2]
    with pytest.raises(PlanTampered, match="reassignment"):
        plan_from_json(written)


@pytest.mark.parametrize("bad", [None, [], {}, {"movements": 3}])
def test_what_is_no_plan_is_an_input_error(bad: object) -> None:
    with pytest.raises(InputError, match="plan"):
        plan_from_json(bad)


def test_kafkas_own_form_goes_out_leader_first_and_comes_back() -> None:
    plan = Plan("small", (MOVE, LEAD))
    form = reassignment_json(plan)
    assert form["partitions"][0] == {"topic": "t", "partition": 0, "replicas": [3, 2]}
    assert plan_from_reassignment(form, STATE).plan_id == plan.plan_id
    assert plan_from_reassignment(form, STATE).bytes_to_move == 1000.0
    with pytest.raises(InputError, match="x-0, not in the cluster"):
        plan_from_reassignment({"partitions": [{"topic": "x", "partition": 0, "replicas": [1]}]}, STATE)
