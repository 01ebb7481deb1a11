"""`rebalancer backtest`: the trigger over the load that the tables have kept, under these settings or others.

With --plans real plans and moves, several policies side by side; with --decisions those of the past made again.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.errors import NothingToPlanOn
from assignor_core.wording import counted
from streaming.commands.console import echo, print_whole, write_whole
from streaming.commands.in_words import duration_text
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import HOUR_MS, Settings, TriggerSettings

if TYPE_CHECKING:
    from assignor_core.replays.history import RecordedHistory
    from assignor_core.replays.placed_cluster import ReplayedHours
    from assignor_core.replays.traces import Trace
    from streaming.control.replaying import DecidedAgain

HOURS_MAX = 24 * 366 * 10
GENERATED_HOURS_MAX = 24 * 7 * 8
"""A generated window of a broker takes some 10 us."""
POLICIES_MAX = 10
SHOWN_MAX = 20
"""Most decisions that the table shows; --json prints all."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Load that nobody recorded; of windows of a minute, of six brokers."""

    scenario: str
    hours: float
    noise: float | None
    """Noise of the load; None for that of the scenarios."""
    seed: int

    def trace(self, window_ms: int) -> "Trace":
        """Returns the scenario's trace; raises InputError for an unknown scenario, UsageProblem for other windows."""
        from assignor_core.replays.traces import NOISE, WINDOW_MS, generate

        if window_ms != WINDOW_MS:
            raise UsageProblem(f"pipeline.window_ms: found {window_ms}, allowed with --generate is {WINDOW_MS}")
        windows = max(1, round(self.hours * HOUR_MS / WINDOW_MS))
        noise = NOISE if self.noise is None else self.noise
        return generate(self.scenario, seed=self.seed, windows=windows, noise=noise)

    def history(self, window_ms: int) -> "RecordedHistory":
        """Returns the scenario's trace as a history for real plans; raises as `trace` does."""
        from assignor_core.replays.history import history_of

        return history_of(self.trace(window_ms))


@click.command()
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True, max=HOURS_MAX),
    default=168.0,
    show_default=True,
    help="Replay this many of the newest hours.",
)
@click.option(
    "--plans", "with_plans", is_flag=True, help="Make real plans of the recorded hours, and simulate their movements."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="'KEY=VALUE ...'",
    help="With --plans: compare these settings with the others; repeatable.",
)
@click.option("--png", "png_file", type=click.Path(path_type=Path), help="With --plans: write a picture.")
@click.option("--decisions", is_flag=True, help="Make the recorded decisions again; show which differ now.")
@click.option("--generate", "scenario", metavar="SCENARIO", help="Generate load instead of reading the recorded load.")
@click.option(
    "--noise",
    type=click.FloatRange(0, 1),
    help="With --generate: standard deviation of a broker's load [default: 0.06].",
)
@click.option("--seed", type=int, help="With --generate: another seed gives another load [default: 1].")
@settings_options
@json_option
def backtest(
    hours: float,
    scenario: str | None,
    noise: float | None,
    seed: int | None,
    with_plans: bool,
    decisions: bool,
    policies: tuple[str, ...],
    png_file: Path | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show how many plans the trigger would have made, how many needlessly, and how long skew would have lasted.

    Try other settings with --set, for instance --set trigger.enter_ratio=1.2. Each plan is assumed to even out the
    load of its windows; recorded load includes what was really moved.
    With --plans, the planner makes each plan, and a simulated cluster carries out its movements at the throttle.
    With --decisions, each recorded decision is made again, and nothing moves but what was really moved.
    With --generate, load is generated (diurnal, bursts, "long bursts", "daily bursts", gaps, swing, steps or drift),
    to try settings before there is a history.
    """
    if math.isnan(hours):
        raise UsageProblem(f"--hours {hours}: is not a number, allowed is above 0 to {HOURS_MAX}")
    made_up = _made_up(scenario, hours, noise, seed)
    since_ms = clocks.now_ms() - round(hours * HOUR_MS)
    if decisions and (with_plans or made_up):
        raise UsageProblem(f"{'--plans' if with_plans else '--generate'} and --decisions can't go together")
    if with_plans:
        history_for = partial(_history, made_up=made_up, since_ms=since_ms)
        kind = "generated" if made_up else "recorded"
        return backtest_plans(config_file, assignments, policies, history_for, png_file, kind=kind, as_json=as_json)
    if policies or png_file is not None:
        raise UsageProblem(f"{'--policy' if policies else '--png'}: goes with --plans only")
    settings = settings_from(config_file, assignments)
    if decisions:
        return backtest_decisions(settings, since_ms, as_json=as_json)
    trace = made_up.trace(settings.pipeline.window_ms) if made_up else _recorded(settings, hours, since_ms)
    return _replay(settings, trace, as_json)


def _made_up(scenario: str | None, hours: float, noise: float | None, seed: int | None) -> Generated | None:
    """What is generated, if anything; raises UsageProblem."""
    if scenario is None:
        if noise is not None or seed is not None:
            raise UsageProblem(f"{'--seed' if noise is None else '--noise'}: goes with --generate only")
        return None
    if hours > GENERATED_HOURS_MAX:
        raise UsageProblem(f"--hours {hours:g}: allowed with --generate are at most {GENERATED_HOURS_MAX}")
    return Generated(scenario, hours, noise, 1 if seed is None else seed)


def _recorded(settings: Settings, hours: float, since_ms: int) -> "Trace":
    """Closed windows since then; raises NothingToPlanOn where there is none."""
    from streaming.control.replaying import recorded_trace
    from streaming.control.wiring import window_tables_of
    from streaming.views.broker_windows import capacities_of

    capacities = capacities_of(settings.planner)
    trace = recorded_trace(window_tables_of(settings), settings.trigger.resources, capacities, since_ms=since_ms)
    if not trace.window_end_ms:
        raise NothingToPlanOn(f"--hours {hours:g}: found no closed window in {settings.storage.tables}")
    return trace


def _history(settings: Settings, *, made_up: Generated | None, since_ms: int) -> "RecordedHistory":
    """The generated hours, or those recorded since then; raises InputError, UsageProblem, NothingToPlanOn."""
    if made_up:
        return made_up.history(settings.pipeline.window_ms)
    from streaming.tables import TableReader
    from streaming.views.recorded_hours import read_history

    return read_history(TableReader(settings.storage.tables), settings, since_ms=since_ms)


def _replay(settings: Settings, trace: "Trace", as_json: bool) -> int:
    """Prints what the trigger would have done."""
    from assignor_core.replays.recorded_windows import simulate
    from streaming.control.policies import decision_policy

    report = simulate(trace, decision_policy(settings, ()), settings.planner.windows)
    if as_json:
        click.echo(json.dumps({"brokers": len(trace.brokers), **asdict(report)}))
        return 0
    minutes = counted(round(report.windows_in_skew * settings.pipeline.window_ms / 60_000), "minute", "minutes")
    windows, brokers = counted(report.windows, "window", "windows"), counted(len(trace.brokers), "broker", "brokers")
    plans, gave_back = (
        counted(report.triggers, "plan", "plans"),
        "that gave load back to a broker relieved within the day before",
    )
    for line in (
        f"{windows} of {brokers}, {_policy_text(settings.trigger)}",
        f"{plans}, {report.false_triggers} of them false: the skew would have passed by itself",
        f"{counted(report.flaps, 'time', 'times')} skewed again within an hour of having been even",
        f"{counted(report.reversals, 'plan', 'plans')} {gave_back}",
        f"{minutes} in skew, {report.load_moved:.2f} of the cluster's load moved in all",
    ):
        click.echo(line)
    return 0


def _policy_text(trigger: TriggerSettings) -> str:
    thresholds = f"enter {trigger.enter_ratio}, exit {trigger.exit_ratio}"
    windows = f"{trigger.windows_over} of {trigger.windows_considered} windows"
    return f"{thresholds}, {windows}, cooldown {trigger.cooldown_ms / 60_000:g} min"


def backtest_plans(
    config_file: Path | None,
    assignments: tuple[str, ...],
    policies: tuple[str, ...],
    history_for: "Callable[[Settings], RecordedHistory]",
    png_file: Path | None,
    *,
    kind: str,
    as_json: bool,
) -> int:
    """Prints what each policy would have done in the hours of `history_for`, which are of this `kind`.

    Each policy is "KEY=VALUE KEY=VALUE" besides the settings of the command.
    """
    from streaming.commands.what_if import replay_data
    from streaming.control.what_if import replayed

    if len(policies) > POLICIES_MAX:
        raise UsageProblem(f"--policy: found {len(policies)}, allowed are at most {POLICIES_MAX}")
    named = [("as set", settings_from(config_file, assignments))]
    named += [(text, settings_from(config_file, (*assignments, *text.split()))) for text in policies]
    first = named[0][1]
    history = history_for(first)
    runs = [(name, settings, replayed(history, settings)[0]) for name, settings in named]
    if png_file is not None:
        from streaming.simulate.plot import png_of
        from streaming.simulate.replay_plot import plot_replays

        drawn = [(name, replay) for name, _, replay in runs]
        figure = plot_replays(drawn, history.cluster_name, enter_ratio=first.trigger.enter_ratio)
        write_whole("--png", png_file, png_of(figure))
    if as_json:
        data: list[dict[str, Any]] = [{"policy": name, **replay_data(replay)} for name, _, replay in runs]
        click.echo(json.dumps({"brokers": len(history.brokers), "policies": data}))
    else:
        _print_plans(history, kind, runs)
    return 0


def _print_plans(history: "RecordedHistory", kind: str, runs: "Sequence[tuple[str, Settings, ReplayedHours]]") -> None:
    hours = counted(len(history.hour_start_ms), f"{kind} hour", f"{kind} hours")
    echo(f"{hours} of {counted(len(history.brokers), 'broker', 'brokers')}")
    columns = (
        "policy", "plans", "given up", "movements", "GB copied", "in skew", "even after", "max/mean, worst", "last",
    )  # fmt: skip
    print_whole(columns, [_row(*run) for run in runs])


def _row(name: str, settings: Settings, replay: "ReplayedHours") -> tuple[str, ...]:
    resources = settings.trigger.resources
    after = replay.even_after_ms
    return (
        name,
        str(len(replay.plans)),
        str(sum(plan.given_up for plan in replay.plans)),
        str(sum(plan.movements for plan in replay.plans)),
        f"{replay.copied_bytes / 1e9:,.2f}",
        duration_text(replay.windows_in_skew * settings.pipeline.window_ms),
        "never" if after is None else duration_text(after),
        f"{max(replay.max_over_mean[resource].max() for resource in resources):.2f}",
        f"{max(replay.max_over_mean[resource][-1] for resource in resources):.2f}",
    )


def backtest_decisions(settings: Settings, since_ms: int, *, as_json: bool) -> int:
    """Prints how many decisions are the same, and those that are not."""
    from streaming.control.policies import decision_policy
    from streaming.control.replaying import decisions_again

    rows = decisions_again(settings, decision_policy(settings, ()), since_ms=since_ms)
    if not rows:
        raise NothingToPlanOn(f"--decisions: found none in that time in {settings.storage.tables}")
    differing = [row for row in rows if not row.is_same]
    if as_json:
        same = len(rows) - len(differing)
        data = {"decisions": len(rows), "same": same, "different": list(map(_data, differing))}
        click.echo(json.dumps(data))
    else:
        _print_decisions(rows, differing)
    return 0


def _print_decisions(rows: "Sequence[DecidedAgain]", differing: "Sequence[DecidedAgain]") -> None:
    same = counted(len(rows) - len(differing), "of them is", "of them are")
    echo(f"{counted(len(rows), 'decision', 'decisions')}, {same} the same now")
    if differing:
        shown = ("decided_at", "reason_then", "reason_now", "detail_now")
        listed = [[data[name] for name in shown] for data in map(_data, differing[:SHOWN_MAX])]
        print_whole(("decided at", "then", "now", "detail now"), listed)
    if len(differing) > SHOWN_MAX:
        echo(f"... and {len(differing) - SHOWN_MAX} more; --json prints all")


def _data(row: "DecidedAgain") -> dict[str, Any]:
    from streaming.tables import utc

    return {
        "decided_at": utc(row.then.decided_ms).isoformat(timespec="seconds"),
        "verdict_then": row.then.verdict.value,
        "reason_then": row.then.reason.value,
        "detail_then": row.then.detail,
        "verdict_now": row.now.verdict.value,
        "reason_now": row.now.reason.value,
        "detail_now": row.now.detail,
    }
