"""The command line: one line and an exit code for whatever goes wrong, and nothing heavy imported by light commands."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from streaming.cli import run
from streaming.runtime.locks import exclusive, holder
from tests.waiting import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "conf" / "scenarios" / "rolling-restart.yaml"
MODEL = {
    "cluster_id": "m", "observed_at_ms": 0, "brokers": [{"broker_id": 1}, {"broker_id": 2}],
    "partitions": [
        {"topic": "t", "partition": number, "replicas": [1],
         "load": {"bytes_in_per_sec": 1.0, "bytes_out_per_sec": 0.0, "disk_bytes": 5.0}}
        for number in range(2)
    ],
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _handlers_of_the_run() -> Iterator[None]:
    """What commands run here leave behind is none of the tests after them."""
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-command"], "No such command 'no-such-command'."),
        (["statsu"], "No such command 'statsu'. Did you mean 'status'?"),
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
        (["status", "--json", "--watch"], "--json and --watch can't go together"),
        (["status", "--why", "--groups"], "--why and --groups can't go together"),
        (["simulate", str(SCENARIO), "--json", "--trace"], "--json and --trace can't go together"),
        (["simulate", str(SCENARIO), "--out", "x"], "--out writes the scenario of --group"),
        (["backtest", "--hours", "nan"], "--hours nan: is not a number"),
        (["backtest", "--hours", "1e300"], "1e+300 is not in the range"),
        (["backtest", "--plans", "--decisions"], "--plans and --decisions can't go together"),
        (["plan", "--only-topic", "a", "--exclude-topic", "a"], "--only-topic a and --exclude-topic a contradict"),
        (["plan", "--only-broker", "1", "--exclude-broker", "1"], "--only-broker 1 and --exclude-broker 1 contradict"),
        (["plan", "--drain", "1", "--exclude-broker", "1"], "--drain 1 and --exclude-broker 1 contradict"),
        (["plan", "--add", "1", "--exclude-broker", "1"], "--add 1 and --exclude-broker 1 contradict"),
        (["plan", "--drain", "1", "--add", "1"], "--drain 1 and --add 1 contradict"),
    ],
)
def test_wrong_use_gives_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.startswith("error: ")
    assert printed.count("\n") == 1


def test_no_broker_gives_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    unreachable = ["--set", "kafka.bootstrap_servers=[127.0.0.1:1]", "--set", "kafka.request_timeout_ms=200"]
    for command in ("run", "collect", "plan"):
        assert run([command, *unreachable]) == 1
        printed = capsys.readouterr().err
        assert printed.startswith("error: no broker reached at 127.0.0.1:1")
        assert printed.count("\n") == 1


@pytest.mark.parametrize("command", [["status"], ["sql", "SELECT 1"]])
def test_a_file_in_the_place_of_the_tables_is_named(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run([*command, "--set", f"storage.tables={file}"]) == 1
    assert f"tables folder {file} is not a folder that can be read" in capsys.readouterr().err


def test_tables_that_cannot_be_reached_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / ("long" * 100)
    assert run(["status", "--set", f"storage.tables={folder}"]) == 1
    assert f"tables folder {folder} can't be reached: File name too long" in capsys.readouterr().err


def test_a_home_that_is_not_a_demos_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert run(["demo", "--home", str(tmp_path)]) == 2
    assert "is not empty and no demo made it" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "precious"
    assert [row.name for row in tmp_path.iterdir()] == ["mine.txt"]


def test_plan_of_a_model_is_the_contracts_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps(MODEL))
    assert run(["plan", "--model", str(file), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["movements"]) == 1
    assert result["skew_after"]["bytes_in"]["max_over_mean"] == 1.0
    assert result["reassignment"]["partitions"][0]["replicas"] == [2]
    assert result["elapsed_ms"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--exclude-topic", "tt"], "--exclude-topic: there is no topic 'tt'; did you mean 't'?"),
        (["--only-topic", "oders"], "--only-topic: there is no topic 'oders'"),
        (
            ["--only-topic", "t", "--set", "planner.excluded_topics=^t$"],
            "planner.excluded_topics keeps it from",
        ),
    ],
)
def test_a_topic_that_would_be_passed_over_in_silence_is_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps(MODEL))
    assert run(["plan", "--model", str(file), *options]) == 2
    assert message in capsys.readouterr().err


OUTPUTS = [(["config"], ""), (["config"], "1"), (["config", "--help"], ""), (["config", "--help"], "1"),
           (["config", "--json"], "1")]  # fmt: skip
"""A buffer is written when it is full, else at the end, whatever the command; without one each has its own way."""


def process(*command: str, stdout: int | IO[str], unbuffered: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = (sys.executable, "-m", "streaming", *command)
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


@pytest.mark.long
@pytest.mark.parametrize(("command", "unbuffered"), OUTPUTS)
def test_standard_output_that_takes_no_more_is_one_line(command: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ended = process(*command, stdout=full, unbuffered=unbuffered)
        _, err = ended.communicate()
    assert (ended.returncode, err) == (1, "error: output can't be written: No space left on device\n")


@pytest.mark.long
@pytest.mark.parametrize(("command", "unbuffered"), OUTPUTS)
def test_a_reader_that_has_gone_is_no_failure(command: list[str], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = process(*command, stdout=write, unbuffered=unbuffered)
    os.close(write)
    _, err = ended.communicate()
    assert (ended.returncode, err) == (0, "")


@pytest.mark.long
def test_a_command_that_has_ended_waits_for_no_thread_and_keeps_its_exit_code() -> None:
    code = (
        "import atexit, sys, threading, time; from streaming import cli;"
        "threading.Thread(target=time.sleep, args=(600,)).start(); atexit.register(print, 'at exit');"
        "sys.stdout.reconfigure(line_buffering=False); sys.argv = ['rebalancer', 'sql']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (2, "at exit\n")
    assert done.stderr.startswith("error: sql: no query given")


@pytest.mark.long
def test_check_prints_each_finding_as_soon_as_it_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        address = f"kafka.bootstrap_servers=127.0.0.1:{hangs.getsockname()[1]}"
        limit = "kafka.request_timeout_ms=600000"
        checking = process("check", "--set", address, "--set", limit, stdout=subprocess.PIPE, unbuffered="")
        try:
            assert checking.stdout
            shown = [checking.stdout.readline() for _ in range(4)]
            assert checking.poll() is None, "it waits for the broker"
        finally:
            checking.kill()
            checking.communicate()
    assert [line[6:].split("  ")[0] for line in shown] == ["java", "jars", "tables writable", "tables readable"]


def test_a_lock_names_the_process_that_has_it(tmp_path: Path) -> None:
    with exclusive(str(tmp_path), "run") as is_ours, exclusive(str(tmp_path), "run") as is_ours_too:
        assert (is_ours, is_ours_too) == (True, False)
        assert holder(str(tmp_path), "run") == f"process {os.getpid()} on {socket.gethostname()}"


@pytest.mark.long
def test_light_commands_import_nothing_heavy_and_roles_no_pandas() -> None:
    """In one process, the lightest first: what a later step must not import, no earlier one may.

    Only the pipeline needs pandas. Its import took a third of the CPU time of a start.
    """
    code = """
import sys
from streaming.cli import run

def check(step, *without):
    imported = set(without) & set(sys.modules)
    if imported:
        sys.exit(f"{step}: imports {imported}")

heavy = "pyspark", "kafka", "deltalake", "duckdb", "pyarrow", "matplotlib", "pandas"
run(["config", "--help"])
check("config", "numpy", *heavy)
for command in "assign", "place", "plan":
    run([command, "--help"])
    check(command, *heavy)
import streaming.collect.run, streaming.control.run, streaming.serve.run, streaming.commands.status
check("roles", "pandas")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
