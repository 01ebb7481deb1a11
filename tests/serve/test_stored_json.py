"""JSON in tables that is none, or of another shape: whoever may write rows can't make an answer fail, or end serve."""

import json
from typing import Any

import pytest

from streaming import tables
from streaming.notify.deliveries import _occurrence
from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from streaming.views.plans import LINE_LENGTH_MAX
from tests.serve.asking import app_of, app_over, get
from tests.serve.served import Served
from tests.serve.synthetic import NOW_MS, Synthetic

WRONG = (
    "", "{", "null", "[]", "7", '"x"', "[" * 100_000, '{"waves": NaN}', '{"waves": [{"duration_ms": 1e999}]}',
    '{"waves": 5, "cheaper": 5, "schedule": 5, "diagnosis": 5, "problems": {"a": 1}}',
    '{"waves": [5], "cheaper": [5], "schedule": [5], "diagnosis": [5], "problems": [{}]}',
    '{"schedule": [{"brokers": [{"broker": {}, "received_bytes": "x", "sent_bytes": null}]}]}',
    '{"loads_before": {"bytes_in": {"x": 1}}}', '{"loads_before": {"bytes_in": {"1": "x"}}}', '{"loads_after": [1]}',
    '{"least_bytes": "x"}', '{"least_bytes": [1]}', '{"bytes_in": 5}', '{"phase": "x", "other": {}}',
)  # fmt: skip


def write_all(settings: Settings, text: str) -> None:
    """Each column of JSON that serve reads has this text."""
    synthetic = Synthetic(settings.storage.tables)
    start_ms = NOW_MS - NOW_MS % 60_000 - 120_000
    synthetic.decision(NOW_MS - 30_000, skew_json=text, state_json=text)
    for number in range(12):
        synthetic.measured_plan(number, NOW_MS - 100_000 + number, factor=1.0)
    synthetic.plan(NOW_MS - 20_000, plan_json=text)
    synthetic.plan(NOW_MS - 90_000, f"{3:064d}", plan_json=text)
    synthetic.group_lag(start_ms, [("billing", "t", 0, 1, 2)])
    synthetic.group_event(start_ms, "billing", members_in_json=text, members_out_json=text)
    synthetic.batch_row(NOW_MS - 4_000, phases_json=text)


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:40])
def test_no_answer_fails_and_the_snapshot_is_read(settings: Settings, text: str) -> None:
    write_all(settings, text)
    snapshot = read_snapshot(settings, NOW_MS)
    assert snapshot.failures == {}
    Exposition(snapshot, settings)
    app = app_of(snapshot, settings, now_ms=NOW_MS)
    paths = ("decisions", "plans", f"plans/{'a' * 64}", "movements", "executions")
    answers = {path: get(app, f"/api/v1/{path}") for path in paths}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(paths, 200)
    assert get(app, "/api/v1/groups/rebalances", group="billing").status_code == 200
    assert get(app, "/api/status").status_code == 200


@pytest.mark.parametrize("text", WRONG[:9])
def test_a_plan_that_is_none_says_so_and_does_not_wait(settings: Settings, text: str, synthetic: Synthetic) -> None:
    synthetic.plan(NOW_MS - 20_000, plan_json=text)
    plan = get(app_over(settings), f"/api/v1/plans/{'a' * 64}").json()
    assert (plan["is_readable"], plan["waits"], plan["brokers"], plan["movement_count"]) == (False, False, [], 6)


def test_a_plan_that_is_none_is_not_approved(served: Served) -> None:
    Synthetic(served.settings.storage.tables).plan(NOW_MS - 20_000, plan_json="{")
    answer = served.post(f"plans/{'a' * 64}/approve")
    assert (answer.status_code, answer.json()["state"]) == (409, "unreadable")


def test_lines_of_a_plan_are_short(settings: Settings, synthetic: Synthetic) -> None:
    written = json.dumps({"diagnosis": ["x" * 3_000_000], "problems": ["y"]})
    synthetic.plan(NOW_MS - 20_000, plan_json=written)
    plan = get(app_over(settings), f"/api/v1/plans/{'a' * 64}").json()
    assert (plan["is_readable"], [len(line) for line in plan["diagnosis"]]) == (True, [LINE_LENGTH_MAX])


def test_facts_of_a_notification_that_are_none() -> None:
    row: dict[str, Any] = {"occurrence_id": "o", "kind": "k", "subject": "s", "title": "t", "detail": "d"}
    row |= {"occurred_at": tables.utc(NOW_MS), "facts_json": "{"}
    assert _occurrence(row).facts == {}
