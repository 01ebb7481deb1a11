"""Plans as data: identity, checks against the cluster, applying, and Kafka's own form."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assignor_core.errors import InputError, PlanTampered
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.model import Broker, BrokerState
from assignor_core.plan import (
    Movement,
    Observed,
    Plan,
    Wave,
    apply_to,
    plan_from_json,
    plan_to_json,
    validate,
)
from assignor_core.planner import propose
from tests.core.planner.cases import cluster, founding

STATE = cluster((1, 2), (2, 3))
MOVE = Movement("t", 0, (1, 2), (3, 2), 1000.0, "because")
LEAD = Movement("t", 1, (2, 3), (3, 2), 0.0, "because")


def test_the_id_is_that_of_what_is_executed_and_of_nothing_else() -> None:
    plan = Plan("small", (MOVE,))
    assert Plan("small", (replace(MOVE, reason="other", gain=3.0),)).plan_id == plan.plan_id
    assert Plan("other", (MOVE,)).plan_id != plan.plan_id
    assert Plan("small", (replace(MOVE, new_replicas=(2, 3)),)).plan_id != plan.plan_id
    assert Plan("small", (MOVE, LEAD)).plan_id != Plan("small", (LEAD, MOVE)).plan_id


def test_the_id_covers_whatever_is_checked_before_or_after() -> None:
    plan, within = Plan("small", (MOVE,)), LogDirMovement(1, "t", 0, "/a", "/b", 5.0)
    others = [
        Plan("small", (replace(MOVE, wave=1),)),
        Plan("small", (replace(MOVE, bytes_to_move=999.0),)),
        replace(plan, observed=Observed({}, {})),
        replace(plan, observed=Observed({("t", 0): 1}, {"t": 2})),
        replace(plan, observed=Observed({("t", 0): 1}, {"t": 2}, topic_ids={"t": "id"})),
        replace(plan, skew_before={"bytes_in": {"max_over_mean": 2.0}}),
        replace(plan, skew_after={"bytes_in": {"max_over_mean": 2.0}}),
        Plan("small", (), log_dir_movements=(within,)),
        Plan("small", (), log_dir_movements=(replace(within, bytes_to_move=6.0),)),
    ]
    beginnings = {row.plan_id[:12] for row in (plan, *others)}
    assert len(beginnings) == len(others) + 1
    assert len(plan.plan_id) == 64
    assert Plan("small", (replace(MOVE, bytes_to_move=1000),)).plan_id == plan.plan_id


def test_ids_of_plans_stay_as_they_are() -> None:
    """Plans are approved by their id, and kept with it: another form of the same content is another plan."""
    form_1 = "84bb8253770b482715b91fdbcd15b436f040ff3deede31e3199ac1cb6c70882b"
    assert Plan("small", (MOVE,), hash_version=1).plan_id == form_1
    assert Plan("small", (MOVE,)).plan_id == "a00025ba53d915523da1dbda48fbda43" + form_1[-32:]
    given: dict[str, Any] = {"plan_id": "mine"}
    with pytest.raises(TypeError):
        Plan("small", (MOVE,), **given)


def test_a_plan_knows_what_it_touches() -> None:
    plan = Plan("small", (MOVE, LEAD))
    assert (plan.brokers, plan.bytes_to_move, plan.feasible) == (frozenset({1, 2, 3}), 1000.0, True)
    assert [row.kind for row in plan.movements] == ["replica", "leader"]
    assert [partition.replicas for partition in apply_to(STATE, plan).partitions] == [(3, 2), (3, 2)]


@pytest.mark.parametrize(
    ("movement", "problem"),
    [
        (replace(MOVE, topic="x"), "x-0: is not in the cluster"),
        (replace(MOVE, old_replicas=(2, 1)), r"t-0: has replicas \[1, 2\], planned for \[2, 1\]"),
        (replace(MOVE, new_replicas=()), "would have no replicas"),
        (replace(MOVE, new_replicas=(3, 3)), r"new replicas \[3, 3\] name a broker twice"),
        (replace(MOVE, new_replicas=(9, 2)), "unknown broker 9"),
    ],
)
def test_a_plan_that_does_not_fit_is_not_applied(movement: Movement, problem: str) -> None:
    with pytest.raises(InputError, match=f"^plan [0-9a-f]{{12}} does not fit the cluster: .*{problem}"):
        apply_to(STATE, Plan("small", (movement,)))


def test_a_plan_for_another_cluster_or_with_a_partition_twice_is_invalid() -> None:
    assert validate(Plan("other", ()), STATE) == ["plan is for cluster 'other', found cluster 'small'"]
    assert validate(Plan("small", (MOVE, MOVE)), STATE)[0] == "t-0: planned 2 times"


def test_nothing_new_goes_to_a_broker_that_is_not_alive() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=BrokerState.DRAINING), Broker(4))
    draining = replace(STATE, brokers=brokers)
    assert validate(Plan("small", (MOVE,)), draining) == ["t-0: new replica on broker 3, which is draining"]
    # What is there may stay, and lead.
    assert validate(Plan("small", (LEAD,)), draining) == []


@pytest.mark.long
def test_a_plan_reads_back_equal_and_a_tampered_one_is_refused() -> None:
    plan = propose(founding())
    written = plan_to_json(plan)
    assert plan_from_json(written) == plan
    written["movements"][0]["new_replicas"] = [1]
    changed = replace(plan, movements=(replace(plan.movements[0], new_replicas=(1,)), *plan.movements[1:]))
    with pytest.raises(PlanTampered, match=f"found '{plan.plan_id}', but the content hashes to '{changed.plan_id}'"):
        plan_from_json(written)
    written = plan_to_json(plan)
    written["reassignment"]["partitions"][0]["replicas"] = [4, 2]
    with pytest.raises(PlanTampered, match=r"^plan [0-9a-f]{12}: its reassignment"):
        plan_from_json(written)


@pytest.mark.long
def test_a_plan_of_an_earlier_version_is_read() -> None:
    plan = propose(founding())
    written = plan_to_json(plan)
    for movement in written["movements"]:
        del movement["gain"], movement["wave"]
    del written["loads_before"], written["loads_after"], written["cheaper"]
    read = plan_from_json({**written, "hash_version": 1, "plan_id": replace(plan, hash_version=1).plan_id})
    assert [row.new_replicas for row in read.movements] == [row.new_replicas for row in plan.movements]
    assert {(row.gain, row.wave) for row in read.movements} == {(0.0, 0)}
    assert read.cheaper == ()
    assert "loads_before" not in plan_to_json(read)


def test_the_form_of_a_plan_is_that_of_the_contract() -> None:
    figures = {"bytes_in": {"max_over_mean": 1.5, "coefficient_of_variation": 0.3}}
    after = {"bytes_in": {"max_over_mean": 1.25, "coefficient_of_variation": 0.1}}
    movement = replace(MOVE, gain=0.5, wave=1)
    plan = Plan("small", (movement,), figures, after, {"bytes_in": 1.0}, ("hot",), ("full",), (Wave(1, 1000.0, 5.0),))
    assert plan_to_json(plan) == {
        "plan_id": plan.plan_id,
        "hash_version": 2,
        "cluster_id": "small",
        "movements": [
            {
                "topic": "t",
                "partition": 0,
                "kind": "replica",
                "old_replicas": [1, 2],
                "new_replicas": [3, 2],
                "bytes_to_move": 1000.0,
                "reason": "because",
                "gain": 0.5,
                "wave": 1,
            }
        ],
        "skew_before": figures,
        "skew_after": after,
        "lower_bound": {"bytes_in": 1.0},
        "gap": {"bytes_in": 0.25},
        "bytes_to_move": 1000.0,
        "feasible": False,
        "problems": ["full"],
        "diagnosis": ["hot"],
        "waves": [{"movements": 1, "bytes_to_move": 1000.0, "duration_ms": 5.0}],
        "cheaper": [],
        "reassignment": {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 2]}]},
    }
    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.parametrize(
    ("bad", "named"),
    [(None, "found NoneType"), ([], "found list"), ({}, "'cluster_id'"), ({"cluster_id": "c"}, "'movements'")],
)
def test_what_is_no_plan_is_an_input_error(bad: object, named: str) -> None:
    with pytest.raises(InputError, match=f"^plan: .*{named}"):
        plan_from_json(bad)


def within_brokers() -> Plan:
    movements = (LogDirMovement(1, "t", 0, "/a", "/b", 5.0, "why"), LogDirMovement(2, "t", 0, "/a", "/b", 6.0))
    return Plan("c", (), log_dir_movements=movements)


def test_a_plan_within_brokers_is_read_back_as_it_was_written() -> None:
    plan = within_brokers()
    assert (plan.movement_count, plan.bytes_to_move) == (2, 11.0)
    assert (plan.brokers, plan.topics) == (frozenset({1, 2}), frozenset({"t"}))
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    assert plan_to_json(plan)["reassignment"]["partitions"] == []


def test_what_a_plan_within_brokers_does_is_part_of_its_id_and_why_is_not() -> None:
    plan = within_brokers()
    first, second = plan.log_dir_movements
    assert Plan("c", (), log_dir_movements=(replace(first, reason="else"), second)).plan_id == plan.plan_id
    elsewhere = replace(first, new_log_dir="/c")
    assert Plan("c", (), log_dir_movements=(elsewhere, second)).plan_id != plan.plan_id
    assert Plan("c", (), log_dir_movements=(second, first)).plan_id != plan.plan_id
    assert "log_dir_movements" not in plan_to_json(Plan("c", ()))
    tampered = plan_to_json(plan)
    tampered["log_dir_movements"][0]["new_log_dir"] = "/c"
    with pytest.raises(PlanTampered):
        plan_from_json(tampered)


@pytest.mark.parametrize(
    ("movements", "problem"),
    [
        ((LogDirMovement(1, "t", 0, "/a", "/a", 5.0),), "t-0 on broker 1: would stay in /a"),
        (within_brokers().log_dir_movements * 2, "t-0 on broker 1: planned twice"),
    ],
)
def test_a_plan_within_brokers_that_makes_no_sense_is_refused(
    movements: tuple[LogDirMovement, ...], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        plan_from_json(plan_to_json(Plan("c", (), log_dir_movements=movements)))


def test_a_plan_moves_between_brokers_or_within_them() -> None:
    both = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),), log_dir_movements=within_brokers().log_dir_movements)
    with pytest.raises(InputError, match="in a plan of their own"):
        plan_from_json(plan_to_json(both))


@pytest.mark.long
def test_a_plan_has_the_loads_of_brokers_before_and_after_it() -> None:
    plan = propose(founding())
    for resource, before in plan.loads_before.items():
        after = plan.loads_after[resource]
        assert before.keys() == after.keys()
        assert sum(before.values()) == pytest.approx(sum(after.values()), rel=1e-4), resource
        mean = sum(after.values()) / len(after)
        assert max(after.values()) / mean == pytest.approx(plan.skew_after[resource]["max_over_mean"], rel=1e-4)
        assert max(before.values()) / mean == pytest.approx(plan.skew_before[resource]["max_over_mean"], rel=1e-4)
    again = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
    assert (again.loads_before, again.loads_after) == (plan.loads_before, plan.loads_after)
