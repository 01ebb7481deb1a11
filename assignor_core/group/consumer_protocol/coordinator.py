"""The group coordinator of the consumer protocol (KIP-848): heartbeats and timers in, answers and new timers out.

Owns the rules of Kafka's coordinator (4.4 brokers, `group.protocol=consumer`). Knows no clock and no network: every
call gets the logical ms, and returns what is to be delivered. It does not check who has fallen silent by itself:
whoever runs it asks `session_end_ms` and calls `session_elapsed` then.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from assignor_core.assignors import SERVER_ASSIGNORS
from assignor_core.errors import InvalidGroup
from assignor_core.group.consumer_protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NO_PARTITIONS,
    ConsumerGroupConfig,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    ConsumerGroupMember,
    ConsumerGroupState,
    GroupChange,
    GroupStep,
    HeartbeatResult,
    MemberAssignmentState,
    RebalanceTimer,
)
from assignor_core.group.consumer_protocol.reconciliation import reconcile
from assignor_core.group.consumer_protocol.registry import Registry
from assignor_core.group.messages import Removal
from assignor_core.group.states import ErrorCode

Field = TypeVar("Field")
FIRST_GROUP_EPOCH = 1
"""The epoch of a group that nobody has joined; the first member makes it 2, as seen of 4.4 brokers."""


class ConsumerGroupCoordinator:
    """One group. `partitions` are those that exist, by topic; after a change of them call `topics_changed`.

    >>> group = ConsumerGroupCoordinator({"t": 2}, ConsumerGroupConfig())
    >>> joins = ConsumerGroupHeartbeat("a#1", "a", 0, None, 300_000, frozenset("t"), None, frozenset())
    >>> (client, answer), = group.heartbeat(0, joins).answers
    >>> answer.member_epoch, sorted(answer.assignment), group.state.value
    (2, [('t', 0), ('t', 1)], 'Stable')
    """

    def __init__(self, partitions: Mapping[str, int], config: ConsumerGroupConfig) -> None:
        self.group_epoch = FIRST_GROUP_EPOCH
        self.assignment_epoch = 0
        self.members = Registry()
        self._partitions = partitions
        self._config = config
        self._partitions_at_bump: Mapping[str, int] = {}
        self._topics_may_have_changed = False
        self._assigned_at_ms: int | None = None
        self._heard_ms: dict[str, int] = {}
        self._behind: set[str] = set()
        self._timer_of: dict[str, RebalanceTimer] = {}
        self._timers_set = 0
        self._reported = (ConsumerGroupState.EMPTY, FIRST_GROUP_EPOCH)
        self._clear()

    @property
    def state(self) -> ConsumerGroupState:
        """State of the group as Kafka shows it: a static member that is away keeps the group Reconciling."""
        if not len(self.members):
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if self._behind else ConsumerGroupState.STABLE

    @property
    def is_at_rest(self) -> bool:
        """Whether every member that is there has what the newest target assignment gives it."""
        is_assigned = self.group_epoch == self.assignment_epoch
        may_wait = map(self.members.get, self._behind) if is_assigned else self.members
        return all(member is not None and member.has_left for member in may_wait)

    def heartbeat(self, now_ms: int, request: ConsumerGroupHeartbeat) -> HeartbeatResult:
        """A member joins, shows that it lives, reports what it has, or leaves. Raises InvalidGroup."""
        if request.server_assignor is not None and request.server_assignor not in SERVER_ASSIGNORS:
            known = ", ".join(SERVER_ASSIGNORS)
            raise InvalidGroup(f"server_assignor is {request.server_assignor!r}, must be one of {known}")
        error = self._error(request)
        if error is not ErrorCode.NONE:
            self._answers.append((request.client, ConsumerGroupHeartbeatAnswer(error, request.member_epoch)))
        elif request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
            self._leave(request)
        else:
            self._follow(now_ms, request)
        return self._result()

    def session_elapsed(self, now_ms: int, member_id: str) -> HeartbeatResult:
        """A member has been silent; if for its whole session, it is removed."""
        end_ms, member = self.session_end_ms(member_id), self.members.get(member_id)
        if member is not None and end_ms is not None and end_ms <= now_ms:
            self._fence(member, "session timed out")
        return self._result()

    def timer_elapsed(self, timer: RebalanceTimer) -> HeartbeatResult:
        """A timer of an earlier result has run down: a member that still has to give partitions up is removed."""
        member = self.members.get(timer.member_id)
        if member is not None and self._timer_of.get(timer.member_id) == timer:
            del self._timer_of[timer.member_id]
            if member.member_epoch == timer.member_epoch:
                self._fence(member, "did not revoke in time")
        return self._result()

    def topics_changed(self) -> None:
        """Topics have come or grown; the next heartbeat of any member looks at them."""
        self._topics_may_have_changed = True

    def has_news_for(self, member_id: str, client: str, member_epoch: int) -> bool:
        """Whether a heartbeat that reports nothing new would change anything, or be answered with something new."""
        member = self.members.get(member_id)
        if member is None or member.client != client or member.member_epoch != member_epoch:
            return True
        if self._topics_may_have_changed or self.group_epoch > self.assignment_epoch:
            return True
        waits_for_member = member.state is MemberAssignmentState.UNREVOKED_PARTITIONS
        return not waits_for_member and not member.is_reconciled_to(self.assignment_epoch)

    def session_end_ms(self, member_id: str) -> int | None:
        """When the member's session ends if nothing is heard of it; None if it is unknown."""
        heard_ms = self._heard_ms.get(member_id)
        return None if heard_ms is None else heard_ms + self._config.session_timeout_ms

    def heard(self, now_ms: int, member_id: str) -> None:
        """Handles a heartbeat that reports nothing new."""
        if member_id in self._heard_ms:
            self._heard_ms[member_id] = max(now_ms, self._heard_ms[member_id])

    def _error(self, request: ConsumerGroupHeartbeat) -> ErrorCode:
        member = self.members.get(request.member_id)
        joins = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        if request.group_instance_id is not None:
            member = self.members.static_member(request.group_instance_id)
            if joins:
                is_free = member is None or member.has_left
                return ErrorCode.NONE if is_free else ErrorCode.UNRELEASED_INSTANCE_ID
            if member is not None and member.member_id != request.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if joins:
            return ErrorCode.NONE
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.member_epoch < JOIN_GROUP_MEMBER_EPOCH or request.member_epoch == member.member_epoch:
            return ErrorCode.NONE
        # An answer with a newer epoch may have been lost: then the member has no more than it is counted to have.
        lost = request.member_epoch == member.previous_member_epoch < member.member_epoch
        has_no_more = request.topic_partitions is not None and request.topic_partitions <= member.assigned
        return ErrorCode.NONE if lost and has_no_more else ErrorCode.FENCED_MEMBER_EPOCH

    def _follow(self, now_ms: int, request: ConsumerGroupHeartbeat) -> None:
        before = self._member(request)
        member = replace(
            before,
            client=request.client,
            rebalance_timeout_ms=_new(request.rebalance_timeout_ms, before.rebalance_timeout_ms),
            subscribed_topic_names=_new(request.subscribed_topic_names, before.subscribed_topic_names),
            server_assignor=_new(request.server_assignor, before.server_assignor),
        )
        subscribes = member.subscribed_topic_names != before.subscribed_topic_names
        joins = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        self._put(member)
        self._heard_ms[member.member_id] = now_ms
        if subscribes or self._topics_differ():
            why = (
                "joins" if joins else "subscribes to other topics" if subscribes else "sees partitions that were added"
            )
            self._bump_group_epoch(why, request.client)
        self._compute_target(now_ms)
        member = self._reconcile(now_ms, member, request, subscribes=subscribes)
        changed = member.assigned != before.assigned
        self._answers.append(
            (
                request.client,
                ConsumerGroupHeartbeatAnswer(
                    ErrorCode.NONE,
                    member.member_epoch,
                    self._config.heartbeat_interval_ms,
                    member.assigned if request.is_full or changed else None,
                ),
            )
        )

    def _member(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
        """The member of the request; a new one, or the new process of a static member, if it joins."""
        if request.group_instance_id is None:
            known = self.members.get(request.member_id)
            return known or ConsumerGroupMember(request.member_id, request.client)
        static = self.members.static_member(request.group_instance_id)
        if static is None:
            return ConsumerGroupMember(request.member_id, request.client, request.group_instance_id)
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            returned = replace(static, member_id=request.member_id, member_epoch=0, previous_member_epoch=0)
            self.members.replace(static, returned)
            self._forget(static.member_id)
            if static.client != request.client:
                reason = "replaced by a process with its instance id"
                self._removals.append(Removal(static.member_id, static.client, reason))
            return returned
        return static

    def _leave(self, request: ConsumerGroupHeartbeat) -> None:
        if request.group_instance_id is None:
            member = self.members.get(request.member_id)
        else:
            member = self.members.static_member(request.group_instance_id)
        assert member is not None, "checked by _error"
        if request.group_instance_id is not None and request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            self._put(replace(member, member_epoch=request.member_epoch, pending_revocation=NO_PARTITIONS))
        else:
            self._fence(member, "leaves")
        self._answers.append((request.client, ConsumerGroupHeartbeatAnswer(ErrorCode.NONE, request.member_epoch)))

    def _reconcile(
        self, now_ms: int, member: ConsumerGroupMember, request: ConsumerGroupHeartbeat, *, subscribes: bool
    ) -> ConsumerGroupMember:
        after = reconcile(
            member,
            self.members.target.get(member.member_id, NO_PARTITIONS),
            self.assignment_epoch,
            request.topic_partitions,
            lambda tp: self.members.is_used_by_another(tp, member.member_id),
            subscription_changed=subscribes,
        )
        if after == member:
            return member
        self._put(after)
        self._reconciled.append(after)
        self._timer_of.pop(member.member_id, None)
        if after.state is MemberAssignmentState.UNREVOKED_PARTITIONS:
            self._timers_set += 1
            timer = RebalanceTimer(
                now_ms + after.rebalance_timeout_ms, after.member_id, after.member_epoch, self._timers_set
            )
            self._timer_of[after.member_id] = timer
            self._timers.append(timer)
        return after

    def _topics_differ(self) -> bool:
        """Whether there are partitions that the group reads and that the last bump did not know of."""
        if not self._topics_may_have_changed:
            return False
        self._topics_may_have_changed = False
        return self._partitions_read() != self._partitions_at_bump

    def _partitions_read(self) -> Mapping[str, int]:
        return {topic: self._partitions[topic] for topic in self.members.topics() & self._partitions.keys()}

    def _bump_group_epoch(self, reason: str, client: str) -> None:
        self.group_epoch += 1
        self._partitions_at_bump = self._partitions_read()
        self._change(GroupStep.EPOCH_BUMPED, reason, client)

    def _compute_target(self, now_ms: int) -> None:
        """Only a heartbeat computes a target assignment, and not sooner after the last than the interval allows."""
        if self.group_epoch <= self.assignment_epoch:
            return
        if self._assigned_at_ms is not None and now_ms < self._assigned_at_ms + self._config.assignment_interval_ms:
            return
        assignor = self.members.compute_target(self._partitions)
        self._assigned_at_ms = now_ms
        self.assignment_epoch = self.group_epoch
        self._behind = {member.member_id for member in self.members}
        self._change(GroupStep.TARGET_COMPUTED, f"the assignor {assignor} has assigned")

    def _fence(self, member: ConsumerGroupMember, reason: str) -> None:
        self.members.remove(member)
        self._forget(member.member_id)
        self._removals.append(Removal(member.member_id, member.client, reason))
        self._bump_group_epoch(reason, member.client)
        if not len(self.members):
            # Kafka 4.4 and newer: nothing is to be assigned, and whoever joins next waits for no interval.
            self.assignment_epoch, self._assigned_at_ms = self.group_epoch, None

    def _put(self, member: ConsumerGroupMember) -> None:
        self.members.put(member)
        is_behind = not member.is_reconciled_to(self.assignment_epoch)
        (self._behind.add if is_behind else self._behind.discard)(member.member_id)

    def _forget(self, member_id: str) -> None:
        self._behind.discard(member_id)
        self._heard_ms.pop(member_id, None)
        self._timer_of.pop(member_id, None)

    def _change(self, step: GroupStep, reason: str, client: str = "") -> None:
        state = self.state
        self._reported = (state, self.group_epoch)
        self._changes.append(GroupChange(step, state, self.group_epoch, reason, client))

    def _clear(self) -> None:
        self._answers: list[tuple[str, ConsumerGroupHeartbeatAnswer]] = []
        self._timers: list[RebalanceTimer] = []
        self._changes: list[GroupChange] = []
        self._reconciled: list[ConsumerGroupMember] = []
        self._removals: list[Removal] = []

    def _result(self) -> HeartbeatResult:
        if self._reconciled and (self.state, self.group_epoch) != self._reported:
            self._change(GroupStep.RECONCILED, "all members have what they shall read")
        result = HeartbeatResult(self._answers, self._timers, self._changes, self._reconciled, self._removals)
        self._clear()
        return result


def _new(value: Field | None, old: Field) -> Field:
    return old if value is None else value
