"""The control that holds the lease is killed again and again: how long the other needs, in a folder and on S3.

Both are processes on one machine: with a namespace of process ids each they look to each other as if on two. The
brokers are a fleet without a JVM.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from streaming import tables
from streaming.settings import Settings, StorageSettings
from streaming.tables.object_stores import use_object_store
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.on_s3.product import Roles
from tests.s3 import BUCKET, CREDENTIALS, s3_server
from tests.waiting import until

CONTROLS = ("control", "stand-by")
SIZE = FleetSize(brokers=3, partitions=60, groups=2)
POLL_S = 0.1


def take_over(kills: int) -> None:
    """Print the times of each kind, each a process or two."""
    os.environ.update(CREDENTIALS)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(s3_server())
        fleet = stack.enter_context(FleetProcess(partial(synthetic_fleet, SIZE)))
        for kind, place, endpoint in (
            ("folder", str(home / "tables"), None),
            ("S3", f"s3://{BUCKET}/take-over/tables", store),
        ):
            for apart in (CONTROLS, ()):
                settings = _settings(fleet, f"{place}-{len(apart)}", endpoint)
                use_object_store(settings.storage)
                folder = home / f"{kind}-{len(apart)}"
                roles = Roles(folder, settings, dict.fromkeys(CONTROLS, endpoint), apart=apart)
                folder.mkdir()
                times = _times(roles, kills)
                where = "as if on two machines" if apart else "on one machine"
                click.echo(f"{kind}, {where}: lease after {_shown(times)} s; load average {os.getloadavg()[0]:.1f}")
        use_object_store(StorageSettings())


def _settings(fleet: FleetProcess, place: str, endpoint: str | None) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "main", "bootstrap_servers": fleet.bootstrap_servers},
            "storage": {"tables": place, "s3_endpoint": endpoint},
            "control": {"mode": "apply"},
        }
    )


def _times(roles: Roles, kills: int) -> list[float]:
    """From each kill to the lease's first row of the other."""
    root = roles.settings.storage.tables
    times: list[float] = []
    try:
        for name in CONTROLS:
            roles.start(name)
        for _ in range(kills):
            holder = until("one works", lambda: _with(roles, "control_started"))
            other = next(name for name in CONTROLS if name != holder)
            until("one stands by", lambda other=other: "standing_by" in roles.log_since_start(other))  # type: ignore[misc]
            (before,) = tables.read(root, "lease")
            began_s = time.monotonic()
            roles.kill(holder)
            until("the lease is taken", lambda before=before: _holder(root) != before["holder_id"], pause_s=POLL_S)  # type: ignore[misc]
            times.append(time.monotonic() - began_s)
            until("the other works", lambda other=other: "control_started" in roles.log_since_start(other))  # type: ignore[misc]
            roles.start(holder)
    finally:
        roles.end_all()
    return times


def _with(roles: Roles, event: str) -> str | None:
    return next((name for name in CONTROLS if event in roles.log_since_start(name)), None)


def _holder(root: str) -> str:
    (row,) = tables.read(root, "lease")
    return str(row["holder_id"])


def _shown(seconds: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in seconds)
