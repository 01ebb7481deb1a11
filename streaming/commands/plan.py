"""`rebalancer plan`: a plan from a cluster model, or from the newest windows and the live cluster."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.lag.reasons import duration
from assignor_core.planner import PlannerPolicy
from streaming.commands.live_cluster import live_cluster
from streaming.commands.options import flags_of, force_option, in_use, json_option, settings_from, settings_options
from streaming.commands.plan_model import brokers_of, plan_from_model, policy_from, policy_options, read_model, show
from streaming.commands.window_age import loads_lines
from streaming.config import load_effective
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import PlannerSettings, Settings

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster
    from assignor_core.proposed_plan import ProposedPlan
    from streaming.cluster.ports import ClusterReader


@click.command()
@click.option(
    "--model", "model_file", metavar="FILE", help="Cluster model, JSON; - is standard input. No Kafka needed."
)
@click.option("--out", "out_file", type=click.Path(path_type=Path), help="Write the result there as well.")
@json_option
@click.option(
    "--log-dirs", is_flag=True, help="Even out the log dirs within brokers (of --only-broker, or all); nothing else."
)
@force_option
@settings_options
@policy_options
def plan(
    model_file: str | None,
    log_dirs: bool,
    on_old_windows: bool,
    out_file: Path | None,
    as_json: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
    **knobs: Any,
) -> int:
    """A plan from the newest closed windows and the live placement, or from a cluster model; moves nothing.

    A plan from the live cluster is kept in the tables: `rebalancer apply PLAN_ID` carries it out.
    """
    policy_from(knobs)  # a wrong option is refused before anything is read
    if on_old_windows and (log_dirs or model_file is not None):
        raise UsageProblem("--force: is for plans that rest on windows of load, and this one rests on none")
    if log_dirs:
        _check_log_dirs_alone(model_file, knobs)
    elif model_file is not None:
        show(_plan_model(model_file, config_file, assignments, knobs), out_file=out_file, as_json=as_json)
        return 0
    settings, now_ms = settings_from(config_file, assignments), clocks.now_ms()
    accuracy = None
    if log_dirs:
        result = _plan_log_dirs(settings, knobs, now_ms=now_ms)
    else:
        result, accuracy = _plan_live(settings, knobs, now_ms=now_ms, on_old_windows=on_old_windows)
    show(
        result,
        out_file=out_file,
        as_json=as_json,
        accuracy=accuracy,
        about=tuple(loads_lines(result, settings.pipeline.window_ms, now_ms=now_ms)),
        end=_how_to_apply(result, settings.planner, now_ms=now_ms),
    )
    return 0


def _how_to_apply(proposed: "ProposedPlan", planner: PlannerSettings, *, now_ms: int) -> tuple[str, ...]:
    """The command that carries out a plan of this moment, and how long it is valid; nothing if it moves nothing."""
    from streaming.tables import utc

    if not proposed.plan.movement_count:
        return ()
    expires = utc(now_ms + planner.plan_ttl_ms)
    return (
        f"To carry it out before {expires:%H:%M} UTC (in {duration(planner.plan_ttl_ms / 1000)}):",
        f"  rebalancer apply {proposed.plan.plan_id[:12]}{in_use()}",
    )


def _plan_model(
    model_file: str, config_file: Path | None, assignments: tuple[str, ...], knobs: dict[str, Any]
) -> "ProposedPlan":
    """Limits and aims of the settings count here too. Topics that are never moved do only where
    somebody has named them: the default is the internal ones, and whoever puts those into a model means them.
    """
    from streaming.control.policies import policy_of_plans

    effective = load_effective(config_file, flags_of(assignments), os.environ)
    named = effective.origin("planner.excluded_topics") != "default"

    def policy_for(topics: frozenset[str], brokers: Mapping[int, bool]) -> PlannerPolicy:
        return policy_from(knobs, policy_of_plans(effective.settings, topics if named else ()), topics, brokers)

    return plan_from_model(read_model(model_file), policy_for)


def _check_log_dirs_alone(model_file: str | None, knobs: dict[str, Any]) -> None:
    """An option that counts for nothing would be taken to have counted; raises UsageProblem."""
    if model_file is not None:
        raise UsageProblem("--log-dirs: brokers are asked how full their log dirs are, so it can't go with --model")
    options = {param.name: param.opts[0] for param in click.get_current_context().command.params}
    others = [options[name] for name, value in knobs.items() if value not in (None, (), False)]
    others = [option for option in others if option != "--only-broker"]
    if others:
        raise UsageProblem(f"--log-dirs: moves replicas within brokers, so it can't go with {' or '.join(others)}")


def _plan_log_dirs(settings: Settings, knobs: dict[str, Any], *, now_ms: int) -> "ProposedPlan":
    with live_cluster(settings) as cluster:
        return plan_log_dirs_on(cluster, settings, frozenset(knobs["only_brokers"]), now_ms=now_ms)


def plan_log_dirs_on(
    cluster: "ClusterReader", settings: Settings, only_brokers: frozenset[int], *, now_ms: int
) -> "ProposedPlan":
    """The plan that evens out log dirs of these brokers (of all where there are none), kept in the tables.

    Raises UsageProblem for a broker that does not show several log dirs.
    """
    from dataclasses import replace
    from functools import partial

    from assignor_core.log_dirs.planning import FillPolicy, even_out
    from streaming.commands.log_dirs import keep_within
    from streaming.commands.noted_acts import keeping_plan
    from streaming.control.policies import policy_of_plans

    live, shown = cluster.describe(), cluster.log_dirs()
    several = {broker for broker, rows in shown.items() if len(rows) > 1}
    unfit = sorted(only_brokers - several)
    if unfit:
        named = ", ".join(map(str, sorted(several))) or "none"
        raise UsageProblem(f"--only-broker {unfit[0]}: shows no two log dirs, allowed are {named}")
    excluded = policy_of_plans(settings, {topic for topic, _ in live.partitions}).excluded_topics
    make = partial(even_out, policy=FillPolicy(reserve=settings.planner.disk_reserve))
    keep = keeping_plan(settings, "plan", now_ms=now_ms)
    name, brokers = settings.kafka.cluster_name, only_brokers or several
    made = keep_within(name, live, shown, brokers, make, excluded_topics=excluded, keep=keep)
    if several:
        return made
    nothing = "no broker shows more than one log dir: there is nothing to move between"
    return replace(made, plan=replace(made.plan, diagnosis=(*made.plan.diagnosis, nothing)))


def _plan_live(
    settings: Settings, knobs: dict[str, Any], *, now_ms: int, on_old_windows: bool
) -> tuple["ProposedPlan", dict[str, Any] | None]:
    """The plan, and how far the promises of earlier ones were off."""
    from streaming.views.accuracy import accuracy_beside_plan

    with live_cluster(settings) as cluster:
        proposed = plan_on(cluster, settings, knobs, now_ms=now_ms, on_old_windows=on_old_windows)
        return proposed, accuracy_beside_plan(settings)


def plan_on(
    cluster: "ClusterReader", settings: Settings, knobs: dict[str, Any], *, now_ms: int, on_old_windows: bool = False
) -> "ProposedPlan":
    """The plan for the live `cluster` that control would make, but for what the options say; kept in the tables."""
    from streaming.commands.noted_acts import keeping_plan
    from streaming.control.planning import propose_and_keep
    from streaming.control.policies import policy_of_plans
    from streaming.control.wiring import window_tables_of

    def policy_for(live: "LiveCluster") -> PlannerPolicy:
        topics = {topic for topic, _ in live.partitions}
        return policy_from(knobs, policy_of_plans(settings, topics), topics, brokers_of(live))

    return propose_and_keep(
        cluster,
        window_tables_of(settings),
        settings.planner,
        keep=keeping_plan(settings, "plan", now_ms=now_ms),
        now_ms=now_ms,
        policy_for=policy_for,
        on_old_windows=on_old_windows,
    )
