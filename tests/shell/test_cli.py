"""The command line: one line and an exit code for whatever goes wrong, and nothing heavy imported by light commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.cli import COMMANDS, run

MODEL = {
    "cluster_id": "m", "observed_at_ms": 0, "brokers": [{"broker_id": 1}, {"broker_id": 2}],
    "partitions": [
        {"topic": "t", "partition": number, "replicas": [1],
         "load": {"bytes_in_per_sec": 1.0, "bytes_out_per_sec": 0.0, "disk_bytes": 5.0}}
        for number in range(2)
    ],
}  # fmt: skip


def test_every_command_can_be_loaded_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert run([name, "--help"]) == 0, name
        assert "Usage: rebalancer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-command"], "No such command 'no-such-command'."),
        (["run", "--confg", "x"], "No such option '--confg'"),
        (["config", "--config", "no-such.yaml"], "settings file no-such.yaml: No such file or directory"),
        (["config", "--set", "serve.port"], "'serve.port' is not KEY=VALUE"),
        (
            ["config", "--set", "serve.port=99999"],
            "serve.port: input should be less than or equal to 65535, found 99999",
        ),
        (["plan", "--model", "no-such.json"], "no-such.json"),
        (["sql", "DROP TABLE decision"], "exactly one SELECT"),
        (["demo", "--topics", "a"], "'a' is not two different names"),
    ],
)
def test_wrong_use_gives_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    found = capsys.readouterr().err
    assert message in found
    assert found.startswith("error: ")
    assert found.count("\n") == 1


def test_no_broker_gives_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    unreachable = ["--set", "kafka.bootstrap_servers=[127.0.0.1:1]", "--set", "kafka.request_timeout_ms=1000"]
    for command in ("run", "collect", "plan"):
        assert run([command, *unreachable]) == 1
        assert "no broker reached at 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["status"], ["sql", "SELECT 1"]])
def test_a_file_in_the_place_of_the_tables_is_named(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run([*command, "--set", f"storage.tables={file}"]) == 1
    assert f"tables folder {file} is not a folder that can be read" in capsys.readouterr().err


def test_a_home_that_is_not_a_demos_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert run(["demo", "--home", str(tmp_path)]) == 2
    assert "is not empty and no demo made it" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_plan_of_a_model_is_the_contracts_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps(MODEL))
    assert run(["plan", "--model", str(file), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["movements"]) == 1
    assert result["skew_after"]["bytes_in"]["max_over_mean"] == 1.0
    assert result["reassignment"]["partitions"][0]["replicas"] == [2]
    assert result["elapsed_ms"] > 0


def test_config_shows_where_values_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--json", "--set", "serve.port=1234"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["serve.port"] == {"key": "serve.port", "value": 1234, "origin": "flag"}
    assert rows["kafka.cluster_name"]["origin"] == "default"


@pytest.mark.parametrize("command", ["assign", "place", "plan"])
def test_light_commands_import_nothing_heavy(command: str) -> None:
    code = (
        "import sys; from streaming.cli import run; run([sys.argv[1], '--help']);"
        "heavy = {'pyspark', 'kafka', 'deltalake', 'duckdb', 'pyarrow', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
