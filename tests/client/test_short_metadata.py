"""Groups that a plug-in leads, with members whose metadata is short: some clients leave out fields of a version."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from assignor_core.assignors.wire import Subscription, encode_subscription
from assignor_core.errors import MalformedBytes
from streaming.client.consumer import Range

WHOLE = encode_subscription(Subscription(("t",), b"x", (("t", 1),), 7, "r"))
AFTER_TOPICS = 2 + 4 + 3
VERSION_1 = (1).to_bytes(2, "big")


class Coordinator(ConsumerCoordinator):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's, of which only joining and leading are there."""

    def __init__(self) -> None:
        """Nothing of the real one: it would connect."""

    def __del__(self) -> None:
        """The real one would leave its group."""

    def request_rejoin(self) -> None:
        """No broker is asked."""

    def join(self) -> None:
        Range().metadata(["t"])

    def lead(self, *members: tuple[str, bytes]) -> Any:
        rows = [SimpleNamespace(member_id=member_id, metadata=metadata) for member_id, metadata in members]
        return self._perform_assignment("a", "range", rows)

    def _perform_assignment(self, _leader_id: str, _protocol: str, members: Any) -> Any:
        """As the real one begins: it decodes what all members have sent."""
        return {row.member_id: ConsumerProtocolSubscription.decode(row.metadata) for row in members}


@pytest.mark.parametrize(
    "short",
    [
        pytest.param(VERSION_1 + WHOLE[2 : AFTER_TOPICS + 5], id="kafka-go: version 1 without owned partitions"),
        pytest.param(WHOLE[: AFTER_TOPICS + 5 + 15], id="version 3 without generation and rack"),
        pytest.param(WHOLE[: AFTER_TOPICS + 5 + 15 + 4], id="version 3 without rack"),
        pytest.param(WHOLE[:AFTER_TOPICS], id="topics alone"),
    ],
)
def test_a_member_with_short_metadata_is_read(short: bytes) -> None:
    coordinator = Coordinator()
    coordinator.join()
    coordinator.join()
    read = coordinator.lead(("a", WHOLE), ("b", short))
    assert (read["a"].topics, read["a"].generation_id) == (["t"], 7)
    assert read["b"].topics == ["t"]


@pytest.mark.parametrize("broken", [b"", WHOLE[:5], WHOLE[: AFTER_TOPICS + 2], WHOLE[: AFTER_TOPICS + 5 + 15 + 2]])
def test_a_member_that_can_not_be_read_is_named(broken: bytes) -> None:
    coordinator = Coordinator()
    coordinator.join()
    with pytest.raises(MalformedBytes, match="group member b: subscription: "):
        coordinator.lead(("a", WHOLE), ("b", broken))
