"""Seeded shapes of clusters, of any size and skew, and three variants of each: what a planner may meet.

A shape draws everything that `Kind` can describe. Its variants change one thing: brokers are new, must be emptied, are
dead, or differ in capacity. `plain` is the shape itself; variants are compared with it, since it has the same size.
"""

from dataclasses import replace

import numpy as np

from tests.benchmarks.models import Kind

BROKERS = (3, 300)
PARTITIONS_PER_BROKER = (15, 200)
PARTITIONS_MAX = 20_000
REPLICATION_FACTOR_MAX = 5
RACKS = (1, 2, 3, 4, 5, 6)
CHANGED_SHARE = 0.1
"""Part of the brokers that a variant adds, empties, or takes as dead; at least one."""


def shape(seed: int) -> Kind:
    """The shape of this seed."""
    random = np.random.default_rng(seed)
    brokers = round(float(np.exp(random.uniform(*np.log(BROKERS)))))
    per_broker = np.exp(random.uniform(*np.log(PARTITIONS_PER_BROKER)))
    factor = int(random.integers(1, min(REPLICATION_FACTOR_MAX, brokers - _changed(brokers)) + 1))
    return Kind(
        brokers,
        min(PARTITIONS_MAX, int(brokers * per_broker)),
        racks=min(brokers, int(random.choice(RACKS))),
        replication_factor=factor,
        zipf=float(random.uniform(0.5, 1.4)),
        sigma=float(random.uniform(0.5, 1.2)),
        heat=float(random.uniform(0.2, 1.0)),
        heaviest_share=float(random.choice((0.0, 0.3, 0.6, 1.0))),
        fan_out_sigma=float(random.uniform(0.2, 0.8)),
        retention_sigma=float(random.uniform(0.2, 0.8)),
        count_sigma=float(random.uniform(0.01, 0.3)),
        rack_sigma=float(random.choice((0.0, 0.0, 0.3))),
        hot_partition_shares=float(random.choice((0.0, 0.0, 0.0, 0.0, 1.5))),
    )


def variants(seed: int) -> dict[str, Kind]:
    """Three variants of the shape of `seed`, by name."""
    plain = shape(seed)
    changed = _changed(plain.brokers)
    all_of_them = {
        "new": replace(plain, brokers_new=max(changed, plain.racks)),
        "to empty": replace(plain, brokers_draining=changed),
        "unequal": replace(plain, twice_every=3),
        "dead": replace(plain, brokers_dead=changed),
        "unequal disks": replace(plain, disk_twice_every=3),
    }
    chosen = np.random.default_rng(seed + 1_000_000).permutation(list(all_of_them))[:3]
    return {str(name): all_of_them[str(name)] for name in sorted(chosen)}


def _changed(brokers: int) -> int:
    return max(1, int(brokers * CHANGED_SHARE))
