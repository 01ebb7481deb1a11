"""The marker on the cluster: written, renewed, released, replaced; other quotas stay."""

from dataclasses import replace

import pytest

from assignor_core.marker import Marker
from tests.conformance.stages import Stage
from tests.conformance.views import answered

NOW_MS = 1_795_000_000_000


@pytest.fixture(autouse=True)
def _no_marker_of_earlier_tests(stage: Stage) -> None:
    """A released marker stays on a cluster, and tests share the embedded one."""
    stage.remove_markers()
    until_markers(stage)


def until_markers(stage: Stage, *markers: Marker) -> None:
    stage.until(
        f"markers are {markers}", lambda: stage.client.markers() == markers, lambda: str(stage.client.markers())
    )


def test_a_marker_is_written_renewed_released_and_replaced(stage: Stage) -> None:
    first = Marker("a" * 32, "host.example/17", NOW_MS, NOW_MS)
    renewed = Marker("a" * 32, "host.example/17", NOW_MS, NOW_MS + 15_000)
    released = Marker("a" * 32, "host.example/17", NOW_MS, NOW_MS + 30_000, is_released=True)
    other = Marker("b" * 32, "another-host/1", NOW_MS + 1, NOW_MS + 40_000)
    answered(stage, lambda: stage.client.write_marker(first))
    until_markers(stage, first)
    answered(stage, lambda: stage.client.write_marker(renewed))
    until_markers(stage, renewed)
    answered(stage, lambda: stage.client.write_marker(released))
    until_markers(stage, released)
    answered(stage, lambda: stage.client.write_marker(other))
    until_markers(stage, released, other)
    answered(stage, lambda: stage.client.write_marker(other, [released]))
    until_markers(stage, other)
    # One owner ends and another process goes on with the same lease.
    after = Marker("b" * 32, "another-host/2", NOW_MS + 5, NOW_MS + 50_000, holder_id="c4")
    answered(stage, lambda: stage.client.write_marker(after, [other]))
    until_markers(stage, after)
    # The same process name at the same time, with a copy of the tables.
    copied = replace(after, holder_id="d5")
    answered(stage, lambda: stage.client.write_marker(copied))
    until_markers(stage, after, copied)
    stage.remove_markers()
    until_markers(stage)


@pytest.mark.parametrize("brokers_down", [(), (3,)])
def test_a_marker_outlives_a_broker(stage: Stage, brokers_down: tuple[int, ...]) -> None:
    marker = Marker("c" * 32, "host/1", NOW_MS, NOW_MS)
    answered(stage, lambda: stage.client.write_marker(marker))
    until_markers(stage, marker)
    for broker in brokers_down:
        stage.kill_broker(broker)
    until_markers(stage, marker)
    for broker in brokers_down:
        stage.restart_broker(broker)
    until_markers(stage, marker)
    stage.remove_markers()
    until_markers(stage)
