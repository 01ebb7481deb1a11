"""Where thousands of replicas of like size are too many on some brokers, the search goes on to the band."""

import numpy as np
import pytest

from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose

BAND = 0.03


def with_empty_brokers(full: int, empty: int, partitions: int, factor: int, spread: float) -> ClusterState:
    """`full` brokers share partitions at random, whose loads are lognormal; the others are new."""
    random = np.random.default_rng(1)
    rows = []
    for number, load in enumerate(np.exp(random.normal(0.0, spread, partitions)).tolist()):
        replicas = tuple(random.choice(full, factor, replace=False).tolist())
        rows.append(Partition("t", number, replicas, PartitionLoad(1e3 * load, 2e3 * load, 1e6 * load)))
    return ClusterState("c", 0, tuple(Broker(number) for number in range(full + empty)), tuple(rows))


@pytest.mark.long
@pytest.mark.parametrize(
    ("full", "empty", "partitions", "factor", "spread"),
    [(3, 3, 2_000, 3, 0.3), (6, 2, 4_000, 3, 0.3), (6, 2, 3_000, 3, 0.0), (3, 9, 5_000, 1, 0.0)],
)
def test_brokers_that_are_empty_get_their_share(
    full: int, empty: int, partitions: int, factor: int, spread: float
) -> None:
    cluster = with_empty_brokers(full, empty, partitions, factor, spread)
    plan = propose(cluster, PlannerPolicy(band=BAND))
    for resource in ("bytes_in", "disk"):
        assert plan.skew_after[resource]["max_over_mean"] <= 1.0 + BAND + 1e-3
    assert plan.diagnosis == ()
