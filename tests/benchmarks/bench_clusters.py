"""Several clusters in one deployment: what one more of them costs in shared processes, by number of clusters.

make bench-clusters
make bench-clusters ARGS="--part roles --clusters 1 --clusters 10"
make bench-clusters ARGS="--part pipeline --clusters 20 --trigger 60 --warm-up 15"

`roles`: small idle clusters on the simulated wire (`tests/fleet`) with a collect and a control process each, and with
one of each for all. `pipeline`: one Spark reads the records of fleets from one embedded broker, each cluster from
topics of its own. Fleets, broker and sender are processes apart from what is measured. Prints one JSON object a line.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import psutil
import yaml

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.cluster.record_sender import RecordSender
from streaming.demo.brokers import EmbeddedCluster
from streaming.runtime import processes
from streaming.runtime.logs import configure_logging
from streaming.settings import Settings
from tests.benchmarks.fleet_measuring import Figures
from tests.benchmarks.fleet_pipeline import (
    Records,
    cpu_used_s,
    memory_mib,
    processes_of,
    records_of_a_look,
    records_read,
    send_look,
)
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.pipeline.running import kill
from tests.topics import wait_until_known
from tests.waiting import until

SMALL = FleetSize(brokers=3, partitions=60, groups=3, partitions_per_topic=20)
SIZE = FleetSize(brokers=30, partitions=3_000, groups=60)
MEBIBYTE = 2**20
MINUTE_S = 60.0
WARM_UP_S = 25.0
"""Two samples and more after the start of a role."""
LOOK_S = 20.0
"""From one sample of a cluster to the next, in the part `pipeline`."""
LOOKS, LOOKS_A_MINUTE = 6, round(MINUTE_S / LOOK_S)
CAUGHT_UP_S = 180.0


def main_of_pipelines(file: Path) -> int:
    """Run the pipelines of all clusters that the file has settings of: they share one broker, which the settings of a
    deployment would refuse.
    """
    from streaming.pipeline.run import run_pipelines

    clusters = {name: Settings.model_validate(each) for name, each in json.loads(file.read_text()).items()}
    configure_logging(next(iter(clusters.values())).log)
    return run_pipelines(clusters, None, lambda _adjust: None)


def roles(count: int) -> Figures:
    """CPU seconds a minute and memory (PSS) of collect and control for so many idle clusters, apart and together."""
    figures: Figures = {"clusters": count}
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        build = partial(synthetic_fleet, SMALL)
        fleets = {f"c{number}": stack.enter_context(FleetProcess(build)) for number in range(count)}
        for role in ("collect", "control"):
            for together in (False, True):
                file = _settings_file(Path(home) / f"{role}-{together}", fleets, together=together)
                chosen = [[]] if together and count > 1 else [["--cluster", name] for name in fleets]
                begun = [
                    processes.start(
                        [sys.executable, "-m", "streaming", role, "--config", str(file), *options],
                        log=file.parent / f"{number}.log",
                    )
                    for number, options in enumerate(chosen)
                ]
                try:
                    figures |= _cost(begun, f"{role}_{'shared' if together else 'own'}")
                finally:
                    for each in begun:
                        each.kill()
                        each.wait()
    return figures


def _settings_file(folder: Path, fleets: Mapping[str, FleetProcess], *, together: bool) -> Path:
    folder.mkdir()
    file = folder / "rebalancer.yaml"
    own = {"own_process": not together}
    content = {
        "storage": {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")},
        "collect": own,
        "control": own,
        "clusters": {
            name: {
                "kafka": {"bootstrap_servers": fleet.bootstrap_servers},
                "collect": {"jmx_endpoints": {str(broker): url for broker, url in fleet.jmx_endpoints.items()}},
            }
            for name, fleet in fleets.items()
        },
    }
    file.write_text(yaml.safe_dump(content))
    return file


def _cost(begun: list[subprocess.Popen[bytes]], name: str) -> Figures:
    watched = [psutil.Process(each.pid) for each in begun]
    time.sleep(WARM_UP_S)
    before_s = sum(map(cpu_used_s, watched))
    began_s = time.monotonic()
    time.sleep(MINUTE_S)
    used_s, took_s = sum(map(cpu_used_s, watched)) - before_s, time.monotonic() - began_s
    return {
        f"{name}_cpu_s_per_min": round(used_s / took_s * MINUTE_S, 2),
        f"{name}_pss_mib": round(sum(each.memory_full_info().pss for each in watched) / MEBIBYTE, 1),
        f"{name}_rss_mib": round(sum(each.memory_info().rss for each in watched) / MEBIBYTE, 1),
    }


def pipeline(count: int, trigger_s: float, warm_up_looks: int) -> dict[str, Any]:
    """CPU seconds a minute and memory of one Spark for so many clusters of 30 brokers and 3,000 partitions, after so
    many looks: Java compiles what runs often for many minutes.
    """
    look_ms, records = records_of_a_look(SIZE, LOOK_S)
    with tempfile.TemporaryDirectory() as home, EmbeddedCluster(Path(home) / "kafka", broker_count=1) as brokers:
        clusters = {f"c{number}": _settings(Path(home), brokers, f"c{number}", trigger_s) for number in range(count)}
        _make_topics(clusters)
        file = Path(home) / "clusters.json"
        file.write_text(json.dumps({name: each.model_dump(mode="json") for name, each in clusters.items()}))
        command = [sys.executable, "-m", "tests.benchmarks.bench_clusters", "--run-pipelines", str(file)]
        begun = processes.start(command, log=Path(home) / "pipeline.log")
        try:
            figures = _measured(clusters, psutil.Process(begun.pid), look_ms, records, warm_up_looks)
        except BaseException:
            click.echo((Path(home) / "pipeline.log").read_text()[-5_000:], err=True)
            raise
        finally:
            kill(begun)
    return {"clusters": count, "trigger_s": trigger_s, **figures}


def _settings(home: Path, brokers: EmbeddedCluster, name: str, trigger_s: float) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": name, "bootstrap_servers": brokers.bootstrap_servers},
            "topics": {"byte_rate": f"rate-{name}", "consumer_lag": f"lag-{name}"},
            "storage": {"tables": f"{home}/tables/{name}", "checkpoints": f"{home}/checkpoints/{name}"},
            "pipeline": {"trigger_interval_ms": round(1000 * trigger_s)},
        }
    )


def _make_topics(clusters: Mapping[str, Settings]) -> None:
    topics = [each.topics for each in clusters.values()]
    names = [name for each in topics for name in (each.byte_rate, each.consumer_lag)]
    admin = admin_client(next(iter(clusters.values())).kafka)
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1} for name in names})
    wait_until_known(admin, names)
    admin.close()


def _of_cluster(settings: Settings, records: Mapping[str, Records]) -> dict[str, Records]:
    """The records of one sample as the collector of this cluster sends them."""
    topics = {
        "rebalancer.byte-rate": settings.topics.byte_rate,
        "rebalancer.consumer-lag": settings.topics.consumer_lag,
    }
    before, name = b'"fleet"', f'"{settings.kafka.cluster_name}"'.encode()
    return {
        topics[topic]: [(key, value.replace(before, name)) for key, value in rows] for topic, rows in records.items()
    }


def _measured(
    clusters: Mapping[str, Settings],
    running: psutil.Process,
    look_ms: int,
    records: Mapping[str, Records],
    warm_up_looks: int,
) -> dict[str, Any]:
    sender = RecordSender(next(iter(clusters.values())).kafka)
    own = {name: _of_cluster(settings, records) for name, settings in clusters.items()}
    of_a_look = sum(map(len, records.values()))
    first = next(iter(clusters.values()))
    until("the pipelines have begun", lambda: tables.read(first.storage.tables, "partition_load") is not None)
    began_s, before_s, counted_s, rss, used = time.monotonic(), 0.0, 0.0, [0.0], list[float]()
    for look in range(warm_up_looks + LOOKS):
        used.append(cpu_used_s(running))
        if look == warm_up_looks:
            before_s, counted_s = used[-1], time.monotonic()
        for rows in own.values():
            assert not send_look(sender, look_ms, rows), "records were not acknowledged"
        rss.append(memory_mib(running))
        time.sleep(max(0.0, began_s + (look + 1) * LOOK_S - time.monotonic()))
    used_s, took_s = cpu_used_s(running) - before_s, time.monotonic() - counted_s
    pss = sum(each.memory_full_info().pss for each in processes_of(running)) / MEBIBYTE
    ended_s, total = time.monotonic(), (warm_up_looks + LOOKS) * of_a_look
    left = {name for name, each in clusters.items() if records_read(each) < total}
    while left and time.monotonic() < ended_s + CAUGHT_UP_S:
        time.sleep(1.0)
        left = {name for name in left if records_read(clusters[name]) < total}
    return {
        "records_per_look": of_a_look,
        "stretched": round(took_s / (LOOKS * LOOK_S), 2),
        "cpu_s_per_min": round(used_s / took_s * MINUTE_S, 1),
        "cpu_s_per_min_of_stream": round(used_s / (LOOKS * LOOK_S) * MINUTE_S, 1),
        "cpu_s_of_each_minute": [round(after - before) for before, after in pairwise(used[::LOOKS_A_MINUTE])],
        "clusters_behind": len(left),
        "caught_up_s": round(time.monotonic() - ended_s, 1),
        "rss_mib": round(max(rss)),
        "pss_mib": round(pss),
        "windows": statistics.fmean(_windows(each) for each in clusters.values()),
    }


def _windows(settings: Settings) -> int:
    rows = tables.read(settings.storage.tables, "broker_load", columns=["window_start"])
    return len({row["window_start"] for row in rows})


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(("roles", "pipeline")), default=("roles", "pipeline"))
@click.option("--clusters", "counts", multiple=True, type=int, default=(1, 5), show_default=True)
@click.option("--trigger", "trigger_s", default=60.0, show_default=True, help="Seconds between batches: pipeline.")
@click.option("--warm-up", "warm_up_min", type=float, default=1.5, show_default=True, help="Minutes before: pipeline.")
@click.option("--run-pipelines", "file", type=click.Path(path_type=Path), hidden=True)
def main(
    parts: tuple[str, ...], counts: tuple[int, ...], trigger_s: float, warm_up_min: float, file: Path | None
) -> None:
    """Print the figures of each part and number of clusters."""
    if file is not None:
        raise SystemExit(main_of_pipelines(file))
    for part in parts:
        for count in counts:
            warm_up_looks = round(warm_up_min * LOOKS_A_MINUTE)
            figures: dict[str, Any] = roles(count) if part == "roles" else pipeline(count, trigger_s, warm_up_looks)
            click.echo(json.dumps({"part": part, **figures, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
