"""What `rebalancer what-if` predicts against what comes: the traffic of one topic doubles."""

from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster
from tests.kafka.what_if_stories import Story, brokers, in_turn, running, topics

__all__ = ["brokers"]  # the fixture

pytestmark = [pytest.mark.kafka, pytest.mark.apart, pytest.mark.long]


def test_a_topic_gets_twice_its_traffic(
    brokers: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Brokers 1 and 2 have 1.125 times the mean load before, and 1.44 times after.
    placed = {"busy": in_turn((1, 2), partitions=54), "calm": in_turn((3, 4), partitions=42)}
    with running(brokers, 1, 2, 3, 4) as admin, topics(brokers, admin, placed) as factors:
        story = Story(brokers, admin, tmp_path, throttle=2_000_000)
        predicted = story.predict(capsys, "--traffic", "busy=2x")
        assert predicted["plans"]
        factors["busy"] = 2
        story.carry_out()
        story.has_come(capsys)
