"""What a kafka-python consumer still has when it joins its group, and that it goes on joining. Owns the one look into
kafka-python's coordinator.

kafka-python 3.0 calls `on_assignment` with what a member gets, and nothing with what it loses before it joins again:
the partitions of a topic that it no longer reads, and all of them when it has lost its membership. Only the
coordinator knows, and an assignor is not handed it. But the coordinator is who calls `metadata`: so it is looked up
among the callers.
"""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from assignor_core.assignors import TopicPartition
from assignor_core.assignors.contract import NO_GENERATION
from assignor_core.assignors.wire import decode_subscription, encode_subscription
from assignor_core.errors import MalformedBytes

CALLERS_MAX = 16
"""How far up the coordinator is searched: methods of an assignor that extends ours may come before it."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Partitions that a member owns, sorted, and the generation that gave them to it."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION


def claims_at_join(assigned: Claims, topics: Collection[str]) -> Claims:
    """What a member may claim that was last `assigned` this and now reads `topics`.

    That is what its consumer has, as in Kafka's own client; a member that lost its membership has no generation. To be
    called while kafka-python's coordinator waits for `metadata`; without one, whatever the member no longer reads is
    left out.
    """
    coordinator = _calling_coordinator()
    if coordinator is None:
        return Claims(tuple(tp for tp in assigned.partitions if tp[0] in topics), assigned.generation_id)
    owned = sorted((tp.topic, tp.partition) for tp in coordinator._subscription.assigned_partitions())
    return Claims(tuple(owned), NO_GENERATION if coordinator._generation.is_lost() else assigned.generation_id)


def keep_joining() -> None:
    """Have later polls go on with the join that begins now, until this member has its assignment.

    In kafka-python 3.0.12 `need_rejoin` compares the subscription and the metadata with those that the newest JoinGroup
    was sent for. If a change of these began the join and a poll times out before it ends, the next poll sees no change:
    nobody takes the assignment, and as the heartbeat stands still meanwhile, the brokers expel the member. Kafka's own
    client asks for the rejoin at this point. To be called like `claims_at_join`.
    """
    coordinator = _calling_coordinator()
    if coordinator is not None:
        coordinator.request_rejoin()


def tolerate_short_metadata() -> None:
    """Have the coordinator read members' metadata whose last fields are missing, if this member comes to lead.

    kafka-python decodes the metadata of all members before it asks an assignor, and a single short one ended each join
    of the leader. To be called like `claims_at_join`.
    """
    coordinator = _calling_coordinator()
    if coordinator is None or "_perform_assignment" in vars(coordinator):
        return
    perform = coordinator._perform_assignment

    def with_whole_metadata(leader_id: str, protocol_name: str, members: Sequence[Any]) -> Any:
        for member in members:
            member.metadata = whole_metadata(member.member_id, member.metadata)
        return perform(leader_id, protocol_name, members)

    coordinator._perform_assignment = with_whole_metadata


def whole_metadata(member_id: str, metadata: bytes) -> bytes:
    """The metadata with all fields of its version; raises MalformedBytes, which names the member."""
    try:
        ConsumerProtocolSubscription.decode(metadata)
        return metadata
    except Exception:  # noqa: BLE001 - kafka-python raises whatever reading beyond the end raises
        try:
            return encode_subscription(decode_subscription(bytes(metadata)))
        except MalformedBytes as error:
            raise MalformedBytes(f"group member {member_id}: {error}") from None


def _calling_coordinator() -> ConsumerCoordinator | None:
    frame = sys._getframe(1)
    for _ in range(CALLERS_MAX):
        caller = frame.f_locals.get("self")
        if isinstance(caller, ConsumerCoordinator):
            return caller
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
