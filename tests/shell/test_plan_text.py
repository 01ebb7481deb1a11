"""A plan on a terminal of 80 columns: nothing of a partition's number is cut, and what counts stands first and last."""

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.commands.plan_text import NAME_MIN, by_reason, print_plan, shortened
from streaming.runtime.jars import PROJECT_ROOT
from tests.waiting import DEADLINE_S

LONG = "events.of.a.team.that.names.its.topics.by.whole.sentences.and.more"


def on_terminal(command: list[str], columns: int) -> str:
    """What a command prints where standard output is a terminal of so many columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "streaming", *command],
        stdin=subprocess.DEVNULL, stdout=theirs, cwd=PROJECT_ROOT, env={**environment, "NO_COLOR": "1", "TERM": "dumb"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65_536)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    assert process.wait(timeout=DEADLINE_S) == 0
    return shown.decode()


def test_on_80_columns_lines_fit_and_partitions_keep_their_numbers(tmp_path: Path) -> None:
    partitions = [
        {"topic": LONG, "partition": 1_000 + number, "replicas": [101, 102],
         "load": {"bytes_in_per_sec": 1e6, "bytes_out_per_sec": 1e6, "disk_bytes": 5e9}}
        for number in range(12)
    ]  # fmt: skip
    brokers = [{"broker_id": broker} for broker in (101, 102, 103, 104)]
    model = tmp_path / "model.json"
    model.write_text(json.dumps({"cluster_id": "m", "observed_at_ms": 0, "brokers": brokers, "partitions": partitions}))
    lines = on_terminal(["plan", "--model", str(model)], 80).splitlines()
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
