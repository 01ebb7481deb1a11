"""Consumer lag: figures of the windows, verdicts on them, and what they show of brokers. Pure, on columns.

`evaluate` gives our verdicts, `burrow_status` those of Burrow; `brokers_falling_behind` is what the trigger needs.
"""

from assignor_core.lag.brokers import BehindOnBroker, PartitionVerdict, brokers_falling_behind
from assignor_core.lag.burrow import BurrowStatus, BurrowWindow, Commit, burrow_group_status, burrow_status
from assignor_core.lag.figures import LagFigures, LagPolicy, measure
from assignor_core.lag.history import LagHistory, lag_age, lag_seconds, last_commit_ms, newest_commit
from assignor_core.lag.keeping_up import Course, keeps_up
from assignor_core.lag.newest_first import LagTrace
from assignor_core.lag.verdicts import Evaluated, LagStatus, Standing, evaluate, worst_of

__all__ = [
    "BehindOnBroker",
    "BurrowStatus",
    "BurrowWindow",
    "Commit",
    "Course",
    "Evaluated",
    "LagFigures",
    "LagHistory",
    "LagPolicy",
    "LagStatus",
    "LagTrace",
    "PartitionVerdict",
    "Standing",
    "brokers_falling_behind",
    "burrow_group_status",
    "burrow_status",
    "evaluate",
    "keeps_up",
    "lag_age",
    "lag_seconds",
    "last_commit_ms",
    "measure",
    "newest_commit",
    "worst_of",
]
