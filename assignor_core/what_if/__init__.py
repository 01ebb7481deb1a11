"""What would happen, or would have happened: recorded hours replayed through the real decisions and the real planner.

`History` is what was recorded, `Changes` what is assumed to differ, `replay` goes through it, `outlook` draws figures
from the result. Pure: loads, placement and clock come from the caller.
"""

from assignor_core.what_if.changes import Changes, changed
from assignor_core.what_if.copying import Copying, Pace
from assignor_core.what_if.evidence import Planning
from assignor_core.what_if.generated import history_of
from assignor_core.what_if.history import History, HistoryBroker, filled
from assignor_core.what_if.replay import Replay, ReplayedPlan, replay

__all__ = [
    "Changes",
    "Copying",
    "History",
    "HistoryBroker",
    "Pace",
    "Planning",
    "Replay",
    "ReplayedPlan",
    "changed",
    "filled",
    "history_of",
    "replay",
]
