"""How plans hold over many shapes of clusters: three variants of each, beside the shape itself.

    python -m tests.benchmarks.bench_planner --shapes 200 [--seed N] [--band B]

For each plan: how far it ends above its band or its bound, its bytes over the least, and its processor seconds over
those of the plain shape. `uneven` is what all brokers and loads, counts left out, end above their own limits, in fair
shares. The least is what disk and bytes in alone ask for (`least_bytes` here), or what is proven for the plan
(`planner.least_bytes`), whichever is more. Prints a line for each variant, the rows that are worst in each figure and
how many break a promise. Rows go to build/.
"""

import gc
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assignor_core.load import NO_BROKER, broker_loads, cluster_arrays, shares
from assignor_core.model import ClusterState
from assignor_core.plan import Plan, apply_to
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.least_bytes import least_bytes as proven_least_bytes
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Search, problem_of
from assignor_core.planner.proposal import with_drained
from assignor_core.resources import Resource
from tests.benchmarks.models import Kind, generate
from tests.benchmarks.shapes import shape, variants

BUILD = Path("build")
BALANCED = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.DISK, Resource.LEADER_BYTES_IN)
SECONDS_MIN = 1.0
"""Plans that take less are not slow, whatever the plain one takes."""
RATIO_MAX = 3.0
LEAST_MAX = 1.25
OVER_MAX = 5e-4
WORST = 8
LINE = (
    "{seed:>5} {variant:<13} {brokers:>4} brokers {partitions:>6,} x {replication}  {over:>7.4f} over "
    "{bytes_over_proven:>6.2f} x least ({moved:>6.1%})  {movements:>6,} movements  {seconds:>7.2f} s {ratio:>6.2f} x"
)


def run(first: int, count: int, band: float) -> list[dict[str, Any]]:
    """Plan all shapes from seed `first` on and print what is worst."""
    rows = []
    for seed in range(first, first + count):
        for row in measure_shape(seed, band):
            rows.append(row)
            if broken(row):
                print("broken", LINE.format(**row), flush=True)
    BUILD.mkdir(exist_ok=True)
    (BUILD / f"bench_shapes_{first}_{count}.json").write_text(json.dumps(rows, indent=1) + "\n")
    if rows:
        show(rows)
    return rows


def measure_shape(seed: int, band: float) -> Iterator[dict[str, Any]]:
    """Figures of the plain shape, then of its variants; `ratio` is to the plain one."""
    plain = measure(seed, "plain", shape(seed), band)
    yield plain | {"ratio": 1.0}
    for name, kind in variants(seed).items():
        row = measure(seed, name, kind, band)
        yield row | {"ratio": row["seconds"] / max(plain["seconds"], SECONDS_MIN / RATIO_MAX)}


def measure(seed: int, variant: str, kind: Kind, band: float) -> dict[str, Any]:
    """Figures of one plan; seconds are processor time of `propose`."""
    gc.disable()
    cluster = generate(kind, seed)
    policy = PlannerPolicy(band=band)
    began = time.process_time()
    plan = propose(cluster, policy)
    seconds = time.process_time() - began
    gc.enable()
    least, total = least_bytes(cluster, band), _disk(cluster)
    began = time.process_time()
    proven = max(least, proven_bytes(cluster, policy, plan))
    seconds_of_proof = time.process_time() - began
    return {
        "seed": seed,
        "variant": variant,
        "brokers": len(cluster.brokers),
        "partitions": kind.partitions,
        "replication": kind.replication_factor,
        "over": over_band_or_bound(plan, policy),
        "uneven": unevenness(cluster, policy, plan),
        "is_within_band": is_within_band(plan, policy),
        "bytes_over_least": plan.bytes_to_move / least if least else 1.0,
        "bytes_over_proven": plan.bytes_to_move / proven if proven else 1.0,
        "moved": plan.bytes_to_move / total,
        "least": least / total,
        "movements": len(plan.movements),
        "seconds": seconds,
        "seconds_of_proof": seconds_of_proof,
        "problems": plan.problems,
    }


def broken(row: dict[str, Any]) -> bool:
    """Whether a promise is broken: band or bound, bytes, or seconds."""
    return bool(row["over"] > OVER_MAX or row["bytes_over_proven"] > LEAST_MAX or row["ratio"] > RATIO_MAX)


def over_band_or_bound(plan: Plan, policy: PlannerPolicy) -> float:
    """How far max over mean ends above the band, which begins at the proven bound; the worst load."""
    return max(
        float(plan.skew_after[resource]["max_over_mean"] - plan.lower_bound[resource] * (1 + policy.band_of(resource)))
        for resource in BALANCED
    )


def is_within_band(plan: Plan, policy: PlannerPolicy) -> bool:
    """Whether every load ends within its band, bounds or not."""
    return all(
        plan.skew_after[resource]["max_over_mean"] <= 1 + policy.band_of(resource) + OVER_MAX for resource in BALANCED
    )


def least_bytes(cluster: ClusterState, band: float) -> float:
    """Bytes that any plan must copy to bring disk and bytes in, which copies alone can move, into the band.

    What each broker must shed of either, first the replicas that hold least disk for their bytes in, the last one in
    part; or what brokers lack of disk, if that is more; and all that dead brokers hold.
    """
    arrays = cluster_arrays(cluster)
    disk, inward = (arrays.columns.of(resource)[0] for resource in (Resource.DISK, Resource.BYTES_IN))
    loads = broker_loads(arrays)
    fair = loads.sum(axis=0) * shares(arrays)
    alive, dead = arrays.alive, arrays.dead
    shed = np.where(alive, (loads[:, disk] - (1 + band) * fair[:, disk]).clip(0), loads[:, disk])
    for broker in np.flatnonzero(alive & (loads[:, inward] > (1 + band) * fair[:, inward])):
        rows = (arrays.replicas == broker).any(axis=1)
        sizes, rates = arrays.follower_load[rows, disk], arrays.follower_load[rows, inward]
        order = np.argsort(sizes / np.maximum(rates, 1e-30))
        excess = loads[broker, inward] - (1 + band) * fair[broker, inward]
        before = np.concatenate(([0.0], np.cumsum(rates[order])[:-1]))
        part = ((excess - before) / np.maximum(rates[order], 1e-30)).clip(0, 1)
        shed[broker] = max(shed[broker], float((part * sizes[order]).sum()))
    lacking = ((1 - band) * fair[:, disk] - loads[:, disk])[alive].clip(0).sum()
    return float(max(shed[~dead].sum(), lacking) + shed[dead].sum())


def proven_bytes(cluster: ClusterState, policy: PlannerPolicy, plan: Plan) -> float:
    """`planner.least_bytes` of `plan`, which `policy` has made for `cluster`."""
    return proven_least_bytes(_ended(cluster, policy, plan))


def unevenness(cluster: ClusterState, policy: PlannerPolicy, plan: Plan) -> float:
    """Fair shares, over all brokers and loads but counts, that the plan leaves above brokers' own limits."""
    search = _ended(cluster, policy, plan)
    alive, counts = search.problem.arrays.alive, search.problem.arrays.columns.counts
    limit, share = search.problem.limit[alive], search.problem.share[alive]
    over = (search.placement.loads[alive] - limit).clip(0) / np.where(share > 0, share, 1.0)
    return float(over[:, ~counts].sum())


def _ended(cluster: ClusterState, policy: PlannerPolicy, plan: Plan) -> Search:
    """A search whose placement is that of `plan`, which `policy` has made for `cluster`."""
    cluster = with_drained(cluster, policy)
    arrays = cluster_arrays(cluster)
    placement = Placement(arrays)
    search = Search(problem_of(arrays, policy, placement), placement)
    placement.take(cluster_arrays(apply_to(cluster, plan)).replicas)
    return search


def _disk(cluster: ClusterState) -> float:
    arrays = cluster_arrays(cluster)
    held = (arrays.replicas != NO_BROKER).sum(axis=1)
    return float((arrays.follower_load[:, arrays.columns.of(Resource.DISK)[0]] * held).sum())


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each variant, the rows that are worst, and sums."""
    print(
        "variant        plans  in band  at bound  neither  most over  x least: median   most  over 1.25  x plain: most"
    )
    for variant in dict.fromkeys(row["variant"] for row in rows):
        some = [row for row in rows if row["variant"] == variant]
        over = [row["over"] > OVER_MAX for row in some]
        within = [row["is_within_band"] and not above for row, above in zip(some, over, strict=True)]
        least = [row["bytes_over_proven"] for row in some]
        print(
            f"{variant:<13} {len(some):>6} {sum(within):>8} {len(some) - sum(within) - sum(over):>9} {sum(over):>8} "
            f"{max(row['over'] for row in some):>10.4f} {statistics.median(least):>17.2f} {max(least):>5.2f} "
            f"{sum(times > LEAST_MAX for times in least):>11} {max(row['ratio'] for row in some):>15.2f}"
        )
    for name in ("over", "bytes_over_proven", "ratio", "seconds"):
        print(f"worst by {name}:")
        for row in sorted(rows, key=lambda row: -row[name])[:WORST]:
            print(LINE.format(**row))
    figures = {
        name: sum(row[name] for row in rows)
        for name in ("seconds", "seconds_of_proof", "movements", "moved", "least", "uneven")
    }
    print(", ".join(f"{name} {value:,.1f}" for name, value in figures.items()))
    print(f"{len(rows)} plans, {sum(broken(row) for row in rows)} break a promise")
