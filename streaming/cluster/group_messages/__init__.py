"""Messages that describe groups of the newer protocols, which kafka-python lacks; it makes them from Kafka's specs.

Owns the classes alone: who is asked, and what an answer means, is not known here. The JSON files beside this module are
the fields of Kafka 4.4.0's own specs (`common/message` in kafka-clients' jar), without prose; a test compares them with
the jar, and the bytes with those that Java writes. Sources: KIP-848 and KIP-1099 (consumer groups), KIP-932 and
KIP-1226 (share groups), KIP-1071 (streams groups). Once kafka-python has a class of the same name, ours can go.
"""

import sys

from kafka.protocol.api_message import ApiMessage

_SPECS = sys.modules[__name__]


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]  # kafka-python has no types
    """Request to a coordinator for groups of the consumer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]
    """Epochs, assignor and members of each group, each member with what it owns and what it shall own."""


class ShareGroupDescribeRequest(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]
    """Request to a coordinator for share groups."""


class ShareGroupDescribeResponse(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]
    """Epochs and members of each share group; several members may have the same partition."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]
    """Request to a coordinator for how far share groups have read."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]
    """Start offset, and from version 1 on the lag, of each share-partition; -1 where it is not known."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]
    """Request to a coordinator for streams groups."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=_SPECS):  # type: ignore[call-arg,misc]
    """Epochs, topology and members of each streams group, each member with its tasks."""
