"""Consumer assignors: which member of a group reads which partition. Pure functions from a group to an assignment.

They remember nothing: what members own, and since when, comes in with the group.
"""

from collections.abc import Callable, Mapping

from assignor_core.assignors.contract import GroupAssignment, GroupSpec, MemberSpec, TopicPartition, balance_score
from assignor_core.assignors.cooperative import assign_cooperative
from assignor_core.assignors.load_aware import assign_cooperative_load_aware, assign_load_aware
from assignor_core.assignors.range import assign_range
from assignor_core.assignors.roundrobin import assign_round_robin
from assignor_core.assignors.sticky import assign_sticky
from assignor_core.assignors.uniform import assign_uniform
from assignor_core.errors import UnknownStrategy

__all__ = [
    "SERVER_ASSIGNORS", "STRATEGIES", "GroupAssignment", "GroupSpec", "MemberSpec", "TopicPartition", "assign",
    "balance_score",
]  # fmt: skip

STRATEGIES: Mapping[str, Callable[[GroupSpec], GroupAssignment]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative,
    "load-aware": assign_load_aware,
    "cooperative-load-aware": assign_cooperative_load_aware,
}
"""Strategies by the name they have in Kafka's protocol."""

SERVER_ASSIGNORS: Mapping[str, Callable[[GroupSpec], GroupAssignment]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""What brokers assign with in the consumer protocol (KIP-848), by `group.consumer.assignors`; the first is the default.

Members bring the last target as `owned_partitions`. Like Kafka's they know no racks: hand in none.
"""


def assign(strategy: str, spec: GroupSpec) -> GroupAssignment:
    """Assign with the strategy of that name; raises UnknownStrategy."""
    if strategy not in STRATEGIES:
        raise UnknownStrategy(f"strategy is {strategy!r}, must be one of {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy](spec)
