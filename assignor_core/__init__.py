"""The pure core: load, skew, placement, planning, assignment, triggering. No Spark, no Kafka client, no clock, no file.

Same input, same bytes out. What is exported here is what the shell and others may rely on. Each name is imported when
it is first used: commands that plan nothing start without numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assignor_core.assignors import STRATEGIES, GroupAssignment, GroupSpec, MemberSpec, assign
    from assignor_core.errors import CoreError, InputError, PlanTampered
    from assignor_core.model import (
        Broker,
        BrokerState,
        Capacity,
        ClusterState,
        Partition,
        PartitionLoad,
        cluster_from_json,
        cluster_to_json,
    )
    from assignor_core.placement import PlacementBroker, PlacementStart, place_replicas
    from assignor_core.plan import Movement, Plan, apply_to, plan_from_json, plan_to_json, reassignment_json, validate
    from assignor_core.planner import PlannerPolicy, propose
    from assignor_core.skew import Skew, measure_skew, skew_of

__all__ = [
    "STRATEGIES",
    "Broker",
    "BrokerState",
    "Capacity",
    "ClusterState",
    "CoreError",
    "GroupAssignment",
    "GroupSpec",
    "InputError",
    "MemberSpec",
    "Movement",
    "Partition",
    "PartitionLoad",
    "PlacementBroker",
    "PlacementStart",
    "Plan",
    "PlanTampered",
    "PlannerPolicy",
    "Skew",
    "apply_to",
    "assign",
    "cluster_from_json",
    "cluster_to_json",
    "measure_skew",
    "place_replicas",
    "plan_from_json",
    "plan_to_json",
    "propose",
    "reassignment_json",
    "skew_of",
    "validate",
]

_NAMES = {
    "assignors": ("STRATEGIES", "GroupAssignment", "GroupSpec", "MemberSpec", "assign"),
    "errors": ("CoreError", "InputError", "PlanTampered"),
    "model": (
        "Broker",
        "BrokerState",
        "Capacity",
        "ClusterState",
        "Partition",
        "PartitionLoad",
        "cluster_from_json",
        "cluster_to_json",
    ),
    "placement": ("PlacementBroker", "PlacementStart", "place_replicas"),
    "plan": ("Movement", "Plan", "apply_to", "plan_from_json", "plan_to_json", "reassignment_json", "validate"),
    "planner": ("PlannerPolicy", "propose"),
    "skew": ("Skew", "measure_skew", "skew_of"),
}
"""By module what of it is exported."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # with this function in sight, mypy would take any name for exported

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
