"""What `rebalancer what-if` predicts against what comes: one of four brokers is killed."""

from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster
from tests.kafka.what_if_stories import Story, brokers, in_turn, running, topics

__all__ = ["brokers"]  # the fixture

pytestmark = [pytest.mark.kafka, pytest.mark.apart, pytest.mark.long]


def test_a_broker_less(brokers: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed = {"less": in_turn((1, 2, 3, 4))}
    with running(brokers, 1, 2, 3, 4) as admin, topics(brokers, admin, placed):
        story = Story(brokers, admin, tmp_path, throttle=2_000_000)
        predicted = story.predict(capsys, "--broker-down", "4")
        assert predicted["plans"]
        brokers.kill_broker(4)
        story.carry_out()
        story.has_come(capsys)
