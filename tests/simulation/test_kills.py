"""Controls are killed and frozen at call outs of executions, and while a plan waits or a broker is demoted.

Whatever is struck, the end is that of a control which nothing strikes.
"""

from collections import Counter
from typing import Any
from unittest import mock

import pytest

from assignor_core.execution import accounting
from assignor_core.execution.life_cycle import Execution
from assignor_core.live import PartitionKey
from assignor_core.live_plans.demotion import propose_demotion, propose_restoration
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.control import journal as journal_module
from streaming.control.intents import note_intent
from streaming.errors import RefusedForSafety
from streaming.tables import TableReader
from streaming.views.intents import Intent, brokers_by_intent
from tests.simulated_cluster import SimulatedCluster
from tests.simulation.control import Change, SimulatedControl
from tests.simulation.monitor import Monitor
from tests.simulation.roles import StruckStory, supervise
from tests.simulation.world import Blow, Interruption

HOUR_MS = 3_600_000
BLOWS = (Blow.KILL_BEFORE, Blow.KILL_AFTER, Blow.FREEZE_AFTER)


def kills(calls: range, restart_ms: int) -> dict[int, Interruption]:
    return dict.fromkeys(calls, Interruption(Blow.KILL_AFTER, restart_ms))


class Refusals(StruckStory):
    """Three waves of an execution of which Kafka refuses a part: one movement of the first for good, one of the second
    and one election for a reason that might pass. A process that starts knows nothing of refusals: it asks once more,
    at most as often as the one before, and ends up where that one would have.
    """

    FOR_GOOD, FOR_LONG = ("t", 1), ("t", 3)
    MOVED = (("t", 0), ("t", 2), ("t", 4), ("t", 5))
    TRIES = 6
    BYTES = 150_000_000
    """Of each partition: its copy takes some seconds with the throttle."""
    LONG_BYTES = 30 * BYTES
    """With these it takes longer than until the next process goes on."""

    def __init__(self, strikes: dict[int, Interruption], copied_bytes: int = BYTES) -> None:
        cluster = SimulatedCluster.of({1: None, 2: None, 3: None}, cluster_id="c")
        cluster.create_topic("t", dict.fromkeys(range(6), (1, 2)))
        for _, row in cluster.contents.partitions():
            row.end_bytes = copied_bytes
        cluster.advance(600_000)
        super().__init__(cluster, strikes)
        self.monitor = Counting(self.world, undisturbed=True)
        self.monitor.touched.add(self.FOR_LONG)  # the monitor takes it for one that has to be made
        self.world.client_faults.refused |= {self.FOR_GOOD: "PolicyViolationError", self.FOR_LONG: "UnknownError"}
        movements = tuple(Movement("t", number, (1, 2), (3, 2), 1.0, wave=number // 2) for number in range(6))
        self.journal.approve(self.written(Plan("c", movements)), "a person", now_ms=self.world.now_ms)

    def calls(self) -> int:
        """Call outs of the story, which is played and judged."""
        # Sixty tries would be as many turns that are alike.
        with self, mock.patch.object(accounting, "TRIES_MAX", self.TRIES):
            supervise(self.world, self.monitor, self.others)
            while not all(row.ended for row in self.monitor.executions()) and self.world.cluster.now_ms < 2 * HOUR_MS:
                self.world.pass_time(5_000)
            self.world.pass_time(30_000)
            self.monitor.judge_end()
            assert not self.monitor.broken, f"{self.trace}\n{self.monitor.broken}"
            (execution,) = self.monitor.executions()
            assert execution.done_ms is not None, execution.last.detail
            for key in self.MOVED:
                row = self.world.cluster.contents.partition(key)
                assert row is not None
                assert (row.replicas, row.leader) == ((3, 2), 3)
            for (name, key), count in self.monitor.asked_for.items():
                assert count <= (1 if key == self.FOR_GOOD else self.TRIES), (name, key)
            return self.world.calls


class Counting(Monitor):
    """Counts what each process asks for, by partition."""

    def __post_init__(self) -> None:
        self.asked_for: Counter[tuple[str, PartitionKey]] = Counter()
        super().__post_init__()

    def changing(self, who: SimulatedControl, change: Change) -> None:
        self.asked_for.update((who.name, key) for key, target in change.targets.items() if target is not None)
        super().changing(who, change)


@pytest.mark.long
@pytest.mark.parametrize("first", range(4))
def test_a_kill_at_any_call_out_of_an_execution_changes_no_result(first: int) -> None:
    """Each kill at a call of its own, the next process at once."""
    for call in range(first + 1, Refusals({}).calls() + 1, 4):
        Refusals(kills(range(call, call + 1), 100)).calls()


@pytest.mark.long
def test_what_was_skipped_is_not_asked_for_again_while_a_later_wave_copies() -> None:
    for call in range(200, 1_000, 100):
        Refusals(kills(range(call, call + 1), 100), Refusals.LONG_BYTES).calls()


@pytest.mark.long
@pytest.mark.parametrize("every", [30, 50, 80])
def test_many_kills_of_an_execution_only_take_longer(every: int) -> None:
    story = Refusals(kills(range(every, 12 * every, every), 5_000))
    story.calls()
    assert len(story.world.actors) > 3


class Approvals(StruckStory):
    """A plan that Ann approves for a time, and that Ben approves later: it starts once, at its time and not before, and
    never by the approvals of one person. What an abort ends never starts.
    """

    BEGINS_AFTER_MS = 60_000

    def __init__(
        self,
        strikes: dict[int, Interruption],
        *,
        ben_ms: int | None = 30_000,
        abort_ms: int | None = None,
        moved_ms: int | None = None,
    ) -> None:
        """At `moved_ms` somebody else moves the plan's partition."""
        cluster = SimulatedCluster.of(dict.fromkeys(range(1, 4)), cluster_id="c")
        cluster.create_topic("t", {0: (1, 2), 1: (1, 2)})
        cluster.advance(60_000)
        control, planner = {"mode": "observe", "approvals": 2}, {"plan_ttl_ms": 300_000}
        super().__init__(cluster, strikes, control=control, planner=planner)
        self.monitor = Monitor(self.world, undisturbed=True)
        self.refusals = list[str]()
        self.kept = self.written(Plan("c", tuple(Movement("t", number, (1, 2), (3, 2), 5.0) for number in (0, 1))))
        self.begins_ms = self.world.now_ms + self.BEGINS_AFTER_MS
        self._act(0, lambda: supervise(self.world, self.monitor, self.others))
        self._act(0, lambda: self._approve("Ann (token 1)", begins_ms=self.begins_ms))
        self._act(10_000, lambda: self._approve("ann (command line on a host)"))
        self._act(ben_ms, lambda: self._approve("Ben (token 2)"))
        self._act(abort_ms, self._abort)
        self._act(moved_ms, lambda: cluster.reassign({("t", 0): (2, 3)}))

    def _act(self, at_ms: int | None, action: Any) -> None:
        if at_ms is not None:
            self.world.plan(at_ms, self.others, action)

    def _approve(self, by: str, **how: Any) -> None:
        try:
            self.journal.approve_once(self.kept, by, now_ms=self.world.now_ms, **how)
        except RefusedForSafety as error:
            self.refusals.append(str(error))

    def _abort(self) -> None:
        for execution in self.journal.open_executions(now_ms=self.world.now_ms):
            self.journal.request_abort(execution, "a person", now_ms=self.world.now_ms)

    def play(self) -> None:
        """Until the execution has ended; the invariants are judged on the way."""
        while not self._has_ended() and self.world.cluster.now_ms <= HOUR_MS / 2:
            self.world.pass_time(5_000)
        self.monitor.judge_end()

    def _has_ended(self) -> bool:
        executions = self.monitor.executions()
        return bool(executions) and all(row.ended for row in executions)

    def played(self) -> Execution:
        """The only execution, at its end; no invariant was broken."""
        with self:
            self.play()
            assert not self.monitor.broken, f"{self.trace}\n{self.monitor.broken}"
            (execution,) = self.monitor.executions()
            return execution


def approved_by_both(strikes: dict[int, Interruption]) -> int:
    """Call outs of a story in which both approve, which is judged."""
    story = Approvals(strikes)
    execution = story.played()
    assert execution.done_ms is not None, story.trace
    assert execution.started_ms is not None
    assert execution.started_ms >= story.begins_ms
    assert execution.approvers == ("Ann", "Ben")
    assert story.refusals == ["the plan has 1 of 2 approvals, by Ann: another person has to approve it"]
    return story.world.calls


@pytest.mark.long
@pytest.mark.parametrize("blow", BLOWS)
def test_a_blow_at_any_call_out_while_a_plan_waits_changes_nothing(blow: Blow) -> None:
    for call in range(1, approved_by_both({}) + 1, 2):
        approved_by_both({call: Interruption(blow, 2_000)})


def test_two_kills_while_a_plan_waits_change_nothing() -> None:
    approved_by_both(kills(range(10, 100, 45), 2_000))


@pytest.mark.parametrize("abort_ms", [20_000, 40_000])
def test_what_is_aborted_while_it_waits_never_starts(abort_ms: int) -> None:
    """Before Ben approves, and after."""
    strikes = kills(range(10, 400, 15), 500)
    execution = Approvals(strikes, ben_ms=30_000 if abort_ms > 30_000 else None, abort_ms=abort_ms).played()
    assert (execution.last_event, execution.started_ms) == ("aborted", None)
    assert execution.last.detail == "a person asked to stop before the execution began"


def test_a_plan_that_no_longer_fits_when_its_time_comes_is_refused() -> None:
    story = Approvals({}, moved_ms=40_000)
    execution = story.played()
    assert (execution.last_event, execution.started_ms) == ("refused", None)
    assert "the cluster has changed since the plan was made" in execution.last.detail
    assert execution.last.at_ms >= story.begins_ms


def test_without_the_second_person_it_is_refused_in_the_end() -> None:
    execution = Approvals({}, ben_ms=None).played()
    assert (execution.last_event, execution.started_ms) == ("refused", None)
    assert execution.last.detail == "only 1 of 2 approvals came in time: make a new plan"


@pytest.mark.parametrize(
    ("owner", "attribute", "wrong", "invariant"),
    [
        (Execution, "may_begin", lambda row, _now_ms: row.waiting and not row.needs_approval, "4 not before its time"),
        (journal_module, "has_approved", lambda _execution, _by: False, "4 approved by enough people"),
    ],
)
def test_a_planted_fault_of_approvals_is_caught(owner: Any, attribute: str, wrong: Any, invariant: str) -> None:
    with mock.patch.object(owner, attribute, wrong), Approvals({}) as story:
        story.play()
        assert [row.invariant for row in story.monitor.broken] == [invariant]


class Demotion(StruckStory):
    """A broker is demoted, which then leads nothing, and undemoted: then all is as before, and nobody is forbidden."""

    DEMOTED = 3
    NOBODY: frozenset[int] = frozenset()

    def __init__(self, strikes: dict[int, Interruption]) -> None:
        cluster = SimulatedCluster.of(dict.fromkeys(range(1, 5)), cluster_id="c")
        cluster.create_topic("t", {0: (3, 1), 1: (1, 3), 2: (3, 4), 3: (2, 3), 4: (4, 2), 5: (3, 2)})
        super().__init__(cluster, strikes, control={"mode": "observe", "elections_at_once_max": 2})
        self.monitor = Monitor(self.world, undisturbed=True)
        cluster.advance(60_000)

    def calls(self) -> int:
        """Call outs of the story, which is played and judged."""
        with self:
            supervise(self.world, self.monitor, self.others)
            before, brokers = self._placement(), frozenset({self.DEMOTED})
            demotion = propose_demotion(self.world.look(), brokers, demoted=self.NOBODY, cluster_name="simulated")
            self._carry_out(demotion, Intent.DEMOTE)
            demoted = self._placement()
            for row, leader in demoted.values():
                assert self.DEMOTED not in row or (leader != self.DEMOTED and row[-1] == self.DEMOTED), self.trace
            assert {key: set(row) for key, (row, _) in demoted.items()} == {
                key: set(row) for key, (row, _) in before.items()
            }
            assert self._demoted() == brokers
            orders = {row.key: row.old_replicas for row in demotion.plan.movements}
            back = propose_restoration(
                self.world.look(), brokers, orders, demoted=self.NOBODY, cluster_name="simulated"
            )
            self._carry_out(back, Intent.USE)
            assert self._placement() == before, self.trace
            assert self._demoted() == self.NOBODY
            assert [str(row.last_event) for row in self.monitor.executions()].count("done") == 2
            return self.world.calls

    def _placement(self) -> dict[PartitionKey, tuple[tuple[int, ...], int]]:
        return {key: (row.replicas, row.leader) for key, row in self.world.cluster.contents.partitions()}

    def _demoted(self) -> frozenset[int]:
        root = self.world.settings.storage.tables
        return brokers_by_intent(TableReader(root), "simulated")[Intent.DEMOTE]

    def _carry_out(self, proposed: ProposedPlan, intent: Intent) -> None:
        """Note the intent, then approve the plan, as the command does; wait until the execution has ended."""
        root, now_ms, plans = self.world.settings.storage.tables, self.world.now_ms, [proposed.plan.plan_id]
        note_intent(root, "simulated", self.DEMOTED, intent, "a person", now_ms=now_ms, demotions=plans)
        kept = self.journal.write_plan(proposed, decision=None, now_ms=now_ms)
        self.journal.approve(kept, "a person", now_ms=now_ms)
        end_ms = self.world.cluster.now_ms + HOUR_MS / 2
        while not all(row.ended for row in self.monitor.executions()) and self.world.cluster.now_ms < end_ms:
            self.world.pass_time(5_000)


@pytest.mark.long
@pytest.mark.parametrize("blow", BLOWS)
def test_a_blow_at_any_call_out_of_a_demotion_changes_nothing(blow: Blow) -> None:
    for call in range(1, Demotion({}).calls() + 1, 5):
        Demotion({call: Interruption(blow, 2_000)}).calls()


def test_many_kills_of_a_demotion_only_take_longer() -> None:
    Demotion(kills(range(20, 400, 20), 2_000)).calls()
