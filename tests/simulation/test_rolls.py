"""Rolls of a simulated cluster under faults: what they never do, and how long they take. `rolls.py` has the stories."""

from typing import Any

import pytest

from tests.simulation.rolls import RollStory, crashing, crashing_with_margin, killed, undisturbed


def seeds(few: int, all_of_them: int) -> list[Any]:
    """Seeds of which the few first ones are played in `make test-fast`, too."""
    return [pytest.param(seed, marks=pytest.mark.long if seed >= few else ()) for seed in range(all_of_them)]


def played(story: RollStory) -> RollStory:
    """The story, which has ended well."""
    story.run()
    assert not story.broken(), story.broken()[:3]
    return story


@pytest.mark.parametrize(
    ("broker_count", "seed"), [(15, 0), *(pytest.param(*row, marks=pytest.mark.long) for row in ((15, 1), (100, 0)))]
)
def test_brokers_are_restarted_in_little_more_time_than_they_need_to_catch_up(broker_count: int, seed: int) -> None:
    story = played(undisturbed(seed, broker_count))
    assert (story.restarts, len(story.caught_up_ms)) == (broker_count, broker_count)
    assert story.time_per_catching_up <= 1.2


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(2, 12))
def test_no_partition_lacks_replicas_in_sync_however_often_the_process_is_killed(seed: int) -> None:
    played(killed(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(1, 6))
def test_without_a_margin_no_restart_begins_while_another_broker_is_away(seed: int) -> None:
    played(crashing(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(2, 12))
def test_with_a_margin_one_more_broker_may_crash_at_any_time(seed: int) -> None:
    played(crashing_with_margin(seed))
