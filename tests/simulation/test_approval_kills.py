"""Controls are killed at call outs while a plan waits for a second person and for its time.

Whatever is struck, the plan starts once, at its time and not before, and never by the approvals of one person. What an
abort ends never starts.
"""

from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

from assignor_core.execution.life_cycle import Execution
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.control import journal as journal_module
from streaming.control.wiring import journal_of
from streaming.errors import RefusedForSafety
from streaming.settings import Settings
from tests.simulated_cluster import SimulatedCluster
from tests.simulation.control import SimulatedControl
from tests.simulation.monitor import Monitor
from tests.simulation.world import Actor, Blow, Interruption, World
from tests.tables_in_memory import in_memory

BEGINS_AFTER_MS = 60_000
STORY_MAX_MS = 1_800_000


@dataclass
class Story:
    """A plan that Ann approves for a time, and that Ben approves later."""

    strikes: dict[int, Interruption] = field(default_factory=dict)
    ben_ms: int | None = 30_000
    abort_ms: int | None = None
    moved_ms: int | None = None
    """When somebody else moves the plan's partition."""

    def __post_init__(self) -> None:
        cluster = SimulatedCluster.of(dict.fromkeys(range(1, 4)), cluster_id="c")
        cluster.create_topic("t", {0: (1, 2), 1: (1, 2)})
        cluster.advance(60_000)
        settings = Settings.model_validate(
            {"kafka": {"cluster_name": "simulated"}, "storage": {"tables": in_memory("approvals")},
             "control": {"mode": "observe", "approvals": 2}, "planner": {"plan_ttl_ms": 300_000}}
        )  # fmt: skip
        self.world = World(cluster, settings, interruptions=self.strikes)
        self.monitor = Monitor(self.world, undisturbed=True)
        self.others, self.started, self.refusals = Actor("others"), 0, list[str]()
        self.journal = journal_of(settings)
        self.journal.make_tables()
        plan = Plan("c", (Movement("t", 0, (1, 2), (3, 2), 5.0), Movement("t", 1, (1, 2), (3, 2), 5.0)))
        proposed = ProposedPlan(plan, Observed.of(plan, self.world.look()))
        self.kept = self.journal.write_plan(proposed, decision=None, now_ms=self.world.now_ms)
        self.begins_ms = self.world.now_ms + BEGINS_AFTER_MS
        self._act(0, self._start)
        self._act(0, lambda: self._approve("Ann (token 1)", begins_ms=self.begins_ms))
        self._act(10_000, lambda: self._approve("ann (command line on a host)"))
        self._act(self.ben_ms, lambda: self._approve("Ben (token 2)"))
        self._act(self.abort_ms, self._abort)
        self._act(self.moved_ms, lambda: self.world.cluster.reassign({("t", 0): (2, 3)}))

    def _act(self, at_ms: int | None, action: Any) -> None:
        if at_ms is not None:
            self.world.plan(at_ms, self.others, action)

    def _start(self) -> None:
        self.started += 1
        control = SimulatedControl(f"control {self.started}", self.world, self.monitor)
        control.replaced = lambda ended: self.world.plan(ended.restart_ms, self.others, self._start)
        control.start()

    def _approve(self, by: str, **how: Any) -> None:
        try:
            self.journal.approve_once(self.kept, by, now_ms=self.world.now_ms, **how)
        except RefusedForSafety as error:
            self.refusals.append(str(error))

    def _abort(self) -> None:
        for execution in self.journal.open_executions(now_ms=self.world.now_ms):
            self.journal.request_abort(execution, "a person", now_ms=self.world.now_ms)

    def played(self) -> Execution:
        """The only execution, once it has ended; the invariants are judged on the way."""
        while not self._has_ended():
            self.world.pass_time(5_000)
        self.monitor.judge_end()
        (execution,) = self.monitor.executions()
        return execution

    def _has_ended(self) -> bool:
        executions = self.monitor.executions()
        return (bool(executions) and all(row.ended for row in executions)) or self.world.cluster.now_ms > STORY_MAX_MS

    def trace(self) -> str:
        return "\n".join([*self.world.trace[-60:], *map(str, self.monitor.broken)])


def carried_out(strikes: dict[int, Interruption]) -> int:
    """Call outs of a story in which both approve, which is judged."""
    story = Story(strikes)
    try:
        execution = story.played()
        assert not story.monitor.broken, story.trace()
        assert execution.done_ms is not None, story.trace()
        assert execution.started_ms is not None
        assert execution.started_ms >= story.begins_ms
        assert execution.approvers == ("Ann", "Ben")
        assert story.refusals == ["the plan has 1 of 2 approvals, by Ann: another person has to approve it"]
        return story.world.calls
    finally:
        story.world.end()


@pytest.mark.parametrize("blow", [Blow.KILL_BEFORE, Blow.KILL_AFTER, Blow.FREEZE_AFTER])
def test_a_blow_at_any_call_out_changes_nothing_in_the_end(blow: Blow) -> None:
    calls = carried_out({})
    for call in range(1, calls + 1, 2):
        carried_out({call: Interruption(blow, 2_000)})


@pytest.mark.parametrize("abort_ms", [20_000, 40_000])
def test_what_is_aborted_while_it_waits_never_starts(abort_ms: int) -> None:
    """Before Ben approves, and after."""
    strikes = dict.fromkeys(range(10, 400, 15), Interruption(Blow.KILL_AFTER, 500))
    story = Story(strikes, ben_ms=30_000 if abort_ms > 30_000 else None, abort_ms=abort_ms)
    try:
        execution = story.played()
        assert not story.monitor.broken, story.trace()
        assert (execution.last_event, execution.started_ms) == ("aborted", None)
        assert execution.last.detail == "a person asked to stop before the execution began"
    finally:
        story.world.end()


def test_a_plan_that_no_longer_fits_when_its_time_comes_is_refused() -> None:
    story = Story(moved_ms=40_000)
    try:
        execution = story.played()
        assert not story.monitor.broken, story.trace()
        assert (execution.last_event, execution.started_ms) == ("refused", None)
        assert "the cluster has changed since the plan was made" in execution.last.detail
        assert execution.last.at_ms >= story.begins_ms
    finally:
        story.world.end()


def test_without_the_second_person_it_is_refused_in_the_end() -> None:
    story = Story(ben_ms=None)
    try:
        execution = story.played()
        assert not story.monitor.broken, story.trace()
        assert (execution.last_event, execution.started_ms) == ("refused", None)
        assert execution.last.detail == "only 1 of 2 approvals came in time: make a new plan"
    finally:
        story.world.end()


@pytest.mark.parametrize(
    ("owner", "attribute", "wrong", "invariant"),
    [
        (Execution, "may_begin", lambda row, _now_ms: row.waiting and not row.needs_approval, "4 not before its time"),
        (journal_module, "has_approved", lambda _execution, _by: False, "4 approved by enough people"),
    ],
)
def test_a_planted_fault_is_caught(owner: Any, attribute: str, wrong: Any, invariant: str) -> None:
    with mock.patch.object(owner, attribute, wrong):
        story = Story()
        try:
            story.played()
            assert [row.invariant for row in story.monitor.broken] == [invariant]
        finally:
            story.world.end()
