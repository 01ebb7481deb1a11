"""What must hold of a group of the consumer protocol at every moment: the one checker that all tests use."""

from collections import Counter

from assignor_core.group.consumer_protocol.coordinator import ConsumerGroupCoordinator
from assignor_core.group.consumer_protocol.messages import MemberAssignmentState


def group_violations(group: ConsumerGroupCoordinator) -> list[str]:
    """What is wrong with a group, one sentence each; empty if it is sound."""
    return [*_two_users(group), *_epochs_wrong(group), *_targets_wrong(group), *_states_wrong(group)]


def _two_users(group: ConsumerGroupCoordinator) -> list[str]:
    """A partition that is still to be revoked is in use, too."""
    uses = Counter(tp for member in group.members for tp in member.assigned | member.pending_revocation)
    return [f"{tp} has {count} users" for tp, count in uses.items() if count > 1]


def _epochs_wrong(group: ConsumerGroupCoordinator) -> list[str]:
    late = [] if group.assignment_epoch <= group.group_epoch else ["the assignment epoch is above the group epoch"]
    ahead = [member for member in group.members if member.member_epoch > group.assignment_epoch]
    return [*late, *(f"{member.member_id} is ahead of the assignment epoch" for member in ahead)]


def _targets_wrong(group: ConsumerGroupCoordinator) -> list[str]:
    given = Counter(tp for target in group.members.target.values() for tp in target)
    gone = group.members.target.keys() - {member.member_id for member in group.members}
    return [
        *(f"{tp} is given to {count} members" for tp, count in given.items() if count > 1),
        *(f"{member_id} has a target assignment and has gone" for member_id in gone),
    ]


def _states_wrong(group: ConsumerGroupCoordinator) -> list[str]:
    return [
        f"{member.member_id} has to revoke {len(member.pending_revocation)} partitions in state {member.state.value}"
        for member in group.members
        if member.pending_revocation and member.state is not MemberAssignmentState.UNREVOKED_PARTITIONS
    ]
