"""Each line `rebalancer ...` that a page shows is run, or is marked in `ASKS` with what it needs, and then only parsed.

Lines run in one folder, over a few hours of generated tables. Of what a reader must fill in (`PLAN_ID`) the words stay.
"""

import contextlib
import io
import json
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from assignor_core.live import LiveCluster, LivePartition
from streaming import cli, tables
from streaming.contract import TABLES
from streaming.settings import HOUR_MS, Settings
from tests.control.windows import write_hours_before, write_windows
from tests.docs.prose import ROOT
from tests.docs.test_links import NAMES, NEW_OR_OLD
from tests.serve.synthetic import Synthetic

ASKS = {
    "abort": "an execution under way", "add": "a cluster", "apply": "a cluster", "check": "a cluster",
    "collect": "a cluster", "control": "a cluster", "drain": "a cluster",
    "demote": "a cluster", "undemote": "a cluster",
    "demo": "brokers of its own; tests/e2e runs it",
    "pipeline": "Spark", "run": "a cluster", "serve": "an end; tests/serve runs it", "undrain": "a cluster",
    "restart-check": "a cluster; tests/kafka/test_lifecycle.py runs it",
    "roll": "a cluster; tests/kafka/test_roll.py runs it",
    "token": "a file of tokens; tests/serve/test_api_acting.py runs it", "user": "a person at a terminal",
}  # fmt: skip
"""Commands that are not run here, and what they need."""
OPTIONS = {"--watch": "an end", "--decisions": "recorded decisions; tests/control/test_decisions_again.py has them"}
"""Options with which a command is not run here, and what it needs then."""
BLOCK = re.compile(r"^(?:    +|\$ )?(rebalancer (?:[^#\n\"']|\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?<! )#)*)", re.MULTILINE)
pytestmark = pytest.mark.long

SCENARIOS = "conf/scenarios"
BROKERS = {1: "a", 2: "b", 3: "c"}
PLACED = {("orders", row): (1, 2) if row % 2 else (3, 1) for row in range(12)} | {("legacy", 0): (2, 3)}


def command_lines(text: str) -> Iterator[list[str]]:
    """The words of each command line of a page's blocks, as a shell would split them, without what takes its output."""
    for match in BLOCK.findall(text.replace("\\\n", " ")):
        words = shlex.split(re.split(r" [|>&]|;", match)[0] if "sql" not in match.split()[1:2] else match)
        yield words[1 : words.index(">")] if ">" in words else words[1:]


LINES = sorted(
    {
        (name, shlex.join(words))
        for name in set(NAMES) - NEW_OR_OLD
        for words in command_lines((ROOT / name).read_text(encoding="utf-8"))
        if words[0] in cli.COMMANDS
    }
)


def is_run(line: str) -> bool:
    """Whether the line needs no more than tables and files: without a model `plan` asks the cluster."""
    words = line.split()
    return words[0] not in ASKS and not OPTIONS.keys() & set(words) and (words[0] != "plan" or "--model" in words)


RUN = [row for row in LINES if is_run(row[1])]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings, tables of six hours, scenarios and a model."""
    folder = tmp_path_factory.mktemp("reader")
    content = {"kafka": {"cluster_name": "main"}, "storage": {"tables": str(folder / "data" / "tables")}}
    (folder / "rebalancer.yaml").write_text(json.dumps(content))
    settings = Settings.model_validate(content)
    end_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    live = LiveCluster("c", BROKERS, {key: LivePartition(row, row[0], row) for key, row in PLACED.items()})
    write_windows(settings, live, end_ms=end_ms, windows=3)
    write_hours_before(settings, end_ms, {hour: dict.fromkeys(PLACED, 1e6) for hour in range(1, 7)})
    synthetic = Synthetic(settings.storage.tables, "main")
    with synthetic.together():
        for window in (1, 2, 3):
            synthetic.group_lag(end_ms - window * 60_000, [("billing", "orders", 0, 900 - 300 * window, 1_000)])
            synthetic.group_lag(end_ms - window * 60_000, [("payments", "orders", 1, 1_000, 1_000)])
    for name in TABLES:
        tables.ensure_table(settings.storage.tables, name)
    shutil.copytree(ROOT / SCENARIOS, folder / SCENARIOS)
    shutil.copytree(ROOT / "docs" / "queries", folder / "docs" / "queries")
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(row), "load": dict.fromkeys(
            ("bytes_in_per_sec", "bytes_out_per_sec", "disk_bytes"), 1e6)}
        for (topic, number), row in PLACED.items()
    ]  # fmt: skip
    brokers = [{"broker_id": broker} for broker in (*BROKERS, 7)]
    (folder / "cluster.json").write_text(json.dumps({"cluster_id": "c", "brokers": brokers, "partitions": partitions}))
    return folder


@pytest.fixture
def reader(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder as the one in which the reader works."""
    monkeypatch.chdir(recorded)
    monkeypatch.setenv("REBALANCER_CONFIG", str(recorded / "rebalancer.yaml"))
    return recorded


def output_of(words: list[str]) -> str:
    """What a command prints on both streams; fails if it does not end with 0."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = cli.run(words)
    assert code == 0, f"rebalancer {shlex.join(words)} ended with {code}: {printed.getvalue()}"
    return printed.getvalue()


@pytest.mark.parametrize(("name", "line"), RUN, ids=[line for _, line in RUN])
def test_a_line_runs(name: str, line: str, reader: Path) -> None:
    words = [_filled_in(word, reader) for word in shlex.split(line)]
    assert output_of(words), name


def _filled_in(word: str, folder: Path) -> str:
    """What the shell puts in the place of `$(cat FILE)`; versions of the tables begin when they are made."""
    if named := re.fullmatch(r"\$\(cat (\S+)\)", word):
        return (folder / named[1]).read_text(encoding="utf-8")
    return datetime.now(UTC).isoformat() if word.startswith("2026-11-21T") else word


@pytest.mark.parametrize(("name", "line"), [row for row in LINES if row not in RUN])
def test_a_line_that_needs_more_is_parsed(name: str, line: str) -> None:
    command, *words = shlex.split(line)
    with click.Context(cli.rebalancer) as context:
        found = cli.rebalancer.get_command(context, command)
        assert found is not None
        with found.make_context(command, words, parent=context):
            assert name


def test_each_reason_is_that_of_a_command() -> None:
    assert ASKS.keys() <= cli.COMMANDS.keys()
    assert RUN
