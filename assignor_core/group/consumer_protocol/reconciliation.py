"""How a member comes from what it has to what the target assignment gives it: first it revokes, then it gets.

Owns the rules of Kafka's CurrentAssignmentBuilder (4.3). Pure: a member in, the same or the next member out.
"""

from collections.abc import Callable
from dataclasses import replace

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.consumer_protocol.messages import (
    NO_PARTITIONS,
    ConsumerGroupMember,
    MemberAssignmentState,
    Partitions,
)

InUse = Callable[[TopicPartition], bool]
"""Whether another member still has the partition, or has yet to give it up."""


def reconcile(
    member: ConsumerGroupMember,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    in_use: InUse,
    *,
    subscription_changed: bool = False,
) -> ConsumerGroupMember:
    """The member after a heartbeat that reported `owned` partitions (None: it reported none, so nothing changed).

    >>> a = ConsumerGroupMember("a", "a#1", member_epoch=1, subscribed_topic_names=frozenset("t"),
    ...                         assigned=frozenset({("t", 0), ("t", 1)}))
    >>> a = reconcile(a, frozenset({("t", 0)}), 2, None, lambda tp: False)
    >>> a.state.value, a.member_epoch, sorted(a.pending_revocation)
    ('UNREVOKED_PARTITIONS', 1, [('t', 1)])
    >>> a = reconcile(a, frozenset({("t", 0)}), 2, frozenset({("t", 0)}), lambda tp: False)
    >>> a.state.value, a.member_epoch, sorted(a.assigned)
    ('STABLE', 2, [('t', 0)])
    """
    stays = (
        member.is_reconciled_to(target_epoch)
        if member.state is not MemberAssignmentState.UNREVOKED_PARTITIONS
        else _owns(owned, member.pending_revocation)
    )
    if stays:
        return _drop_unsubscribed(member, owned) if subscription_changed else member
    return _next_assignment(member, target, target_epoch, owned, in_use)


def _next_assignment(
    member: ConsumerGroupMember, target: Partitions, target_epoch: int, owned: Partitions | None, in_use: InUse
) -> ConsumerGroupMember:
    target = frozenset(tp for tp in target if tp[0] in member.subscribed_topic_names)
    kept = member.assigned & target
    to_revoke = member.assigned - kept
    if _owns(owned, to_revoke):
        return _at(member, MemberAssignmentState.UNREVOKED_PARTITIONS, member.member_epoch, kept, to_revoke)
    missing = target - kept
    free = frozenset(tp for tp in missing if not in_use(tp))
    waits = len(free) < len(missing)
    state = MemberAssignmentState.UNRELEASED_PARTITIONS if waits else MemberAssignmentState.STABLE
    return _at(member, state, target_epoch, kept | free, NO_PARTITIONS)


def _drop_unsubscribed(member: ConsumerGroupMember, owned: Partitions | None) -> ConsumerGroupMember:
    """Take topics away that it reads no more, though there is no target assignment yet that says so."""
    kept = frozenset(tp for tp in member.assigned if tp[0] in member.subscribed_topic_names)
    if kept == member.assigned:
        return member
    to_revoke = member.pending_revocation | (member.assigned - kept)
    if _owns(owned, to_revoke):
        return _at(member, MemberAssignmentState.UNREVOKED_PARTITIONS, member.member_epoch, kept, to_revoke)
    return _at(member, member.state, member.member_epoch, kept, member.pending_revocation)


def _owns(owned: Partitions | None, to_revoke: Partitions) -> bool:
    """Whether the member has yet to give some of them up; what it does not report it may still have."""
    return bool(to_revoke) and (owned is None or not owned.isdisjoint(to_revoke))


def _at(
    member: ConsumerGroupMember, state: MemberAssignmentState, epoch: int, assigned: Partitions, pending: Partitions
) -> ConsumerGroupMember:
    return replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending,
    )
