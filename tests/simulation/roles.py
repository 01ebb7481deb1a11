"""The roles of a story that has one control: a supervisor that starts the next one, a pipeline that closes windows."""

from itertools import count

from tests.simulation.control import SimulatedControl, Watcher
from tests.simulation.world import Actor, World


def begin(world: World, watcher: Watcher, supervisor: Actor, *, window_ms: int) -> None:
    """Start the first control and write the first windows; one is closed every `window_ms` from now on."""
    numbers, pipeline = count(1), Actor("pipeline")

    def start_control() -> None:
        control = SimulatedControl(f"control {next(numbers)}", world, watcher)
        control.replaced = lambda ended: world.plan(ended.restart_ms, supervisor, start_control)
        control.start()

    def close_window() -> None:
        world.write_window()
        world.plan(window_ms, pipeline, close_window)

    start_control()
    world.write_window(windows=3)
    world.plan(window_ms, pipeline, close_window)
