"""Rolls of a simulated cluster under faults: what they never do, and how long they take. `rolls.py` has the stories."""

import pytest

from tests.simulation.rolls import RollStory, crashing, crashing_with_margin, killed, undisturbed

LARGE = [pytest.param(100, seed, marks=pytest.mark.long) for seed in range(1)]


def played(story: RollStory) -> RollStory:
    """The story, which has ended well."""
    story.run()
    assert not story.broken(), story.broken()[:3]
    return story


@pytest.mark.parametrize(("broker_count", "seed"), [(15, 0), (15, 1), *LARGE])
def test_brokers_are_restarted_in_little_more_time_than_they_need_to_catch_up(broker_count: int, seed: int) -> None:
    story = played(undisturbed(seed, broker_count))
    assert (story.restarts, len(story.caught_up_ms)) == (broker_count, broker_count)
    assert story.time_per_catching_up <= 1.2


@pytest.mark.parametrize("seed", range(12))
def test_no_partition_lacks_replicas_in_sync_however_often_the_process_is_killed(seed: int) -> None:
    played(killed(seed))


@pytest.mark.parametrize("seed", range(6))
def test_without_a_margin_no_restart_begins_while_another_broker_is_away(seed: int) -> None:
    played(crashing(seed))


@pytest.mark.parametrize("seed", range(12))
def test_with_a_margin_one_more_broker_may_crash_at_any_time(seed: int) -> None:
    played(crashing_with_margin(seed))
