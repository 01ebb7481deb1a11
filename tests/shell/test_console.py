"""What commands print: names as they are, whatever rich would make of them, and whole where no terminal folds them."""

import json
import math
from pathlib import Path

import pytest

from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.cli import run
from streaming.commands.plan import show
from streaming.commands.sql import run_query
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

NAMES = ("[dev]billing", "pay/[/b]", ":key:", "[a-z]+")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Groups with names that are markup, a plan, a record that was rejected."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(3):
            rows: list[tuple[str, str, int, int | None, int]] = [(name, "t", 0, 10, 10 + index) for name in NAMES]
            synthetic.group_lag(NOW_MS - (3 - index) * WINDOW_MS, rows)
    synthetic.plan(NOW_MS)
    synthetic.rejected(NOW_MS, ["not_json"])
    return settings.storage.tables


@pytest.mark.parametrize(
    "command",
    [
        ["lag", "--set", "kafka.cluster_name=test"],
        ["status", "--groups", "--set", "kafka.cluster_name=test"],
        ["sql", "SELECT DISTINCT group_id FROM group_lag"],
    ],
    ids=lambda command: command[0],
)
def test_names_are_no_markup(command: list[str], root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--set", f"storage.tables={root}"]) == 0
    out = capsys.readouterr().out
    assert [name for name in NAMES if name not in out] == []


def test_a_regular_expression_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--set", "collect.groups_include=^[a-z]+[/b]"]) == 0
    assert "^[a-z]+[/b]" in capsys.readouterr().out


def test_a_plan_names_topics_and_problems_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    ratio = {"bytes_in": {"max_over_mean": 1.5}}
    moved = Movement("[dev]t", 0, (1,), (2,), 1.0, "[/b]")
    plan = Plan("c", (moved,), ratio, ratio, problems=("[red]p[/b]",))
    show(ProposedPlan(plan), out_file=None, as_json=False)
    out = capsys.readouterr().out
    assert ("[dev]t-0" in out, "[red]p[/b]" in out) == (True, True)


def test_nothing_is_cut_in_a_pipe(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "SELECT *, repeat('x', 500) AS long FROM plan", "--set", f"storage.tables={root}"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert ("a" * 64 in row, "x" * 500 in row, "…" in row) == (True, True, False)
    assert "movement_count" in header
    long = f"/{'very-' * 60}long/tables"
    assert run(["config", "--set", f"storage.tables={long}"]) == 0
    assert long in capsys.readouterr().out


def test_json_of_sql_is_json_and_bytes_are_text(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", f"storage.tables={root}", "--format"]
    query = (
        "SELECT value, 'nan'::DOUBLE AS ratio, ['inf'::DOUBLE, 1.0] AS both, '\\xFF'::BLOB AS odd FROM rejected_record"
    )
    assert run(["sql", query, *options, "json"]) == 0

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    printed = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert printed == [{"value": "{", "ratio": None, "both": [None, 1.0], "odd": "�"}]
    assert run(["sql", "SELECT value FROM rejected_record", *options, "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["value", "{"]
    _, rows = run_query(query, root)
    assert math.isnan(rows[0][1]), "only what is printed is changed"


def test_json_of_sql_has_decimals_as_numbers_and_every_column(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = (
        "SELECT movement_count * 0.5 AS half, [0.25] AS quarters, plan.plan_id, other.plan_id, 1 AS plan_id "
        "FROM plan JOIN (SELECT plan_id, 'x' AS created_at FROM plan) AS other ON true"
    )
    assert run(["sql", query, "--json", "--set", f"storage.tables={root}"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    count = run_query("SELECT movement_count FROM plan", root)[1][0][0]
    assert (row["half"], row["quarters"]) == (count / 2, [0.25])
    assert row.keys() - {"half", "quarters"} == {"plan_id", "plan_id_1", "plan_id_2"}
    assert row["plan_id_2"] == 1
