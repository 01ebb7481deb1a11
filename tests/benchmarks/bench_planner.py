"""How good, how cheap and how fast plans are: a table.

    python -m tests.benchmarks.bench_planner [--quick | --largest | --only TEXT | --shapes N | --rules N]
        [--seed N] [--band B]

Beside each plan stands what Kafka's own tool makes of the same model (`rivals`). Each model is planned in a process of
its own, so that peak memory is its own. `--quick` leaves out 300 brokers and
more; `--largest` adds 500 brokers and 1,000 with 1,000,000 partitions (minutes, gigabytes). Figures go to build/.
`--shapes` plans many seeded shapes and three variants of each instead (`bench_shapes`), `--rules` one variant of each
under rules of placement that are drawn at random (`drawn_rules`).
"""

import argparse
import gc
import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

from assignor_core.load import Floats, broker_loads, cluster_arrays, shares
from assignor_core.model import ClusterState
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.resources import Resource
from tests.benchmarks import bench_shapes, drawn_rules
from tests.benchmarks.models import FURTHER, LARGEST, REFERENCE, Kind, generate
from tests.benchmarks.rivals import by_count_figures

BUILD = Path("build")
BYTES = ("bytes_in", "bytes_out", "disk")
QUICK_PARTITIONS_MAX = 20_000
COLUMNS = (
    ("model", "name", 24, ""), ("before", "before", 7, ".3f"), ("after", "after", 7, ".3f"),
    ("leader", "leader", 7, ".3f"), ("bound", "bound", 7, ".3f"), ("moved", "moved", 7, ".1%"),
    ("least", "least", 7, ".1%"), ("by count", "by_count_after", 8, ".3f"), ("it moves", "by_count_moved", 8, ".1%"),
    ("replicas", "replicas", 9, ","), ("seconds", "seconds", 8, ".2f"), ("movements", "movements", 9, ","),
    ("MiB", "memory_mib", 7, ",.0f"),
)  # fmt: skip
"""The columns of the printed table: heading, name of the figure in a row, width and format."""


def main() -> None:
    """Plan every model and show the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave out 300 brokers and more")
    parser.add_argument("--largest", action="store_true", help="add 500 brokers, and 1,000 with 1,000,000 partitions")
    parser.add_argument("--only", default="", help="only models whose name contains this")
    parser.add_argument("--shapes", type=int, default=0, help="plan so many shapes, from --seed on, instead")
    parser.add_argument("--rules", type=int, default=0, help="plan so many shapes under drawn rules instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--band", type=float, default=0.03)
    arguments = parser.parse_args()
    if arguments.shapes:
        bench_shapes.run(arguments.seed, arguments.shapes, arguments.band)
        return
    if arguments.rules:
        raise SystemExit(min(1, drawn_rules.run(arguments.seed, arguments.rules)))
    kinds = {**REFERENCE, **FURTHER, **(LARGEST if arguments.largest else {})}
    if arguments.quick:
        kinds = {name: kind for name, kind in kinds.items() if kind.partitions <= QUICK_PARTITIONS_MAX}
    kinds = {name: kind for name, kind in kinds.items() if arguments.only in name}
    print(" ".join(f"{heading:>{width}}" for heading, _, width, _ in COLUMNS))
    rows = []
    for name, kind in kinds.items():
        row = _in_own_process(name, kind, arguments.seed, arguments.band)
        rows.append(row)
        print(" ".join(f"{row[name]:>{width}{form}}" for _, name, width, form in COLUMNS), flush=True)
    print("\nby count, it moves: all topics placed anew as by kafka-reassign-partitions --generate, on the same model")
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench_planner.json").write_text(json.dumps(rows, indent=1) + "\n")


def measure(name: str, kind: Kind, seed: int, band: float) -> dict[str, Any]:
    """Figures of one plan; `seconds` are processor time of `propose` alone, which a busy machine does not blur."""
    gc.disable()
    cluster = generate(kind, seed)
    began = time.process_time()
    plan = propose(cluster, PlannerPolicy(band=band))
    seconds = time.process_time() - began
    arrays = cluster_arrays(cluster)
    disk = broker_loads(arrays)[:, arrays.columns.of(Resource.DISK)[0]]
    added = (len(set(movement.new_replicas) - set(movement.old_replicas)) for movement in plan.movements)
    return {
        "name": name,
        "brokers": kind.brokers + kind.brokers_new,
        "partitions": kind.partitions,
        "before": max(plan.skew_before[resource]["max_over_mean"] for resource in BYTES),
        "after": max(plan.skew_after[resource]["max_over_mean"] for resource in BYTES),
        "leader": plan.skew_after["leader_bytes_in"]["max_over_mean"],
        "bound": max(plan.lower_bound[resource] for resource in BYTES),
        "moved": plan.bytes_to_move / disk.sum(),
        "least": least_bytes(cluster, band) / disk.sum(),
        "replicas": sum(added),
        "seconds": seconds,
        "movements": len(plan.movements),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **by_count_figures(cluster, seed, BYTES),
    }


def least_bytes(cluster: ClusterState, band: float) -> float:
    """Bytes that any plan must copy to bring disk into the band.

    What is above (1 + band) x mean and what draining brokers hold, or what is below (1 - band) x mean, whichever is
    more; and what dead brokers hold.
    """
    arrays = cluster_arrays(cluster)
    (column,) = arrays.columns.of(Resource.DISK)
    disk: Floats = broker_loads(arrays)[:, column]
    fair = disk.sum() * shares(arrays)[:, column]
    alive, draining = arrays.alive, ~arrays.alive & ~arrays.dead
    above = (disk - (1 + band) * fair)[alive].clip(0).sum() + disk[draining].sum()
    below = ((1 - band) * fair - disk)[alive].clip(0).sum()
    return float(max(above, below) + disk[arrays.dead].sum())


def _in_own_process(name: str, kind: Kind, seed: int, band: float) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (name, kind, seed, band))


if __name__ == "__main__":
    main()
