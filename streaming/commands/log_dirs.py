"""What `rebalancer drain` and `undrain` do with one log dir: the plan that empties it, and its cordon on the broker."""

import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.carrying_out import show_and_carry_out
from streaming.commands.console import echo
from streaming.commands.live_cluster import live_cluster
from streaming.commands.options import settings_from
from streaming.errors import ClusterRequestFailed, RefusedForSafety, UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings

if TYPE_CHECKING:
    from assignor_core.disks import LogDirDescription, LogDirs
    from assignor_core.live import LiveCluster
    from assignor_core.log_dirs.planning import BrokerDisks, WithinBroker
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
    config_file: Path | None,
    assignments: tuple[str, ...],
    **how: Any,
) -> int:
    """Plan, show and, where asked to, cordon the log dir and move all that it holds to the broker's others.

    `how` goes to `show_and_carry_out`.
    """
    settings = settings_from(config_file, assignments)
    with live_cluster(settings) as cluster:
        proposed = _proposed(cluster, settings, broker, path)
    problems = proposed.plan.problems
    unfit = f"log dir {path} of broker {broker} can't be emptied: {'; '.join(problems)}" if problems else None
    arguments, prepare = f"{broker} --log-dir {path}", partial(_cordon_first, settings, broker, path)
    return show_and_carry_out(
        context,
        settings,
        proposed,
        arguments,
        unfit,
        prepare,
        config_file=config_file,
        assignments=assignments,
        **how,
    )


def _target(broker: int, path: str) -> str:
    """The log dir as the audit names it."""
    return f"{broker} {path}"


def _cordon_first(settings: Settings, broker: int, path: str) -> None:
    from streaming.commands.noted_acts import noted
    from streaming.serve.api.actions import Outcome

    done = Outcome("cordoned", f"broker {broker} puts no new replicas into {path} any more")
    with live_cluster(settings) as cluster, noted(settings, "drain", _target(broker, path), done) as act:
        if not cordon(cluster, broker, path, cordoned=True):
            unseen = f"broker {broker} does not show a cordon: it may still put new replicas into {path}"
            act.outcome = Outcome("not_cordoned", unseen)
    echo(act.outcome.detail, err=True)


def undrain_log_dir(broker: int, path: str, settings: Settings) -> int:
    """Let the broker put new replicas into the log dir again; raises RefusedForSafety where it does not."""
    from streaming.commands.noted_acts import noted
    from streaming.serve.api.actions import Outcome

    done = Outcome("undrained", f"broker {broker} may put new replicas into {path} again")
    with live_cluster(settings) as cluster:
        _row_of(cluster, broker, path)
        with noted(settings, "undrain", _target(broker, path), done):
            if not cordon(cluster, broker, path, cordoned=False):
                still = f"log dir {path} of broker {broker} is still cordoned: see its cordoned.log.dirs"
                raise RefusedForSafety(still)
    echo(done.detail, err=True)
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
    from assignor_core.log_dirs.planning import FillPolicy, empty
    from streaming.commands.noted_acts import keeping_plan

    live = cluster.describe()
    row = _row_of(cluster, broker, path)
    if row.is_offline:
        raise RefusedForSafety(f"log dir {path} of broker {broker} is offline: nothing can be copied from there")
    make = partial(empty, path=path, policy=FillPolicy(reserve=settings.planner.disk_reserve))
    keep = keeping_plan(settings, "drain", _target(broker, path), now_ms=clocks.now_ms())
    return keep_within(settings.kafka.cluster_name, live, cluster.log_dirs(), {broker}, make, keep=keep)


def keep_within(
    cluster_name: str,
    live: "LiveCluster",
    log_dirs: "LogDirs",
    brokers: Collection[int],
    make: "Callable[[BrokerDisks], WithinBroker]",
    *,
    excluded_topics: Collection[str] = (),
    keep: "Callable[[ProposedPlan], object]",
) -> "ProposedPlan":
    """What `make` plans for each of these brokers, as one plan, which `keep` stores if it moves anything."""
    from assignor_core.log_dirs.planning import propose_within

    proposed = propose_within(live, log_dirs, brokers, make, cluster_name=cluster_name, excluded_topics=excluded_topics)
    if proposed.plan.movement_count:
        keep(proposed)
    return proposed


def _row_of(cluster: "ControlledCluster", broker: int, path: str) -> "LogDirDescription":
    rows = cluster.log_dirs([broker], ()).get(broker, ())
    known = {row.path: row for row in rows}
    if not known:
        raise UsageProblem(f"broker {broker}: is not alive, or does not show its log dirs")
    if path not in known:
        raise UsageProblem(f"--log-dir {path}: broker {broker} has no such log dir, it has {', '.join(sorted(known))}")
    return known[path]
