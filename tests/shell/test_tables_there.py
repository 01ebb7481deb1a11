"""Commands that read the tables where there are none, or none of this cluster: "nothing" would be taken for news."""

import time
from pathlib import Path

import pytest

from streaming import tables
from streaming.cli import run
from streaming.control.wiring import journal_of
from tests.serve.synthetic import Synthetic, settings_for

COMMANDS = (["status"], ["status", "--groups"], ["lag"], ["abort"], ["apply", "5ec398fbaf13"], ["undrain", "1"])


def asked(command: list[str], root: Path, cluster: str = "test") -> int:
    return run([*command, "--set", f"storage.tables={root}", "--set", f"kafka.cluster_name={cluster}"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_place_without_tables_is_refused_and_named(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "typo"
    for _ in range(2):
        assert asked(command, root) == 2
        message = (
            f"error: no tables in {root} (for cluster 'test'): is storage.tables right? "
            "`rebalancer run` makes them with its first window\n"
        )
        assert capsys.readouterr() == ("", message)
        root.mkdir(exist_ok=True)  # an empty folder is no other case


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_tables_of_other_clusters_only_are_refused_with_their_names(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "tables"
    Synthetic(str(root), "prod").event(time.time_ns() // 1_000_000, 0, "started")
    Synthetic(str(root), "staging").broker_load(0, {1: 1.0})
    assert asked(command, root, "prdo") == 2
    message = (
        f"the tables in {root} hold nothing of cluster 'prdo', only of prod, staging: is kafka.cluster_name right?"
    )
    assert message in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("command", [["status"], ["lag"], ["abort"]], ids=" ".join)
def test_a_set_up_before_its_first_window_is_none_of_these(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(tmp_path)
    journal_of(settings).make_tables()
    assert asked(command, Path(settings.storage.tables)) == 0
    assert capsys.readouterr().err == ""


def test_one_row_of_the_cluster_is_enough(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    Synthetic(settings.storage.tables, "other").broker_load(0, {1: 1.0})
    Synthetic(settings.storage.tables).group_lag(0, [("g", "t", 0, 1, 1)])
    assert asked(["status"], Path(settings.storage.tables)) == 0


def test_a_table_without_clusters_says_nothing_of_them(tmp_path: Path) -> None:
    root = tmp_path / "tables"
    tables.create_table(str(root), "rejected_record")
    assert asked(["status"], root) == 2


def test_a_table_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    Synthetic(settings.storage.tables).broker_load(0, {1: 1.0})
    for file in Path(settings.storage.tables).rglob("*.parquet"):
        file.unlink()
    assert asked(["status"], Path(settings.storage.tables)) == 1
    assert capsys.readouterr().err.startswith("error: table broker_load can't be read: ")
