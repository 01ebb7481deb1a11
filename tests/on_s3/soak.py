"""All roles on S3 for an hour or as long as asked: objects, requests by process and memory, minute by minute.

Each process reaches the store by a proxy of its own that counts its requests. Two controls run: one holds the lease.
"""

import json
import os
import re
import tempfile
import time
import urllib.parse
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from streaming import tables
from tests.on_s3.objects import ObjectCounts, count_objects
from tests.on_s3.product import ROLES, Product, product_on_s3
from tests.s3 import Asked, proxy, s3_server

MINUTE_S = 60.0
SECTIONS = {"pipeline": {"driver_memory": "1g"}}
PLACE = re.compile(r"(tables|checkpoints)/([^/?&]+)")


@dataclass(slots=True)
class Requests:
    """Requests of one process: (`tables/NAME` or `checkpoints/NAME`, kind)."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, asked: Asked) -> None:
        """Count one."""
        place = PLACE.search(urllib.parse.unquote(asked.path))
        self.counts[("/".join(place.groups()) if place else "other", asked.kind)] += 1


def soak(minutes: float, rate: float, report: Path | None) -> None:
    """Run and print a line a minute; `report` gets all figures as JSON lines."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(s3_server())
        requests = {name: Requests() for name in ROLES}
        endpoints: dict[str, str | None] = {}
        for name, counted in requests.items():
            before = stack.enter_context(proxy(store))
            before.on_asked = counted.note
            endpoints[name] = before.url
        product = stack.enter_context(product_on_s3(home, store, endpoints, rate, SECTIONS))
        for name in ROLES:
            product.start(name)
        _watch(product, store, requests, minutes, report)


def _watch(product: Product, store: str, requests: dict[str, Requests], minutes: float, report: Path | None) -> None:
    began_s = time.monotonic()
    minute = 0
    before = {name: Counter(row.counts) for name, row in requests.items()}
    while minute < minutes:
        minute += 1
        time.sleep(max(0.0, began_s + minute * MINUTE_S - time.monotonic()))
        if product.ended():
            raise click.ClickException(f"ended: {product.ended()}, see {product.log('pipeline')}")
        line: dict[str, Any] = {
            "minute": minute,
            "rss_mib": {name: round(product.rss_mib(name)) for name in ROLES},
            "cpu_s": {name: round(product.cpu_s(name), 1) for name in ROLES},
            "requests": {
                name: {f"{area} {kind}": count for (area, kind), count in sorted((row.counts - before[name]).items())}
                for name, row in requests.items()
            },
            "objects": {name: counts.as_dict() for name, counts in count_objects(store).items()},
            "decided": _decided(tables.TableReader(product.settings.storage.tables)),
            "load_average": os.getloadavg()[0],
        }
        before = {name: Counter(row.counts) for name, row in requests.items()}
        if report is not None:
            with report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        click.echo(_line(line))


def _decided(reader: tables.TableReader) -> dict[str, dict[str, int]]:
    """How often each reason was decided on so far, and each event of executions seen."""
    return {
        "reasons": dict(Counter(row["reason"] for row in reader.rows("decision", columns=["reason"]))),
        "events": dict(Counter(row["event"] for row in reader.rows("execution", columns=["event"]))),
    }


def _line(line: dict[str, Any]) -> str:
    memory = ", ".join(f"{name} {value} MiB" for name, value in line["rss_mib"].items())
    asked = ", ".join(f"{name} {sum(counts.values())}" for name, counts in line["requests"].items())
    objects = ObjectCounts.total(line["objects"])
    decided = (
        ", ".join(f"{name} {count}" for row in line["decided"].values() for name, count in row.items()) or "nothing"
    )
    return (
        f"minute {line['minute']}: {memory}; requests: {asked}; objects: {objects}; decided: {decided}; "
        f"load {line['load_average']:.1f}"
    )
