"""What `rebalancer what-if` predicts against what comes: a fourth broker comes."""

from pathlib import Path

import pytest

from streaming.demo.brokers import EmbeddedCluster
from tests.kafka.what_if_stories import Story, brokers, in_turn, run_only, running, topics

__all__ = ["brokers"]  # the fixture

pytestmark = [pytest.mark.kafka, pytest.mark.apart, pytest.mark.long]

NEW_BROKER = 4


def test_a_broker_more(brokers: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed = {"more": in_turn((1, 2, 3))}
    with running(brokers, 1, 2, 3) as admin, topics(brokers, admin, placed):
        # One empty broker of four makes 1.33: a plan for skew and one that fills it differ, and either could be first.
        story = Story(brokers, admin, tmp_path, throttle=4_000_000, enter_ratio=1.5)
        predicted = story.predict(capsys, "--add-brokers", "1")
        assert len(predicted["plans"]) == 1
        run_only(brokers, 1, 2, 3, NEW_BROKER)
        story.carry_out()
        story.has_come(capsys)
