"""`rebalancer backtest --plans`: recorded hours replayed with real plans and moves, several policies side by side."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from assignor_core.what_if import History, Replay
from assignor_core.wording import counted
from streaming.commands.options import settings_from
from streaming.commands.plan_price import duration_text
from streaming.commands.whole_files import write_whole
from streaming.errors import UsageProblem
from streaming.settings import Settings

POLICIES_MAX = 10
Replayed = Sequence[tuple[str, Settings, Replay]]


def backtest_plans(
    config_file: Path | None,
    assignments: tuple[str, ...],
    policies: tuple[str, ...],
    history_for: Callable[[Settings], History],
    png_file: Path | None,
    *,
    kind: str,
    as_json: bool,
) -> int:
    """Prints what each policy would have done in the hours of `history_for`, which are of this `kind`.

    Each policy is "KEY=VALUE KEY=VALUE" besides the settings of the command.
    """
    from streaming.commands.what_if_text import replay_data
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
        _print(history, kind, runs)
    return 0


def _print(history: History, kind: str, runs: Replayed) -> None:
    from streaming.commands.console import echo, print_whole

    hours = counted(len(history.hour_start_ms), f"{kind} hour", f"{kind} hours")
    echo(f"{hours} of {counted(len(history.brokers), 'broker', 'brokers')}")
    columns = (
        "policy",
        "plans",
        "given up",
        "movements",
        "GB copied",
        "in skew",
        "even after",
        "max/mean, worst",
        "last",
    )
    print_whole(columns, [_row(*run) for run in runs])


def _row(name: str, settings: Settings, replay: Replay) -> tuple[str, ...]:
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
