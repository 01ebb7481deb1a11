"""The reading API: what lists hold, how they are paged, what is refused, and that its document is true."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from streaming.commands.lag import read_lag
from streaming.serve.api.pages import BODY_BYTES_MAX, page
from streaming.serve.snapshot import Snapshot
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, TableReader
from streaming.views import history
from tests.serve.asking import app_of, app_over, ask, get
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

HOUR_MS = 3_600_000
LISTS = ("brokers", "topics", "partitions", "groups", "plans", "executions", "movements", "decisions")


@pytest.fixture(scope="module")
def app(skewed_tables: str, skewed_snapshot: Snapshot) -> Starlette:
    """Over tables that nobody changes."""
    own = settings_for(Path(skewed_tables).parent)
    return app_of(skewed_snapshot, own, now_ms=NOW_MS)


def items(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    listed: list[dict[str, Any]] = response.json()["items"]
    return listed


def paged(app: Starlette, path: str, **query: Any) -> list[dict[str, Any]]:
    """Items of all pages."""
    collected: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    for _ in range(1_000):
        answer = get(app, path, **query, **cursor)
        collected += items(answer)
        if answer.json()["next_cursor"] is None:
            return collected
        cursor = {"cursor": answer.json()["next_cursor"]}
    raise AssertionError("the pages do not end")


def problem(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == response.status_code
    return f"{response.status_code} {response.json()['detail']}"


def test_lists_show_what_the_newest_window_holds(app: Starlette) -> None:
    assert [row["broker"] for row in items(get(app, "/api/v1/brokers"))] == [1, 2, 3]
    assert [row["broker"] for row in items(get(app, "/api/v1/brokers", broker=2))] == [2]
    topics = items(get(app, "/api/v1/topics"))
    assert [(row["topic"], row["partitions"]) for row in topics] == [("topic-A", 30), ("topic-B", 30)]
    assert topics[1]["bytes_in_per_sec"] == pytest.approx(30 * 9.0e4)
    first = items(get(app, "/api/v1/partitions", topic="topic-A"))[0]
    assert (first["partition"], first["broker"], first["bytes_in_per_sec"]) == (0, 1, 2.8e5)
    billing = items(get(app, "/api/v1/groups", group="billing"))[0]
    assert billing["topics"][0]["topic"] == "topic-A"


def test_history_has_a_row_for_each_step_and_broker(app: Starlette) -> None:
    answer = get(app, "/api/v1/brokers", **{"from": NOW_MS - HOUR_MS})
    assert (answer.json()["table"], answer.json()["step_ms"]) == ("broker_load", WINDOW_MS)
    rows = [row for row in items(answer) if row["broker"] == 1]
    assert [row["bytes_in_per_sec"] for row in rows] == pytest.approx([4.2e6 * (1 + 0.05 * n) for n in range(9)])
    joined = items(get(app, "/api/v1/brokers", broker=1, step=10 * WINDOW_MS))
    assert len(joined) <= 2
    assert all(row["start_ms"] % (10 * WINDOW_MS) == 0 for row in joined)


def test_history_of_a_topic_is_the_sum_of_its_partitions(app: Starlette) -> None:
    rows = items(get(app, "/api/v1/topics", topic="topic-B", step=WINDOW_MS))
    assert [row["bytes_in_per_sec"] for row in rows] == pytest.approx([30 * 9.0e4] * 9)
    lags = items(get(app, "/api/v1/groups", group="billing", step=WINDOW_MS))
    assert {row["lag_records"] for row in lags} == {900 * sum(range(30))}
    one = items(get(app, "/api/v1/groups", group="billing", topic="topic-A", step=WINDOW_MS, limit=1000))
    assert len(one) == 9 * 30


def test_of_a_long_history_only_the_rows_of_a_page_are_made(skewed_tables: str) -> None:
    """A topic of a thousand partitions has a million rows in a day: each page made them all, some kilobytes each."""

    def made(rows_max: int, since_ms: int | None = None) -> list[tuple[int, int]]:
        past = history.read_history(
            TableReader(skewed_tables), history.BROKERS, history.Span(NOW_MS - HOUR_MS, NOW_MS, None, since_ms),
            ALL_ROWS, kafka_cluster="test", window_ms=WINDOW_MS, rows_per_period=3, rows_max=rows_max,
        )  # fmt: skip
        return [(row["start_ms"], row["broker"]) for row in past.rows]

    whole = made(1_000)
    assert len(whole) == 27
    assert made(4) == whole[:4]
    assert made(4, whole[3][0]) == whole[3 : 3 + 3 + 4], "those of the step where a page ended, and four more"


def test_of_all_partitions_only_those_of_a_page_are_made(skewed_tables: str) -> None:
    def made(rows_max: int, after: tuple[str, int] | None = None) -> list[tuple[str, int]]:
        rows = history.window_partitions(
            TableReader(skewed_tables), "test", NOW_MS - 2 * WINDOW_MS, ALL_ROWS, after=after, rows_max=rows_max
        )
        return [(row["topic"], row["partition"]) for row in rows]

    whole = made(1_000)
    assert len(whole) == 60
    assert made(7) == whole[:7]
    assert made(7, whole[27]) == whole[28:35]


def test_long_spans_are_read_from_hours_and_days(app: Starlette) -> None:
    for days, table in ((0.5, "broker_load"), (30, "broker_load_hourly"), (300, "broker_load_daily")):
        start = NOW_MS - int(days * 24 * HOUR_MS)
        assert get(app, "/api/v1/brokers", **{"from": start}).json()["table"] == table
    too_long = get(app, "/api/v1/brokers", **{"from": 0})
    assert "allowed here are at most" in problem(too_long)
    assert get(app, "/api/v1/brokers", step=HOUR_MS).json()["table"] == "broker_load_hourly"


@pytest.mark.parametrize(
    ("path", "query", "limit"),
    [("partitions", {}, 7), ("decisions", {}, 1), ("executions", {}, 1), ("brokers", {"step": WINDOW_MS}, 4),
     ("groups", {}, 1), ("topics", {}, 1), ("plans", {}, 1)],
)  # fmt: skip
def test_pages_together_are_the_whole_list(app: Starlette, path: str, query: dict[str, Any], limit: int) -> None:
    whole = items(get(app, f"/api/v1/{path}", limit=1000, **query))
    assert whole
    assert paged(app, f"/api/v1/{path}", limit=limit, **query) == whole


def test_the_past_comes_newest_first_and_within_its_span(app: Starlette) -> None:
    decisions = items(get(app, "/api/v1/decisions"))
    assert [row["reason"] for row in decisions] == ["in_progress", "skewed", "balanced"]
    assert "state_json" not in decisions[0]
    lately = items(get(app, "/api/v1/decisions", **{"from": NOW_MS - 100_000, "to": NOW_MS - 60_000}))
    assert [row["reason"] for row in lately] == ["skewed"]
    executions = items(get(app, "/api/v1/executions"))
    assert [(row["execution_id"], row["movements_done"]) for row in executions] == [("e-1", 4), ("e-0", 6)]


@pytest.mark.parametrize("path", ["/api/status", "/api/weights", "/api/openapi.json", "/api/v1/plans"])
def test_each_route_that_is_read_answers_304_to_its_own_etag(app: Starlette, path: str) -> None:
    first = get(app, path)
    for known in (first.headers["etag"], f'W/"other", {first.headers["etag"]}'):
        again = ask(app, "GET", path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert get(app, "/api/v1/decisions").headers["etag"] != first.headers["etag"]
    assert (first.headers["cache-control"], first.status_code) == ("private, no-cache", 200)


def test_a_plan_and_an_execution_have_pages_of_their_own(app: Starlette) -> None:
    plan = get(app, f"/api/v1/plans/{'a' * 64}").json()
    assert (plan["movement_count"], plan["created_ms"]) == (6, NOW_MS - 70_000)
    assert "plan_json" not in plan
    moved = items(get(app, f"/api/v1/plans/{'a' * 64}/movements"))
    assert [(row["partition"], row["new_replicas"]) for row in moved[1:3]] == [(1, [2, 1]), (2, [2, 3])]
    history = get(app, "/api/v1/executions/e-1").json()["events"]
    assert [event["event"] for event in history] == ["progress", "submitted", "started", "approved"]
    for path in (f"plans/{'b' * 64}", f"plans/{'b' * 64}/movements", "executions/e-9"):
        assert problem(get(app, f"/api/v1/{path}")).startswith("404 ")


def test_an_execution_shows_how_far_each_wave_broker_and_movement_is(app: Starlette) -> None:
    shown = get(app, "/api/v1/executions/e-1").json()
    assert shown["states"] == {"waiting": 1, "under_way": 1, "made": 4}
    assert [(row["wave"], row["movements"], row["made"], row["under_way"]) for row in shown["waves"]] == [
        (0, 4, 4, 0), (1, 2, 0, 1),
    ]  # fmt: skip
    assert shown["receivers"] == [
        {
            "broker": 3, "movements": 4, "made": 2, "under_way": 1, "bytes_to_move": 4 * 20_500_000,
            "bytes_made": 2 * 20_500_000,
        }
    ]  # fmt: skip
    assert not {"movements_made", "movements_under_way"} & (shown.keys() | shown["events"][0].keys())
    path = "/api/v1/executions/e-1/movements"
    rows = items(get(app, path))
    assert [row["state"] for row in rows] == ["made"] * 4 + ["under_way", "waiting"]
    assert {row["made_ms"] for row in rows[:4]} == {NOW_MS - 12_000}
    assert paged(app, path, limit=4) == rows
    assert [row["partition"] for row in items(get(app, path, state="waiting"))] == [5]
    assert [row["state"] for row in items(get(app, path, topic="TOPIC-a", state="made", limit=2))] == ["made"] * 2
    assert get(app, path, state="made").json()["total"] == 4
    assert problem(get(app, path, state="lost")).startswith("400 state: ")
    assert problem(get(app, "/api/v1/executions/e-9/movements")).startswith("404 ")
    known = {row["state"] for row in items(get(app, "/api/v1/executions/e-0/movements"))}
    assert known == {"made"}, "all are made, although an earlier version named none"


TOPIC_NAME = "topic: must be 1 to 249 characters of A-Z a-z 0-9 . _ -"
FOREIGN_CURSOR = "cursor: this list has not given it: send the `next_cursor` of its last page unchanged"


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("brokers?form=1", "'form' is not a parameter of this request; allowed are broker, from, to, step, limit, cur"),
        ("brokers?limit=0", "limit: 0 is not within 1 to 1000"),
        ("brokers?limit=1&limit=2", "limit: is given twice: give it once"),
        ("brokers?from=yesterday", "from: 'yesterday' is not a whole number"),
        ("brokers?from=5&to=5", "from: 5 must be earlier than to, which is 5"),
        ("decisions?cursor=AAAA", FOREIGN_CURSOR),
        ("partitions?step=60000", "topic: is missing: a history (from, to, step) is of one topic"),
        ("topics?topic=%00", rf"{TOPIC_NAME}; '\x00' in '\x00' is not allowed"),
        ("topics?topic=%ff", f"{TOPIC_NAME}; '\ufffd' in '\ufffd' is not"),
        ("topics?topic=a%20b", f"{TOPIC_NAME}; ' ' in 'a b' is not allowed"),
        ("topics?topic=", f"{TOPIC_NAME}; '' has 0 characters"),
        (f"topics?topic={'a' * 250}", f"{TOPIC_NAME}; '{'a' * 100}' has 250 characters"),
        ("topics?topic=a%0a", TOPIC_NAME),
        ("groups?group=%C2%85", "group: must be 0 to 1000 characters, none of them a control character"),
        ("brokers?cursor=%3D", "cursor: must be 1 to 8000 characters of A-Z a-z 0-9 _ -"),
        ("groups/partitions", "group: is missing, and this request needs it"),
        ("groups/rebalances", "group: is missing, and this request needs it"),
        ("groups?group=billing&partition=1", "partition: is allowed only together with from, to or step"),
        ("movements?partition=1", "topic: is missing: a partition is given with its topic"),
        ("movements?cursor=WzEsImUiXQ", FOREIGN_CURSOR),  # [1,"e"]
        ("movements?cursor=Wy0xLCJlIiwwXQ", FOREIGN_CURSOR),  # [-1,"e",0]
    ],
)
def test_wrong_parameters_are_named(app: Starlette, path: str, refused: str) -> None:
    assert problem(ask(app, "GET", f"/api/v1/{path}")).startswith(f"400 {refused}")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/v1/nothing", None),
        ("GET", f"/{'a' * 200}", None),
        ("DELETE", "/api/v1/brokers", "GET, HEAD"),
        ("PUT", "/api/v1/plans", "GET, HEAD, POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("PATCH", "/api/v1/session", "DELETE, GET, HEAD, POST"),
        ("PATCH", "/api/v1/brokers/3/drain", "POST"),
        ("PATCH", f"/api/v1/plans/{'a' * 64}", "GET, HEAD"),
    ],
)
def test_a_wrong_path_or_method_is_named_with_what_there_is(
    app: Starlette, method: str, path: str, allowed: str | None
) -> None:
    answer = ask(app, method, path)
    if allowed is None:
        refused = f"404 there is no path '{path[:100]}'; /api/openapi.json lists the paths of the API"
    else:
        refused = f"405 method {method} is not allowed for this path; allowed are {allowed}"
    assert (problem(answer), answer.headers.get("allow")) == (refused, allowed)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/plans/..%2F..%2Fpasswd",
        "/api/v1/../../etc/passwd",
        "/api/v1/nothing",
        "/api/v1/executions/%2e%2e%2f%2e%2e",
        "//etc/passwd",
        "/api/v1/brokers/",
    ],
)
def test_tricks_with_paths_reach_nothing(app: Starlette, path: str) -> None:
    assert ask(app, "GET", path).status_code in (307, 404)


def test_a_name_with_script_stays_json_text(settings: Settings, synthetic: Synthetic) -> None:
    name = "<script>alert(1)</script>"
    synthetic.broker_load(NOW_MS - 120_000, {1: 1.0}, rack=name)
    synthetic.partition_load(NOW_MS - 120_000, [(1, name, 0, "leader", 1.0)])
    synthetic.group_lag(NOW_MS - 120_000, [(name, name, 0, 1, 2)], client_id=name)
    app = app_over(settings)
    for path in ("brokers", "topics", "partitions", "groups"):
        answer = get(app, f"/api/v1/{path}")
        assert name in json.dumps(items(answer))
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert items(get(app, "/api/v1/groups", group=name))[0]["group"] == name
    assert problem(get(app, "/api/v1/brokers", **{name: 1})).startswith("400 ")


@pytest.mark.parametrize("text", ["\\ud800", "\\u0000", "'", "x\\udfff"])
@pytest.mark.parametrize("path", ["partitions", "decisions", "plans", "executions"])
def test_a_cursor_with_any_text_is_no_error_of_the_server(app: Starlette, path: str, text: str) -> None:
    content = f'[{NOW_MS}, "{text}"{", 1" if path == "partitions" else ""}]'
    cursor = base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
    answer = get(app, f"/api/v1/{path}", cursor=cursor)
    assert answer.status_code == (400 if "\\ud" in text else 200), answer.text


def test_the_history_of_a_group_with_a_long_name_has_a_next_page(settings: Settings, synthetic: Synthetic) -> None:
    """A name has up to 1,000 characters here, and the cursor has the name."""
    name = "\U0001f600" * 1_000
    for windows in (2, 3):
        synthetic.group_lag(NOW_MS - windows * WINDOW_MS, [(name, "t" * 249, 0, 1, 2)])
    app = app_over(settings)
    assert len(paged(app, "/api/v1/groups", group=name, step=WINDOW_MS, limit=1)) == 2


def test_the_group_without_a_name_is_a_group(settings: Settings, synthetic: Synthetic) -> None:
    """Kafka allows a consumer that assigns its partitions itself to commit as group ''."""
    synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, {1: 1.0})
    synthetic.group_lag(NOW_MS - 2 * WINDOW_MS, [("", "t", 0, 5, 9), ("other", "t", 0, 5, 9)])
    app = app_over(settings)
    assert [row["group"] for row in items(get(app, "/api/v1/groups", group=""))] == [""]
    assert [row["lag_records"] for row in items(get(app, "/api/v1/groups/partitions", group=""))] == [4]
    assert items(get(app, "/api/v1/groups/rebalances", group="")) == []


def test_a_group_that_the_newest_window_lacks_has_one_verdict_in_list_page_and_command(
    settings: Settings, synthetic: Synthetic
) -> None:
    """The page of the group judged it as of its own newest sample, list and command as of that of all groups."""
    with synthetic.together():
        synthetic.broker_load(NOW_MS - 2 * WINDOW_MS, {1: 1.0})
        for index in range(30):
            rows: list[tuple[str, str, int, int | None, int]] = [("busy", "t", 0, 10 * index, 10 * index + 10)]
            rows += [("late", "t", 0, 100, 110 if index > 18 else 100)] if index < 28 else []
            synthetic.group_lag(NOW_MS - (30 - index) * WINDOW_MS, rows)
    app = app_over(settings)
    (listed,) = items(get(app, "/api/v1/groups", group="late"))
    (on_page,) = items(get(app, "/api/v1/groups/partitions", group="late"))
    (in_command,) = read_lag(settings, group_id="late")["partitions"]
    assert on_page["status"] == in_command["status"] == listed["status"] == "stall"
    assert on_page["why"] == in_command["why"]


def test_without_tables_lists_are_empty_or_unavailable(tmp_path: Path) -> None:
    own = settings_for(tmp_path)
    nothing = app_over(own)
    assert problem(get(nothing, "/api/v1/decisions")).startswith("503 ")
    Path(own.storage.tables).mkdir()
    empty = app_over(own)
    assert {path: items(get(empty, f"/api/v1/{path}")) for path in LISTS} == {path: [] for path in LISTS}
    assert items(get(empty, "/api/v1/brokers", step=60_000)) == []


def test_no_page_is_larger_than_a_megabyte() -> None:
    rows = [{"topic": "ü" * 249, "partition": number} for number in range(5_000)]
    shown = page(rows, 5_000, lambda _item, number: [number + 1])
    assert len(json.dumps(shown, ensure_ascii=False).encode()) < BODY_BYTES_MAX
    assert 1_000 < len(shown["items"]) < 5_000
    assert shown["next_cursor"] is not None


def test_the_document_names_members_that_items_have(app: Starlette) -> None:
    document = get(app, "/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for name in LISTS:
        operation = document["paths"][f"/api/v1/{name}"]["get"]
        listed = operation["responses"]["200"]["content"]["application/json"]["schema"]
        item = items(get(app, f"/api/v1/{name}"))[0]
        members = listed["properties"]["items"]["items"]["properties"]
        only_asked = ("With history", "Where one group")
        now = {name for name, shape in members.items() if not shape.get("description", "").startswith(only_asked)}
        assert now <= set(item), name
        assert re.fullmatch(r"[A-Z].*\.", operation["summary"])


def test_one_group_has_partitions_worst_first_with_members_advice_and_rebalances(app: Starlette) -> None:
    answer = get(app, "/api/v1/groups/partitions", group="billing", limit=3)
    head = answer.json()
    assert [row["partition"] for row in items(answer)] == [29, 28, 27]
    assert (head["total"], head["state"], head["members_left_out"]) == (30, "Stable", 0)
    assert [(row["member_id"], row["partitions"], row["lag_records"]) for row in head["members"]] == [
        ("m", 30, 391_500)
    ]
    assert head["advice"]["needed"] == 2
    whole = items(get(app, "/api/v1/groups/partitions", group="billing"))
    assert paged(app, "/api/v1/groups/partitions", group="billing", limit=7) == whole
    rebalances = items(get(app, "/api/v1/groups/rebalances", group="billing"))
    assert [(row["cause"], row["members_in"]) for row in rebalances] == [("members joined", [])]
    assert items(get(app, "/api/v1/groups/rebalances", group="audit")) == []
    one = items(get(app, "/api/v1/groups", group="billing", topic="topic-A", partition=4, step=WINDOW_MS))
    assert [row["lag_records"] for row in one] == [3_600] * 9
    unknown = "404 group 'none' is not in the newest windows: /api/v1/groups lists those that are"
    assert problem(get(app, "/api/v1/groups/partitions", group="none")) == unknown
