"""Stories from fixed seeds: no invariant breaks, planted faults are caught, a seed gives one story."""

from collections import Counter
from collections.abc import Iterator

import pytest
import structlog

from tests.simulation import run
from tests.simulation.monitor import Broken
from tests.simulation.planted import PLANTED, Planted
from tests.simulation.story import Outcome, run_story
from tests.simulation.world import Blow

SEEDS = range(1, 301)


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of lines of control's log say nothing that the trace does not."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [run_story(seed) for seed in SEEDS]


def test_no_invariant_breaks(outcomes: list[Outcome]) -> None:
    broken = [run.report(outcome, row) for outcome in outcomes for row in outcome.broken]
    assert not broken, "\n".join(broken)


def test_the_stories_are_no_idle_ones(outcomes: list[Outcome]) -> None:
    """A simulation in which nothing happens would break nothing."""
    faults = sum((outcome.faults for outcome in outcomes), Counter[str]())
    assert all(faults[blow.value] for blow in Blow)
    assert sum(outcome.executions for outcome in outcomes) > len(SEEDS) // 2
    trace = "\n".join(line for outcome in outcomes for line in outcome.trace)
    for event in ("started", "submitted", "electing", "done", "aborted", "refused"):
        assert f" {event}: " in trace, event


def test_a_seed_gives_the_same_story_byte_for_byte(outcomes: list[Outcome]) -> None:
    busiest = max(outcomes[:10], key=lambda outcome: len(outcome.trace))
    again = run_story(busiest.seed)
    assert again.trace == busiest.trace
    assert again.digest == busiest.digest


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_fault_is_caught(planted: Planted) -> None:
    assert planted.caught_by(planted.seed)


def test_a_broken_invariant_is_shown_with_its_trace_and_how_to_see_it_again() -> None:
    broken = Broken("5 only the holder changes anything", "control 1 did", 1)
    outcome = Outcome(7, (broken,), ("before", "BROKEN here", "after"), Counter(), 1, 0)
    shown = run.report(outcome, broken)
    assert shown.splitlines()[:4] == [
        "seed 7 breaks 5 only the holder changes anything: control 1 did", "before", "BROKEN here", "after",
    ]  # fmt: skip
    assert 'make simulate-faults ARGS="--seeds 1 --first 7 --trace"' in shown
