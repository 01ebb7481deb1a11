"""What a runbook tells a person to type or to look for exists: commands, settings, queries, boards, log events."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from streaming.cli import COMMANDS
from streaming.commands.sql import run_query
from streaming.contract import TABLES
from streaming.settings import Settings
from streaming.tables import create_table

ROOT = Path(__file__).parents[2]
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("Rebalancer*.md"))
QUOTED = re.compile(r"`([^`]+)`")


def quoted() -> Iterator[tuple[str, str]]:
    """(runbook, what it puts between backticks), line breaks undone."""
    for file in RUNBOOKS:
        for match in QUOTED.findall(file.read_text()):
            yield file.stem, " ".join(match.split())


def test_commands_exist() -> None:
    named = {(page, text.split()[1]) for page, text in quoted() if re.match(r"rebalancer \w", text)}
    assert named
    assert not {(page, command) for page, command in named if command not in COMMANDS}


def test_settings_exist() -> None:
    sections = Settings.model_fields
    named = {
        (page, *text.partition(":")[0].split(".", 1)) for page, text in quoted() if re.match(r"[a-z]+\.[a-z_]+", text)
    }
    ours = {(page, section, key) for page, section, key in named if section in sections}
    assert len(ours) > 20
    for page, section, key in ours:
        assert key in type(getattr(Settings(), section)).model_fields, f"{page}: {section}.{key}"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, skewed_tables: str) -> str:
    root = str(tmp_path_factory.mktemp("runbooks") / "tables")
    shutil.copytree(skewed_tables, root)
    for name in TABLES:
        create_table(root, name)
    return root


@pytest.mark.parametrize(
    "query", sorted({match.group(1) for _, text in quoted() if (match := re.fullmatch(r'rebalancer sql "(.*)"', text))})
)
def test_queries_are_answered(tables: str, query: str) -> None:
    columns, _ = run_query(query, tables)
    assert columns


def test_boards_exist() -> None:
    files = (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")
    titles = {json.loads(file.read_text())["title"].rpartition(" · ")[2].lower() for file in files}
    named = {
        (file.stem, " ".join(name.split()))
        for file in RUNBOOKS
        for name in re.findall(r"[Bb]oard\s+\*([^*]+)\*", file.read_text())
    }
    assert len(named) > 8
    assert not {(page, name) for page, name in named if name.lower() not in titles}


def test_log_events_are_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "logs.md").read_text(), re.MULTILINE))
    named = {(page, text) for page, text in quoted() if re.fullmatch(r"\w+_(failed|unread|unreachable|stopped)", text)}
    assert named
    assert not {(page, event) for page, event in named if event not in documented}


def test_the_index_names_every_alert_with_its_severity_and_summary() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    expected = [
        f"- [{rule['alert']}]({rule['alert']}.md) ({rule['labels']['severity']}): {rule['annotations']['summary']}"
        for group in groups
        for rule in group["rules"]
    ]
    index = (ROOT / "docs" / "runbooks" / "README.md").read_text().splitlines()
    assert [line for line in index if line.startswith("- ")] == expected
