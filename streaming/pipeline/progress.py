"""Spark's progress reports of a streaming query, read from the JVM only where a new one has come."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class ReportsProgress(Protocol):
    """The part of a streaming query that is used here and by those who watch one."""

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether the query still runs."""

    @property
    def status(self) -> Mapping[str, Any]:
        """What the query does now: `isTriggerActive` while it works on a batch."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """The newest report of the query; None before the first."""

    @property
    def recentProgress(self) -> Sequence[Any]:  # noqa: N802
        """The newest reports of the query, oldest first."""


class ProgressReports:
    """The reports that Spark keeps of one query, for one reader that asks often.

    Spark writes each report as JSON whenever it is asked: about 10 ms of CPU for all twenty that it keeps, less than 1
    for the newest one (measured 2026-12-01). Each cluster of a deployment is asked several times a second.
    """

    def __init__(self, query: ReportsProgress) -> None:
        self.query = query
        self._reports: Sequence[Any] = ()

    def recent(self) -> Sequence[Any]:
        """The newest reports, oldest first."""
        newest = self.query.lastProgress
        if newest is not None and not (self._reports and report_key(self._reports[-1]) == report_key(newest)):
            self._reports = self.query.recentProgress
        return self._reports


def report_key(report: Any) -> tuple[str, int]:
    """Time and batch of a report. Times alone would not tell reports apart: a clock may be set back."""
    return report["timestamp"], report["batchId"]
