"""Invariant 8: automatic mode makes no broker worse than its plan said, and stops after plans that don't deliver.

What a plan brought is computed from the true placement and the story's own rates, not from windows.
"""

from collections import Counter
from collections.abc import Iterable

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.resources import TRIGGERING, Resource
from tests.simulated_cluster.state import ClusterContents

BY_ITSELF = "approved by mode apply"
TOLERANCE = 0.01
"""Plans are made on figures of some windows: they promise a ratio no more exactly than this."""
KEPT_MIN = 0.5
PROMISED_MIN = 0.02
"""docs/execution.md: a plan delivers if at least half of its promise comes true; less than this is no promise."""


def is_automatic(execution: Execution) -> bool:
    """Whether control approved it by itself."""
    return execution.events[0].event is Event.APPROVED and BY_ITSELF in execution.events[0].detail


def worst_to_mean(contents: ClusterContents) -> float:
    """Max over mean of bytes/s in by broker: at the leader, and again at each replica in sync. All brokers run."""
    loads = Counter(dict.fromkeys(contents.brokers, 0))
    for _, row in contents.partitions():
        for broker in {row.leader, *row.isr}:
            loads[broker] += row.bytes_in_per_sec
    mean = sum(loads.values()) / len(loads)
    return max(loads.values()) / mean if mean else 1.0


def broken_promise(execution: Execution, contents: ClusterContents) -> str | None:
    """How the worst broker is worse than a plan said that has just been carried out in full; None if it is not."""
    promised, after = execution.figures.predicted.get(Resource.BYTES_IN), worst_to_mean(contents)
    if promised is None or after <= promised + TOLERANCE:
        return None
    return f"bytes in, max/mean: {promised:.3f} promised, {after:.3f} brought"


def bad_in_a_row(executions: Iterable[Execution]) -> int:
    """How many of the newest plans, of executions oldest first, did not deliver; those not measured don't count."""
    count = 0
    for execution in executions:
        if execution.measured is None:
            continue
        figures = execution.measured.figures
        known = [
            resource
            for resource in TRIGGERING
            if all(resource in ratios for ratios in (figures.before, figures.predicted, figures.measured))
        ]
        gains = {name: figures.before[name] - figures.predicted[name] for name in known}
        main = max(gains, key=lambda name: gains[name], default=None)
        if main is None or gains[main] < PROMISED_MIN:
            continue
        delivered = figures.before[main] - figures.measured[main] >= KEPT_MIN * gains[main]
        count = 0 if delivered else count + 1
    return count
