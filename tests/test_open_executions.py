"""Open executions as control follows them: on Delta and in memory, where a look costs what is new."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assignor_core.execution.events import ABORT_SEQUENCE
from streaming import tables
from streaming.views.executions import CLOCKS_APART_MS, WHOLE_READ_INTERVAL_MS, OpenExecutions
from tests.serve.synthetic import NOW_MS, Synthetic
from tests.tables_in_memory import forget, in_memory


@pytest.fixture(params=["delta", "memory"])
def synthetic(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Synthetic]:
    root = str(tmp_path) if request.param == "delta" else in_memory()
    yield Synthetic(root)
    forget(root)


@pytest.fixture
def followed(synthetic: Synthetic) -> OpenExecutions:
    return OpenExecutions(synthetic.root, synthetic.cluster)


def seen(followed: OpenExecutions, now_ms: int) -> list[tuple[str, str]]:
    return [(row.execution_id, row.phase.value) for row in followed.read(now_ms=now_ms)]


def test_each_event_is_seen_at_the_next_look(synthetic: Synthetic, followed: OpenExecutions) -> None:
    assert seen(followed, NOW_MS) == []
    synthetic.event(NOW_MS + 1, 0, "approved")
    assert seen(followed, NOW_MS + 1) == [("e-1", "waiting")]
    synthetic.event(NOW_MS + 2, 0, "approved", execution_id="e-2")
    synthetic.event(NOW_MS + 3, 1, "started", execution_id="e-2")
    assert seen(followed, NOW_MS + 3) == [("e-2", "under way"), ("e-1", "waiting")]
    synthetic.event(NOW_MS + 4, ABORT_SEQUENCE, "abort_requested", execution_id="e-2")
    assert seen(followed, NOW_MS + 4) == [("e-2", "aborting"), ("e-1", "waiting")]
    synthetic.event(NOW_MS + 5, 2, "aborted", execution_id="e-2")
    synthetic.event(NOW_MS + 6, 3, "swept", execution_id="e-2")
    assert seen(followed, NOW_MS + 6) == [("e-1", "waiting")]


def test_a_table_that_has_not_changed_is_not_read(
    synthetic: Synthetic, followed: OpenExecutions, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic.event(NOW_MS, 0, "approved")
    before = seen(followed, NOW_MS)
    monkeypatch.setattr(
        type(tables.TableReader(synthetic.root)), "rows", lambda *_, **__: pytest.fail("the table is read")
    )
    assert seen(followed, NOW_MS + 1_000) == before
    assert seen(followed, NOW_MS + WHOLE_READ_INTERVAL_MS) == before


def test_events_that_are_known_are_not_read_again(
    synthetic: Synthetic, followed: OpenExecutions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One execution of many hours: a look reads the rows since the last one, not all of them."""
    hours_ago_ms, read = NOW_MS - 3_600_000, list[int]()
    with synthetic.together():
        synthetic.event(hours_ago_ms, 0, "approved")
        synthetic.event(hours_ago_ms, 1, "started")
        for sequence in range(2, 20):
            synthetic.event(hours_ago_ms, sequence, "progress")
    assert seen(followed, NOW_MS) == [("e-1", "under way")]
    kind = type(tables.TableReader(synthetic.root))
    rows_since = kind.rows_since

    def noted(*arguments: object, **named: object) -> object:
        answer = rows_since(*arguments, **named)  # type: ignore[arg-type]
        read.append(len(answer))
        return answer

    monkeypatch.setattr(kind, "rows_since", noted)
    synthetic.event(NOW_MS + 1_000, 20, "progress")
    synthetic.event(NOW_MS + 1_000, 21, "done")
    assert seen(followed, NOW_MS + 1_000) == []
    assert read == [2]


def test_an_event_from_a_clock_that_is_behind_is_seen(synthetic: Synthetic, followed: OpenExecutions) -> None:
    synthetic.event(NOW_MS, 0, "refused")
    assert seen(followed, NOW_MS) == []
    synthetic.event(NOW_MS - CLOCKS_APART_MS, 0, "approved", execution_id="e-2")
    assert seen(followed, NOW_MS + 1_000) == [("e-2", "waiting")]
    synthetic.event(NOW_MS - 3_600_000, ABORT_SEQUENCE, "abort_requested", execution_id="e-2")
    assert seen(followed, NOW_MS + 2_000) == [("e-2", "waiting")]
    assert seen(followed, NOW_MS + WHOLE_READ_INTERVAL_MS) == [("e-2", "aborting")]


def test_an_event_from_a_clock_that_is_ahead_hides_no_other(synthetic: Synthetic, followed: OpenExecutions) -> None:
    synthetic.event(NOW_MS + 3_600_000, 0, "refused")
    assert seen(followed, NOW_MS) == []
    synthetic.event(NOW_MS + 1_000, 0, "approved", execution_id="e-2")
    assert seen(followed, NOW_MS + 1_000) == [("e-2", "waiting")]
    assert seen(followed, NOW_MS - 3_600_000) == [("e-2", "waiting")], "the clock was set back"
