"""`rebalancer backtest`: the trigger over the load that the tables have kept, under these settings or others."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import click

from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import HOUR_MS, TriggerSettings

HOURS_MAX = 24 * 366 * 10


@click.command()
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True, max=HOURS_MAX),
    default=168.0,
    show_default=True,
    help="So far back.",
)
@click.option(
    "--plans", "with_plans", is_flag=True, help="Make real plans of the recorded hours, and simulate their moves."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="'KEY=VALUE ...'",
    help="With --plans: these settings beside the others; repeatable.",
)
@click.option("--png", "png_file", type=click.Path(path_type=Path), help="With --plans: write a picture.")
@click.option("--decisions", is_flag=True, help="Make the decisions of that time again; show which differ now.")
@settings_options
@json_option
def backtest(
    hours: float,
    with_plans: bool,
    decisions: bool,
    policies: tuple[str, ...],
    png_file: Path | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> int:
    """How many plans there would have been, how many in vain, and how long skew would have lasted.

    Try other settings with --set, for instance --set trigger.enter_ratio=1.2. A plan is taken to even out what it
    rests on; what was really done in that time is part of the load as it was.
    With --plans the planner makes each plan, and its moves are carried out at the throttle on the simulated cluster.
    With --decisions nothing is moved but what was really moved: each decision of that time is made again.
    """
    from assignor_core.deciding.simulation import World, simulate
    from streaming.control.policies import decision_policy
    from streaming.control.replaying import recorded_trace
    from streaming.control.wiring import window_tables_of
    from streaming.views.broker_windows import capacities_of

    if math.isnan(hours):
        raise UsageProblem(f"--hours {hours}: is no number, allowed is above 0 to {HOURS_MAX}")
    since_ms = clocks.now_ms() - round(hours * HOUR_MS)
    if with_plans and decisions:
        raise UsageProblem("--plans and --decisions can't go together")
    if with_plans:
        from streaming.commands.backtest_plans import backtest_plans

        return backtest_plans(config_file, assignments, policies, since_ms, png_file, as_json=as_json)
    if policies or png_file is not None:
        raise UsageProblem(f"{'--policy' if policies else '--png'}: goes with --plans only")
    settings = settings_from(config_file, assignments)
    if decisions:
        from streaming.commands.backtest_decisions import backtest_decisions

        return backtest_decisions(settings, since_ms, as_json=as_json)
    capacities = capacities_of(settings.planner)
    trace = recorded_trace(window_tables_of(settings), settings.trigger.resources, capacities, since_ms=since_ms)
    if not trace.window_end_ms:
        raise UsageProblem(f"--hours {hours:g}: found no closed window in {settings.storage.tables}")
    report = simulate(trace, decision_policy(settings, ()), World(planner_windows=settings.planner.windows))
    if as_json:
        click.echo(json.dumps({"brokers": len(trace.brokers), **asdict(report)}))
        return 0
    minutes = report.windows_in_skew * settings.pipeline.window_ms / 60_000
    for line in (
        f"{report.windows} windows of {len(trace.brokers)} brokers, {_policy_text(settings.trigger)}",
        f"{report.triggers} plans, {report.false_triggers} of them false: the skew would have passed by itself",
        f"{report.flaps} times skewed again within an hour of having been even",
        f"{report.reversals} plans that gave load back to a broker relieved within the day before",
        f"{minutes:.0f} minutes in skew, {report.load_moved:.2f} of the cluster's load moved in all",
    ):
        click.echo(line)
    return 0


def _policy_text(trigger: TriggerSettings) -> str:
    thresholds = f"enter {trigger.enter_ratio}, exit {trigger.exit_ratio}"
    windows = f"{trigger.windows_over} of {trigger.windows_considered} windows"
    return f"{thresholds}, {windows}, cooldown {trigger.cooldown_ms / 60_000:g} min"
