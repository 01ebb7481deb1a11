"""Consumers and coordinator of a run of the consumer protocol: who sends what when, over a network with delays.

Owns the delivery of heartbeats, polls, callbacks and sessions. The rules are the coordinator's and the members'; what
the scenario does to processes is the simulation's.

Heartbeats that report nothing and would be answered with nothing new are not simulated: they change nothing but the
time a member was last heard of, which is caught up when it falls silent.
"""

from collections.abc import Mapping
from functools import partial

from assignor_core.group.accounts import Accounts
from assignor_core.group.consumer_protocol.coordinator import ConsumerGroupCoordinator
from assignor_core.group.consumer_protocol.member import ConsumerMember, ConsumerMemberState
from assignor_core.group.consumer_protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    GroupStep,
    HeartbeatResult,
    RebalanceTimer,
)
from assignor_core.group.event_queue import EventQueue, Network
from assignor_core.group.process import Process
from assignor_core.group.scenario import ProcessSpec, Scenario
from assignor_core.group.states import ErrorCode
from assignor_core.group.trace import What

NOT_DUE = -1
_UNSETTLED = (ConsumerMemberState.JOINING, ConsumerMemberState.RECONCILING, ConsumerMemberState.ACKNOWLEDGING)


class HeartbeatingProcess(Process[ConsumerMember]):
    """A process, and what it waits for. At most one heartbeat is under way; messages keep their order."""

    due_ms = NOT_DUE
    in_flight = False
    answers_to_ignore = 0
    callbacks = 0
    callbacks_planned = False
    asked_last_ms = answered_last_ms = 0
    joins_because = "starts"


class ConsumerProtocolConsumers:
    """All processes of a run and their coordinator. `partitions` are those that exist; their owner may change them."""

    def __init__(
        self, scenario: Scenario, queue: EventQueue, accounts: Accounts, partitions: Mapping[str, int]
    ) -> None:
        self.group = ConsumerGroupCoordinator(partitions, scenario.consumer_group)
        self._heartbeat_interval_ms = scenario.consumer_group.heartbeat_interval_ms
        self._network = Network(scenario, queue)
        self._queue = queue
        self._accounts = accounts
        self._partitions = partitions
        self._by_client: dict[str, HeartbeatingProcess] = {}
        self._unsettled: set[str] = set()

    @property
    def generation_id(self) -> int:
        """Returns the group epoch."""
        return self.group.group_epoch

    def start(self, name: str, number: int, spec: ProcessSpec) -> HeartbeatingProcess:
        """A process begins, and joins: the `number`-th of its name. Clients choose their member ids by chance."""
        member_id = f"{self._network.up_to(2**32 - 1):08x}-{name}-{number}"

        def member_of(client: str, *rest: object) -> ConsumerMember:
            return ConsumerMember(client, member_id, *rest)  # type: ignore[arg-type]

        process = HeartbeatingProcess(name, number, spec, dict(self._partitions), self._queue.now_ms, member_of)
        self._by_client[process.client] = process
        self._go_on(process)
        return process

    def leave(self, process: HeartbeatingProcess, _reason: str) -> bool:
        """Send the heartbeat that leaves the group; False if the member is in none."""
        leaving = process.member.leaving()
        if leaving is not None:
            self._ask(process, leaving)
        return leaving is not None

    def poll_too_late(self, process: HeartbeatingProcess) -> None:
        """Past max.poll.interval.ms the member leaves; a static one keeps its place for the rest of its session."""
        if not process.member.is_in_group:
            return
        process.answers_to_ignore += 1 + process.in_flight
        process.in_flight = False
        self.leave(process, "")
        if process.member.config.group_instance_id is not None:
            self.fall_silent(process)
            process.silent = True
        process.member.go_stale()
        self._settle(process)

    def rejoin(self, process: HeartbeatingProcess, _reason: str) -> None:
        """The process reads other topics: its next heartbeat reports that."""
        self.beat_if_it_matters(process)

    def topics_changed(self) -> None:
        """Topics have come or grown: the next heartbeat of any member shows that to the brokers."""
        self.group.topics_changed()
        self._plan_all_beats()

    def end(self, process: HeartbeatingProcess) -> None:
        """The process is no more; what it has sent is still on its way."""
        self.fall_silent(process)
        self._accounts.ends(self._queue.now_ms, process)
        process.alive = False
        process.member.close()
        self._settle(process)

    def fall_silent(self, process: HeartbeatingProcess) -> None:
        """The process falls silent after the heartbeat before now; its session ends if it does not come back."""
        if process.member.is_in_group and process.member.state is not ConsumerMemberState.JOINING:
            self.group.heard(process.last_beat_ms(self._queue.now_ms), process.member.member_id)
        self._await_session_end(process)

    def beat_if_it_matters(self, process: HeartbeatingProcess) -> None:
        """Let the process do what it has to, and send its next heartbeat if that has news or its answer would have."""
        if process.member.state in (ConsumerMemberState.FENCED, ConsumerMemberState.STALE):
            self._join_anew(process)
        else:
            self._go_on(process)

    # What a consumer does

    def _go_on(self, process: HeartbeatingProcess) -> None:
        """Plans the next callbacks and the next heartbeat of a member, after anything that has happened to it."""
        member = process.member
        if process.alive and member.is_in_group:
            if member.state is ConsumerMemberState.RECONCILING:
                self._plan_callbacks(process)
            if member.must_beat_now and not process.in_flight and not process.silent:
                self._beat(process)
            else:
                self._plan_beat(process)
        self._settle(process)

    def _plan_beat(self, process: HeartbeatingProcess) -> None:
        member = process.member
        waits = process.in_flight or process.silent or process.due_ms != NOT_DUE or not member.is_in_group
        if waits or not process.alive:
            return
        if member.has_news or self.group.has_news_for(member.member_id, member.client, member.member_epoch):
            process.due_ms = process.next_beat_ms(self._queue.now_ms)
            self._queue.add(process.due_ms, self._beat_if_due, process, process.due_ms)

    def _plan_all_beats(self) -> None:
        for process in self._by_client.values():
            if process.alive:
                self._plan_beat(process)

    def _beat_if_due(self, process: HeartbeatingProcess, due_ms: int) -> None:
        """A heartbeat that was sent meanwhile has begun a new interval."""
        if due_ms != process.due_ms:
            return
        process.due_ms = NOT_DUE
        is_away = process.silent or process.paused_until_ms > self._queue.now_ms
        if process.alive and process.member.is_in_group and not is_away and not process.in_flight:
            self._beat(process)

    def _beat(self, process: HeartbeatingProcess) -> None:
        request = process.member.heartbeat()
        process.in_flight, process.due_ms = True, NOT_DUE
        late_ms = self._network.up_to(process.spec.heartbeat_late_max_ms)
        process.heartbeats_from(self._queue.now_ms, late_ms, self._heartbeat_interval_ms)
        self._ask(process, request)
        if process.member.state is ConsumerMemberState.RECONCILING:
            self._plan_callbacks(process)

    def _plan_callbacks(self, process: HeartbeatingProcess) -> None:
        """Callbacks run when the consumer polls, one assignment after the other."""
        if not process.callbacks_planned and not process.member.is_reconciling:
            process.callbacks_planned = True
            wait_ms = self._network.up_to(process.spec.poll_interval_ms)
            self._queue.add(self._queue.now_ms + wait_ms, self._revoke, process)

    def _revoke(self, process: HeartbeatingProcess) -> None:
        if self._waits_for_poll(process, partial(self._revoke, process)):
            return
        process.callbacks_planned = False
        member = process.member
        if not process.alive or member.state is not ConsumerMemberState.RECONCILING or member.is_reconciling:
            return
        revoked = member.begin_reconciling()
        self._accounts.gives_up(self._queue.now_ms, process, What.REVOKED, revoked)
        process.callbacks += 1
        if revoked and process.spec.revoke_ms:
            at_ms = self._queue.now_ms + process.spec.revoke_ms
            self._queue.add(at_ms, self._take_over, process, process.callbacks)
        else:
            self._take_over(process, process.callbacks)

    def _take_over(self, process: HeartbeatingProcess, callbacks: int) -> None:
        if self._waits_for_poll(process, partial(self._take_over, process, callbacks)):
            return
        if process.alive and process.callbacks == callbacks and process.member.is_reconciling:
            added = process.member.end_reconciling()
            self._accounts.takes_over(self._queue.now_ms, process, added)
            self._go_on(process)

    def _join_anew(self, process: HeartbeatingProcess) -> None:
        """Partitions are lost at the next poll, which may be late; until then the process goes on reading."""
        if self._waits_for_poll(process, partial(self._join_anew, process)):
            return
        member = process.member
        if process.alive and member.state in (ConsumerMemberState.FENCED, ConsumerMemberState.STALE):
            self._accounts.gives_up(self._queue.now_ms, process, What.LOST, member.lose_all())
            member.rejoin()
            process.joins_because = "was put out"
            self._go_on(process)

    def _waits_for_poll(self, process: HeartbeatingProcess, call: partial[None]) -> bool:
        at_ms = process.polls_at_ms(self._queue.now_ms)
        if process.alive and at_ms > self._queue.now_ms:
            self._queue.add(at_ms, call)
            return True
        return False

    def _deliver(self, process: HeartbeatingProcess, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """An answer arrives; a process that is away takes it when it is back."""
        if not process.alive:
            return
        at_ms = process.hears_at_ms(self._queue.now_ms, polling=False)
        if at_ms > self._queue.now_ms:
            self._queue.add(at_ms, self._deliver, process, answer)
            return
        if process.answers_to_ignore:
            process.answers_to_ignore -= 1
            return
        process.in_flight = False
        process.member.answered(answer)
        if process.member.state is ConsumerMemberState.FENCED:
            self._join_anew(process)
        elif process.member.state is ConsumerMemberState.FATAL:
            self._fail(process, answer.error)
        self._go_on(process)

    def _fail(self, process: HeartbeatingProcess, error: ErrorCode) -> None:
        """The consumer throws; the process reads nothing from now on."""
        self._accounts.gives_up(self._queue.now_ms, process, What.LOST, process.member.lose_all())
        self._accounts.note(self._queue.now_ms, What.FAILED, process.name, error.value)
        self._accounts.ledger.failed += 1

    # What reaches the coordinator

    def _ask(self, process: HeartbeatingProcess, request: ConsumerGroupHeartbeat) -> None:
        process.asked_last_ms = self._network.send(
            self._reach, process, request, process.joins_because, not_before_ms=process.asked_last_ms
        )

    def _reach(self, process: HeartbeatingProcess, request: ConsumerGroupHeartbeat, reason: str) -> None:
        result = self.group.heartbeat(self._queue.now_ms, request)
        ((_, answer),) = result.answers
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH and answer.error is ErrorCode.NONE:
            process.is_put_out = False
            self._accounts.note(self._queue.now_ms, What.JOINS, process.name, reason)
        elif request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and process.alive:
            # What it still had to revoke is free now, and no commit of it is accepted until it joins again.
            self._put_out(process, "left and keeps its place")
        self._follow(result)

    def _follow(self, result: HeartbeatResult) -> None:
        """Deliver what a step of the coordinator led to."""
        now_ms = self._queue.now_ms
        for change in result.changes:
            name = self._by_client[change.client].name if change.client else ""
            self._accounts.epoch_moves(now_ms, change, f"{name} {change.reason}".strip())
        for removal in result.removals:
            self._put_out(self._by_client[removal.client], removal.reason)
        for member in result.reconciled:
            self._accounts.reconciled(now_ms, self._by_client[member.client], member)
        for timer in result.timers:
            self._queue.add(timer.at_ms, self._timer_elapsed, timer)
        for client, answer in result.answers:
            self._answer(self._by_client[client], answer)
        if any(change.step is not GroupStep.RECONCILED for change in result.changes):
            self._plan_all_beats()
        self._maybe_end_rebalance()

    def _answer(self, process: HeartbeatingProcess, answer: ConsumerGroupHeartbeatAnswer) -> None:
        if process.alive:
            if answer.assignment is not None:
                self._unsettled.add(process.client)
            process.answered_last_ms = self._network.send(
                self._deliver, process, answer, not_before_ms=process.answered_last_ms
            )
        if not process.alive or process.silent or process.paused_until_ms > self._queue.now_ms:
            self._await_session_end(process)

    def _timer_elapsed(self, timer: RebalanceTimer) -> None:
        self._follow(self.group.timer_elapsed(timer))

    def _put_out(self, process: HeartbeatingProcess, reason: str) -> None:
        process.is_put_out = True
        runs = process.alive and process.paused_until_ms <= self._queue.now_ms
        self._accounts.put_out(self._queue.now_ms, process, reason, runs=runs)
        if runs:
            self._plan_beat(process)

    def _await_session_end(self, process: HeartbeatingProcess) -> None:
        end_ms = self.group.session_end_ms(process.member.member_id)
        if end_ms is not None:
            self._queue.add(end_ms, self._session_end, process)

    def _session_end(self, process: HeartbeatingProcess) -> None:
        """A process that is back by now has been heard of since."""
        if process.alive and not process.silent and process.paused_until_ms <= self._queue.now_ms:
            return
        end_ms = self.group.session_end_ms(process.member.member_id)
        if end_ms is not None and end_ms > self._queue.now_ms:
            return  # it was heard of later than was known when this was planned, and that has planned another
        self._follow(self.group.session_elapsed(self._queue.now_ms, process.member.member_id))

    # When a rebalance is over

    def _settle(self, process: HeartbeatingProcess) -> None:
        is_under_way = process.alive and process.member.state in _UNSETTLED
        (self._unsettled.add if is_under_way else self._unsettled.discard)(process.client)
        self._maybe_end_rebalance()

    def _maybe_end_rebalance(self) -> None:
        if self.group.is_at_rest and self._accounts.ledger.rebalancing and not self._unsettled:
            self._accounts.ledger.rebalance_ends(self._queue.now_ms, self.group.group_epoch)
