"""What a plan brought is measured by the windows right after its end; days later the load shows something else."""

import pytest
import structlog

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.proposed_plan import ProposedPlan
from streaming.control import run
from streaming.control.run import MEASURE_PATIENCE_WINDOWS, ControlLoop
from streaming.control.wiring import journal_of
from streaming.settings import DAY_MS, Settings
from tests.control.noted_cluster import NOON_MS, NotedCluster, approve
from tests.control.windows import write_windows


@pytest.fixture
def settings(tables_in_memory: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(run, "decider_of", lambda *_, **__: NoDecisions())
    return Settings.model_validate({"storage": {"tables": tables_in_memory}})


class NoDecisions:
    def tick(self, *, now_ms: int) -> ProposedPlan | None:  # noqa: ARG002 - as a decider takes it
        return None


def carried_out(settings: Settings, cluster: NotedCluster) -> Execution:
    loop, journal = ControlLoop(cluster, settings, now_ms=NOON_MS), journal_of(settings)
    execution_id = approve(journal, 0).execution.execution_id
    for second in range(60):
        loop.tick(now_ms=NOON_MS + second * 1_000)
        cluster.cluster.advance(1_000)
    execution = journal.execution(execution_id)
    assert execution.last_event is Event.DONE
    return execution


def restarted(settings: Settings, cluster: NotedCluster, now_ms: int) -> list[str]:
    """A control that starts then, and what it logs at its first tick."""
    with structlog.testing.capture_logs() as logs:
        ControlLoop(cluster, settings, now_ms=now_ms).tick(now_ms=now_ms)
    return [str(row["event"]) for row in logs]


def test_a_control_that_starts_days_later_measures_nothing(settings: Settings) -> None:
    cluster = NotedCluster(moves=True)
    execution = carried_out(settings, cluster)
    later_ms = NOON_MS + 20 * DAY_MS
    write_windows(settings, cluster.describe(), end_ms=later_ms, windows=12)
    assert "result_not_measured" in restarted(settings, cluster, later_ms)
    assert journal_of(settings).execution(execution.execution_id).last_event is Event.DONE


def test_a_control_that_starts_minutes_later_measures_what_came_after_the_end(settings: Settings) -> None:
    cluster = NotedCluster(moves=True)
    execution = carried_out(settings, cluster)
    later_ms = NOON_MS + (MEASURE_PATIENCE_WINDOWS + 2) * settings.pipeline.window_ms
    write_windows(settings, cluster.describe(), end_ms=later_ms, windows=12)
    assert "measured" in restarted(settings, cluster, later_ms)
    assert journal_of(settings).execution(execution.execution_id).last_event is Event.MEASURED
