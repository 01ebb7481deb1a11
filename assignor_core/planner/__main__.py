"""Compiles the planner's machine code, for set-ups and images: `python -m assignor_core.planner`.

Takes half a minute of processor time, once. Without it the first plan of each machine would.
"""

from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner.proposal import propose

if __name__ == "__main__":
    load = PartitionLoad(1.0, 1.0, 1.0)
    partitions = tuple(Partition("any", number, (1,), load) for number in range(4))
    propose(ClusterState("any", 0, (Broker(1), Broker(2)), partitions), proves_least=True)
