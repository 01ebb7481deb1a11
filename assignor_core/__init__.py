"""The pure core: load, skew, placement, planning, assignment, triggering. No Spark, no Kafka client, no clock, no file.

Same input, same bytes out. What is exported here is what the shell and others may rely on.
"""

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
