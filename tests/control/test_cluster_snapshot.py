"""What an execution asks about: little at most past, and it decides as if it had asked about everything."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from assignor_core.execution.progress import NO_SNAPSHOTS, progress_of, topics_in_play
from assignor_core.execution.reconcile import Abort, Done, ElectLeaders, Limits, Step, Submit, Wait, next_step
from assignor_core.live import LiveCluster
from assignor_core.plan import Movement, Plan
from streaming.control.cluster_snapshot import WHOLE_READ_INTERVAL_MS, ClusterSnapshot, ExecutionSnapshots
from tests.simulated_cluster import (
    SimulatedClient,
    SimulatedCluster,
    SimulatedRefusal,
    SimulatedSilence,
    plan_faults,
    random_cluster,
    random_faults,
)

TICK_MS = 1_000
LIMITS = Limits(movements_in_flight_max=4, movements_per_topic_max=2, movements_per_broker_max=2, deadline_ms=600_000)
SECONDS_MAX = 400
OURS, OTHERS = ("t", 0), ("others", 0)


class CountedClient(SimulatedClient):
    """Notes the topics of each question, None for all; on demand that one gets no answer."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster)
        self.questions: list[frozenset[str] | None] = []
        self.is_slow = False

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        self.questions.append(None if topics is None else frozenset(topics))
        if self.is_slow and topics is None:
            raise SimulatedSilence("no answer")
        return super().describe(topics)


class Watched:
    """A plan that is carried out by what the view shows, beside one that asks about everything at each look."""

    def __init__(self, cluster: SimulatedCluster, plan: Plan, limits: Limits = LIMITS) -> None:
        self.cluster, self.plan, self.limits = cluster, plan, limits
        self.client = CountedClient(cluster)
        self.snapshot = ClusterSnapshot(self.client)
        self._in_play: frozenset[str] = frozenset()
        self._past = NO_SNAPSHOTS

    def steps(self) -> tuple[Step, Step]:
        """The next step by the view, and by everything; what is submitted and what ends was asked about."""
        now_ms, staged = self.cluster.now_ms, self.limits.staged
        self.snapshot.read(self._in_play, now_ms=now_ms)
        step = self._next()
        if isinstance(step, Submit) and (unasked := self.snapshot.unread(step.reassignments)):
            self.snapshot.read_also(unasked, now_ms=now_ms)
            step = self._next()
        if isinstance(step, Done) and not self.snapshot.is_whole:
            self.snapshot.read_all(now_ms=now_ms)
            step = self._next()
        whole = SimulatedClient(self.cluster).describe()
        self._past = self._past.after(self.plan, whole, staged=staged)
        by_all = next_step(self.plan, whole, self.limits, worked_ms=now_ms, past=self._past)
        return step, by_all

    def _next(self) -> Step:
        live = self.snapshot.of(row.key for row in self.plan.movements)
        past = self._past.after(self.plan, live, staged=self.limits.staged)
        self._in_play = topics_in_play(progress_of(self.plan, live, staged=self.limits.staged, past=past), live)
        return next_step(self.plan, live, self.limits, worked_ms=self.cluster.now_ms, past=past)

    def take(self, step: Step) -> bool:
        """Carry it out; True once it ends."""
        match step:
            case Submit(reassignments):
                self._in_play |= {topic for topic, _ in reassignments}
                self.client.reassign(dict(reassignments))
            case ElectLeaders(partitions):
                self.client.elect_preferred(partitions)
            case Done() | Abort():
                return True
            case _:
                pass
        return False


def random_story(seed: int, *, faults_max: int) -> Watched:
    random = Random(seed)
    cluster = random_cluster(random)
    movements: list[Movement] = []
    for key, row in random.sample(cluster.contents.partitions(), min(6, len(cluster.contents.partitions()))):
        spare = sorted(cluster.contents.brokers.keys() - set(row.replicas))
        if spare:
            new = (random.choice(spare), *row.replicas[1:])
            movements.append(Movement(*key, row.replicas, new, float(row.end_bytes), wave=len(movements) // 3))
    plan_faults(cluster, random_faults(random, cluster, duration_ms=60_000, faults_max=faults_max))
    return Watched(cluster, Plan("c", tuple(movements)), replace(LIMITS, staged=random.random() < 0.3))


@pytest.mark.parametrize("first", [1, pytest.param(21, marks=pytest.mark.long)])
def test_without_faults_each_step_is_that_of_who_asks_about_everything(first: int) -> None:
    asked = 0
    for seed in range(first, first + 20):
        story = random_story(seed, faults_max=0)
        for _ in range(SECONDS_MAX):
            by_view, by_all = story.steps()
            assert by_view == by_all, f"seed {seed}, {story.cluster.now_ms} ms"
            if story.take(by_view):
                break
            story.cluster.advance(TICK_MS)
        asked += sum(topics is not None for topics in story.client.questions)
    assert asked > 100, "hardly a look was at less than everything"


@pytest.mark.parametrize("first", [1, pytest.param(21, marks=pytest.mark.long)])
def test_with_faults_what_is_asked_for_is_what_who_asks_about_everything_may_ask_for(first: int) -> None:
    """Trouble elsewhere is seen later, so one may wait while the other goes on: never longer than for a whole look."""
    for seed in range(first, first + 20):
        story = random_story(seed, faults_max=4)
        differs_since_ms = None
        for _ in range(SECONDS_MAX):
            with suppress(SimulatedSilence, SimulatedRefusal):
                by_view, by_all = story.steps()
                if isinstance(by_view, Submit) and not isinstance(by_all, Wait):
                    assert by_view == by_all, f"seed {seed}, {story.cluster.now_ms} ms"
                same = by_view == by_all or (isinstance(by_view, Wait) and isinstance(by_all, Wait))
                differs_since_ms = None if same else (differs_since_ms or story.cluster.now_ms)
                assert story.cluster.now_ms - (differs_since_ms or story.cluster.now_ms) <= WHOLE_READ_INTERVAL_MS
                if story.take(by_view):
                    break
            story.cluster.advance(TICK_MS)


@pytest.fixture
def story() -> Watched:
    """A plan that moves t-0 of 100 MB in 100 s; another topic lies on brokers 1 and 2."""
    cluster = SimulatedCluster.of(
        {1: None, 2: None, 3: None}, log_dir_bytes=(10**12, 10**12), network_bytes_per_sec=1_000_000
    )
    cluster.create_topic("t", {0: (1,), 1: (1,)}, size_bytes=100_000_000)
    cluster.create_topic("others", {0: (1, 2)})
    limits = replace(LIMITS, movements_in_flight_max=1)
    return Watched(cluster, Plan("c", tuple(Movement("t", n, (1,), (3,), 1e8) for n in (0, 1))), limits)


def test_while_copies_go_on_only_the_list_of_reassignments_is_asked_for(story: Watched) -> None:
    for _ in range(20):
        story.take(story.steps()[0])
        story.cluster.advance(TICK_MS)
    assert story.client.questions[:2] == [None, frozenset({"t"})]  # the second confirms that the copy has begun
    assert set(story.client.questions[2:]) == {frozenset()}


def test_trouble_elsewhere_is_seen_at_the_next_whole_look_and_its_end_at_once(story: Watched) -> None:
    story.take(story.steps()[0])
    story.cluster.fail_log_dir(2, 0)
    seconds = next(n for n in range(60) if _advanced(story) and "under-replicated" in str(story.steps()[0]))
    assert seconds <= WHOLE_READ_INTERVAL_MS / TICK_MS
    story.cluster.repair_log_dir(2, 0)
    story.cluster.restart_broker(2)
    story.cluster.advance(TICK_MS)
    by_view, by_all = story.steps()
    assert by_view == by_all
    assert "under-replicated" not in str(by_all)
    assert not story.snapshot.is_whole


def test_a_broker_that_goes_or_comes_is_a_reason_to_look_at_everything(story: Watched) -> None:
    story.take(story.steps()[0])
    story.cluster.kill_broker(2)
    story.cluster.advance(20_000)  # its session ends
    assert story.steps()[0] == story.steps()[1]
    asked = len(story.client.questions)
    story.cluster.restart_broker(2)
    story.cluster.advance(TICK_MS)
    assert story.steps()[0] == story.steps()[1]
    assert None in story.client.questions[asked:]


def test_after_the_clock_was_set_back_everything_is_looked_at_as_often_as_before(story: Watched) -> None:
    """A broker that came or went makes it more often for a while."""
    story.take(story.steps()[0])
    story.cluster.kill_broker(2)
    story.cluster.advance(20_000)  # its session ends
    now_ms = story.cluster.now_ms
    story.snapshot.read((), now_ms=now_ms)
    asked = len(story.client.questions)
    for second in range(2 * WHOLE_READ_INTERVAL_MS // TICK_MS):
        story.snapshot.read((), now_ms=now_ms - 3_600_000 + second * TICK_MS)
    assert story.client.questions[asked:].count(None) == 2


def test_after_a_question_without_an_answer_the_change_of_brokers_is_still_known(story: Watched) -> None:
    story.take(story.steps()[0])
    story.cluster.kill_broker(2)
    story.cluster.advance(20_000)  # its session ends
    story.client.is_slow = True
    with pytest.raises(SimulatedSilence):
        story.snapshot.read((), now_ms=story.cluster.now_ms)
    story.client.is_slow = False
    story.snapshot.read((), now_ms=story.cluster.now_ms)
    assert story.snapshot.is_whole


def test_of_a_topic_that_is_gone_nothing_is_shown(story: Watched) -> None:
    story.take(story.steps()[0])
    story.cluster.delete_topic("others")
    story.snapshot.read_also({"others"}, now_ms=story.cluster.now_ms)
    assert OTHERS not in story.snapshot.partitions
    assert OTHERS not in story.snapshot.of([OTHERS, OURS]).partitions


def _advanced(story: Watched) -> bool:
    story.cluster.advance(TICK_MS)
    return True


@pytest.mark.long
@pytest.mark.parametrize("faults_max", [0, 4])
def test_each_look_shows_what_a_look_at_all_movements_shows(faults_max: int) -> None:
    looked = skipped = 0
    for seed in range(1, 21):
        story = random_story(seed, faults_max=faults_max)
        plan, staged, record = story.plan, story.limits.staged, cast("Any", None)
        looks, reference = ExecutionSnapshots(story.client, staged=staged), NO_SNAPSHOTS
        for _ in range(SECONDS_MAX):
            with suppress(SimulatedSilence, SimulatedRefusal):
                live = looks.live(plan, whole=False, now_ms=story.cluster.now_ms)
                look = looks.judged(record, plan, live, story.cluster.now_ms, refused={}, not_elected={})
                reference = reference.after(plan, live, staged=staged)
                assert look.past == reference
                assert dict(look.progress) == progress_of(plan, live, staged=staged, past=reference)
                looked, skipped = looked + 1, skipped + len(looks._settled)
                step = next_step(plan, live, story.limits, worked_ms=0, past=look.past, progress=look.progress)
                match step:
                    case Submit(reassignments):
                        story.client.reassign(dict(reassignments))
                        looks.submitted(reassignments)
                        reference = reference.taken(reassignments)
                    case ElectLeaders(partitions):
                        story.client.elect_preferred(partitions)
                    case Done() | Abort():
                        break
                    case _:
                        pass
            story.cluster.advance(TICK_MS)
    assert looked > 100
    assert skipped > looked, "hardly a movement was settled"
