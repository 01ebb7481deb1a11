"""Consumers and coordinator of a run: who sends what to whom, and when, over a network with delays.

Owns the delivery of messages, polls, heartbeats and sessions. The rules are the coordinator's and the members'; what
the scenario does to processes is the simulation's.

Heartbeats that would be answered NONE are not simulated: they change nothing but the time a member was last heard of,
which is caught up when it falls silent. So a group that is stable for an hour costs nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from assignor_core.assignors import GroupAssignment, GroupSpec, assign
from assignor_core.group.accounts import Accounts
from assignor_core.group.coordinator import Coordinator
from assignor_core.group.event_queue import EventQueue, Network
from assignor_core.group.member import Member
from assignor_core.group.messages import (
    Answer,
    CoordinatorResult,
    HeartbeatAnswer,
    JoinAnswer,
    Protocols,
    Removal,
    Request,
    StateChange,
    SyncAnswer,
)
from assignor_core.group.process import Process
from assignor_core.group.scenario import ProcessSpec, Scenario
from assignor_core.group.states import ErrorCode, GroupState, MemberState
from assignor_core.group.trace import What

JOINING = frozenset({MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE})
REJOIN_ERRORS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""After these errors a member has lost its partitions and joins again."""
PUT_OUT = REJOIN_ERRORS | {ErrorCode.FENCED_INSTANCE_ID}


class Consumers:
    """All processes of a run and their coordinator. `partitions` are those that exist; their owner may change them."""

    def __init__(
        self, scenario: Scenario, queue: EventQueue, accounts: Accounts, partitions: Mapping[str, int]
    ) -> None:
        self.group = Coordinator(initial_rebalance_delay_ms=scenario.initial_rebalance_delay_ms)
        self._queue = queue
        self._accounts = accounts
        self._partitions = partitions
        self._network = Network(scenario, queue)
        self._by_client: dict[str, Process[Member]] = {}
        self._unsettled: set[str] = set()

    @property
    def generation_id(self) -> int:
        """Returns the group's generation."""
        return self.group.generation_id

    def start(self, name: str, number: int, spec: ProcessSpec) -> Process[Member]:
        """A process begins, and joins: the `number`-th of its name."""
        process = Process(name, number, spec, dict(self._partitions), self._queue.now_ms, Member)
        self._by_client[process.client] = process
        self._join(process, "starts")
        return process

    def topics_changed(self) -> None:
        """Does nothing: members of the classic protocol notice changed topics by their own metadata."""

    def leave(self, process: Process[Member], reason: str) -> bool:
        """Send LeaveGroup; False for a static member, which sends none."""
        leaving = process.member.leaving(reason)
        if leaving is not None:
            self._ask(self.group.leave, leaving)
        return leaving is not None

    def poll_too_late(self, process: Process[Member]) -> None:
        """Past max.poll.interval.ms a dynamic member leaves by itself; a static one falls silent."""
        if not self.leave(process, "did not poll in time"):
            self.fall_silent(process)
            process.silent = True

    def rejoin(self, process: Process[Member], reason: str) -> None:
        """Join at the next poll, once; a member that is joining anyway takes the news along or joins after it."""
        if process.member.state in JOINING:
            process.rejoin_reason = process.rejoin_reason or reason
        elif not process.rejoin_planned and process.member.state is not MemberState.FAILED:
            process.rejoin_planned = True
            self._unsettled.add(process.client)
            wait_ms = self._network.up_to(process.spec.poll_interval_ms)
            self._queue.add(self._queue.now_ms + wait_ms, self._poll, process, reason)

    def _poll(self, process: Process[Member], reason: str) -> None:
        """The consumer polls and finds that it has to join: it gives up what it must, and joins."""
        if not process.alive:
            return
        if process.polls_at_ms(self._queue.now_ms) > self._queue.now_ms:
            self._queue.add(process.polls_at_ms(self._queue.now_ms), self._poll, process, reason)
            return
        if process.member.state not in (MemberState.STABLE, MemberState.UNJOINED):
            process.rejoin_planned = False
            return
        given_up = process.member.give_up_before_joining()
        self._accounts.gives_up(self._queue.now_ms, process, What.REVOKED, given_up)
        wait_ms = process.spec.revoke_ms if given_up else 0
        if wait_ms:
            self._queue.add(self._queue.now_ms + wait_ms, self._join, process, reason)
        else:
            self._join(process, reason)

    def _join(self, process: Process[Member], reason: str) -> None:
        if process.alive and process.polls_at_ms(self._queue.now_ms) > self._queue.now_ms:
            self._queue.add(process.polls_at_ms(self._queue.now_ms), self._join, process, reason)
            return
        process.rejoin_planned, process.rejoin_reason = False, ""
        if not process.alive or process.member.state not in (MemberState.STABLE, MemberState.UNJOINED):
            return
        self._unsettled.add(process.client)
        self._accounts.note(self._queue.now_ms, What.JOINS, process.name, reason)
        process.join_reason = reason
        self._ask(self.group.join, process.member.join(f"{process.name} {reason}"))

    def _deliver(self, process: Process[Member], answer: Answer) -> None:
        """An answer arrives; a process that is away takes it when it is back."""
        if not process.alive:
            return
        at_ms = process.hears_at_ms(self._queue.now_ms, polling=not isinstance(answer, HeartbeatAnswer))
        if at_ms > self._queue.now_ms:
            self._queue.add(at_ms, self._deliver, process, answer)
        elif isinstance(answer, JoinAnswer):
            self._take_join_answer(process, answer)
        elif isinstance(answer, SyncAnswer):
            self._take_sync_answer(process, answer)
        else:
            self._take_heartbeat_answer(process, answer)
        self._maybe_end_rebalance()

    def _take_join_answer(self, process: Process[Member], answer: JoinAnswer) -> None:
        if process.member.state is not MemberState.PREPARING_REBALANCE:
            return
        if answer.subscriptions is not None:
            topics = {topic for spec in answer.subscriptions.values() for topic in spec.topics}
            process.leads_with(topics, self._partitions)
        sync = process.member.joined(answer, lambda strategy, protocols: self._assign(process, strategy, protocols))
        if sync is not None:
            process.heartbeats_from(self._queue.now_ms, self._network.up_to(process.spec.heartbeat_late_max_ms))
            process.is_put_out = self._beat_answer(process) in PUT_OUT
            self._ask(self.group.sync, sync)
        else:
            self._join_after_refusal(process, answer.error)

    def _take_sync_answer(self, process: Process[Member], answer: SyncAnswer) -> None:
        if process.member.state is not MemberState.COMPLETING_REBALANCE:
            return
        synced = process.member.synced(answer)
        if answer.error is not ErrorCode.NONE:
            self._join_after_refusal(process, answer.error)
            return
        self._accounts.gives_up(self._queue.now_ms, process, What.REVOKED, synced.revoked)
        self._accounts.takes_over(self._queue.now_ms, process, synced.assigned)
        self._unsettled.discard(process.client)
        reason, process.rejoin_reason = process.rejoin_reason, ""
        if synced.revoked:
            self._unsettled.add(process.client)
            process.rejoin_planned = True
            self._queue.add(self._queue.now_ms + process.spec.revoke_ms, self._join, process, "hands partitions over")
        elif reason:
            self.rejoin(process, reason)
        self.beat_if_it_matters(process)

    def _take_heartbeat_answer(self, process: Process[Member], answer: HeartbeatAnswer) -> None:
        if process.member.state is not MemberState.STABLE:
            return
        if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin(process, "follows a rebalance")
        elif answer.error in REJOIN_ERRORS:
            # Partitions are lost at the next poll, which may be late; until then the process goes on reading.
            self._rejoin_as_new(process, answer.error)
        elif answer.error is not ErrorCode.NONE:
            self._fail(process, answer.error)

    def _rejoin_as_new(self, process: Process[Member], error: ErrorCode) -> None:
        if process.polls_at_ms(self._queue.now_ms) > self._queue.now_ms:
            self._queue.add(process.polls_at_ms(self._queue.now_ms), self._rejoin_as_new, process, error)
        elif process.alive and process.member.state is MemberState.STABLE:
            self._accounts.gives_up(self._queue.now_ms, process, What.LOST, process.member.put_out(error))
            self.rejoin(process, "was put out")

    def _join_after_refusal(self, process: Process[Member], error: ErrorCode) -> None:
        if process.member.state is MemberState.FAILED:
            self._fail(process, error)
            return
        if error in REJOIN_ERRORS:
            self._accounts.gives_up(self._queue.now_ms, process, What.LOST, process.member.put_out(error))
        self._join(process, process.join_reason if error is ErrorCode.MEMBER_ID_REQUIRED else f"after {error.value}")

    def _fail(self, process: Process[Member], error: ErrorCode) -> None:
        """The consumer throws; the process reads nothing from now on."""
        self._accounts.gives_up(self._queue.now_ms, process, What.LOST, process.member.failed())
        self._accounts.note(self._queue.now_ms, What.FAILED, process.name, error.value)
        self._accounts.ledger.failed += 1
        self._unsettled.discard(process.client)

    def end(self, process: Process[Member]) -> None:
        """The process is no more; what it has sent is still on its way."""
        self.fall_silent(process)
        self._accounts.ends(self._queue.now_ms, process)
        process.alive = False
        process.member.close()
        self._unsettled.discard(process.client)
        self._maybe_end_rebalance()

    # What reaches the coordinator

    def _ask(self, step: Callable[[int, Any], CoordinatorResult], request: Request) -> None:
        """Send a request to the coordinator; `step` is what it does when the request arrives."""
        self._network.send(self._reach, step, request)

    def _reach(self, step: Callable[[int, Any], CoordinatorResult], request: Request) -> None:
        self._follow(step(self._queue.now_ms, request))

    def _follow(self, result: CoordinatorResult) -> None:
        """Deliver what a step of the coordinator led to."""
        for change in result.changes:
            # Who was removed stands in the removal: the coordinator knows members by id, people by name.
            names = [self._by_client[gone.client].name for gone in result.removals if gone.reason == change.reason]
            self._group_changed(change, " ".join([*names[:1], change.reason]))
        for removal in result.removals:
            self._member_removed(removal)
        for timer in result.timers:
            self._queue.add(timer.at_ms, lambda timer=timer: self._follow(self.group.timer_elapsed(timer)))
        for client, answer in result.answers:
            process = self._by_client[client]
            if process.alive:
                self._network.send(self._deliver, process, answer)
            if not process.alive or process.silent or process.paused_until_ms > self._queue.now_ms:
                known_id = answer.member_id if isinstance(answer, JoinAnswer) else process.member.member_id
                self._await_session_end(process, known_id)
        if result.changes:
            self._maybe_end_rebalance()

    def _group_changed(self, change: StateChange, cause: str) -> None:
        self._accounts.group_moves(self._queue.now_ms, change, cause)
        if change.state is GroupState.PREPARING_REBALANCE:
            for member in self.group.members:
                self._plan_beat(self._by_client[member.client])

    def _member_removed(self, removal: Removal) -> None:
        process = self._by_client[removal.client]
        process.is_put_out = True
        runs = process.alive and process.paused_until_ms <= self._queue.now_ms
        self._accounts.put_out(self._queue.now_ms, process, removal.reason, runs=runs)
        if runs:
            self.beat_if_it_matters(process)

    def _maybe_end_rebalance(self) -> None:
        at_rest = self.group.state in (GroupState.STABLE, GroupState.EMPTY)
        if at_rest and self._accounts.ledger.rebalancing and not self._unsettled:
            self._accounts.ledger.rebalance_ends(self._queue.now_ms, self.group.generation_id)

    # Heartbeats and sessions

    def beat_if_it_matters(self, process: Process[Member]) -> None:
        """Let the process send its next heartbeat if its answer would be news to it."""
        if process.member.state is MemberState.STABLE and self._beat_answer(process) is not ErrorCode.NONE:
            self._plan_beat(process)

    def _plan_beat(self, process: Process[Member]) -> None:
        if not (process.beat_planned or process.silent) and process.member.state is MemberState.STABLE:
            process.beat_planned = True
            self._queue.add(process.next_beat_ms(self._queue.now_ms), self._beat, process)

    def _beat_answer(self, process: Process[Member]) -> ErrorCode:
        """What a heartbeat of the process would be answered if it arrived now."""
        member = process.member
        return self.group.heartbeat_answer(member.member_id, member.config.group_instance_id, member.generation_id)

    def _beat(self, process: Process[Member]) -> None:
        process.beat_planned = False
        if not process.alive or process.silent or process.member.state is not MemberState.STABLE:
            return
        if process.paused_until_ms <= self._queue.now_ms:
            self._ask(self.group.heartbeat, process.member.heartbeat())

    def fall_silent(self, process: Process[Member]) -> None:
        """The process falls silent after the heartbeat before now; its session ends if it does not come back."""
        if process.member.state in (MemberState.STABLE, MemberState.COMPLETING_REBALANCE):
            self.group.heard(process.last_beat_ms(self._queue.now_ms), process.member.member_id)
        self._await_session_end(process, process.member.member_id)

    def _await_session_end(self, process: Process[Member], member_id: str) -> None:
        """While an answer is owed the session does not run; the answer starts it."""
        end_ms = self.group.session_end_ms(member_id)
        if end_ms is not None:
            self._queue.add(end_ms, self._session_end, process, member_id)

    def _session_end(self, process: Process[Member], member_id: str) -> None:
        """Ends the session of a member, unless its process is back and has been heard of since."""
        if process.alive and not process.silent and process.paused_until_ms <= self._queue.now_ms:
            return
        self._follow(self.group.session_elapsed(self._queue.now_ms, member_id))
        self._await_session_end(process, member_id)

    def _assign(self, process: Process[Member], strategy: str, protocols: Protocols) -> GroupAssignment:
        """The leader assigns what it knows of."""
        return assign(strategy, GroupSpec(process.known_partitions, protocols))
