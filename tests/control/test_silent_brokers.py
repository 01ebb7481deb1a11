"""After an execution a broker counts as alive and answers nobody: what it holds back waits, all the rest goes on."""

import pytest
import structlog

from assignor_core.execution.life_cycle import Execution
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.throttles import FOLLOWER_RATE, tagged
from streaming.control import run
from streaming.control.late_requests import CHECKS_AFTER_MS, GIVEN_UP_AFTER_MS
from streaming.control.run import ControlLoop
from streaming.control.sweeping import READ_INTERVAL_MS
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, NotedCluster, approve

TICK_MS = 10_000
SILENT = 2


class Decisions:
    """Counts in the place of a decider."""

    def __init__(self) -> None:
        self.count = 0

    def tick(self, *, now_ms: int) -> ProposedPlan | None:  # noqa: ARG002 - as a decider takes it
        self.count += 1
        return None


class Watched:
    """A control with an execution of one movement to `SILENT`."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decisions = Decisions()
        monkeypatch.setattr(run, "decider_of", lambda *_, **__: self.decisions)
        self.cluster = NotedCluster(moves=True)
        self.journal = journal_of(settings)
        self.loop = ControlLoop(self.cluster, settings, now_ms=NOON_MS)
        self.record = approve(self.journal, 0)
        self.now_ms = NOON_MS

    @property
    def execution(self) -> Execution:
        return self.journal.execution(self.record.execution.execution_id)

    def tick(self, ms: int = 1_000) -> None:
        self.now_ms += ms
        self.cluster.cluster.advance(ms)
        self.loop.tick(now_ms=self.now_ms)

    def tick_until_it_ends(self) -> None:
        for _ in range(120):
            self.tick()
            if self.execution.ended:
                return
        raise AssertionError("it does not end")

    def tick_while_silent(self, ms: int) -> list[dict[str, object]]:
        """Ticks with the broker frozen: its session would end if the time of the cluster passed. Returns the log."""
        self.cluster.cluster.freeze_broker(SILENT)
        with structlog.testing.capture_logs() as logs:
            for at_ms in range(self.now_ms, self.now_ms + ms, TICK_MS):
                self.loop.tick(now_ms=at_ms)
        self.now_ms += ms
        return [dict(row) for row in logs]

    def answers_again(self) -> None:
        self.cluster.cluster.resume_broker(SILENT)


def owing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The broker was down at the end and kept its rate; now it is back."""
    watched = Watched(settings, monkeypatch)
    watched.loop.tick(now_ms=NOON_MS)
    watched.cluster.cluster.kill_broker(SILENT)
    watched.cluster.cluster.advance(20_000)
    watched.journal.request_abort(watched.record.execution, "a person", now_ms=NOON_MS)
    watched.tick_until_it_ends()
    return watched


def test_a_late_look_that_a_broker_does_not_answer_holds_up_no_decision(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(settings, monkeypatch)
    watched.tick_until_it_ends()
    logs = watched.tick_while_silent(2 * CHECKS_AFTER_MS[-1])
    assert watched.decisions.count == 2 * CHECKS_AFTER_MS[-1] // TICK_MS
    unanswered = [row for row in logs if row["event"] == "late_look_unanswered"]
    assert 1 < len(unanswered) < watched.decisions.count / 3  # it asks again, and not at each tick


def test_a_late_look_is_made_once_the_broker_answers_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(settings, monkeypatch)
    watched.tick_until_it_ends()
    watched.tick_while_silent(2 * CHECKS_AFTER_MS[-1])
    watched.answers_again()
    watched.cluster.cluster.set_throttle_rate(SILENT, FOLLOWER_RATE, tagged(5))
    watched.cluster.set_throttled_replicas({}, {"t": frozenset({(0, SILENT)})})
    for _ in range(20):
        watched.tick(TICK_MS)
    assert watched.cluster.throttle_rates() == {}


def test_a_late_look_that_is_never_answered_is_given_up_at_last(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(settings, monkeypatch)
    watched.tick_until_it_ends()
    logs = watched.tick_while_silent(2 * GIVEN_UP_AFTER_MS)
    assert [row["event"] for row in logs if str(row["event"]).startswith("late_look")][-1] == "late_look_given_up"
    assert [row["event"] for row in logs].count("late_look_given_up") == 1


def test_a_sweep_that_a_broker_does_not_answer_holds_up_no_decision(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = owing(settings, monkeypatch)
    assert watched.execution.owes
    watched.cluster.cluster.restart_broker(SILENT)
    logs = watched.tick_while_silent(10 * READ_INTERVAL_MS)
    assert watched.decisions.count >= 10 * READ_INTERVAL_MS // TICK_MS
    assert 1 < [row["event"] for row in logs].count("sweep_unanswered") <= 11
    watched.answers_again()
    watched.tick(READ_INTERVAL_MS)
    watched.tick(READ_INTERVAL_MS)
    assert not watched.execution.owes
