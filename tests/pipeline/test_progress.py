"""Reports of a streaming query are read from Spark once each, however often a reader asks."""

from typing import Any

from streaming.pipeline.progress import ProgressReports


class Query:
    """Counts how often all reports are read: Spark writes each of them anew then, as JSON."""

    isActive = True  # noqa: N815 (Spark's name)

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.kept: list[dict[str, Any]] = []
        self.reads = 0

    @property
    def lastProgress(self) -> Any:  # noqa: N802 (Spark's name)
        return self.kept[-1] if self.kept else None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        self.reads += 1
        return self.kept.copy()


def test_all_reports_are_read_once_a_new_one_has_come() -> None:
    query = Query()
    reports = ProgressReports(query)
    assert [list(reports.recent()) for _ in range(5)] == [[]] * 5
    for batch in range(4):
        query.kept = [*query.kept, {"timestamp": "2026-12-01T00:00:00.000Z", "batchId": batch}][-2:]
        for _ in range(5):
            assert list(reports.recent()) == query.kept
    assert query.reads == 4


def test_a_report_of_the_same_batch_at_another_time_is_a_new_one() -> None:
    """An idle query reports its newest batch again, and a clock may be set back."""
    query = Query()
    reports = ProgressReports(query)
    for second in (7, 8, 3):
        query.kept.append({"timestamp": f"2026-12-01T00:00:0{second}.000Z", "batchId": 1})
        assert list(reports.recent()) == query.kept
