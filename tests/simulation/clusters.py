"""Stories of three clusters whose controls share one process and one root of tables (`clusters/NAME` below it).

Each cluster has a whole story of faults of its own: its controls are killed, frozen and led astray as in `story`. The
three stories take turns at every event and every call out, in an order that the seed draws, so that each cluster acts
in the middle of what the others do. In half of the deployments the process is killed, too, with all controls in it.
Broker ids, topics, ids of topics, of leases and of the Kafka cluster are equal on purpose: nothing but the cluster
itself tells a request that goes astray.

11. Nothing crosses from one cluster to another. While a cluster acts, no other cluster, table or lease is reached. All
    rows bear the name of the cluster whose tables they are in, and no table is anywhere else. The trace of each cluster
    is, byte for byte, the trace that its story has alone in a process.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random

from streaming.errors import TableUnavailable
from streaming.settings.clusters import own_place
from tests import tables_in_memory
from tests.simulation.monitor import Broken
from tests.simulation.stack import Stack
from tests.simulation.story import FAULTS_MS, PlayedStory, Story
from tests.simulation.world import Killed
from tests.tables_in_memory import in_memory, memory_store

CLUSTERS = ("east", "north", "west")
KAFKA_CLUSTER_ID = "the-same-for-all"
ROOT = in_memory("deployment")
AHEAD_MS = 1_000
"""No cluster is further ahead of the others in logical time, unless a single step takes longer."""
SWITCH_SHARE = 0.05
"""Share of events and call outs at which another cluster acts next."""
REFUSED = "its tables make no sense"
NOTHING_CROSSES = "11 nothing crosses"
Around = Callable[[], AbstractContextManager[None]]
"""A context in which one run takes place, such as a planted fault that starts afresh."""


def run_clusters_story(seed: int, around: Around = nullcontext) -> PlayedStory:
    """Tell the story of a deployment; each cluster alone first, then all together. `around` holds for each of these."""
    alone = []
    for number in range(len(CLUSTERS)):
        with around():
            alone.append(_told(_story(seed, number)))
    with around():
        return Deployment(seed).run(alone)


def _story(seed: int, number: int) -> Story:
    """The story of one cluster of a deployment."""
    name, random = CLUSTERS[number], Random(f"process {seed}")
    story = Story(
        len(CLUSTERS) * seed + number,
        altered={"kafka": {"cluster_name": name}, "storage": {"tables": own_place(ROOT, name)}},
    )
    story.world.cluster.contents.cluster_id = KAFKA_CLUSTER_ID
    if random.random() < 0.5:
        story.kill_process(random.randrange(1_000, FAULTS_MS // 2), random.choice((100, 2_000, 20_000)))
    return story


def _told(story: Story) -> PlayedStory:
    """The story alone in the process."""
    try:
        with story.bounded_values():
            return _outcome(story)
    finally:
        story.world.end()


def _outcome(story: Story) -> PlayedStory:
    """What became of it; a planted fault may spoil the tables so that the story itself can't read them."""
    try:
        return story.tell()
    except (TableUnavailable, AssertionError, Killed) as error:
        story.world.note("others", f"{REFUSED}: {error!r}")
        return PlayedStory(story.seed, (), tuple(story.world.trace), story.world.faults, 0, story.world.cluster.now_ms)


class Deployment:
    """Three stories that take turns."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = Random(f"turns {seed}")
        self._stories = [_story(seed, number) for number in range(len(CLUSTERS))]
        self._stacks = [Stack() for _ in CLUSTERS]
        self._played: dict[int, PlayedStory] = {}
        self._active: int | None = None
        self._switches = 0
        self._crossed: list[str] = []
        for number, story in enumerate(self._stories):
            story.world.others_act = self._may_switch(number)

    def run(self, alone: list[PlayedStory]) -> PlayedStory:
        """Until all three have ended; judged by what each is `alone`."""
        try:
            self._take_turns()
            self._judge_rows()
        finally:
            for story in self._stories:
                story.world.others_act = lambda: None
            for number, story in enumerate(self._stories):
                self._active = number
                story.world.end()
            for stack in self._stacks:
                stack.end()
        played = [self._played[number] for number in range(len(CLUSTERS))]
        for name, here, there in zip(CLUSTERS, played, alone, strict=True):
            if here.trace != there.trace:
                self._crossed.append(f"{name} alone: {_difference(here.trace, there.trace)}")
        broken = [row for story in played for row in story.broken]
        trace = [f"{name:6} {line}" for name, story in zip(CLUSTERS, played, strict=True) for line in story.trace]
        if self._crossed:
            broken.append(Broken(NOTHING_CROSSES, "; ".join(dict.fromkeys(self._crossed)), len(trace) - 1))
        faults = sum((story.faults for story in played), Counter({"another cluster acts in between": self._switches}))
        return PlayedStory(
            self.seed, tuple(broken), tuple(trace), faults, sum(story.executions for story in played),
            max(story.ended_ms for story in played), kind=" --story clusters",
        )  # fmt: skip

    def _take_turns(self) -> None:
        begun = set[int]()
        while len(self._played) < len(CLUSTERS):
            number = self._next()
            self._active = number
            story, stack = self._stories[number], self._stacks[number]
            with story.bounded_values():
                if number in begun:
                    stack.go_on()
                else:
                    begun.add(number)
                    stack.run(self._telling(number))
            self._switches += 1
        self._active = None

    def _telling(self, number: int) -> Callable[[], None]:
        def tell() -> None:
            self._played[number] = _outcome(self._stories[number])

        return tell

    def _next(self) -> int:
        """Whose turn it is: most often that of the cluster that is behind."""
        waiting = [number for number in range(len(CLUSTERS)) if number not in self._played]
        if self._random.random() < 0.3:
            return self._random.choice(waiting)
        return min(waiting, key=lambda number: self._stories[number].world.cluster.now_ms)

    def _may_switch(self, number: int) -> Callable[[], None]:
        """What a cluster calls before each event and at each call out."""

        def others_act() -> None:
            if self._active is None:
                return  # the judge reads the tables
            if self._active != number:
                self._crosses(f"{CLUSTERS[number]} is reached while {CLUSTERS[self._active]} acts")
                raise Killed  # what strikes the other cluster there must not stop this one
            now_ms = self._stories[number].world.cluster.now_ms
            others = [
                story.world.cluster.now_ms
                for other, story in enumerate(self._stories)
                if other != number and other not in self._played
            ]
            if others and (self._random.random() < SWITCH_SHARE or now_ms > min(others) + AHEAD_MS):
                self._stacks[number].pause()

        return others_act

    def _judge_rows(self) -> None:
        places = {own_place(ROOT, name): name for name in CLUSTERS}
        for root in [root for root in tables_in_memory.roots() if root.startswith(ROOT)]:
            for table, content in memory_store(root).tables.items():
                if root not in places:
                    self._crosses(f"{root} has a table {table}")
                names = {row["kafka_cluster"] for row in content.rows if "kafka_cluster" in row}
                if names - {places.get(root)}:
                    self._crosses(f"{table} in {root} has rows of {', '.join(sorted(names))}")
            if root not in places:
                tables_in_memory.forget(root)

    def _crosses(self, what: str) -> None:
        if what not in self._crossed:
            self._crossed.append(what)


def _difference(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    """The first line that is another one."""
    for number, (own, other) in enumerate(zip(here, there, strict=False), start=1):
        if own != other:
            return f"line {number} is {own.strip()!r}, alone {other.strip()!r}"
    return f"{len(here)} lines, alone {len(there)}"
