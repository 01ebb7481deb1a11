"""What commands print and write: names as they are, lines whole or fitted to a terminal, files replaced as a whole."""

import json
import math
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.cli import run
from streaming.commands.console import write_whole
from streaming.commands.plan_text import NAME_MIN, by_reason, print_plan, shortened
from streaming.commands.sql import run_query
from streaming.errors import UsageProblem
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A plan, and a record that was rejected."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    synthetic.plan(NOW_MS)
    synthetic.rejected(NOW_MS, ["not_json"])
    return settings.storage.tables


def test_a_regular_expression_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--set", "collect.groups_include=^[a-z]+[/b]"]) == 0
    assert "^[a-z]+[/b]" in capsys.readouterr().out


@pytest.mark.long
def test_nothing_is_cut_in_a_pipe(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "SELECT *, repeat('x', 500) AS long FROM plan", "--set", f"storage.tables={root}"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert ("a" * 64 in row, "x" * 500 in row, "…" in row) == (True, True, False)
    assert "movement_count" in header
    long = f"/{'very-' * 60}long/tables"
    assert run(["config", "--set", f"storage.tables={long}"]) == 0
    assert long in capsys.readouterr().out


@pytest.mark.long
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


LONG = "events.of.a.team.that.names.its.topics.by.whole.sentences.and.more"


def test_on_80_columns_lines_fit_and_partitions_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partitions = [
        {"topic": LONG, "partition": 1_000 + number, "replicas": [101, 102],
         "load": {"bytes_in_per_sec": 1e6, "bytes_out_per_sec": 1e6, "disk_bytes": 5e9}}
        for number in range(12)
    ]  # fmt: skip
    brokers = [{"broker_id": broker} for broker in (101, 102, 103, 104)]
    model = tmp_path / "model.json"
    model.write_text(json.dumps({"cluster_id": "m", "observed_at_ms": 0, "brokers": brokers, "partitions": partitions}))
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)  # what a terminal of 80 columns is to rich
    assert run(["plan", "--model", str(model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Plan ")
    moved = [line for line in lines if " -> " in line and line.startswith("  ")]
    assert moved
    numbers = {f"-{row['partition']} " for row in partitions}
    assert all(any(number in line for number in numbers) for line in moved)


@given(topic=st.text("abc._-", min_size=1, max_size=249), partition=st.integers(0, 99_999), width=st.integers(0, 120))
def test_a_short_name_keeps_the_number_and_fits(topic: str, partition: int, width: int) -> None:
    name = shortened(topic, f"-{partition}", width)
    assert name.endswith(f"-{partition}")
    assert len(name) <= max(width, NAME_MIN)
    assert name == f"{topic}-{partition}" or len(topic) > len(name) - len(f"-{partition}")


def test_movements_stand_below_their_reason_in_the_order_of_the_plan() -> None:
    reasons = ("broker 1 goes 2.0 -> 1.5", "empties broker 4", "broker 1 goes 1.5 -> 1.0", "broker 2 goes 2.0 -> 1.0")
    moves = [Movement("t", number, (1,), (2,), 1.0, reason) for number, reason in enumerate(reasons)]
    groups = [(reason, [row.partition for row in rows]) for reason, rows in by_reason(moves)]
    assert groups == [("broker 1 goes 2.0 -> 1.0", [0, 2]), ("empties broker 4", [1]), (reasons[3], [3])]


def test_further_lines_stand_after_the_summary_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan("c", (Movement("t", 0, (1,), (2,), 1.0, "why"),))
    print_plan(ProposedPlan(plan), None, about=("on old loads",), end=("To carry it out:",))
    lines = capsys.readouterr().out.splitlines()
    assert (lines[1], lines[-1]) == ("on old loads", "To carry it out:")


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    for content in (b"old", b"new"):
        write_whole("--png", file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "a.png", tmp_path / "link"
    link.symlink_to(file)
    for content in (b"old", b"new"):
        write_whole("--png", link, content)
        assert file.read_bytes() == content
    assert link.is_symlink()
    assert list((tmp_path / "there").iterdir()) == [file]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole("--out", pipe, b"content")
    assert stat.S_ISFIFO(pipe.lstat().st_mode), "nobody would end the reader"
    reader.join(60)
    assert read == [b"content"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device")
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("this system lets nobody make a device")
    write_whole("--png", device, b"content")
    assert stat.S_ISCHR(device.lstat().st_mode)


def test_what_can_t_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in (("file/a.png", "Not a directory"), ("no/a.png", "No such file"), ("", "Is a directory"),
                         ("loop/a.png", "Too many levels")):  # fmt: skip
        with pytest.raises(UsageProblem, match=rf"^--png {tmp_path / name}: {reason}"):
            write_whole("--png", tmp_path / name, b"content")
