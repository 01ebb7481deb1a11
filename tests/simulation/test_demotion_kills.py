"""Controls are killed at call outs while a broker is demoted, and while its demotion ends.

Whatever is struck, the broker then leads nothing, and once it is undemoted all is as before and nobody is forbidden.
"""

import pytest

from assignor_core.live import PartitionKey
from assignor_core.live_plans.demotion import propose_demotion, propose_restoration
from assignor_core.proposed_plan import ProposedPlan
from streaming.control.intents import note_intent
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.intents import Intent, brokers_by_intent
from tests.simulated_cluster import SimulatedCluster
from tests.simulation.control import SimulatedControl
from tests.simulation.monitor import Monitor
from tests.simulation.world import Actor, Blow, Interruption, World
from tests.tables_in_memory import in_memory

DEMOTED = 3
NOBODY: frozenset[int] = frozenset()
PART_MAX_MS = 1_800_000
Placement = dict[PartitionKey, tuple[tuple[int, ...], int]]


class Story:
    """A cluster, and controls that are struck at these call outs."""

    def __init__(self, strikes: dict[int, Interruption]) -> None:
        cluster = SimulatedCluster.of(dict.fromkeys(range(1, 5)), cluster_id="c")
        cluster.create_topic("t", {0: (3, 1), 1: (1, 3), 2: (3, 4), 3: (2, 3), 4: (4, 2), 5: (3, 2)})
        settings = Settings.model_validate(
            {"kafka": {"cluster_name": "simulated"}, "storage": {"tables": in_memory("demotions")},
             "control": {"mode": "observe", "elections_at_once_max": 2}}
        )  # fmt: skip
        self.world = World(cluster, settings, interruptions=strikes)
        self.monitor = Monitor(self.world, undisturbed=True)
        self.others, self.started = Actor("others"), 0
        self.journal = journal_of(settings)
        self.journal.make_tables()
        cluster.advance(60_000)
        self.world.plan(0, self.others, self._start)

    def _start(self) -> None:
        self.started += 1
        control = SimulatedControl(f"control {self.started}", self.world, self.monitor)
        control.replaced = lambda ended: self.world.plan(ended.restart_ms, self.others, self._start)
        control.start()

    def placement(self) -> Placement:
        return {key: (row.replicas, row.leader) for key, row in self.world.cluster.contents.partitions()}

    def demoted(self) -> frozenset[int]:
        settings = self.world.settings
        return brokers_by_intent(TableReader(settings.storage.tables), settings.kafka.cluster_name)[Intent.DEMOTE]

    def carry_out(self, proposed: ProposedPlan, intent: Intent) -> None:
        """Note the intent, then approve the plan, as the command does; wait until the execution has ended."""
        settings, now_ms = self.world.settings, self.world.now_ms
        plans = [proposed.plan.plan_id]
        note_intent(
            settings.storage.tables, settings.kafka.cluster_name, DEMOTED, intent, "a person", now_ms=now_ms,
            demotions=plans,
        )  # fmt: skip
        kept = self.journal.write_plan(proposed, decision=None, now_ms=now_ms)
        self.journal.approve(kept, "a person", now_ms=now_ms)
        end_ms = self.world.cluster.now_ms + PART_MAX_MS
        while not all(row.ended for row in self.monitor.executions()) and self.world.cluster.now_ms < end_ms:
            self.world.pass_time(5_000)


def played(strikes: dict[int, Interruption]) -> int:
    """Call outs of the story, which is judged."""
    story = Story(strikes)
    try:
        before, brokers = story.placement(), frozenset({DEMOTED})
        demotion = propose_demotion(story.world.look(), brokers, demoted=NOBODY, cluster_name="simulated")
        story.carry_out(demotion, Intent.DEMOTE)
        trace = "\n".join(story.world.trace[-40:])
        demoted = story.placement()
        assert all(leader != DEMOTED and row[-1] == DEMOTED for row, leader in demoted.values() if DEMOTED in row), (
            trace
        )
        assert {key: set(row) for key, (row, _) in demoted.items()} == {
            key: set(row) for key, (row, _) in before.items()
        }
        assert story.demoted() == brokers
        orders = {row.key: row.old_replicas for row in demotion.plan.movements}
        back = propose_restoration(story.world.look(), brokers, orders, demoted=NOBODY, cluster_name="simulated")
        story.carry_out(back, Intent.USE)
        assert story.placement() == before, "\n".join(story.world.trace[-40:])
        assert story.demoted() == NOBODY
        assert [str(row.last_event) for row in story.monitor.executions()].count("done") == 2
        return story.world.calls
    finally:
        story.world.end()


@pytest.mark.parametrize("blow", [Blow.KILL_BEFORE, Blow.KILL_AFTER, Blow.FREEZE_AFTER])
def test_a_blow_at_any_call_out_changes_nothing_in_the_end(blow: Blow) -> None:
    calls = played({})
    for call in range(1, calls + 1, 5):
        played({call: Interruption(blow, 2_000)})


def test_many_kills_only_take_longer() -> None:
    played(dict.fromkeys(range(20, 400, 20), Interruption(Blow.KILL_AFTER, 2_000)))
