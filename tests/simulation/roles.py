"""What stories with one control at a time share: a supervisor that starts the next one, a pipeline, a person's plan."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Self

from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan, Observed, ProposedPlan
from streaming.control.wiring import journal_of
from tests.simulated_cluster import SimulatedCluster
from tests.simulation.control import SimulatedControl, Watcher
from tests.simulation.world import WINDOW_MS, Actor, Interruption, World, settings_of
from tests.tables_in_memory import in_memory


def supervise(world: World, watcher: Watcher, supervisor: Actor) -> None:
    """Start the first control, and the next one after each that has ended."""
    numbers = count(1)

    def start_control() -> None:
        control = SimulatedControl(f"control {next(numbers)}", world, watcher)
        control.replaced = lambda ended: world.plan(ended.restart_ms, supervisor, start_control)
        control.start()

    start_control()


def begin(world: World, watcher: Watcher, supervisor: Actor) -> None:
    """Start the first control and write the first windows; one more is closed each minute."""
    pipeline = Actor("pipeline")

    def close_window() -> None:
        world.write_window()
        world.plan(WINDOW_MS, pipeline, close_window)

    supervise(world, watcher, supervisor)
    world.write_window(windows=3)
    world.plan(WINDOW_MS, pipeline, close_window)


class StruckStory:
    """A story without a seed: its controls are struck at the call outs of `strikes`. A context manager that ends it."""

    def __init__(
        self, cluster: SimulatedCluster, strikes: dict[int, Interruption], **sections: Mapping[str, Any]
    ) -> None:
        """`sections` of the settings replace those of a control that only observes."""
        settings = settings_of(in_memory("struck"), **{"control": {"mode": "observe"}, **sections})
        self.world = World(cluster, settings, interruptions=strikes)
        self.others = Actor("others")
        self.journal = journal_of(settings)
        self.journal.make_tables()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.world.end()

    def written(self, plan: Plan) -> KeptPlan:
        """The plan as it is stored, made on the cluster as it is."""
        proposed = ProposedPlan(plan, Observed.of(plan, self.world.look()))
        return self.journal.write_plan(proposed, decision=None, now_ms=self.world.now_ms)

    @property
    def trace(self) -> str:
        """The end of the trace."""
        return "\n".join(self.world.trace[-60:])
