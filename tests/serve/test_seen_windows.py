"""What the planner saw: the loads of the window of a decision, beside what the decision has kept of them."""

import json
from typing import Any

import pytest

from streaming.serve.api.pages import BODY_BYTES_MAX
from streaming.tables import utc
from streaming.views.decisions import BROKERS_MAX, EARLIER_MAX
from tests.serve.asking import app_over, get
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for
from tests.serve.test_stored_json import WRONG

START_MS = NOW_MS - NOW_MS % WINDOW_MS - 5 * WINDOW_MS
END_MS = START_MS + WINDOW_MS
RATIOS = {"max_over_mean": 1.5, "coefficient_of_variation": 0.5}
SKEW = {"bytes_in": {**RATIOS, "deviation": {"1": 0.5, "2": -0.5}}}


@pytest.fixture
def synthetic(root: str) -> Synthetic:
    """Two windows; the first is that of a decision, in which broker 3 was being drained."""
    made = Synthetic(root)
    made.broker_load(START_MS, {1: 3e6, 2: 1e6, 3: 9e6})
    made.broker_load(END_MS, {1: 7e6, 2: 7e6, 3: 7e6})
    return made


def decide(synthetic: Synthetic, text: str = json.dumps(SKEW), **columns: Any) -> str:
    """Id of a decision on the first window."""
    decided_ms = END_MS + 30_000
    columns = {"window_end": utc(END_MS), "plan_id": "a" * 64, "skew_json": text, **columns}
    synthetic.decision(decided_ms, "plan", "skewed", **columns)
    return f"{synthetic.cluster}-{decided_ms}"


def ask(synthetic: Synthetic, decision_id: str) -> Any:
    answer = get(app_over(settings_for(synthetic.root)), "/api/v1/decisions/seen", decision_id=decision_id)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) <= BODY_BYTES_MAX
    return answer.json()


def test_a_decision_has_the_loads_of_its_own_window_and_its_plan(synthetic: Synthetic) -> None:
    synthetic.plan(END_MS + 20_000)
    seen = ask(synthetic, decide(synthetic))
    shown = [
        (row["broker"], row["rack"], row["load"]["bytes_in"], row["relative_load"], row["is_counted"])
        for row in seen["brokers"]
    ]
    assert shown == [
        (1, "r1", 3e6, {"bytes_in": 1.5}, True), (2, "r2", 1e6, {"bytes_in": 0.5}, True), (3, "r0", 9e6, {}, False),
    ]  # fmt: skip
    assert (seen["window_start_ms"], seen["window_end_ms"], seen["is_window_kept"]) == (START_MS, END_MS, True)
    assert (seen["verdict"], seen["reason"], seen["threshold_enter"]) == ("plan", "skewed", 1.3)
    assert seen["skew"] == {"bytes_in": RATIOS}
    assert (seen["plan"]["movement_count"], seen["plan"]["bytes_in_max_over_mean_after"]) == (6, 1.02)
    assert not {"skew_json", "state_json", "plan_json"} & {*seen, *seen["plan"]}


@pytest.mark.long
def test_a_decision_has_the_needs_that_it_looked_at(synthetic: Synthetic) -> None:
    assert ask(synthetic, decide(synthetic))["trace"] == [], "a row of an earlier version"
    row = {"need": "skewed", "is_found": True, "text": "hot", "passed": ["low load"], "held_by": "cooldown"}
    row |= {"why": "8 s"}
    for later, text in enumerate((json.dumps([row, 7]), "{", "[[]]", '{"need": 1}'), start=1):
        synthetic.decision(NOW_MS + later, trace=text)
        assert ask(synthetic, f"{synthetic.cluster}-{NOW_MS + later}")["trace"] == ([row] if later == 1 else [])
    listed = get(app_over(settings_for(synthetic.root)), "/api/v1/decisions").json()["items"]
    assert not any("trace" in item for item in listed)


def test_rows_that_have_expired_leave_what_the_decision_has_kept(root: str) -> None:
    synthetic = Synthetic(root)
    synthetic.broker_load(END_MS + WINDOW_MS, {1: 7e6, 2: 7e6})
    seen = ask(synthetic, decide(synthetic))
    assert (seen["is_window_kept"], seen["window_start_ms"], seen["plan"]) == (False, None, None)
    shown = [(row["broker"], row["load"], row["relative_load"]["bytes_in"]) for row in seen["brokers"]]
    assert shown == [(1, {}, 1.5), (2, {}, 0.5)]


def test_what_was_decided_before_comes_newest_first_and_is_of_this_cluster(synthetic: Synthetic) -> None:
    for number in range(12):
        synthetic.decision(END_MS - number * WINDOW_MS)
    decision_id = decide(synthetic)
    Synthetic(synthetic.root, cluster="other", _commits=100).decision(END_MS + 10)
    earlier = ask(synthetic, decision_id)["earlier"]
    assert [row["decided_ms"] for row in earlier] == [END_MS - number * WINDOW_MS for number in range(EARLIER_MAX)]
    assert earlier[0]["decision_id"] == f"test-{END_MS}"


def test_a_decision_before_any_window_saw_no_broker(root: str) -> None:
    synthetic = Synthetic(root)
    seen = ask(synthetic, decide(synthetic, "{}", window_end=None, plan_id=None, resource=None, max_over_mean=None))
    assert (seen["brokers"], seen["window_end_ms"], seen["plan"], seen["earlier"]) == ([], None, None, [])


def test_an_unknown_decision_and_that_of_another_cluster_are_not_there(synthetic: Synthetic) -> None:
    other = decide(Synthetic(synthetic.root, cluster="other", _commits=100))
    app = app_over(settings_for(synthetic.root))
    for decision_id in (other, "test-7", "it's"):
        answer = get(app, "/api/v1/decisions/seen", decision_id=decision_id)
        assert (answer.status_code, answer.json()["detail"].partition(":")[0].endswith(" is unknown")) == (404, True)
    assert get(app, "/api/v1/decisions/seen").json()["detail"] == "decision_id: is missing, and this request needs it"


@pytest.mark.parametrize(
    "text",
    [*WRONG, '{"bytes_in": {"deviation": 5}}', '{"bytes_in": {"deviation": {"x": 1}}}',
     '{"bytes_in": {"deviation": {"1": "nan"}}}', '{"bytes_in": {"deviation": {"1": null}}}'],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_figures_that_are_none_leave_the_loads_of_the_window(synthetic: Synthetic, text: str) -> None:
    seen = ask(synthetic, decide(synthetic, text))
    assert [(row["broker"], row["relative_load"]) for row in seen["brokers"]] == [(1, {}), (2, {}), (3, {})]


@pytest.mark.long
def test_of_a_large_cluster_the_brokers_with_the_highest_load_are_shown(root: str) -> None:
    synthetic = Synthetic(root)
    brokers = range(BROKERS_MAX + 7)
    synthetic.broker_load(START_MS, {broker: 1e6 + broker for broker in brokers})
    deviation = {str(broker): broker / 1e6 for broker in brokers}
    text = json.dumps({name: {"deviation": deviation} for name in ("bytes_in", "bytes_out", "disk")})
    seen = ask(synthetic, decide(synthetic, text))
    assert (len(seen["brokers"]), seen["brokers_left_out"]) == (BROKERS_MAX, 7)
    assert seen["brokers"][0]["broker"] == brokers[-1]
