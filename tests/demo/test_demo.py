"""The demo without its brokers: folder, settings and ports, traffic that ends, and figures that are unknown."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from rich.console import Console

from streaming.config import load_settings
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.measure import BrokerProbe, CounterSample, max_over_mean
from streaming.demo.prepare import PERSON, add_person, bounded_log_configs, claimed, write_settings
from streaming.demo.report import plot
from streaming.demo.result import DemoResult, result_lines
from streaming.demo.scenario import PARTITIONS_PER_TOPIC, FoundingScenario
from streaming.demo.story import Story
from streaming.demo.traffic import TrafficOrder, TrafficReport
from streaming.demo.traffic_process import RESTARTS_MAX, TrafficProcess
from streaming.demo.view import View
from streaming.errors import RebalancerError, RefusedForSafety
from streaming.runtime.accounts import Role, Roles, read_users, user_with
from tests.waiting import until


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


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[TrafficProcess]:
    order = TrafficOrder(
        "127.0.0.1:1", "a", "b", "readers", records_per_sec=0.001, report_file=str(tmp_path / "report")
    )
    process = TrafficProcess(order, tmp_path / "traffic.log", restart_wait_s=0.0)
    process.start()
    yield process
    if process.process_id is not None:
        os.kill(process.process_id, signal.SIGKILL)
    process.end()


def kill(traffic: TrafficProcess) -> None:
    """End it as a fault would, and wait until that can be seen."""
    process_id = traffic.process_id
    assert process_id is not None
    os.kill(process_id, signal.SIGKILL)
    until("its end", lambda: traffic.process_id is None)


def test_traffic_that_ends_by_itself_is_an_error(traffic: TrafficProcess) -> None:
    traffic.check()
    kill(traffic)
    with pytest.raises(RebalancerError, match=r"the traffic ended by itself \(exit code -9\): see .*traffic\.log"):
        traffic.check()


@pytest.mark.long
def test_traffic_that_is_kept_is_started_again_a_few_times(traffic: TrafficProcess) -> None:
    for _ in range(RESTARTS_MAX):
        before = traffic.process_id
        traffic.revive()
        assert traffic.process_id == before  # one that runs is left alone
        kill(traffic)
        traffic.revive()
        traffic.revive()
        assert traffic.process_id not in (None, before)
    kill(traffic)
    with pytest.raises(RebalancerError, match="the traffic ended by itself"):
        traffic.revive()


def test_traffic_ends_when_it_is_asked_to_and_once(traffic: TrafficProcess) -> None:
    process_id = traffic.process_id
    assert process_id is not None
    traffic.end()
    traffic.end()
    assert traffic.process_id is None
    assert not psutil.pid_exists(process_id)


ENDPOINTS = {1: "http://127.0.0.1:1", 2: "http://127.0.0.1:2"}


def probe(*counts: tuple[float | None, float | None]) -> BrokerProbe:
    """Counters of brokers 1 and 2, a second apart."""
    made = BrokerProbe(ENDPOINTS)
    made.samples += [CounterSample(1_000 * at, dict(enumerate(row, start=1))) for at, row in enumerate(counts)]
    return made


def test_rates_are_those_between_the_first_and_the_last_sample() -> None:
    made = probe((0.0, 5.0), (10.0, 5.0), (40.0, 15.0))
    assert made.rates(0, 2_000) == {1: 20.0, 2: 5.0}
    assert made.series() == [(2_000, {1: 20.0, 2: 5.0})]


def test_a_broker_that_began_to_count_anew_has_an_unknown_rate_and_never_a_negative_one() -> None:
    made = probe((50.0, 0.0), (0.0, 10.0), (60.0, 20.0))
    assert made.rates(0, 2_000) == {1: None, 2: 10.0}
    assert made.series() == [(2_000, {1: None, 2: 10.0})]


def test_a_broker_that_shows_no_counter_has_an_unknown_rate() -> None:
    assert probe((None, 0.0), (7.0, 10.0), (None, 20.0)).rates(0, 2_000) == {1: None, 2: 10.0}
    assert probe((None, 0.0), (7.0, 10.0), (9.0, 20.0)).rates(0, 2_000) == {1: 2.0, 2: 10.0}
    assert probe((1.0, 1.0)).rates(0, 2_000) == {1: None, 2: None}


def result(before: Mapping[int, float | None], after: Mapping[int, float | None]) -> DemoResult:
    return DemoResult(
        scenario=FoundingScenario(), story=Story(balanced_ms=1, measured_ms=2),
        traffic=TrafficReport(0, {}, 0, 0, finished=True), leaders_before={}, leaders_after={},
        rates_before=before, rates_after=after, series=[(0, before), (1, after)], records_read_back=0,
        partitions_short=(),
    )  # fmt: skip


def test_what_is_unknown_is_no_success_and_is_shown_as_unknown() -> None:
    skewed, even = {1: 30.0, 2: 10.0}, {1: 10.0, 2: 10.0}
    assert result(skewed, even).succeeded
    nothing: tuple[Mapping[int, float | None], ...] = ({}, {1: None, 2: 10.0}, {1: 0.0, 2: 0.0})
    for unknown in nothing:
        assert max_over_mean(unknown) is None
        made = result(skewed, unknown)
        assert not made.succeeded
        assert "max/mean after was unknown, expected at most 1.05" in made.problems
        assert "nan" not in "".join(result_lines(made))
    assert plot(result(skewed, nothing[1])), "gaps are drawn as gaps"


def test_the_view_shows_unknown_and_no_figure_of_success() -> None:
    output = StringIO()
    view = View(Console(file=output, width=200))
    story = cast("Story", SimpleNamespace(now=lambda: "waiting"))
    view.show(1.0, {1: None, 2: 10.0}, story, 1.2)
    assert "broker 1 unknown  broker 2 0.0 kB/s  max/mean unknown  | waiting" in output.getvalue()


def test_bars_fit_a_narrow_terminal_and_one_without_blocks() -> None:
    drawn: dict[str, Any] = {"legacy_windows": False, "force_terminal": True, "width": 60}
    output = StringIO()
    view = View(Console(file=output, **drawn))
    view.start()
    view.show(1.0, {1: 10e6, 2: 5e6}, cast("Story", SimpleNamespace(now=lambda: "waiting")), 1.2)
    view.stop()
    longest = {name: max(line.count("█") for line in output.getvalue().splitlines() if name in line)
               for name in ("broker 1", "broker 2")}  # fmt: skip
    assert longest == {"broker 1": 34, "broker 2": 17}


class Planned(Exception):
    """All brokers have their ports."""


def test_no_two_brokers_get_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(_: EmbeddedCluster) -> None:
        raise Planned

    monkeypatch.setattr(EmbeddedCluster, "_format_all", planned)
    cluster = EmbeddedCluster(tmp_path / "home", broker_count=100, listeners=("SSL",), ports={7: 9092})
    with pytest.raises(Planned):
        cluster.start()
    ports = [
        port
        for row in cluster.brokers
        for port in (row.port, row.controller_port, row.jmx_port, *row.listener_ports.values())
    ]
    assert len(set(ports)) == len(ports) == 400
    assert cluster.brokers[6].port == 9092
