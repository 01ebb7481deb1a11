"""The demo's traffic is started again while a demo is kept, and ends with it. Nothing listens where it sends to."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streaming.demo.traffic import TrafficOrder
from streaming.demo.traffic_process import RESTARTS_MAX, TrafficProcess
from streaming.errors import RebalancerError
from tests.waiting import until


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
