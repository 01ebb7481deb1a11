"""One figure out of many windows: plan on the mean, the 95th percentile or the maximum instead of every window.

Planning on all windows is stricter and keeps loads that peak together apart; one figure is cheaper and moves less.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import numpy as np

from assignor_core.model import ClusterState, Load, PartitionLoad, figures_of


class Statistic(StrEnum):
    """What of the windows is planned on."""

    WINDOWS = "windows"
    MEAN = "mean"
    P95 = "p95"
    MAX = "max"


def first_window(cluster: ClusterState) -> ClusterState:
    """`cluster` with the loads of its first window alone.

    >>> from assignor_core.model import Broker, Partition
    >>> partition = Partition("t", 0, (1,), PartitionLoad((1.0, 3.0), (2.0, 4.0), 5.0))
    >>> first_window(ClusterState("c", 0, (Broker(1),), (partition,))).partitions[0].load
    PartitionLoad(bytes_in_per_sec=1.0, bytes_out_per_sec=2.0, disk_bytes=5.0)
    """
    return _with_figures(cluster, lambda load: load[0] if isinstance(load, tuple) else load)


def by_statistic(cluster: ClusterState, statistic: Statistic) -> ClusterState:
    """`cluster` with a single figure for each load; itself where every window is planned on.

    >>> from assignor_core.model import Broker, Partition
    >>> partition = Partition("t", 0, (1,), PartitionLoad((1.0, 3.0), 2.0, (5.0, 5.0)))
    >>> cluster = ClusterState("c", 0, (Broker(1),), (partition,))
    >>> by_statistic(cluster, Statistic.MAX).partitions[0].load
    PartitionLoad(bytes_in_per_sec=3.0, bytes_out_per_sec=2.0, disk_bytes=5.0)
    """
    if statistic is Statistic.WINDOWS or cluster.windows == 1:
        return cluster
    return _with_figures(cluster, lambda load: _figure(load, statistic))


def _with_figures(cluster: ClusterState, figure: Callable[[Load], float]) -> ClusterState:
    """`cluster` with this figure of each load."""
    partitions = tuple(
        replace(row, load=PartitionLoad(*(figure(load) for load in figures_of(row.load)))) for row in cluster.partitions
    )
    return replace(cluster, partitions=partitions)


def _figure(load: Load, statistic: Statistic) -> float:
    if not isinstance(load, tuple):
        return load
    if statistic is Statistic.MEAN:
        return float(np.mean(load))
    return float(max(load)) if statistic is Statistic.MAX else float(np.percentile(load, 95))
