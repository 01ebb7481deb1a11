"""The group coordinator of the classic protocol: requests and timers in, answers and new timers out.

Owns the rules of Kafka's coordinator (4.x brokers, `group.protocol=classic`). Knows no clock and no network: every
call gets the logical ms, and returns what is to be delivered. It does not check who has fallen silent by itself:
whoever runs it asks `session_end_ms` and calls `session_elapsed` then.
"""

from assignor_core.group.messages import (
    Answer,
    CoordinatorResult,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Removal,
    StateChange,
    SyncAnswer,
    SyncGroup,
    Timer,
    TimerKind,
)
from assignor_core.group.roster import RegisteredMember, Roster
from assignor_core.group.states import (
    GROUP_TRANSITIONS,
    HEARTBEAT_ANSWERS,
    SYNC_ANSWERS,
    ErrorCode,
    GroupInput,
    GroupState,
    next_state,
)


class Coordinator:
    """One group. Each public method is one step and returns its CoordinatorResult.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> group = Coordinator(initial_rebalance_delay_ms=0)
    >>> offers = {"range": MemberSpec(["t"])}
    >>> group.join(0, JoinGroup("c", "", None, offers, 45_000, 300_000, "")).answers[0][1].error.value
    'MEMBER_ID_REQUIRED'
    >>> timer = group.join(1, JoinGroup("c", "c-1", None, offers, 45_000, 300_000, "first")).timers[0]
    >>> answer = group.timer_elapsed(timer).answers[0][1]
    >>> group.state.value, answer.generation_id, answer.strategy, answer.leads
    ('CompletingRebalance', 1, 'range', True)
    """

    def __init__(self, *, initial_rebalance_delay_ms: int) -> None:
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.strategy = ""
        self.members = Roster()
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self._pending: set[str] = set()
        self._not_synced: set[str] = set()
        self._ids_given = 0
        self._phase = 0
        self._initial_delay_left_ms = 0
        self._in_initial_delay = False
        self._joined_during_delay = False
        self._answers: list[tuple[str, Answer]] = []
        self._timers: list[Timer] = []
        self._changes: list[StateChange] = []
        self._removals: list[Removal] = []

    def join(self, now_ms: int, request: JoinGroup) -> CoordinatorResult:
        """Handles JoinGroup: a member requests a place in the next generation."""
        member = self.members.get(request.member_id)
        error = self._join_error(request, member)
        if error is not ErrorCode.NONE:
            self._answer(request.client, JoinAnswer(error, request.member_id))
        elif not request.member_id:
            self._join_without_id(now_ms, request)
        elif member is None:
            self._pending.discard(request.member_id)
            self._add(now_ms, request, request.member_id)
        else:
            self._join_again(now_ms, request, member)
        return self._result()

    def sync(self, now_ms: int, request: SyncGroup) -> CoordinatorResult:
        """Handles SyncGroup: a member requests its part of the assignment, which the leader's request contains."""
        error = self._member_error(request.member_id, request.group_instance_id, request.generation_id)
        if error is ErrorCode.NONE:
            error = SYNC_ANSWERS[self.state]
        if error is not ErrorCode.NONE:
            self._answer(request.client, SyncAnswer(error))
            return self._result()
        member = self._registered(request.member_id)
        member.session_start_ms = now_ms
        self._not_synced.discard(request.member_id)
        if self.state is GroupState.STABLE:
            self._answer(request.client, SyncAnswer(ErrorCode.NONE, member.assignment))
            return self._result()
        member.awaits_sync = True
        if request.member_id == self.members.leader_id and request.assignment is not None:
            self._finish_sync(now_ms, request)
        return self._result()

    def heartbeat(self, now_ms: int, request: Heartbeat) -> CoordinatorResult:
        """Handles Heartbeat: a member shows that it is alive."""
        error = self.heartbeat_answer(request.member_id, request.group_instance_id, request.generation_id)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._registered(request.member_id).session_start_ms = now_ms
        self._answer(request.client, HeartbeatAnswer(error))
        return self._result()

    def leave(self, now_ms: int, request: LeaveGroup) -> CoordinatorResult:
        """Handles LeaveGroup: a member leaves; for an unknown member nothing changes."""
        if request.member_id in self._pending:
            self._drop_pending(now_ms, request.member_id)
        elif self.members.get(request.member_id) is not None:
            self._remove(now_ms, request.member_id, request.reason)
        return self._result()

    def session_elapsed(self, now_ms: int, member_id: str) -> CoordinatorResult:
        """A member has been silent; if for its whole session timeout, it is removed."""
        end_ms = self.session_end_ms(member_id)
        if end_ms is not None and end_ms <= now_ms:
            self._remove(now_ms, member_id, "session timed out")
        return self._result()

    def timer_elapsed(self, timer: Timer) -> CoordinatorResult:
        """A timer of an earlier CoordinatorResult has run down."""
        if timer.kind is TimerKind.PENDING_MEMBER:
            self._drop_pending(timer.at_ms, timer.member_id)
        elif timer.number == self._phase and timer.kind is TimerKind.JOIN_PHASE:
            self._join_phase_elapsed(timer.at_ms)
        elif timer.number == self._phase:
            for member_id in sorted(self._not_synced):
                self._remove(timer.at_ms, member_id, "did not sync in time")
        return self._result()

    def heartbeat_answer(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """What a heartbeat would be answered now."""
        error = self._member_error(member_id, group_instance_id, generation_id)
        return HEARTBEAT_ANSWERS[self.state] if error is ErrorCode.NONE else error

    def session_end_ms(self, member_id: str) -> int | None:
        """When the member's session ends if nothing is heard of it; None while an answer is owed, or if unknown."""
        member = self.members.get(member_id)
        if member is None or member.awaits_join or member.awaits_sync:
            return None
        return member.session_start_ms + member.session_timeout_ms

    def heard(self, now_ms: int, member_id: str) -> None:
        """Notes a sign of life of a member that needs no answer."""
        member = self.members.get(member_id)
        if member is not None:
            member.session_start_ms = max(now_ms, member.session_start_ms)

    def _join_error(self, request: JoinGroup, member: RegisteredMember | None) -> ErrorCode:
        static_id = self.members.static_member_id(request.group_instance_id) if request.group_instance_id else None
        if request.member_id and static_id is not None and static_id != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if request.member_id and member is None and request.member_id not in self._pending:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not self.members.accepts(request.protocols, self.members.get(request.member_id or static_id or "")):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _member_error(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        if group_instance_id is not None:
            static_id = self.members.static_member_id(group_instance_id)
            if static_id is not None and static_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if self.members.get(member_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def _join_without_id(self, now_ms: int, request: JoinGroup) -> None:
        """Dynamic members get an id before they join (KIP-394); static ones join at once, in their old place if any."""
        self._ids_given += 1
        member_id = f"{request.group_instance_id or request.client}-{self._ids_given}"
        if request.group_instance_id is None:
            self._pending.add(member_id)
            self._timers.append(
                Timer(now_ms + request.session_timeout_ms, TimerKind.PENDING_MEMBER, member_id=member_id)
            )
            self._answer(request.client, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        old_id = self.members.static_member_id(request.group_instance_id)
        if old_id is None:
            self._add(now_ms, request, member_id)
        else:
            self._replace_static(now_ms, request, old_id, member_id)

    def _add(self, now_ms: int, request: JoinGroup, member_id: str) -> None:
        if self.state is GroupState.PREPARING_REBALANCE and self.generation_id == 0:
            self._joined_during_delay = True
        member = RegisteredMember(
            member_id, request.group_instance_id, request.client, request.protocols,
            request.session_timeout_ms, request.rebalance_timeout_ms, now_ms, awaits_join=True,
        )  # fmt: skip
        self.members.add(member)
        self._need_rebalance(now_ms, request.reason)

    def _replace_static(self, now_ms: int, request: JoinGroup, old_id: str, member_id: str) -> None:
        """The new process of a static member: in a stable group it gets what the old one had, and nobody notices."""
        member = self.members.rename(old_id, member_id)
        self._removals.append(Removal(old_id, member.client, "fenced by a process with its instance id"))
        self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        if old_id in self._not_synced:
            self._not_synced.symmetric_difference_update((old_id, member_id))
        member.awaits_sync = False
        member.session_start_ms = now_ms
        self.members.take(member, request)
        self.members.set_awaits_join(member, True)
        if self.state is GroupState.STABLE and self.members.select_strategy() == self.strategy:
            self._answer_join(now_ms, member, skip_assignment=True)
        else:
            self._need_rebalance(now_ms, request.reason)

    def _join_again(self, now_ms: int, request: JoinGroup, member: RegisteredMember) -> None:
        """A member of the group joins: for a rebalance under way, to start one, or because an answer was lost."""
        leads = member.member_id == self.members.leader_id
        may_be_lost = self.state is GroupState.COMPLETING_REBALANCE or (self.state is GroupState.STABLE and not leads)
        settled = may_be_lost and request.protocols == member.protocols
        self.members.take(member, request)
        member.session_start_ms = now_ms
        self.members.set_awaits_join(member, True)
        if settled:
            self._answer_join(now_ms, member)
        else:
            self._need_rebalance(now_ms, request.reason)

    def _need_rebalance(self, now_ms: int, reason: str) -> None:
        """Start the join phase, or see whether the one under way is complete."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_end_join_phase(now_ms, reason)
            return
        initial = self.state is GroupState.EMPTY
        for member in self.members:
            member.assignment = ()
            if member.awaits_sync:
                member.awaits_sync = False
                member.session_start_ms = now_ms
                self._answer(member.client, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        self._not_synced.clear()
        self._move(GroupInput.REBALANCE_NEEDED, reason)
        timeout_ms = self.members.rebalance_timeout_ms()
        self._in_initial_delay = initial
        if initial:
            delay_ms = self._initial_rebalance_delay_ms
            self._initial_delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._arm(now_ms + delay_ms, TimerKind.JOIN_PHASE)
        else:
            self._arm(now_ms + timeout_ms, TimerKind.JOIN_PHASE)
            self._try_end_join_phase(now_ms, reason)

    def _try_end_join_phase(self, now_ms: int, reason: str) -> None:
        if not self._in_initial_delay and not self.members.not_joined and not self._pending:
            self._end_join_phase(now_ms, reason)

    def _join_phase_elapsed(self, now_ms: int) -> None:
        """The delay for first members starts again while more keep coming; otherwise whoever has joined is in."""
        if self._in_initial_delay and self._joined_during_delay and self._initial_delay_left_ms:
            self._joined_during_delay = False
            delay_ms = min(self._initial_rebalance_delay_ms, self._initial_delay_left_ms)
            self._initial_delay_left_ms -= delay_ms
            self._arm(now_ms + delay_ms, TimerKind.JOIN_PHASE)
        else:
            self._end_join_phase(now_ms, "the time for joining is over")

    def _end_join_phase(self, now_ms: int, reason: str) -> None:
        """Next generation: of those who joined, and of static members even if they did not."""
        self._in_initial_delay = self._joined_during_delay = False
        self._phase += 1
        late = [member for member in self.members if not member.awaits_join]
        everybody_late = len(late) == len(self.members)
        for member in late:
            if not member.is_static:
                self.members.remove(member.member_id)
            if not (member.is_static and everybody_late):
                self._removals.append(Removal(member.member_id, member.client, "did not join in time"))
        if len(self.members) and not self.members.elect_joined_leader():
            self._arm(now_ms + self.members.rebalance_timeout_ms(), TimerKind.JOIN_PHASE)
            return
        self.generation_id += 1
        if not len(self.members):
            self.strategy = ""
            self._move(GroupInput.NOBODY_JOINED, reason)
            return
        self.strategy = self.members.select_strategy()
        self._move(GroupInput.MEMBERS_JOINED, reason)
        self._not_synced = {member.member_id for member in self.members}
        self._arm(now_ms + self.members.rebalance_timeout_ms(), TimerKind.SYNC_PHASE)
        for member in list(self.members):
            if member.awaits_join:
                self._answer_join(now_ms, member)
            member.session_start_ms = now_ms

    def _finish_sync(self, now_ms: int, request: SyncGroup) -> None:
        assignment = request.assignment or {}
        self._move(GroupInput.LEADER_SYNCED, "the leader has assigned")
        for member in self.members:
            member.assignment = assignment.get(member.member_id, ())
            if member.awaits_sync:
                member.awaits_sync = False
                member.session_start_ms = now_ms
                self._answer(member.client, SyncAnswer(ErrorCode.NONE, member.assignment))

    def _answer_join(self, now_ms: int, member: RegisteredMember, *, skip_assignment: bool = False) -> None:
        self.members.set_awaits_join(member, False)
        member.session_start_ms = now_ms
        leads = member.member_id == self.members.leader_id
        subscriptions = {other.member_id: other.protocols[self.strategy] for other in self.members} if leads else None
        self._answer(
            member.client,
            JoinAnswer(
                ErrorCode.NONE, member.member_id, self.generation_id, self.strategy, leads, subscriptions,
                skip_assignment and leads,
            ),
        )  # fmt: skip

    def _answer_waiting(self, member: RegisteredMember, error: ErrorCode) -> None:
        """Tell a member that will not get what it waits for."""
        if member.awaits_join:
            self._answer(member.client, JoinAnswer(error, member.member_id))
        if member.awaits_sync:
            self._answer(member.client, SyncAnswer(error))

    def _remove(self, now_ms: int, member_id: str, reason: str) -> None:
        member = self.members.remove(member_id)
        self._not_synced.discard(member_id)
        self._answer_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._removals.append(Removal(member_id, member.client, reason))
        self._need_rebalance(now_ms, reason)

    def _drop_pending(self, now_ms: int, member_id: str) -> None:
        if member_id in self._pending:
            self._pending.remove(member_id)
            if self.state is GroupState.PREPARING_REBALANCE:
                self._try_end_join_phase(now_ms, "a member id was not used")

    def _registered(self, member_id: str) -> RegisteredMember:
        member = self.members.get(member_id)
        assert member is not None, "checked by _member_error"
        return member

    def _move(self, given: GroupInput, reason: str) -> None:
        self.state = next_state(GROUP_TRANSITIONS, self.state, given)
        self._changes.append(StateChange(self.state, self.generation_id, reason))

    def _arm(self, at_ms: int, kind: TimerKind) -> None:
        """Sets a timer of the current phase; timers of earlier phases are ignored."""
        self._phase += 1
        self._timers.append(Timer(at_ms, kind, self._phase))

    def _answer(self, client: str, answer: Answer) -> None:
        self._answers.append((client, answer))

    def _result(self) -> CoordinatorResult:
        result = CoordinatorResult(self._answers, self._timers, self._changes, self._removals)
        self._answers, self._timers, self._changes, self._removals = [], [], [], []
        return result
