"""Settings and topics of a demo."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from streaming.config import load_settings
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.prepare import PERSON, add_person, bounded_log_configs, claimed, write_settings
from streaming.demo.scenario import PARTITIONS_PER_TOPIC
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.runtime.accounts import Role, Roles, read_users, user_with


@pytest.mark.long
@pytest.mark.parametrize("mode", ["propose", "apply"])
def test_a_demo_runs_in_the_mode_asked_for_and_on_loopback(tmp_path: Path, mode: Any) -> None:
    cluster = SimpleNamespace(bootstrap_servers=["127.0.0.1:1"], jmx_endpoints={1: "http://127.0.0.1:2/metrics"})
    settings = load_settings(write_settings(tmp_path, cast("EmbeddedCluster", cluster), mode))
    assert settings.control.mode == mode
    assert settings.control.settle_windows == 2  # the rest of the section is the short story's
    assert settings.serve.host == "127.0.0.1"
    password = add_person(tmp_path, now_ms=0)
    assert settings.serve.users_file is not None
    users = read_users(Path(settings.serve.users_file))
    person = user_with(users, PERSON, password)
    assert person is not None, "who approves on the page signs in with what the demo prints"
    assert person.roles == Roles(Role.OPERATOR)
    assert password not in Path(settings.serve.users_file).read_text()


def test_topics_of_a_kept_demo_are_bounded_but_keep_what_will_be_read_back() -> None:
    small, large = bounded_log_configs(1_000), bounded_log_configs(100_000_000)
    assert int(small["retention.bytes"]) == 32 << 20
    assert int(large["retention.bytes"]) > 100_000_000 / PARTITIONS_PER_TOPIC * 60  # a record takes less than 60 bytes
    assert int(large["segment.bytes"]) < int(small["retention.bytes"])  # whole segments are deleted


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    with pytest.raises(UsageProblem, match="is not empty and no demo made it"), claimed(tmp_path):
        pass
    assert [row.name for row in tmp_path.iterdir()] == ["mine.txt"]
    assert mine.read_text() == "precious"


def test_what_a_demo_that_has_ended_left_is_cleared(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with claimed(home):
        (home / "old.txt").write_text("of an earlier demo")
        (home / "tables").mkdir()
    with claimed(home):
        assert not (home / "old.txt").exists()
        assert not (home / "tables").exists()


def test_a_demo_that_runs_keeps_its_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with claimed(home):
        (home / "kept.txt").write_text("of the demo that runs")
        with (
            pytest.raises(RefusedForSafety, match=rf"a demo is running in .*home \(pid {os.getpid()}\)"),
            claimed(home),
        ):
            pass
        assert (home / "kept.txt").exists()


@pytest.mark.long
def test_a_killed_demo_holds_nothing_though_a_process_that_it_started_lives_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with subprocess.Popen([sys.executable, "-c", CLAIMS_AND_STARTS, str(home)], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        child = psutil.Process(int(killed.stdout.readline()))
        with pytest.raises(RefusedForSafety, match=rf"\(pid {killed.pid}\)"), claimed(home):
            pass
        assert child.status() != psutil.STATUS_ZOMBIE, "what runs there is not ended"
        killed.kill()
    with claimed(home):
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "what a dead run left is"


CLAIMS_AND_STARTS = """
import pathlib, sys
from streaming.demo.prepare import claimed
from streaming.runtime import processes

home = pathlib.Path(sys.argv[1])
with claimed(home):
    (home / "kafka").mkdir()
    child = processes.start(["sleep", "600"], log=home / "child.log", orphan_allowed=True)
    processes.note({"broker": child.pid}, home / "kafka" / "processes.json")
    print(child.pid, flush=True)
    sys.stdin.read()
    child.wait()
"""
