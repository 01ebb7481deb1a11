"""What plans promised against what came, from the tables `plan` and `execution`: for `status` and for predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from assignor_core.execution.life_cycle import Execution
from assignor_core.what_if.accuracy import Accuracy, accuracy_of, compared
from streaming.tables import TableReader
from streaming.views.plans import plan_durations_ms

EXECUTIONS_MAX = 10
"""Newest executions that are compared: the plan of each is read whole."""


def read_accuracy(reader: TableReader, kafka_cluster: str, executions: Sequence[Execution]) -> Accuracy:
    """Errors of the newest executions that were measured; raises TableUnavailable."""
    measured = sorted(
        (row for row in executions if row.outcome is not None and row.done_ms is not None),
        key=lambda row: row.done_ms or 0,
    )[-EXECUTIONS_MAX:]
    durations = plan_durations_ms(reader, kafka_cluster, {row.plan_id for row in measured})
    rows = (compared(row, durations.get(row.plan_id)) for row in measured)
    return accuracy_of(row for row in rows if row is not None)


def accuracy_data(accuracy: Accuracy) -> dict[str, Any]:
    """For programs: by figure the median error, the one that 80 % stay below, and of how many executions."""
    return asdict(accuracy)


def accuracy_line(data: Mapping[str, Any]) -> str | None:
    """What `accuracy_data` made, for people; None where too few executions were measured.

    >>> from assignor_core.what_if.accuracy import Error
    >>> accuracy_line(accuracy_data(Accuracy(duration=Error(0.1, 0.25, 4))))
    'plans so far: duration +10 % (80 %: within 25 %), of 4 measured'
    """
    figures = (("max/mean", "max_over_mean"), ("bytes", "bytes_copied"), ("duration", "duration"))
    known = [(words, data[name]) for words, name in figures if data[name] is not None]
    if not known:
        return None
    shown = (f"{words} {row['median'] * 100:+.0f} % (80 %: within {row['likely'] * 100:.0f} %)" for words, row in known)
    return f"plans so far: {', '.join(shown)}, of {known[0][1]['count']} measured"
