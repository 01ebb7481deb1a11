"""A consumer of the consumer protocol (KIP-848): what it sends, gives up and takes over, answer by answer.

Owns the rules of the Java client's ConsumerMembershipManager. Knows no clock, no network and no other member; when its
heartbeats are sent and its callbacks run is up to whoever runs it.
"""

from collections.abc import Mapping, Sequence

from assignor_core.assignors.contract import TopicPartition
from assignor_core.errors import IllegalTransition
from assignor_core.group.consumer_protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NO_PARTITIONS,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    Partitions,
)
from assignor_core.group.member import ConsumerConfig
from assignor_core.group.states import ErrorCode, Named

FENCING = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
"""After these errors a member has lost its partitions and joins again."""


class ConsumerMemberState(Named):
    """State of a consumer, as the Java client calls it; FATAL and UNSUBSCRIBED are ends."""

    JOINING = "JOINING"
    RECONCILING = "RECONCILING"
    ACKNOWLEDGING = "ACKNOWLEDGING"
    STABLE = "STABLE"
    FENCED = "FENCED"
    STALE = "STALE"
    FATAL = "FATAL"
    UNSUBSCRIBED = "UNSUBSCRIBED"


_S = ConsumerMemberState
IN_GROUP = (_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE)
"""A consumer in one of these sends heartbeats."""
PREVIOUS_STATES: Mapping[ConsumerMemberState, tuple[ConsumerMemberState, ...]] = {
    _S.JOINING: (_S.FENCED, _S.STALE),
    _S.RECONCILING: IN_GROUP,
    _S.ACKNOWLEDGING: (_S.RECONCILING,),
    _S.STABLE: IN_GROUP,
    _S.FENCED: IN_GROUP,
    _S.STALE: IN_GROUP,
    _S.FATAL: (*IN_GROUP, _S.FENCED, _S.STALE),
    _S.UNSUBSCRIBED: (*IN_GROUP, _S.FENCED, _S.STALE, _S.FATAL),
}
"""From which states a consumer may come to each."""

LocalAssignment = tuple[int, Partitions]
"""An assignment with a number of the client's own: one that is given again is reported again, too."""
_NONE: LocalAssignment = (-1, NO_PARTITIONS)


class ConsumerMember:
    """One consumer from its start to its end. Calls that don't fit its state raise IllegalTransition.

    >>> member = ConsumerMember("a#1", "a", ConsumerConfig((), group_protocol="consumer"), ["t"])
    >>> member.heartbeat().member_epoch
    0
    >>> member.answered(ConsumerGroupHeartbeatAnswer(ErrorCode.NONE, 1, 5_000, frozenset({("t", 0)})))
    >>> member.state.value, member.begin_reconciling(), member.end_reconciling(), member.state.value
    ('RECONCILING', (), (('t', 0),), 'ACKNOWLEDGING')
    >>> sorted(member.heartbeat().topic_partitions), member.state.value
    ([('t', 0)], 'STABLE')
    """

    leads = False
    """Never: brokers assign, and no member leads."""

    def __init__(self, client: str, member_id: str, config: ConsumerConfig, topics: Sequence[str]) -> None:
        self.client = client
        self.member_id = member_id
        self.config = config
        self.topics = tuple(topics)
        self.state = ConsumerMemberState.JOINING
        self.member_epoch = JOIN_GROUP_MEMBER_EPOCH
        self.owned: Sequence[TopicPartition] = ()
        self._target = self._current = _NONE
        self._reconciles: LocalAssignment | None = None
        self._sent_topics: frozenset[str] | None = None
        self._sent_assignment: LocalAssignment | None = None

    @property
    def is_in_group(self) -> bool:
        """Whether the consumer sends heartbeats."""
        return self.state in IN_GROUP

    @property
    def must_beat_now(self) -> bool:
        """Whether the next heartbeat does not wait for its interval."""
        return self.state in (ConsumerMemberState.JOINING, ConsumerMemberState.ACKNOWLEDGING)

    @property
    def has_news(self) -> bool:
        """Whether the next heartbeat reports something."""
        return self.must_beat_now or self._sent_topics != frozenset(self.topics)

    @property
    def is_reconciling(self) -> bool:
        """Whether callbacks for an assignment are under way."""
        return self._reconciles is not None

    def heartbeat(self) -> ConsumerGroupHeartbeat:
        """The heartbeat to send now; it reports what has changed since the last. A join reports everything."""
        if not self.is_in_group:
            raise IllegalTransition(f"no heartbeat is sent in state {self.state.value}")
        joins = self.state is ConsumerMemberState.JOINING
        topics, assignment = frozenset(self.topics), self._current
        request = ConsumerGroupHeartbeat(
            self.client,
            self.member_id,
            self.member_epoch,
            self.config.group_instance_id,
            self.config.max_poll_interval_ms if joins else None,
            topics if joins or topics != self._sent_topics else None,
            self.config.server_assignor if joins else None,
            assignment[1] if joins or assignment != self._sent_assignment else None,
        )
        self._sent_topics, self._sent_assignment = topics, assignment
        if self.state is ConsumerMemberState.ACKNOWLEDGING:
            is_done = self._current == self._target
            self._move(ConsumerMemberState.STABLE if is_done else ConsumerMemberState.RECONCILING)
        return request

    def answered(self, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """Take the answer of a heartbeat; the caller looks at `state` for what to do next."""
        if not self.is_in_group:
            return
        if answer.error in FENCING:
            self._move(ConsumerMemberState.FENCED)
            return
        if answer.error is not ErrorCode.NONE:
            self._move(ConsumerMemberState.FATAL)
            return
        self.member_epoch = answer.member_epoch
        if answer.assignment is None:
            return
        number, partitions = self._target
        if number < 0 or partitions != answer.assignment:
            self._target = (number + 1, answer.assignment)
        if self._target != self._current:
            self._move(ConsumerMemberState.RECONCILING)
        elif self.state in (ConsumerMemberState.RECONCILING, ConsumerMemberState.JOINING):
            self._move(ConsumerMemberState.STABLE)

    def begin_reconciling(self) -> Sequence[TopicPartition]:
        """Take up the newest assignment: the partitions to revoke first."""
        if self.state is not ConsumerMemberState.RECONCILING or self._reconciles is not None:
            raise IllegalTransition(f"nothing is to be reconciled in state {self.state.value}")
        self._reconciles = self._target
        revoked = tuple(tp for tp in self.owned if tp not in self._reconciles[1])
        self.owned = tuple(tp for tp in self.owned if tp in self._reconciles[1])
        return revoked

    def end_reconciling(self) -> Sequence[TopicPartition]:
        """All that must go is revoked: the partitions that are new. The next heartbeat acknowledges the assignment."""
        if self._reconciles is None:
            raise IllegalTransition("nothing is being reconciled")
        done, self._reconciles = self._reconciles, None
        added = tuple(sorted(done[1].difference(self.owned)))
        self.owned = tuple(sorted(done[1]))
        self._current = done
        self._move(ConsumerMemberState.ACKNOWLEDGING)
        return added

    def lose_all(self) -> Sequence[TopicPartition]:
        """Returns the partitions that a consumer loses because it was fenced, failed or stopped polling."""
        lost, self.owned = self.owned, ()
        self._target = self._current = _NONE
        self._reconciles = None
        return lost

    def rejoin(self) -> None:
        """Join again, with the same member id."""
        self._move(ConsumerMemberState.JOINING)
        self.member_epoch = JOIN_GROUP_MEMBER_EPOCH

    def leaving(self) -> ConsumerGroupHeartbeat | None:
        """The heartbeat that leaves the group, if the consumer is in it: a static one keeps its place for a session."""
        if not self.is_in_group:
            return None
        epoch = LEAVE_GROUP_MEMBER_EPOCH if self.config.group_instance_id is None else LEAVE_GROUP_STATIC_MEMBER_EPOCH
        return ConsumerGroupHeartbeat(self.client, self.member_id, epoch, self.config.group_instance_id)

    def go_stale(self) -> None:
        """The consumer has not polled for max.poll.interval.ms and leaves; it joins again when it polls."""
        self._move(ConsumerMemberState.STALE)

    def close(self) -> None:
        """Moves the member to its end state, because its process ends."""
        self._move(ConsumerMemberState.UNSUBSCRIBED)

    def _move(self, state: ConsumerMemberState) -> None:
        if self.state is state and state in IN_GROUP:
            return
        if self.state not in PREVIOUS_STATES[state]:
            raise IllegalTransition(f"{state.value} can't follow {self.state.value}")
        self.state = state
