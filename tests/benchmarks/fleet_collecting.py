"""The collector's rows of `bench_fleet`: a look at everything with all records sent, and what trouble does to it."""

import cProfile
import pstats
import resource
from functools import partial

import click

from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.run import Collector
from streaming.collect.shards import Shard
from streaming.settings import Settings
from tests.benchmarks.fleet_measuring import Figures, measured
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess, freeze_broker, refuse_requests, resume_broker
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.tables_in_memory import in_memory

BETWEEN_MS = 10_000
"""Logical time of the brokers from one look to the next."""
REFUSED_SHARE = 0.05
HUNG_LOOKS = 3
"""The client asks any broker for metadata and coordinators: it matters whether it is the one that hangs."""
TIMEOUT_MS = 15_000
PATIENT_TIMEOUT_MS = 120_000
"""Without trouble nobody hangs, but the one process of all brokers may be slow."""
PROFILE_LINES = 45


class Looks:
    """A collector on a fleet: each look is measured, and then time passes on the brokers."""

    def __init__(self, fleet: FleetProcess, collector: Collector) -> None:
        self._fleet = fleet
        self._collector = collector
        self._now_ms = 0

    def look(self, which: str) -> Figures:
        """One look: seconds, CPU seconds of this process and of the fleet's, records, requests."""
        records, cost = measured(self._fleet, lambda: self._collector.sample(now_ms=self._now_ms))
        figures: Figures = {
            "look_s": cost.wall_s,
            "look_cpu_s": cost.cpu_s,
            "fleet_cpu_s": cost.fleet_cpu_s,
            "records_per_look": records,
            "requests_per_look": cost.requests.total(),
        }
        click.echo(f"look, {which}: {', '.join(f'{name} {value:,.2f}' for name, value in figures.items())}")
        self._fleet.run(Fleet.advance, BETWEEN_MS)
        self._now_ms += BETWEEN_MS
        return figures


def collect(size: FleetSize, *, repeats: int, trouble: bool = True, profile: bool = False, shards: int = 1) -> Figures:
    """The collector's figures: means of `repeats` looks, after one that connects and has no rates yet.

    With `shards`, those of the first of so many collectors; the others do not run.
    """
    with FleetProcess(partial(synthetic_fleet, size)) as fleet:
        settings = Settings.model_validate(
            {
                "kafka": {
                    "cluster_name": "fleet",
                    "bootstrap_servers": fleet.bootstrap_servers,
                    "request_timeout_ms": TIMEOUT_MS if trouble else PATIENT_TIMEOUT_MS,
                },
                "collect": {
                    "jmx_endpoints": fleet.jmx_endpoints,
                    "groups_max": max(1, size.groups),
                    "shard": f"1/{shards}",
                },
                "storage": {"tables": in_memory("fleet")},
            }
        )
        with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
            looks = Looks(fleet, collector)
            first = looks.look("the first")
            taken = [looks.look("all is well") for _ in range(repeats)]
            figures = {name: sum(row[name] for row in taken) / repeats for name in taken[0]}
            figures["requests_per_broker"] = figures["requests_per_look"] / size.brokers
            figures["collect_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            if profile:
                _profile(looks)
            figures |= {"first_look_s": first["look_s"], **_reading(fleet, settings)}
            if trouble:
                figures |= _in_trouble(fleet, looks, size.brokers)
            figures["fleet_rss_mib"] = fleet.usage().rss_bytes / 2**20
    return figures


def _reading(fleet: FleetProcess, settings: Settings) -> Figures:
    """A look of which nothing is made: no rates, no records. It knows the log starts of the look before."""
    admin = admin_client(settings.kafka)
    shard = Shard.of(settings.collect.shard)
    look = partial(observe, BrokerReads(admin), GroupSampler(shard), settings.collect, now_ms=0, shard=shard)
    before = look().partitions
    admin.traffic.taken()
    _, cost = measured(fleet, lambda: look(before=before))
    admin.close()
    traffic = admin.traffic.taken().values()
    return {
        "read_s": cost.wall_s,
        "read_cpu_s": cost.cpu_s,
        "requests_to_read": cost.requests.total(),
        "sent_kib_per_broker": sum(row.sent_bytes for row in traffic) / len(traffic) / 1024,
        "received_kib_per_broker": sum(row.received_bytes for row in traffic) / len(traffic) / 1024,
        "received_kib_per_broker_max": max(row.received_bytes for row in traffic) / 1024,
    }


def _in_trouble(fleet: FleetProcess, looks: Looks, frozen: int) -> Figures:
    """A look with one broker that hangs, and one with some requests refused."""
    fleet.run(refuse_requests, REFUSED_SHARE)
    refused = looks.look("requests are refused")
    fleet.run(refuse_requests, 0.0)
    fleet.run(freeze_broker, frozen)
    hung = [looks.look("one broker hangs") for _ in range(HUNG_LOOKS)]
    fleet.run(resume_broker, frozen)
    return {
        "look_refused_s": refused["look_s"],
        "records_refused": refused["records_per_look"],
        "look_hung_s": sum(row["look_s"] for row in hung) / HUNG_LOOKS,
        "look_hung_s_max": max(row["look_s"] for row in hung),
        "records_hung": sum(row["records_per_look"] for row in hung) / HUNG_LOOKS,
    }


def _profile(looks: Looks) -> None:
    with cProfile.Profile() as profiler:
        looks.look("profiled")
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(PROFILE_LINES)
