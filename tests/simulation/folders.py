"""Stories of two folders of tables for one cluster: each made for itself, or one a copy of the other.

Each folder has a control of its own and a plan that a person approves there. Controls are killed, frozen, or wait in
the middle of a turn, as in the other stories; nothing else goes wrong, so all that changes is asked for by one of them.

5. While one folder has an execution under way whose control acts, the control of the other folder changes nothing but
   its marker.
6. Each execution of both folders ends within a bound, no throttle and no reassignment is left.
"""

from dataclasses import dataclass
from functools import partial
from random import Random

from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.control.lease import LOOP_SILENT_MAX_MS
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.simulated_cluster import random_cluster
from tests.simulation.control import Change, SimulatedControl, Watcher
from tests.simulation.monitor import Broken
from tests.simulation.story import DEADLINE_MS, PlayedStory, random_plan
from tests.simulation.world import Actor, Blow, Interruption, World, settings_of
from tests.tables_in_memory import forget, in_memory, memory_store

APART_MS = 10_000
"""Less than lies between the last change of a control that stops and the first one of who takes it for gone: it waits
30 s, and nobody changes anything with a marker older than 15 s.
"""
BOUND_MS = 2 * DEADLINE_MS + 600_000
BLOWS_MS = 60_000
CALLS_STRUCK = 300
MARKS = "mark the cluster"


@dataclass(slots=True)
class Folder:
    """One folder of tables."""

    name: str
    settings: Settings

    @property
    def has_begun(self) -> bool:
        """Whether an execution is under way by its journal."""
        return any(row.in_progress for row in journal_of(self.settings).executions(now_ms=0))


def run_folder_story(seed: int) -> PlayedStory:
    """The story of a seed from beginning to end."""
    story = FolderStory(seed)
    try:
        return story.run()
    finally:
        story.end()


class FolderStory(Watcher):
    """Two folders, their controls, and what is judged: it watches the controls itself."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = Random(f"folders {seed}")
        cluster = random_cluster(self._random)
        self._folders = [
            Folder(f"folder {n}", _settings(self._random, in_memory(f"folders-{seed}-{n}"))) for n in (1, 2)
        ]
        self._world = World(cluster, self._folders[0].settings)
        self._world.draw_release(seed)
        self._by_root = {row.settings.storage.tables: row for row in self._folders}
        self._others, self._person = Actor("others"), Actor("person")
        self._controls = 0
        self._approvals_to_come = len(self._folders)
        self._broken: list[Broken] = []
        self._changed: tuple[Folder, int] | None = None
        for folder in self._folders:
            self._strike_calls_of(folder)

    def run(self) -> PlayedStory:
        """Until nothing is under way in either folder."""
        world, random, (first, second) = self._world, self._random, self._folders
        for _ in range(random.choice((0, 1, 2, 4))):
            duration_ms = random.choice((100, 2_000, 20_000, 60_000))
            blow = random.choice(list(Blow))
            world.interruptions[random.randrange(1, CALLS_STRUCK)] = Interruption(blow, duration_ms)
        world.plan(random.randrange(2_000), self._others, partial(self._start_control, first))
        world.plan(random.randrange(1_000, 10_000), self._person, partial(self._approve, first))
        if random.random() < 0.6:
            world.plan(random.randrange(3_000, 30_000), self._others, self._copy)
        else:
            world.plan(random.randrange(2_000), self._others, partial(self._start_control, second))
            world.plan(random.randrange(1_000, 30_000), self._person, partial(self._approve, second))
        world.pass_time(BLOWS_MS)
        world.interruptions.clear()
        while self._busy() and world.cluster.now_ms < BOUND_MS:
            world.pass_time(10_000)
        self._judge_end()
        executions = sum(len(journal_of(row.settings).executions(now_ms=0)) for row in self._folders)
        return PlayedStory(
            self.seed, tuple(self._broken), tuple(world.trace), world.faults, executions, world.cluster.now_ms,
            kind=" --story folders",
        )  # fmt: skip

    def end(self) -> None:
        """Give the memory back."""
        self._world.end()
        for folder in self._folders:
            forget(folder.settings.storage.tables)

    # What the controls show.

    def changing(self, who: SimulatedControl, change: Change) -> None:
        """It is about to change the cluster."""
        if change.text.startswith(MARKS):
            return
        folder, now_ms = self._by_root[who.lease.root], self._world.cluster.now_ms
        before, self._changed = self._changed, (folder, now_ms)
        if before is None or before[0] is folder or now_ms - before[1] >= APART_MS:
            return
        running, self._world.running = self._world.running, None  # no call out of a control
        has_begun = before[0].has_begun
        self._world.running = running
        if has_begun:
            self._breaks(
                "5 one folder at a time",
                f"{who.name} of {folder.name}: {change.text}, {now_ms - before[1]} ms after {before[0].name}",
            )

    def crashed(self, who: SimulatedControl, reason: str) -> None:
        """It has ended by itself."""
        self._breaks("6 control goes on", f"{who.name} ended: {reason}")

    # What happens.

    def _strike_calls_of(self, folder: Folder) -> None:
        store = memory_store(folder.settings.storage.tables)
        assert store is not None, "stories keep their tables in memory"
        store.before = lambda operation, table: self._world.called(f"before {operation} of {table}")
        store.after = lambda operation, table: self._world.called(f"after {operation} of {table}")

    def _start_control(self, folder: Folder) -> None:
        self._controls += 1
        control = SimulatedControl(f"control {self._controls}", self._world, self, folder.settings)
        control.lease.loop_silent_max_ms = LOOP_SILENT_MAX_MS  # a turn that waits keeps its lease
        self._world.note(control.name, f"works with {folder.name}")

        def replace(ended: SimulatedControl) -> None:
            self._world.plan(ended.restart_ms, self._others, partial(self._start_control, folder))

        control.replaced = replace
        control.start()

    def _approve(self, folder: Folder) -> None:
        self._approvals_to_come -= 1
        plan = random_plan(self._random, self._world.cluster)
        if plan.movements:
            journal, live, now_ms = journal_of(folder.settings), self._world.look(), self._world.now_ms
            proposed = ProposedPlan(plan, Observed.of(plan, live))
            journal.approve(journal.write_plan(proposed, decision=None, now_ms=now_ms), "a person", now_ms=now_ms)
            self._world.note("person", f"approves {len(plan.movements)} movements in {folder.name}")

    def _copy(self) -> None:
        """Somebody copies the first folder as it is and starts a control on the copy."""
        source, copied = (memory_store(row.settings.storage.tables) for row in self._folders)
        assert source is not None
        assert copied is not None
        copied.tables = dict(source.tables)
        self._world.faults["the tables are copied"] += 1
        self._world.note("others", "copy folder 1 to folder 2")
        self._start_control(self._folders[1])
        self._world.plan(self._random.randrange(30_000), self._person, partial(self._approve, self._folders[1]))

    def _busy(self) -> bool:
        rows = (row for folder in self._folders for row in journal_of(folder.settings).executions(now_ms=0))
        return bool(self._approvals_to_come) or any(not row.ended or row.owes for row in rows)

    def _judge_end(self) -> None:
        for folder in self._folders:
            for row in journal_of(folder.settings).executions(now_ms=0):
                if not row.ended:
                    self._breaks("6 a defined end", f"an execution of {folder.name} is {row.phase.value}")
        contents = self._world.cluster.contents
        if contents.throttle_rates:
            self._breaks("6 no throttle is left", str(contents.throttle_rates))
        moving = [key for key, row in contents.partitions() if row.reassigning]
        if moving:
            self._breaks("6 no reassignment is left", str(moving))

    def _breaks(self, invariant: str, detail: str) -> None:
        if all(row.invariant != invariant for row in self._broken):
            self._world.note("BROKEN", f"{invariant}: {detail}")
            self._broken.append(Broken(invariant, detail, len(self._world.trace) - 1))


def _settings(random: Random, root: str) -> Settings:
    control = {
        "mode": "observe",
        "movements_in_flight_max": random.choice((1, 3, 50)),
        "throttle_bytes_per_sec": random.choice((5_000_000, 20_000_000)),
        "execution_deadline_ms": DEADLINE_MS,
    }
    return settings_of(root, control=control)
