"""How far plans came out from what they promised: skew, bytes and time of executions that were measured.

The errors of the past are the estimate of the next prediction's own error.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from assignor_core.execution.life_cycle import Execution

LIKELY_SHARE = 0.8
EXECUTIONS_MIN = 3
"""Fewer say too little of the next one."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One execution: what its plan promised, and what came. None where it is not known."""

    execution_id: str
    max_over_mean_predicted: float
    max_over_mean_measured: float
    bytes_predicted: int
    bytes_copied: int
    duration_predicted_ms: float | None
    duration_ms: int

    @property
    def max_over_mean_error(self) -> float:
        """Measured over promised, less 1."""
        return self.max_over_mean_measured / self.max_over_mean_predicted - 1.0

    @property
    def bytes_error(self) -> float | None:
        """Copied over promised, less 1; None of a plan that copies nothing."""
        return None if not self.bytes_predicted else self.bytes_copied / self.bytes_predicted - 1.0

    @property
    def duration_error(self) -> float | None:
        """Time over promised time, less 1; None where no throttle was known."""
        return None if not self.duration_predicted_ms else self.duration_ms / self.duration_predicted_ms - 1.0


@dataclass(frozen=True, slots=True)
class Error:
    """Relative errors of one figure; 0.1 is a tenth more than promised."""

    median: float
    """With its sign: whether promises are too high or too low."""
    off_median: float
    """Half of the promises were off by no more than this, in either direction."""
    likely: float
    """80 % were off by no more than this."""
    off_max: float
    """The worst was off by this."""
    count: int


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors by figure; None where fewer than `EXECUTIONS_MIN` executions show one."""

    max_over_mean: Error | None = None
    bytes_copied: Error | None = None
    duration: Error | None = None


def compared(execution: Execution, duration_predicted_ms: float | None) -> Comparison | None:
    """What the plan of `execution` promised and what came; None where nothing was promised, carried out or measured.

    The load is the one for which the plan promised most.
    """
    outcome, ended_ms = execution.outcome, execution.done_ms
    if outcome is None or ended_ms is None or outcome.predicted <= 0:
        return None
    figures = execution.figures
    return Comparison(
        execution.execution_id,
        outcome.predicted,
        outcome.measured,
        figures.bytes_total,
        figures.bytes_moved,
        duration_predicted_ms,
        execution.worked_ms(ended_ms),
    )


def accuracy_of(comparisons: Iterable[Comparison]) -> Accuracy:
    """Errors over all of them.

    >>> one = Comparison("e", 1.0, 1.1, 100, 90, 1000.0, 1500)
    >>> accuracy_of([one] * 3).duration
    Error(median=0.5, off_median=0.5, likely=0.5, off_max=0.5, count=3)
    >>> accuracy_of([one]).duration is None
    True
    """
    rows = tuple(comparisons)

    def error(of: Callable[[Comparison], float | None]) -> Error | None:
        return _error([value for value in map(of, rows) if value is not None])

    return Accuracy(
        error(lambda row: row.max_over_mean_error),
        error(lambda row: row.bytes_error),
        error(lambda row: row.duration_error),
    )


def _error(errors: Sequence[float]) -> Error | None:
    if len(errors) < EXECUTIONS_MIN:
        return None
    off = np.abs(errors)
    off_median, likely, off_max = (float(np.quantile(off, share)) for share in (0.5, LIKELY_SHARE, 1.0))
    return Error(float(np.median(errors)), off_median, likely, off_max, len(errors))
