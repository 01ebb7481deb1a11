"""What moved when and why: which movements come, in which order, page by page, and what they say."""

from pathlib import Path
from typing import Any

import pytest

from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from streaming.views import movements
from tests.serve.asking import app_over, get
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for
from tests.serve.test_api import items, paged, problem

HOUR_MS = 3_600_000
MOVED = [("orders", 0, [1, 2], [2, 3]), ("orders", 1, [1, 2], [2, 1]), ("payments", 0, [3, 1], [2, 1])]


def plan_id(number: int) -> str:
    return f"{number:064x}"


def carried_out(synthetic: Synthetic, number: int, *, until: str | None = "done", decision: bool = False) -> None:
    """Plan and execution `number`, an hour after the one before."""
    at_ms, own = NOW_MS - (100 - number) * HOUR_MS, {"execution_id": f"e-{number}", "plan_id": plan_id(number)}
    asked = {"decision_id": f"test-{at_ms}"} if decision else {}
    synthetic.plan(at_ms, plan_id(number), **asked)
    if decision:
        synthetic.decision(at_ms, "plan", "skewed", detail="bytes in is skewed for 5 min")
    synthetic.movements(at_ms, MOVED, plan_id(number))
    synthetic.event(at_ms + 1_000, 0, "approved", **own, detail=f"approved by ada for {number}", movements_total=3)
    if until is not None:
        synthetic.event(at_ms + 2_000, 1, "started", **own, movements_total=3)
        synthetic.event(at_ms + 3_000, 2, until, **own, movements_done=3, movements_total=3)


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['execution_id']} {row['topic']}-{row['partition']}" for row in rows]


def test_the_newest_comes_first_and_says_when_why_and_what_came_of_it(settings: Settings, synthetic: Synthetic) -> None:
    carried_out(synthetic, 1, decision=True)
    carried_out(synthetic, 2, until="aborted")
    carried_out(synthetic, 3, until=None)
    rows = items(get(app_over(settings), "/api/v1/movements", topic="orders", partition=0))
    assert shown(rows) == ["e-3 orders-0", "e-2 orders-0", "e-1 orders-0"]
    assert [row["phase"] for row in rows] == ["waiting", "aborted", "done"]
    at_ms = NOW_MS - 99 * HOUR_MS
    assert rows[2] == {
        "plan_id": plan_id(1), "sequence": 0, "topic": "orders", "partition": 0, "kind": "replica",
        "old_replicas": [1, 2], "new_replicas": [2, 3], "bytes_to_move": 20_500_000, "old_log_dir": None,
        "reason": "broker 1 is over the mean of bytes in", "new_log_dir": None, "execution_id": "e-1",
        "phase": "done", "approved_ms": at_ms + 1_000, "started_ms": at_ms + 2_000, "ended_ms": at_ms + 3_000,
        "movements_done": 3, "movements_total": 3, "approval": "approved by ada for 1",
        "cause": "bytes in is skewed for 5 min", "wave": None, "state": "made", "made_ms": None,
    }  # fmt: skip
    assert [row["cause"] for row in rows[:2]] == [None, None], "a person asked for these plans"
    assert (rows[0]["started_ms"], rows[0]["ended_ms"]) == (None, None)


def test_by_broker_topic_and_time(settings: Settings, synthetic: Synthetic) -> None:
    for number in (1, 2):
        carried_out(synthetic, number)
    synthetic.movements(NOW_MS, MOVED, plan_id(7))  # planned, and never carried out
    served = app_over(settings)
    of_two = ["e-2 orders-0", "e-2 orders-1", "e-2 payments-0"]
    assert shown(items(get(served, "/api/v1/movements"))) == [*of_two, *(row.replace("e-2", "e-1") for row in of_two)]
    assert shown(items(get(served, "/api/v1/movements", broker=3))) == [
        "e-2 orders-0", "e-2 payments-0", "e-1 orders-0", "e-1 payments-0",
    ]  # fmt: skip
    assert shown(items(get(served, "/api/v1/movements", broker=3, topic="payments", limit=1))) == ["e-2 payments-0"]
    assert items(get(served, "/api/v1/movements", broker=9)) == []
    assert items(get(served, "/api/v1/movements", topic="none")) == []
    between = {"from": NOW_MS - 99 * HOUR_MS, "to": NOW_MS - 98 * HOUR_MS}
    assert {row["execution_id"] for row in items(get(served, "/api/v1/movements", **between))} == {"e-1"}


@pytest.mark.long
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("query", [{}, {"broker": 3}, {"topic": "payments"}, {"topic": "none"}])
def test_pages_joined_are_the_list(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, limit: int, query: dict[str, Any], synthetic: Synthetic
) -> None:
    with synthetic.together():
        for number in range(7):
            carried_out(synthetic, number)
    served = app_over(settings)
    whole = items(get(served, "/api/v1/movements", **query))
    assert (
        len(whole) == 7 * {"{}": 3, "{'broker': 3}": 2, "{'topic': 'payments'}": 1, "{'topic': 'none'}": 0}[str(query)]
    )
    monkeypatch.setattr(movements, "EXECUTIONS_SHOWN", 2)
    monkeypatch.setattr(movements, "EXECUTIONS_AT_A_TIME", 3)
    monkeypatch.setattr(movements, "MOVEMENTS_TOGETHER", 5)
    assert paged(served, "/api/v1/movements", **query, limit=limit) == whole


def test_a_plan_made_again_after_its_rows_expired_has_its_movements_once(
    settings: Settings, synthetic: Synthetic
) -> None:
    carried_out(synthetic, 1)
    synthetic.movements(NOW_MS, MOVED, plan_id(1))
    assert len(items(get(app_over(settings), "/api/v1/movements"))) == 3


@pytest.mark.long
def test_hottest_partitions_of_a_broker_and_of_a_topic(skewed_folder: Path) -> None:
    own = settings_for(skewed_folder)
    synthetic = Synthetic(own.storage.tables, _commits=1_000)
    served = app_over(own)
    window_ms = read_snapshot(own, NOW_MS).load.window_start_ms
    assert window_ms is not None
    by_rate = items(get(served, "/api/v1/partitions", broker=1, order="bytes_in"))
    assert {row["broker"] for row in by_rate} == {1}
    rates = [row["bytes_in_per_sec"] for row in by_rate]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 20
    assert [f"{row['topic']}-{row['partition']}" for row in by_rate[:2]] == ["topic-A-0", "topic-A-1"]
    assert paged(served, "/api/v1/partitions", broker=1, order="bytes_in", limit=6) == by_rate
    led = {(row["topic"], row["partition"]) for row in items(get(served, "/api/v1/partitions", broker=1))}
    assert led == {(row["topic"], row["partition"]) for row in by_rate}
    # While a leader moves, two brokers report it: the later one leads, so the former has it no longer.
    synthetic.partition_load(window_ms, [(3, "topic-A", 0, "leader", 1.0)], last_event_time_ms=window_ms + 59_000)
    now = app_over(own)
    assert (items(get(now, "/api/v1/partitions", broker=1, order="bytes_in", limit=1)))[0]["partition"] == 1
    synthetic.partition_load(window_ms, [(2, "topic-C", 0, "leader", 7.0)], size_bytes=5, bytes_out_per_sec=None)
    largest = items(get(now, "/api/v1/partitions", order="size"))
    assert largest[-1]["topic"] == "topic-C"
    assert items(get(now, "/api/v1/partitions", order="bytes_out"))[-1]["topic"] == "topic-C", "unknown comes last"
    refused = get(now, "/api/v1/partitions", topic="topic-A", partition=0, step=60_000, order="size")
    assert problem(refused) == "400 order: is not allowed together with from, to or step"


@pytest.mark.long
def test_groups_that_read_a_topic(skewed_tables: str) -> None:
    served = app_over(settings_for(Path(skewed_tables).parent))
    (group,) = items(get(served, "/api/v1/groups", topic="topic-A"))
    assert (group["group"], [row["topic"] for row in group["topics"]]) == ("billing", ["topic-A"])
    assert items(get(served, "/api/v1/groups", topic="none")) == []
    assert items(get(served, "/api/v1/groups", topic="topic-A", group="audit")) == []
