"""What a trigger policy would have done: generated or recorded load, replayed through the trigger itself.

Pure: loads come from a seed or from the caller. `loads` makes them, `replay` runs the trigger over them and counts.
`deciding_again` makes recorded decisions again.
"""

from assignor_core.replays.past_decisions import OF_WINDOWS, Decided, decided_again
from assignor_core.replays.traces import SCENARIOS, Trace, generate
from assignor_core.replays.window_replay import Report, World, simulate

__all__ = [
    "OF_WINDOWS",
    "SCENARIOS",
    "Decided",
    "Report",
    "Trace",
    "World",
    "decided_again",
    "generate",
    "simulate",
]
