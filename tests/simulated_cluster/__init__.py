"""A Kafka cluster as a state machine on logical time: placement, in-sync replicas, throttles, disks, faults.

`SimulatedCluster` is the cluster; `SimulatedClient` shows it as an admin client does, with the faults of one. Pure: the
caller lets time pass and plans every fault, so the same calls give the same bytes. Kafka's rules here are held against
real brokers by `tests/conformance`.
"""

from tests.simulated_cluster.client import SimulatedClient
from tests.simulated_cluster.cluster import SimulatedCluster
from tests.simulated_cluster.faults import ClientFaults, Fate, PlannedFault, RequestKind
from tests.simulated_cluster.requests import ClientErrors, SimulatedRefusal, SimulatedSilence
from tests.simulated_cluster.state import NEWEST_RELEASE, BrokerStatus, LogDir, Release, SimulatedBroker
from tests.simulated_cluster.stories import Fault, plan_faults, random_cluster, random_faults

__all__ = [
    "NEWEST_RELEASE",
    "BrokerStatus",
    "ClientErrors",
    "ClientFaults",
    "Fate",
    "Fault",
    "LogDir",
    "PlannedFault",
    "Release",
    "RequestKind",
    "SimulatedBroker",
    "SimulatedClient",
    "SimulatedCluster",
    "SimulatedRefusal",
    "SimulatedSilence",
    "plan_faults",
    "random_cluster",
    "random_faults",
]
