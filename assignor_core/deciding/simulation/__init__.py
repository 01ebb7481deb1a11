"""What a trigger policy would have done: generated or recorded load, replayed through the trigger itself.

Pure: loads come from a seed or from the caller. `loads` makes them, `replay` runs the trigger over them and counts.
"""

from assignor_core.deciding.simulation.loads import SCENARIOS, Trace, generate
from assignor_core.deciding.simulation.replay import Report, World, simulate

__all__ = ["SCENARIOS", "Report", "Trace", "World", "generate", "simulate"]
