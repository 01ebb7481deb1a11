"""Stories from fixed seeds: no invariant breaks, planted faults are caught, a seed gives one story."""

from collections import Counter

import pytest

from tests.simulation import run
from tests.simulation.clusters import CLUSTERS, NOTHING_CROSSES, Deployment, run_clusters_story
from tests.simulation.crossings import CROSSINGS
from tests.simulation.folders import run_folder_story
from tests.simulation.monitor import Broken
from tests.simulation.planted import AWAITING_SEEDS, PLANTED, Planted
from tests.simulation.relief import run_relief_story
from tests.simulation.samples import run_sample_story
from tests.simulation.story import PlayedStory, run_story
from tests.simulation.within import run_within_story
from tests.simulation.world import Blow

pytestmark = pytest.mark.long

SEEDS = range(1, 101)
ONCE_BROKEN = {
    211474: "another tool moved a partition to exactly the replicas of the plan, which counts as the plan's own move",
    210388: "a late request of an earlier plan put a partition back to another order, which was named nowhere",
    6046: "mode apply approved plan after plan while a partition stayed offline; each waited until its deadline",
    **dict.fromkeys(
        (3691, 4156, 5816, 8136), "others began moves between a look and a request that came long after it"
    ),
    **dict.fromkeys((5678, 7606, 9259), "a topic was made again between a look and a request that came long after it"),
    **dict.fromkeys(
        (5764, 7634), "a move that metadata did not show yet was asked for again, after another tool had changed it"
    ),
    8256: "a late request undid a part of a wave, and metadata did not show yet that it had",
    2000264: "a change of leader that copied its replicas anew, after another tool had moved them, counted as no copy",
    5054: "replicas counted as listed for the throttle although the request had failed that was to list them",
    3348: "the first start bound the tables to another cluster that answered at the address",
    5777: "a plan was made while metadata hid a topic, and promised what it could not know",
    5346: "mode apply planned again at once after each execution that it gave up at its deadline",
    300174: "topics that were not described for long counted as gone, and their plan as done",
    8932: "late entries of a partition that another tool moves, maybe its own, were judged as left behind",
    4224: "automatic mode began a plan a minute before the story ended, and was judged as if it had had all the time",
    5924: "a rate that came late stayed, as Kafka never ended a move whose target another tool had changed",
    2026: "movements of an execution whose rows were gone counted for the waves of the next one",
    **dict.fromkeys((5744, 8426), "where an execution whose rows are gone had moved a partition was judged by another"),
    5135: "a step of a staged move that was carried out after the end was named nowhere",
}
"""Seeds of stories that broke an invariant, and what was mended."""
SAMPLE_SEEDS = range(1, 11)
RELIEF_SEEDS = range(1, 11)
RELIEF_ONCE_BROKEN = {
    1483: "before Kafka 4.3 a copied move waited for failed brokers until the deadline of its execution",
    2353: "a plan for skew waited for brokers that had failed, and what replaces their replicas waited behind it",
    **dict.fromkeys((7133, 301283), "a reassignment that only a failed broker could bring on kept relief waiting"),
    107: "others filled a log dir while replicas were copied into it from other brokers",
    201153: "a movement was skipped for want of room after one look: the execution was held back for ten minutes",
}
"""The same as ONCE_BROKEN, of stories of brokers that fail."""
WITHIN_SEEDS = range(1, 13)
WITHIN_ONCE_BROKEN = {
    1298: "a copy ended while control stood still before it gave the copy up, and was copied back without a rate",
    **dict.fromkeys((2508, 8888, 9488), "others filled a log dir while copies went on into it, which took it offline"),
    498: "a broker that was away when its rate was set came back and copied without one",
    1058: "copies from a log dir that had gone offline counted as under way for the judge",
    300618: "the judge had not looked when a broker that died was back before its session had ended",
    500398: "an execution was aborted while the log dir that it copied from was offline, and went on without a rate",
    2058: "a person removed a rate of their own between two looks of control at rates",
    1628: "a person replaced a rate of control's and removed it later: copies went on without one",
    3858: "what may go on from a log dir that is offline does so at a person's rate, and no rate of ours is owed",
    558: "others filled a log dir while replicas were copied to it, and the judge took it for sound",
}
"""The same of stories of full log dirs."""
FOLDER_SEEDS = range(1, 13)
FOLDERS_ONCE_BROKEN = {
    197: "what the control of a copy cleared up after an end was the move of the other folder",
}
"""The same of stories of two folders."""

CLUSTERS_SEEDS = range(1, 9)


@pytest.fixture(scope="module")
def played_stories() -> list[PlayedStory]:
    return [run_story(seed) for seed in SEEDS]


def test_no_invariant_breaks(played_stories: list[PlayedStory]) -> None:
    broken = [run.report(played, row) for played in played_stories for row in played.broken]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_what_was_mended_stays_so(seed: int) -> None:
    played = run_story(seed)
    assert not played.broken, "\n".join(run.report(played, row) for row in played.broken)


@pytest.mark.parametrize("seed", [*FOLDER_SEEDS, *FOLDERS_ONCE_BROKEN])
def test_two_folders_never_change_the_cluster_together(seed: int) -> None:
    played = run_folder_story(seed)
    assert not played.broken, "\n".join(run.report(played, row) for row in played.broken)


def test_nothing_crosses_from_one_cluster_of_a_process_to_another() -> None:
    played = [run_clusters_story(seed) for seed in CLUSTERS_SEEDS]
    broken = [run.report(story, row) for story in played for row in story.broken]
    assert not broken, "\n".join(broken)
    faults = sum((story.faults for story in played), Counter[str]())
    assert faults["another cluster acts in between"] > 100 * len(CLUSTERS_SEEDS)
    assert faults["the process of all clusters is killed"]
    for name in CLUSTERS:
        assert any(line.startswith(name) and " done: " in line for story in played for line in story.trace), name


def test_a_deployment_gives_the_same_story_byte_for_byte() -> None:
    assert run_clusters_story(1).digest == run_clusters_story(1).digest


@pytest.mark.parametrize("planted", CROSSINGS, ids=lambda planted: planted.name)
def test_what_crosses_is_caught(planted: Planted) -> None:
    assert any(planted.caught_by(seed) for seed in (planted.seed, *range(1, 21)))


def test_a_trace_that_differs_from_that_of_a_cluster_alone_is_shown() -> None:
    alone = [PlayedStory(1, (), ("another line",), Counter(), 0, 0) for _ in CLUSTERS]
    (row,) = Deployment(1).run(alone).broken
    assert row.invariant == NOTHING_CROSSES
    assert row.detail.startswith("east alone: line 1 is ")


def test_brokers_that_fail_are_replaced_unless_they_return() -> None:
    played = [run_relief_story(seed) for seed in (*RELIEF_SEEDS, *RELIEF_ONCE_BROKEN)]
    broken = [run.report(story, row) for story in played for row in story.broken]
    assert not broken, "\n".join(broken)
    trace = "\n".join(line for story in played for line in story.trace)
    assert "which the plan replaces, is back" in trace
    assert sum(story.executions for story in played) > len(RELIEF_SEEDS)


def test_full_log_dirs_are_relieved_whatever_strikes_meanwhile() -> None:
    played = [run_within_story(seed) for seed in (*WITHIN_SEEDS, *WITHIN_ONCE_BROKEN)]
    broken = [run.report(story, row) for story in played for row in story.broken]
    assert not broken, "\n".join(broken)
    faults = sum((story.faults for story in played), Counter[str]())
    for kind in (
        "a copy is lost at a restart",
        "a target is filled by others",
        "a log dir fails",
        "another moves a replica within its broker",
        "movements within a broker are refused for a while",
        "a person stops an execution",
    ):
        assert faults[kind], kind
    trace = "\n".join(line for story in played for line in story.trace)
    assert "every movement has been made" in trace
    assert "movements in flight given up" in trace


def test_no_plan_rests_on_doubtful_samples() -> None:
    """And where a broker is silent the others are evened out."""
    played = [run_sample_story(seed) for seed in SAMPLE_SEEDS]
    broken = [run.report(story, row) for story in played for row in story.broken]
    assert not broken, "\n".join(broken)
    silent = [story for story in played if story.faults["a broker is silent"]]
    assert len(SAMPLE_SEEDS) > len(silent) >= 3
    assert all(any(" done: " in line for line in story.trace) for story in silent)


def test_the_stories_are_no_idle_ones(played_stories: list[PlayedStory]) -> None:
    """A simulation in which nothing happens would break nothing."""
    faults = sum((played.faults for played in played_stories), Counter[str]())
    assert all(faults[blow.value] for blow in Blow)
    assert sum(played.executions for played in played_stories) > len(SEEDS) // 2
    for kind in (
        "another cluster answers at the address",
        "may not be described",
        "of the plan is made again",
        "a request is carried out late: reassign",
        "the machine of control is paused",
    ):
        assert faults[kind], kind
    trace = "\n".join(line for played in played_stories for line in played.trace)
    for event in ("started", "submitted", "electing", "done", "aborted", "refused"):
        assert f" {event}: " in trace, event
    assert "lease not renewed: the main loop has made no progress" in trace


def test_a_seed_gives_the_same_story_byte_for_byte(played_stories: list[PlayedStory]) -> None:
    busiest = max(played_stories[:10], key=lambda played: len(played.trace))
    again = run_story(busiest.seed)
    assert again.trace == busiest.trace
    assert again.digest == busiest.digest


@pytest.mark.parametrize(
    "planted", [row for row in PLANTED if row.name not in AWAITING_SEEDS], ids=lambda planted: planted.name
)
def test_a_planted_fault_is_caught(planted: Planted) -> None:
    assert any(planted.caught_by(seed) for seed in (planted.seed, *range(1, 201)))


def test_a_broken_invariant_is_shown_with_its_trace_and_how_to_see_it_again() -> None:
    broken = Broken("5 only the holder changes anything", "control 1 did", 1)
    played = PlayedStory(7, (broken,), ("before", "BROKEN here", "after"), Counter(), 1, 0)
    shown = run.report(played, broken)
    assert shown.splitlines()[:4] == [
        "seed 7 breaks 5 only the holder changes anything: control 1 did", "before", "BROKEN here", "after",
    ]  # fmt: skip
    assert 'make simulate-faults ARGS="--seeds 1 --first 7 --trace --story faults"' in shown
