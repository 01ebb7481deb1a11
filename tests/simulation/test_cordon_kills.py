"""Drains are noted and ended while controls are killed, frozen and slow, requests are lost and brokers are away.

A cordon that somebody else has set is never removed. Once faults are over, brokers that are drained are cordoned as
their rows want it, and all others have the cordons of others alone.
"""

from functools import partial
from random import Random

import pytest

from streaming.control.cordons import settle, to_cordon
from streaming.control.intents import note_intent
from streaming.tables import TableReader
from streaming.views.intents import Intent, cordons_of, drained_brokers, newest_intents
from tests.simulated_cluster import Fate, LogDir, PlannedFault, SimulatedBroker, SimulatedClient, SimulatedCluster
from tests.simulated_cluster.faults import RequestKind
from tests.simulation.monitor import Monitor
from tests.simulation.roles import StruckStory, supervise
from tests.simulation.world import ERRORS, Blow, Interruption

GB = 1_000_000_000
BROKERS = (1, 2, 3)
PATHS = ("/disk-0", "/disk-1")
FAULTS_MS, SETTLED_MS = 120_000, 180_000
Place = tuple[int, int]
"""A broker, and the index of a log dir."""


class Story(StruckStory):
    """One, from a seed: what people want, what others do, and what strikes."""

    def __init__(self, seed: int, kills: dict[int, Interruption] | None = None) -> None:
        """With `kills`, control is struck at these call outs and nothing else goes wrong."""
        brokers = [SimulatedBroker(row, None, [LogDir(GB) for _ in PATHS], GB, GB) for row in BROKERS]
        cluster = SimulatedCluster("simulated", brokers)
        cluster.create_topic("t", {0: (1, 2, 3)})
        super().__init__(cluster, kills or {})
        self.random = Random(f"cordons {seed}")
        self.monitor = Monitor(self.world, undisturbed=True)
        self.of_others: set[Place] = set()
        self.taken: list[str] = []
        """Cordons of others that are gone."""
        self.world.observer = lambda _who: self._look()
        self.world.plan(0, self.others, lambda: supervise(self.world, self.monitor, self.others))
        if kills is None:
            self._plan_all()
        else:
            self._plan_orders()

    def run(self) -> None:
        self.world.pass_time(FAULTS_MS)
        self.world.interruptions.clear()
        self.world.client_faults.planned.clear()
        for broker in BROKERS:
            if not self._broker(broker).running:
                self.world.cluster.restart_broker(broker)
        self.world.pass_time(SETTLED_MS)

    def judge(self) -> None:
        assert not self.taken, f"{self.taken[0]}\n{self.trace}"
        reader, root = TableReader(self.world.settings.storage.tables), self.world.settings.kafka.cluster_name
        newest, drained = newest_intents(reader, root), drained_brokers(reader, root)
        for broker in BROKERS:
            ours = {(broker, PATHS.index(path)) for path in cordons_of(newest.get(broker))}
            assert not ours or broker in drained, f"broker {broker}: its end is not settled\n{self.trace}"
            wanted = ours | {place for place in self.of_others if place[0] == broker}
            found = {(broker, index) for index, row in enumerate(self._broker(broker).log_dirs) if row.cordoned}
            assert found == wanted, f"broker {broker}\n{self.trace}"

    def _plan_orders(self) -> None:
        """Broker 1 is drained and released; broker 2, of which others hold a log dir, is drained for good."""
        self.of_others.add((2, 0))
        self._broker(2).log_dirs[0].cordoned = True
        acts = ((3_000, 1, Intent.DRAIN), (3_000, 2, Intent.DRAIN), (40_000, 1, Intent.USE))
        for at_ms, broker, intent in acts:
            self.world.plan(at_ms, self.others, partial(self._order, broker, intent, carry_out=False))

    def _plan_all(self) -> None:
        random = self.random
        for _ in range(random.randint(2, 8)):
            act = partial(self._order, random.choice(BROKERS), random.choice((Intent.DRAIN, Intent.DRAIN, Intent.USE)),
                          carry_out=random.random() < 0.5)  # fmt: skip
            self.world.plan(random.randrange(FAULTS_MS), self.others, act)
        for _ in range(random.randint(0, 4)):
            place = random.choice(BROKERS), random.randrange(len(PATHS))
            self.world.plan(random.randrange(FAULTS_MS), self.others, partial(self._others_cordon, place))
        for _ in range(random.randint(0, 6)):
            fault = PlannedFault(random.choice((Fate.LOST, Fate.ANSWER_LOST)), RequestKind.CORDON)
            self.world.plan(
                random.randrange(FAULTS_MS), self.others, partial(self.world.client_faults.planned.append, fault)
            )
        for _ in range(random.randint(0, 2)):
            broker = random.choice(BROKERS)
            self.world.plan(random.randrange(FAULTS_MS), self.others, partial(self._kill, broker))
        for _ in range(random.randint(0, 6)):
            blow = Interruption(random.choice(list(Blow)), random.choice((100, 2_000, 45_000)))
            self.world.interruptions[random.randrange(1, 400)] = blow

    def _order(self, broker: int, intent: Intent, *, carry_out: bool) -> None:
        """Write the row and settle it, as the commands do; one that is killed in between leaves the rest to control."""
        settings, client = self.world.settings, SimulatedClient(self.world.cluster, errors=ERRORS)
        root, cluster = settings.storage.tables, settings.kafka.cluster_name
        drained = broker in drained_brokers(TableReader(root), cluster)
        if not drained and intent is Intent.USE:
            return
        newest = newest_intents(TableReader(self.world.settings.storage.tables), "simulated")
        cordons = to_cordon(client, newest, [broker])[broker] if intent is Intent.DRAIN else ()
        note_intent(root, cluster, broker, intent, "a person", now_ms=self.world.now_ms, cordons=cordons)
        self.world.note("others", f"{intent.value} {broker}, ours {sorted(cordons)}, {carry_out=}")
        if carry_out:
            settle(client, TableReader(root), cluster, [broker])
        self._look()

    def _others_cordon(self, place: Place) -> None:
        """Another tool, of a log dir that is no matter of ours."""
        broker, index = place
        newest = newest_intents(TableReader(self.world.settings.storage.tables), "simulated").get(broker)
        if PATHS[index] in cordons_of(newest):
            return
        is_new = place not in self.of_others
        self.of_others ^= {place}
        self._broker(broker).log_dirs[index].cordoned = is_new
        self.world.note("others", f"{'cordon' if is_new else 'uncordon'} {place}")

    def _kill(self, broker: int) -> None:
        if self._broker(broker).running:
            self.world.cluster.kill_broker(broker)
            self.world.note("others", f"broker {broker} is killed")

    def _broker(self, broker: int) -> SimulatedBroker:
        return self.world.cluster.contents.brokers[broker]

    def _look(self) -> None:
        for broker, index in sorted(self.of_others):
            if not self._broker(broker).log_dirs[index].cordoned:
                self.taken.append(f"{self.world.cluster.now_ms}: the cordon of others on {broker}, {index} is gone")


def played(story: Story) -> int:
    """Call outs of the story, which is judged."""
    with story:
        story.run()
        story.judge()
        return story.world.calls


def test_an_undisturbed_story_cordons_and_uncordons() -> None:
    story = Story(0, {})
    played(story)
    acts = [
        line.split("  ")[-1] for line in story.world.trace if line.split("  ")[-1].startswith(("cordon", "uncordon"))
    ]
    assert acts == [
        "cordon ['/disk-0', '/disk-1'] of broker 1",
        "cordon ['/disk-0', '/disk-1'] of broker 2",
        "uncordon ['/disk-0', '/disk-1'] of broker 1",
    ]


@pytest.mark.long
@pytest.mark.parametrize("blow", [Blow.KILL_BEFORE, Blow.KILL_AFTER])
def test_a_kill_at_any_call_out_leaves_nothing_undone(blow: Blow) -> None:
    calls = played(Story(0, {}))
    struck = [line for call in range(1, calls + 1, 3) for line in _struck(call, blow)]
    assert any("cordon" in line for line in struck)


def _struck(call: int, blow: Blow) -> list[str]:
    story = Story(0, {call: Interruption(blow, 5_000)})
    played(story)
    return [line for line in story.world.trace if blow.name.lower() in line]


def test_many_kills_leave_nothing_undone() -> None:
    played(Story(0, dict.fromkeys(range(20, 400, 20), Interruption(Blow.KILL_AFTER, 2_000))))


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 100), marks=pytest.mark.long)])
def test_whatever_strikes_the_cordons_of_others_stay_and_ours_end(seeds: range) -> None:
    for seed in seeds:
        played(Story(seed))
