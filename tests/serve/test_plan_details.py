"""What the page asks of a plan: its brokers, movements by size and topic, and whether it waits for approval."""

import json
from pathlib import Path
from typing import Any

import pytest

from assignor_core.plan import Movement, Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.proposed_plan import ProposedPlan
from streaming.control.journal import Journal
from streaming.serve.api.pages import BODY_BYTES_MAX, as_json
from streaming.views.plans import BROKERS_MAX, plan_details
from tests.core.planner.cases import founding
from tests.serve.served import Served, refusal
from tests.serve.synthetic import NOW_MS

THROTTLE = 1_000.0


def keep(journal: Journal, plan: Plan, now_ms: int = NOW_MS) -> str:
    """Id of the plan, which waits now."""
    journal.write_plan(ProposedPlan(plan), decision=None, now_ms=now_ms)
    return plan.plan_id


@pytest.fixture
def founded(served: Served) -> tuple[Served, str]:
    """A plan for the founding scenario that waits."""
    plan = propose(founding(), PlannerPolicy(throttle_bytes_per_sec=THROTTLE))
    return served, keep(served.journal, plan)


def shown(served: Served, plan_id: str) -> dict[str, Any]:
    answer = served.get(f"/api/v1/plans/{plan_id}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.long
def test_a_plan_shows_what_each_broker_carries_and_copies(founded: tuple[Served, str]) -> None:
    plan = shown(*founded)
    brokers = plan["brokers"]
    assert [row["broker"] for row in brokers] == [1, 2, 3]
    assert brokers[0]["before"]["bytes_in"] == 15 * 3.0 + 5 * 1.0
    assert brokers[0]["after"]["bytes_in"] < brokers[0]["before"]["bytes_in"]
    assert sum(row["received_bytes"] for row in brokers) == plan["bytes_to_move"]
    assert plan["throttle_bytes_per_sec"] == THROTTLE
    most = max(max(row["received_bytes"], row["sent_bytes"]) for row in brokers)
    assert plan["duration_ms"] >= most / THROTTLE * 1000
    assert plan["problems"] == []
    assert (plan["waits"], plan["execution_id"]) == (True, None)


def test_the_beginning_of_an_id_names_a_plan_if_no_other_begins_so(served: Served) -> None:
    """Commands print the first 12 characters."""
    ids = [keep(served.journal, Plan("c", (Movement("t", number, (1,), (2,), 5.0),))) for number in range(17)]
    firsts = [plan_id[0] for plan_id in ids]
    twice = next(first for first in firsts if firsts.count(first) > 1)
    assert [shown(served, plan_id[:12])["plan_id"] for plan_id in ids] == ids
    assert served.get(f"/api/v1/plans/{ids[3][:12]}/movements").json()["items"][0]["partition"] == 3
    for path in ("", "/movements"):
        status, detail = refusal(served.get(f"/api/v1/plans/{twice}{path}"))
        assert (status, f"the ids of {firsts.count(twice)} plans begin so" in detail) == (404, True), detail
        unknown = served.get(f"/api/v1/plans/{ids[0][:11]}-{path}")
        assert refusal(unknown) == (404, f"plan '{ids[0][:11]}-' is unknown: /api/v1/plans lists those that are stored")


@pytest.mark.long
def test_a_plan_waits_until_it_is_approved_or_too_old(founded: tuple[Served, str], tmp_path: Path) -> None:
    served, plan_id = founded
    answer = served.post(f"plans/{plan_id}/approve")
    assert answer.status_code == 200
    after = shown(served, plan_id)
    assert (after["waits"], after["execution_id"]) == (False, answer.json()["execution_id"])
    old = keep(served.journal, Plan("c", (Movement("t", 0, (1,), (2,), 5.0),)), NOW_MS - 30 * 86_400_000)
    assert not shown(served, old)["waits"]
    still = keep(served.journal, Plan("c", ()))
    assert not shown(served, still)["waits"], "it moves nothing"


MOVEMENTS = [("Orders", 0, 5.0), ("payments", 0, 90.0), ("orders-eu", 1, 70.0), ("orders-eu", 2, 70.0), ("x.y", 0, 0.0)]


@pytest.fixture
def moving(served: Served) -> tuple[Served, str]:
    """A plan of `MOVEMENTS`, of topic, partition and bytes."""
    rows = (Movement(topic, number, (1,), (2,), size) for topic, number, size in MOVEMENTS)
    return served, keep(served.journal, Plan("c", tuple(rows)))


def movements(served: Served, plan_id: str, query: str) -> tuple[list[tuple[str, int]], int, str | None]:
    """Topic and partition of each, how many there are in all, and the cursor."""
    answer = served.get(f"/api/v1/plans/{plan_id}/movements{query}")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return [(row["topic"], row["partition"]) for row in body["items"]], body["total"], body["next_cursor"]


def test_movements_come_in_the_order_of_the_plan_or_the_largest_first(moving: tuple[Served, str]) -> None:
    of_plan = [(topic, number) for topic, number, _ in MOVEMENTS]
    assert movements(*moving, "") == (of_plan, 5, None)
    assert movements(*moving, "?order=plan&topic=o") == ([of_plan[0], *of_plan[2:4]], 3, None)
    largest = [("payments", 0), ("orders-eu", 1), ("orders-eu", 2), ("Orders", 0), ("x.y", 0)]
    assert movements(*moving, "?order=bytes") == (largest, 5, None)
    assert movements(*moving, "?order=bytes&topic=ORDERS") == (largest[1:4], 3, None)
    assert movements(*moving, "?topic=x.") == ([("x.y", 0)], 1, None), "a dot is a dot"
    assert movements(*moving, "?topic=nothing") == ([], 0, None)


@pytest.mark.parametrize("query", ["order=bytes", "topic=o", "order=bytes&topic=or", ""])
def test_pages_of_movements_are_all_of_them(moving: tuple[Served, str], query: str) -> None:
    whole, total, _ = movements(*moving, f"?{query}")
    read, cursor, begin = [], "", f"?{query}&limit=1" if query else "?limit=1"
    for _ in range(total):
        rows, counted, following = movements(*moving, begin + cursor)
        assert (len(rows), counted) == (1, total)
        read += rows
        cursor = f"&cursor={following}"
    assert (read, following) == (whole, None)


def test_a_plan_that_was_made_again_has_its_movements_once(moving: tuple[Served, str]) -> None:
    served, plan_id = moving
    rows = (Movement(topic, number, (1,), (2,), size) for topic, number, size in MOVEMENTS)
    keep(served.journal, Plan("c", tuple(rows)), NOW_MS + 30 * 86_400_000)
    assert movements(served, plan_id, "?order=bytes")[1] == 5


@pytest.mark.parametrize("query", ["order=size", "topic=", "order=bytes&cursor=WzFd", "cursor=WzEsMl0"])
def test_what_can_not_be_asked_of_movements_is_refused(moving: tuple[Served, str], query: str) -> None:
    served, plan_id = moving
    assert refusal(served.get(f"/api/v1/plans/{plan_id}/movements?{query}"))[0] == 400


def test_a_plan_of_many_brokers_is_in_bounds() -> None:
    loads = {name: {str(broker): 123456.0 for broker in range(3_000)} for name in ("bytes_in", "disk", "leaders")}
    schedule = [{"duration_ms": 1.0, "brokers": [{"broker": 2_999, "received_bytes": 5.0, "sent_bytes": 0.0}]}]
    details = plan_details({"loads_before": loads, "loads_after": loads, "schedule": schedule})
    assert len(details["brokers"]) == BROKERS_MAX
    assert details["brokers"][-1]["broker"] == 2_999, "it copies most"
    assert details["brokers_left_out"] == 2_000
    assert len(as_json(details)) < BODY_BYTES_MAX


def test_a_plan_of_an_earlier_version_shows_what_it_has() -> None:
    assert plan_details({}) == {
        "least_bytes": None, "duration_ms": None, "throttle_bytes_per_sec": None, "cheaper": [], "diagnosis": [],
        "problems": [], "brokers": [], "brokers_left_out": 0, "is_readable": True,
    }  # fmt: skip
    assert json.loads(as_json(plan_details({"waves": [{"duration_ms": 5.0}]})))["duration_ms"] == 5.0
    assert plan_details({"least_bytes": 7})["least_bytes"] == 7.0
