"""Rules of placement drawn at random for the seeded shapes of clusters, and what a plan under them breaks.

    python -m tests.benchmarks.bench_planner --rules 200 [--seed N]

Each shape gets a policy in which every rule stands or not by the toss of a coin, with figures that mostly can be kept
and sometimes can't. Prints a line for each plan that breaks a hard rule, or that a second plan adds movements to, and
how many plans each rule was part of.
"""

import time
from collections import Counter
from dataclasses import fields
from math import ceil
from typing import Any

import numpy as np

from assignor_core.model import BrokerState, ClusterState
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.policy import BrokerSet
from tests.benchmarks.models import generate
from tests.benchmarks.shapes import shape, variants
from tests.core.planner.invariants import check_plan

FIRST = 2_000_000
"""The seed of a policy is so much higher than that of its shape."""
AGAIN_MAX = 3_000
"""Second plans are made for shapes of no more partitions than this: they take as long as the first ones."""
NONE = PlannerPolicy()


def drawn_rules(cluster: ClusterState, seed: int) -> PlannerPolicy:
    """A policy for `cluster` with about half of the rules of placement, all of them drawn by `seed`."""
    random = np.random.default_rng(FIRST + seed)
    topics = sorted({row.topic for row in cluster.partitions})
    racks = sorted({row.rack for row in cluster.brokers if row.rack is not None})
    alive = [row.broker_id for row in cluster.brokers if row.state is BrokerState.ALIVE]
    replicas = sum(len(row.replicas) for row in cluster.partitions)

    def some(share: float) -> frozenset[str]:
        count = max(1, int(share * len(topics)))
        return frozenset(random.choice(topics, size=count, replace=False).tolist())

    def one_set() -> BrokerSet:
        named = some(random.uniform(0.02, 0.4))
        if len(racks) > 1 and random.random() < 0.5:
            return BrokerSet(named, racks=frozenset(random.choice(racks, len(racks) - 1, replace=False).tolist()))
        count = ceil(random.uniform(0.3, 0.9) * len(alive))
        return BrokerSet(named, brokers=frozenset(random.choice(alive, count, replace=False).tolist()))

    # All are drawn whether they stand or not, so that a rule more changes no other.
    drawn: dict[str, Any] = {
        "replicas_max": ceil(random.uniform(0.95, 1.6) * replicas / len(alive)),
        "spread_topics": some(random.uniform(0.01, 0.2)),
        "leaders_min": ((some(0.01), int(random.integers(1, 4))),),
        "broker_sets": tuple(one_set() for _ in range(random.integers(1, 3))),
        "leader_racks": ((some(0.2), tuple(random.permutation(racks)[:2].tolist())),),
        "keep_racks": True,
        "headroom": float(random.uniform(0.0, 0.6)),
        "failover_headroom": ("broker", "rack")[int(random.integers(2))],
    }
    return PlannerPolicy(**{name: value for name, value in drawn.items() if random.random() < 0.5})


def rules_of(policy: PlannerPolicy) -> list[str]:
    """The names of the fields in which `policy` differs from the default."""
    return [field.name for field in fields(policy) if getattr(policy, field.name) != getattr(NONE, field.name)]


def cluster_of(seed: int) -> tuple[str, ClusterState]:
    """The shape of `seed`, or one of its variants, by name."""
    name, kind = [("plain", shape(seed)), *variants(seed).items()][seed % 4]
    return name, generate(kind, seed)


def run(first: int, count: int) -> int:
    """Plan all shapes from seed `first` on under drawn rules; returns how many plans break a hard rule."""
    broken, drawn, again = 0, Counter[str](), 0
    for seed in range(first, first + count):
        name, cluster = cluster_of(seed)
        policy = drawn_rules(cluster, seed)
        drawn.update(rules_of(policy))
        began = time.process_time()
        plan = propose(cluster, policy)
        seconds = time.process_time() - began
        rules = ", ".join(rules_of(policy))
        line = f"{seed:>5} {name:<13} {seconds:>7.2f} s {len(plan.movements):>7,} movements  {rules}"
        try:
            after = check_plan(cluster, policy, plan)
        except AssertionError as error:
            broken += 1
            print("broken", line, "|", repr(error).partition("\\n")[0], flush=True)
            continue
        more = len(propose(after, policy).movements) if len(cluster.partitions) <= AGAIN_MAX else 0
        again += more > 0
        print("second" if more else "      ", line, f"+ {more}" if more else "", flush=True)
    print(f"{count} plans, {broken} break a hard rule, {again} are added to by a second plan; rules: {dict(drawn)}")
    return broken
