"""Every command prints text for people wherever its standard output goes, and JSON only where it is asked for."""

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from assignor_core.model import cluster_to_json
from assignor_core.plan import plan_to_json
from assignor_core.planner import propose
from assignor_core.restart import restart_check
from streaming.cli import COMMANDS, rebalancer, run
from streaming.commands import demotion, lifecycle
from streaming.commands import plan as plan_module
from streaming.commands import restart_check as restart_module
from streaming.commands import roll as roll_module
from streaming.control.intents import note_intent
from streaming.control.rolls import RollJournal
from streaming.runtime.accounts import HASH, Role, Roles, User, new_token, write_tokens, write_users
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings import HOUR_MS, Settings
from streaming.views.intents import Intent
from tests.control.carried import ERRORS, MB
from tests.control.test_deciding import DescribedCluster, skewed
from tests.control.windows import write_hours_before, write_lag, write_windows
from tests.core.planner.cases import founding
from tests.simulate.test_files import SMALL
from tests.simulated_cluster import LogDir, SimulatedBroker, SimulatedClient, SimulatedCluster

JSON_LINES = {"assign", "place"}
"""One JSON object a line is what these are for."""
UNTIL_STOPPED = {"demo", "run", "collect", "pipeline", "control", "serve"}
"""Brokers or Spark run below the demo and the roles; roles print nothing on standard output."""
CALLS = [
    "status", "status --groups", "lag", "lag --group billing", "plan", "plan --model model.json", "plan --log-dirs",
    "apply plan.json", "abort", "drain 1", "drain 1 --log-dir /disk-0", "undrain 2", "add 3",
    "demote 3", "undemote 1",
    "restart-check 1 --accept-single", "roll --status", "backtest", "backtest --plans", "what-if", "what-if --keep",
    "what-if --compare", "check", "simulate story.yaml", "simulate story.yaml --trace", "sql --tables",
    "sql SELECT(1)", "tables upgrade --dry-run", "tables register", "token create me", "token list", "user list",
    "config",
]  # fmt: skip
LONG = {"status", "what-if", "what-if --keep", "backtest --plans"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings, tables of a cluster with skew, a model, a plan and a story."""
    made = tmp_path_factory.mktemp("output")
    content = {
        "kafka": {"cluster_name": "test", "bootstrap_servers": ["127.0.0.1:1"], "request_timeout_ms": 200},
        "storage": {"tables": str(made / "tables")},
        "trigger": {"resources": ["bytes_in"]},
        "serve": {"tokens_file": str(made / "tokens"), "users_file": str(made / "users")},
    }
    (made / "settings.json").write_text(json.dumps(content))
    model = replace(founding(), cluster_id="test")
    (made / "model.json").write_text(json.dumps(cluster_to_json(model)))
    (made / "plan.json").write_text(json.dumps(plan_to_json(propose(model))))
    (made / "story.yaml").write_text(SMALL + "events: [{at_s: 60, restart: {member: c-1, down_s: 8}}]\n")
    write_tokens(made / "tokens", [new_token("me", Role.VIEWER, now_ms=0, expires_ms=1)[1]])
    write_users(made / "users", [User("ada", Roles(Role.VIEWER), HASH, "0" * 32, "0" * 64, 0)])
    write_tables(Settings.model_validate(content))
    return made


@pytest.fixture
def called_there(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Commands are called in the folder, with two clusters in place of a live one, and answer no to what they ask."""

    @contextmanager
    def described(_settings: object) -> Iterator[DescribedCluster]:
        yield skewed()

    @contextmanager
    def with_disks(_settings: object) -> Iterator[SimulatedClient]:
        yield SimulatedClient(cluster_with_disks(), errors=ERRORS)

    @contextmanager
    def with_no_brokers(settings: Settings) -> Iterator[roll_module._Session]:
        journal = RollJournal(settings.storage.tables, settings.kafka.cluster_name)
        yield roll_module._Session(settings, SimpleNamespace(), skewed(), journal)

    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    monkeypatch.setattr(plan_module, "live_cluster", described)
    monkeypatch.setattr(
        restart_module,
        "checked",
        lambda _, broker: restart_check(broker, skewed().live, {topic: 1 for topic, _ in skewed().live.partitions}),
    )
    monkeypatch.setattr(roll_module._Session, "opened", with_no_brokers)
    call = request.node.callspec.params["call"] if hasattr(request.node, "callspec") else ""
    monkeypatch.setattr(lifecycle, "live_cluster", with_disks if "--log-dir" in call else described)
    monkeypatch.setattr(demotion, "live_cluster", described)


def write_tables(settings: Settings) -> None:
    now_ms = time.time_ns() // 1_000_000 // 60_000 * 60_000
    write_windows(settings, skewed().live, end_ms=now_ms)
    rates = dict.fromkeys(skewed().live.partitions, 1e6)
    write_hours_before(settings, now_ms // HOUR_MS * HOUR_MS, dict.fromkeys(range(1, 4), rates))
    write_lag(settings, "billing", ("t", 0), end_ms=now_ms, consumed_per_window=1_000)
    note_intent(settings.storage.tables, "test", 2, Intent.DRAIN, "a person", now_ms=now_ms)
    note_intent(settings.storage.tables, "test", 1, Intent.DEMOTE, "a person", now_ms=now_ms)


def cluster_with_disks() -> SimulatedCluster:
    """Broker 1 with two replicas, both in the first of its log dirs."""
    brokers = [SimulatedBroker(row, None, [LogDir(100 * MB), LogDir(100 * MB)], 100 * MB, 100 * MB) for row in (1, 2)]
    made = SimulatedCluster("simulated", brokers)
    made.create_topic("t", {0: (1,), 1: (1,)}, size_bytes=5 * MB)
    return made


def test_each_command_is_called_here() -> None:
    assert {call.split()[0] for call in CALLS} | JSON_LINES | UNTIL_STOPPED == COMMANDS.keys()


@pytest.mark.usefixtures("called_there")
@pytest.mark.parametrize("call", [pytest.param(call, marks=[pytest.mark.long] * (call in LONG)) for call in CALLS])
def test_a_pipe_gets_text_unless_json_is_asked_for(
    call: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if call.startswith("apply"):  # its rights are checked before it asks
        monkeypatch.setattr("streaming.cluster.clients.admin_client", lambda _: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr("streaming.cluster.permissions.check_may_execute", lambda _: None)
    code = run([*call.split(), "--config", "settings.json"])
    printed = capsys.readouterr()
    assert (code, "error" in printed.err) in ((0, False), (1, False), (3, False)), printed
    assert bool(printed.out) != (call == "undrain 2"), printed
    assert not printed.out.lstrip().startswith(("{", "[")), printed.out[:200]


def test_nothing_but_what_a_terminal_would_act_on_depends_on_standard_output() -> None:
    """What is asked where output goes: `sql --format csv`, and the console, how wide a line may be."""
    files = sorted((PROJECT_ROOT / "streaming").rglob("*.py"))
    asking = [file.name for file in files if "stdout.isatty" in file.read_text(encoding="utf-8")]
    assert asking == ["sql.py"]


def _commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from _commands(inner, (*words, name))


@pytest.mark.parametrize("words", list(_commands(rebalancer)), ids=" ".join)
def test_each_command_has_help_that_fits_eighty_columns_and_cuts_nothing(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Usage: rebalancer")
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if line.startswith("  ") and line.endswith("...")] == []
