"""One story from a seed: a cluster, settings, plans of control or of a person, faults; and what came of it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Protocol, Self, TypeVar

from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.control.late_requests import CHECKS_AFTER_MS
from streaming.control.run import ENDED_READ_INTERVAL_MS
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.simulated_cluster import Fate, Fault, PlannedFault, SimulatedCluster, random_cluster, random_faults
from tests.simulation.control import SimulatedControl
from tests.simulation.disks import make_room, tighten
from tests.simulation.monitor import Broken, Monitor
from tests.simulation.others import IdentityFaults, ListFaults, OperatorFaults, RateFaults, TableFaults
from tests.simulation.world import WINDOW_MS, Actor, Blow, Interruption, World, settings_of
from tests.tables_in_memory import in_memory

FAULTS_MS = 150_000
"""No fault begins or lasts later than this."""
DEADLINE_MS = 300_000
TIGHT_DEADLINES_MS = (60_000, 120_000, DEADLINE_MS)
"""One of these where disks are tight."""
LATE_WORK_MS = CHECKS_AFTER_MS[-1] + 60_000
"""How long after its end control cares for an execution."""
LATE_WORK_MADE_MS = CHECKS_AFTER_MS[1] + 60_000
"""After this time, two looks, nothing new comes late: requests are at most LATE_MAX_MS late, and faults have ended."""
WATCHED_TO_THE_END = 4
"""One of so many stories goes on until the last look even where nothing is left."""
BOUND_MS = DEADLINE_MS + 600_000
"""How long after the faults an execution may go on: its deadline, and room for pauses and sweeping."""
RATES_BACK_MS = 60_000
"""After this time without faults every broker that copies has its rate again."""
STRAYS_MS = 2 * ENDED_READ_INTERVAL_MS
"""After this time control has removed what an execution left that the tables no longer know."""
LOOK_MS = 10_000
CALLS_STRUCK = 400
"""Blows strike one of so many first calls."""
REFUSED_MAX_MS = 30_000
"""Less than control goes on asking."""
TEMPORARY_ERROR = "UnknownError"
MOVEMENTS_MAX = 8
MOVEMENTS_OF_WAVE = 3
Alterations = Mapping[str, dict[str, object]]
NONE_ALTERED: Alterations = MappingProxyType({})
Refused = TypeVar("Refused", PartitionKey, int)


@dataclass(frozen=True, slots=True)
class PlayedStory:
    """What a story showed."""

    seed: int
    broken: tuple[Broken, ...]
    trace: tuple[str, ...]
    faults: Counter[str]
    executions: int
    ended_ms: int
    kind: str = " --story faults"
    """What makes the command tell a story of this kind."""

    @classmethod
    def of(cls, seed: int, monitor: Monitor, kind: str = "") -> Self:
        """What a story showed that this monitor has watched."""
        world, executions = monitor.world, len(monitor.executions())
        shown = tuple(monitor.broken), tuple(world.trace), world.faults
        return cls(seed, *shown, executions, world.cluster.now_ms, f" --story {kind or 'faults'}")

    @property
    def digest(self) -> str:
        """Of the whole trace: equal for equal stories."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def run_story(seed: int, *, unfaithful: bool = False, altered: Alterations = NONE_ALTERED) -> PlayedStory:
    """Tell the story of a seed from beginning to end; `unfaithful` and `altered` as in `Story`."""
    return played(Story(seed, unfaithful=unfaithful, altered=altered))


class OneStory(Protocol):
    """A story of any kind."""

    world: World

    def run(self) -> PlayedStory:
        """From beginning to end."""


def played(story: OneStory) -> PlayedStory:
    """Tell a story; its tables and clients end with it."""
    try:
        return story.run()
    finally:
        story.world.end()


class Story:
    """Everything that follows from one seed."""

    def __init__(self, seed: int, *, unfaithful: bool = False, altered: Alterations = NONE_ALTERED) -> None:
        """With `unfaithful` automatic mode makes plans, and the load doesn't follow them: few seeds have that.

        `altered` are settings by section that differ from those that are drawn.
        """
        self.seed = seed
        self._unfaithful = unfaithful
        self._random = Random(seed)
        cluster = random_cluster(self._random)
        settings = _altered(_settings(self._random, in_memory(f"story-{seed}")), **altered)
        # Drawn apart, so that the rest of the story is what it would be on other disks.
        self._tight_disks = tighten(Random(f"disks of {seed}"), cluster, settings.planner.disk_reserve)
        self._disk_random = Random(f"disk room of {seed}")
        self._makes_room = bool(self._tight_disks) and self._disk_random.random() < 0.6
        if self._tight_disks:  # else most time of all stories would pass in movements that wait for room
            settings = _altered(
                settings, control={"execution_deadline_ms": self._disk_random.choice(TIGHT_DEADLINES_MS)}
            )
        if unfaithful:
            settings = _altered(
                settings,
                control={"mode": "apply", "bad_plans_max": 1, "maintenance_windows": []},
                trigger={"cooldown_ms": 0},
            )
        self.world = World(cluster, settings)
        self.world.draw_release(seed)
        faults_max = self._random.choice((0, 1, 2, 4))
        # Most plans are carried out within a minute: faults that are to strike them come early.
        faults_ms = self._random.choice((20_000, 60_000, FAULTS_MS))
        faults = random_faults(self._random, cluster, duration_ms=faults_ms, faults_max=faults_max)
        self._faults = () if unfaithful else faults
        self.monitor = Monitor(self.world, undisturbed=not self._faults)
        self._others = Actor("others")
        self._person = Actor("person")
        self._controls = 0
        self._approvals_to_come = 0
        self._identity = IdentityFaults(seed, self.world, self.monitor, FAULTS_MS)
        self._lists = ListFaults(seed, self.world, self._others, FAULTS_MS // 2)
        self._operator = OperatorFaults(seed, self.world, self.monitor, self._others, FAULTS_MS)
        self._rates = RateFaults(seed, self.world, self._others, FAULTS_MS)
        self._tables = TableFaults(seed, self.world, self.monitor, self._others, FAULTS_MS)
        self._longer_ms = 0
        """How much longer the story goes on after its faults: automatic mode needs the time of several plans."""

    def run(self) -> PlayedStory:
        """From the first start of control until nothing is under way any more."""
        with self.bounded_values():
            return self.tell()

    def bounded_values(self) -> AbstractContextManager[None]:
        """See `ListFaults`."""
        return self._lists.bounded_values()

    def tell(self) -> PlayedStory:
        """As `run`, for a caller that bounds the values."""
        self._plan_windows()
        self._plan_faults()
        self._plan_client_faults()
        self._plan_blows()
        self._plan_room()
        self._identity.plan()
        self._lists.plan()
        self._rates.plan()
        for _ in range(self._random.choice((1, 2, 2))):
            self.world.plan(self._random.randrange(2_000), self._others, self._start_control)
        if self.world.settings.control.mode != "apply":
            self._plan_person()
        elif not self._faults and (self._random.random() < 0.3 or self._unfaithful):
            self._longer_ms = 450_000
            if self._random.random() < 0.5 or self._unfaithful:
                # What is moved doesn't take its load along: plans don't deliver, and automatic mode has to stop.
                leading = Counter(row.leader for _, row in self.world.cluster.contents.partitions())
                self.world.hot_broker = max(leading, key=lambda row: (leading[row], row))
                self.world.faults["load stays with its broker"] += 1
        self.world.write_window(windows=3)
        self._pass_faults()
        self._end_faults()
        faults_ended_ms = self.world.cluster.now_ms
        self.world.pass_time(self._longer_ms)
        bound_ms = FAULTS_MS + self._longer_ms + BOUND_MS + (LATE_WORK_MS if self._identity.leaves_late_work else 0)
        bound_ms += STRAYS_MS if self.monitor.has_forgotten else 0
        while self._busy() and self.world.cluster.now_ms < self._bound_ms(bound_ms):
            self._operator.abort_paused()
            self.world.pass_time(LOOK_MS)
            if self.world.cluster.now_ms - faults_ended_ms >= RATES_BACK_MS:
                self.monitor.judge_rates()
        self.monitor.judge_end()
        return PlayedStory.of(self.seed, self.monitor)

    def _pass_faults(self) -> None:
        """Until all faults are over; or until all that a person asked for is, as nothing is left to strike then."""
        acts_alone = self.world.settings.control.mode == "apply"
        while self.world.cluster.now_ms < FAULTS_MS:
            self.world.pass_time(LOOK_MS)
            if not acts_alone and not self._approvals_to_come and not self._busy():
                return

    def _bound_ms(self, bound_ms: int) -> int:
        """The bound of the story. What automatic mode began shortly before it has the time of any other execution; not
        where it gave up more than one before: that it makes plan after plan then is to be noticed.
        """
        executions = self.monitor.executions()
        if sum(row.ended and row.done_ms is None for row in executions) > 1:
            return bound_ms
        epoch_ms = self.world.now_ms - self.world.cluster.now_ms
        begun_ms = (row.approved_ms - epoch_ms for row in executions if not row.ended or row.owes)
        return min(max(bound_ms, max(begun_ms, default=0) + BOUND_MS), bound_ms + BOUND_MS)

    def _busy(self) -> bool:
        executions = self.monitor.executions()
        if any(not row.ended or row.owes for row in executions):
            return True
        if self.monitor.has_forgotten and any(self.monitor.leftovers()):
            return True
        if not executions or not self._identity.leaves_late_work:
            return False
        since_ms = self.world.now_ms - max(row.ended_ms or 0 for row in executions)
        if since_ms >= LATE_WORK_MADE_MS and self.seed % WATCHED_TO_THE_END:
            return since_ms < LATE_WORK_MS and any(self.monitor.leftovers())
        return since_ms < LATE_WORK_MS

    def _start_control(self) -> None:
        self._controls += 1
        control = SimulatedControl(f"control {self._controls}", self.world, self.monitor)
        control.replaced = self._replace
        control.start()

    def kill_process(self, at_ms: int, restart_ms: int) -> None:
        """Let the process of all controls be killed, wherever they are, and started again."""

        def kill() -> None:
            self.world.note("others", "the process of control is killed")
            self.world.faults["the process of all clusters is killed"] += 1
            for actor in [row for row in self.world.actors if isinstance(row, SimulatedControl) and not row.ended]:
                actor.kill(restart_ms)

        self.world.plan(at_ms, self._others, kill)

    def _replace(self, control: SimulatedControl) -> None:
        """A supervisor starts the next one."""
        self.world.plan(control.restart_ms, self._others, self._start_control)

    def _plan_windows(self) -> None:
        def close() -> None:
            self.world.write_window()
            self.world.plan(WINDOW_MS, self._others, close)

        self.world.plan(WINDOW_MS, self._others, close)

    def _plan_faults(self) -> None:
        for fault in self._faults:
            self.world.plan(fault.at_ms, self._others, self._striking(fault))

    def _striking(self, fault: Fault) -> Callable[[], None]:
        def strike() -> None:
            fault.action()
            self.world.note("others", fault.description)
            self.world.faults[_kind(fault.description)] += 1
            self.monitor.look(self._others)

        return strike

    def _plan_client_faults(self) -> None:
        faults, random = self.world.client_faults, self._random
        faults.metadata_lag_ms = random.choice((0, 0, 2_000, 5_000))
        self.world.faults["metadata lags"] += faults.metadata_lag_ms > 0
        for _ in range(random.choice((0, 0, 1, 3, 6))):
            planned = PlannedFault(random.choice((Fate.LOST, Fate.ANSWER_LOST)))
            self.world.plan(random.randrange(FAULTS_MS // 2), self._others, partial(self._lose, planned))
        if random.random() < 0.2:
            until_ms = random.randrange(FAULTS_MS)

            def leave() -> None:
                faults.controller_away_until_ms = until_ms

            self.world.plan(until_ms // 2, self._others, leave)
            self.world.faults["controller is away"] += 1
        if random.random() < 0.2:
            key, _ = random.choice(self.world.cluster.contents.partitions())
            faults.refused[key] = "PolicyViolationError"
            self.world.faults["a policy refuses a partition"] += 1
        for _ in range(random.choice((0, 0, 0, 2, 8))):
            key, _ = random.choice(self.world.cluster.contents.partitions())
            self._refuse_for_a_while(faults.refused, key, "a move")
        for _ in range(random.choice((0, 0, 0, 0, 1, 3))):
            self._refuse_for_a_while(
                faults.throttles_refused, random.choice(sorted(self.world.cluster.contents.brokers)), "a throttle"
            )

    def _refuse_for_a_while(self, refusals: dict[Refused, str], what: Refused, kind: str) -> None:
        """One part of requests is refused, and not for good: the error doesn't say that asking again is useless."""

        def refuse() -> None:
            refusals.setdefault(what, TEMPORARY_ERROR)
            self.world.faults[f"{kind} is refused for a while"] += 1

        def allow() -> None:
            if refusals.get(what) == TEMPORARY_ERROR:
                del refusals[what]

        start_ms = self._random.randrange(20_000)
        self.world.plan(start_ms, self._others, refuse)
        self.world.plan(start_ms + self._random.randrange(1_000, REFUSED_MAX_MS), self._others, allow)

    def _lose(self, planned: PlannedFault) -> None:
        self.world.client_faults.planned.append(planned)
        self.world.faults[f"a request: {planned.fate.value}"] += 1

    def _end_faults(self) -> None:
        faults = self.world.client_faults
        faults.metadata_lag_ms = faults.controller_away_until_ms = 0
        faults.planned.clear()
        faults.refused.clear()
        faults.throttles_refused.clear()
        self.world.interruptions.clear()
        self._identity.end()
        self._lists.end()
        for fault in self._faults:
            # A story that ends early must not take another tool's throttle for one that control has left.
            if fault.ends_another and fault.at_ms > self.world.cluster.now_ms:
                fault.action()
        self.world.note("others", "faults have ended")

    def _plan_blows(self) -> None:
        for _ in range(self._random.choice((0, 1, 2, 4))):
            blow = self._random.choice(list(Blow))
            duration_ms = self._random.choice((100, 2_000, 20_000, 45_000))
            self.world.interruptions[self._random.randrange(1, CALLS_STRUCK)] = Interruption(blow, duration_ms)

    def _plan_room(self) -> None:
        """What waits for room on disks may go on."""
        if self._makes_room:
            at_ms = self._disk_random.randrange(10_000, FAULTS_MS // 2)
            action = self._striking(Fault(at_ms, "room is made on disks", partial(make_room, self._tight_disks)))
            self.world.plan(at_ms, self._others, action)

    def _plan_person(self) -> None:
        random = self._random
        self._approvals_to_come = random.choice((1, 1, 1, 2))
        for number in range(self._approvals_to_come):
            self.world.plan(1_000 + number * random.randrange(60_000), self._person, self._approve)
        if random.random() < 0.3:
            self.world.plan(random.randrange(5_000, FAULTS_MS // 2), self._person, self._abort)

    def _approve(self) -> None:
        self._approvals_to_come -= 1
        plan = random_plan(self._random, self.world.cluster)
        if plan.movements:
            journal, live, now_ms = journal_of(self.world.settings), self.world.look(), self.world.now_ms
            proposed = ProposedPlan(plan, Observed.of(plan, live))
            journal.approve(journal.write_plan(proposed, decision=None, now_ms=now_ms), "a person", now_ms=now_ms)
            self._identity.plan_for(plan)
            self._operator.plan_for(plan)
            self._tables.plan_for_approval()
            if self._random.random() < 0.2:
                self._plan_interference(self._random.choice(plan.movements).key)

    def _plan_interference(self, key: PartitionKey) -> None:
        """Another tool moves a partition of the plan while that is carried out."""
        brokers, delay_ms = sorted(self.world.cluster.contents.brokers), self._random.randrange(1_000, 30_000)
        target = tuple(self._random.sample(brokers, min(3, len(brokers))))

        def move() -> None:
            self.world.cluster.reassign({key: target})

        description = f"somebody moves {key[0]}-{key[1]} of the plan to {target}"
        self.world.plan(delay_ms, self._others, self._striking(Fault(delay_ms, description, move)))

    def _abort(self) -> None:
        for execution in self.monitor.executions():
            if not execution.ended:
                journal_of(self.world.settings).request_abort(execution, "a person", now_ms=self.world.now_ms)


def random_plan(random: Random, cluster: SimulatedCluster) -> Plan:
    """Movements of partitions that rest, each by one replica or to other brokers altogether, some by leader only."""
    resting = [(key, row) for key, row in cluster.contents.partitions() if not row.reassigning]
    movements: list[Movement] = []
    for key, row in random.sample(resting, min(random.randint(1, MOVEMENTS_MAX), len(resting))):
        spare = sorted(cluster.contents.brokers.keys() - set(row.replicas))
        moved = random.randint(0, min(len(spare), len(row.replicas)))
        new = tuple(
            random.sample([*random.sample(spare, moved), *row.replicas[: len(row.replicas) - moved]], len(row.replicas))
        )
        if new != row.replicas:
            copied = (row.end_bytes - row.start_bytes) * len(set(new) - set(row.replicas))
            wave = len(movements) // MOVEMENTS_OF_WAVE
            movements.append(Movement(*key, row.replicas, new, float(copied), wave=wave))
    return Plan(cluster.contents.cluster_id, tuple(movements))


def _settings(random: Random, root: str) -> Settings:
    control = {
        "mode": random.choice(("observe", "observe", "observe", "observe", "observe", "apply")),
        "movements_in_flight_max": random.choice((1, 3, 50)),
        "movements_per_topic_max": random.choice((None, 1, 2)),
        "movements_per_broker_max": random.choice((1, 2, 5)),
        "staged_moves": random.random() < 0.4,
        "throttle_bytes_per_sec": random.choice((5_000_000, 20_000_000, 100_000_000)),
        "throttle_adaptive": random.random() < 0.5,
        "execution_deadline_ms": DEADLINE_MS,
        "maintenance_windows": random.choice(([], [], ["Mon-Sun 12:00-12:02", "Mon-Sun 12:05-12:20"])),
        "settle_windows": 1,
        "elections_at_once_max": random.choice((1, 3, 100)),
        "bad_plans_max": random.choice((1, 1, 2)),
    }
    trigger = {
        "windows_over": 2,
        "windows_considered": 3,
        "resources": ["bytes_in"],
        "cooldown_ms": random.choice((0, 300_000)),
        "load_min_bytes_per_sec": 1_000,
    }
    return settings_of(root, trigger=trigger, planner={"windows": 3}, control=control)


def _altered(settings: Settings, **sections: dict[str, object]) -> Settings:
    given = settings.model_dump()
    for name, values in sections.items():
        given[name] |= values
    return Settings.model_validate(given)


def _kind(description: str) -> str:
    """The kind of a fault: its description without names and numbers."""
    words = (word for word in description.split() if not any(sign.isdigit() for sign in word))
    return " ".join(words)
