"""A Kafka cluster as a state machine on logical time: placement, in-sync replicas, throttles, disks, faults.

`SimulatedCluster` is the cluster; `SimulatedClient` shows it as an admin client does, with the faults of one. Pure: the
caller lets time pass and plans every fault, so the same calls give the same bytes. Kafka's rules here are held against
real brokers by `tests/conformance`.
"""

from assignor_core.simulated_cluster.client import SimulatedClient
from assignor_core.simulated_cluster.cluster import SimulatedCluster
from assignor_core.simulated_cluster.faults import ClientFaults, Fate, PlannedFault, RequestKind
from assignor_core.simulated_cluster.requests import ClientErrors
from assignor_core.simulated_cluster.state import BrokerStatus, LogDir, SimulatedBroker
from assignor_core.simulated_cluster.stories import Fault, plan_faults, random_cluster, random_faults

__all__ = [
    "BrokerStatus",
    "ClientErrors",
    "ClientFaults",
    "Fate",
    "Fault",
    "LogDir",
    "PlannedFault",
    "RequestKind",
    "SimulatedBroker",
    "SimulatedClient",
    "SimulatedCluster",
    "plan_faults",
    "random_cluster",
    "random_faults",
]
