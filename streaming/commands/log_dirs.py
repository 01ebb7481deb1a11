"""What `rebalancer drain` and `undrain` do with one log dir: the plan that empties it, and its cordon on the broker."""

import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.commands.apply import apply
from streaming.commands.console import echo
from streaming.commands.options import in_use, settings_from
from streaming.commands.plan_model import show
from streaming.errors import ClusterRequestFailed, RefusedForSafety, UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assignor_core.disks import LogDirDescription
    from assignor_core.proposed_plan import ProposedPlan
    from streaming.cluster.ports import ControlledCluster

CORDON_LOOKS = 20
CORDON_PAUSE_S = 0.5
"""Brokers hear of a changed setting a moment later."""


def drain_log_dir(
    context: click.Context,
    broker: int,
    path: str,
    *,
    carry_out: bool,
    yes: bool,
    as_json: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Plan, show and, where asked to, cordon the log dir and move all that it holds to the broker's others."""
    settings = settings_from(config_file, assignments)
    with _cluster(settings) as cluster:
        proposed = _proposed(cluster, settings, broker, path)
        show(proposed, out_file=None, as_json=as_json)
        moves, problems = proposed.plan.movement_count, proposed.plan.problems
        if not carry_out:
            command = f"rebalancer {context.info_name} {broker} --log-dir {path} --apply{in_use()}"
            echo(f"nothing has been changed; to carry it out: {command}", err=True)
            return 0
        if problems:
            raise RefusedForSafety(f"log dir {path} of broker {broker} can't be emptied: {'; '.join(problems)}")
        if not yes and not click.confirm(f"Carry out these {moves} movements on the live cluster?", err=True):
            return 3
        if cordon(cluster, broker, path, cordoned=True):
            echo(f"broker {broker} puts no new replicas into {path} any more", err=True)
        else:
            echo(f"broker {broker} does not show a cordon: it may still put new replicas into {path}", err=True)
    if not moves:
        return 0
    answer: int = context.invoke(
        apply, plan=proposed.plan.plan_id, config_file=config_file, assignments=assignments, yes=True, revalidate=False
    )
    return answer


def undrain_log_dir(broker: int, path: str, settings: Settings) -> int:
    """Let the broker put new replicas into the log dir again; raises RefusedForSafety where it does not."""
    with _cluster(settings) as cluster:
        _row_of(cluster, broker, path)
        if not cordon(cluster, broker, path, cordoned=False):
            raise RefusedForSafety(f"log dir {path} of broker {broker} is still cordoned: see its cordoned.log.dirs")
    echo(f"broker {broker} may put new replicas into {path} again", err=True)
    return 0


def cordon(
    cluster: "ControlledCluster",
    broker: int,
    path: str,
    *,
    cordoned: bool,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Set or remove the cordon (KIP-1066); whether the broker shows it so. One before Kafka 4.3 knows none."""
    if _row_of(cluster, broker, path).is_cordoned == cordoned:
        return True
    try:
        cluster.cordon_log_dir(broker, path, cordoned=cordoned)
    except ClusterRequestFailed as error:
        echo(f"broker {broker} refuses the cordon: {error}", err=True)
        return False
    for _ in range(CORDON_LOOKS):
        if _row_of(cluster, broker, path).is_cordoned == cordoned:
            return True
        pause(CORDON_PAUSE_S)
    return False


def _proposed(cluster: "ControlledCluster", settings: Settings, broker: int, path: str) -> "ProposedPlan":
    """The plan, kept in the tables; raises UsageProblem, RefusedForSafety, NothingToPlanOn."""
    from assignor_core.deciding.log_dirs import propose_within
    from assignor_core.log_dirs.planning import FillPolicy, empty
    from streaming.control.wiring import journal_of

    live = cluster.describe()
    row = _row_of(cluster, broker, path)
    if row.is_offline:
        raise RefusedForSafety(f"log dir {path} of broker {broker} is offline: nothing can be copied from there")
    make = partial(empty, path=path, policy=FillPolicy(reserve=settings.planner.disk_reserve))
    name = settings.kafka.cluster_name
    proposed = propose_within(live, cluster.log_dirs(), {broker}, make, cluster_name=name)
    if proposed.plan.movement_count:
        journal_of(settings).write_plan(proposed, decision=None, now_ms=clocks.now_ms())
    return proposed


def _row_of(cluster: "ControlledCluster", broker: int, path: str) -> "LogDirDescription":
    rows = cluster.log_dirs([broker], ()).get(broker, ())
    known = {row.path: row for row in rows}
    if not known:
        raise UsageProblem(f"broker {broker}: is not alive, or does not show its log dirs")
    if path not in known:
        raise UsageProblem(f"--log-dir {path}: broker {broker} has no such log dir, it has {', '.join(sorted(known))}")
    return known[path]


@contextmanager
def _cluster(settings: Settings) -> "Iterator[ControlledCluster]":
    from streaming.cluster.clients import admin_client
    from streaming.control.identity import cluster_of

    admin = admin_client(settings.kafka)
    try:
        yield cluster_of(admin, settings)
    finally:
        admin.close()
