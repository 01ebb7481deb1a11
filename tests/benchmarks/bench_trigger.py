"""Trigger policies beside one another on weeks of generated load: the tables of docs/measurements/trigger.md.

`make bench-trigger` prints them; a test compares the row of the defaults with the document.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import click

from assignor_core.deciding.policy import Detector, TriggerPolicy
from assignor_core.replays import Report, World, generate, simulate
from assignor_core.replays.traces import DAY_WINDOWS, NOISE, SCENARIOS, WEEK_WINDOWS, WINDOW_MS
from tests.benchmarks.foresight import SHARES, foresight_row

SEEDS = (1, 2)


def _windows(**changed: Any) -> TriggerPolicy:
    """A policy that knows no noise: k of n windows are enough."""
    return TriggerPolicy(detector=Detector.WINDOWS, **changed)


POLICIES: Mapping[str, TriggerPolicy] = {
    "the defaults": TriggerPolicy(),
    "without recurring load": TriggerPolicy(recurring_load=False),
    "3 of 5 alone": _windows(),
    "one window of one": _windows(windows_over=1, windows_considered=1),
    "2 of 3": _windows(windows_over=2, windows_considered=3),
    "5 of 5": _windows(windows_over=5),
    "10 of 15": _windows(windows_over=10, windows_considered=15),
    "no hysteresis (exit 1.299)": _windows(exit_ratio=1.299),
    "no cooldown": _windows(cooldown_ms=0),
    "cooldown 1 h": _windows(cooldown_ms=3_600_000),
    "enter 1.10, exit 1.05": _windows(enter_ratio=1.10, exit_ratio=1.05),
    "enter 1.20, exit 1.10": _windows(enter_ratio=1.20, exit_ratio=1.10),
    "enter 1.50, exit 1.25": _windows(enter_ratio=1.50, exit_ratio=1.25),
}

COLUMNS = ("diurnal", "gaps", "bursts", "long bursts", "swing", "steps", "drift")


def figures_of(
    policy: TriggerPolicy,
    *,
    noise: float = NOISE,
    seeds: Sequence[int] = SEEDS,
    scenarios: Sequence[str] = COLUMNS,
    windows: int = WEEK_WINDOWS,
) -> dict[str, list[Report]]:
    """Reports by scenario, one per seed, each of so many windows in a row."""

    def report(scenario: str, seed: int) -> Report:
        return simulate(generate(scenario, seed=seed, noise=noise, windows=windows), policy, World())

    return {scenario: [report(scenario, seed) for seed in seeds] for scenario in scenarios}


def row_of(name: str, reports: Mapping[str, list[Report]]) -> str:
    """One line of the table: plans / false ones / flaps by scenario, windows to find a step, hours in skew."""
    cells = [
        f"{_sum(rows, 'triggers')} / {_sum(rows, 'false_triggers')} / {_sum(rows, 'flaps')}"
        for rows in reports.values()
    ]
    delays = [delays for report in reports.get("steps", ()) for delays in report.found_after_windows]
    worst = "never" if None in delays else str(max((value for value in delays if value is not None), default="-"))
    skewed_h = sum(_sum(reports.get(name, ()), "windows_in_skew") for name in ("steps", "drift")) / 60
    return f"| {name} | {' | '.join(cells)} | {worst} | {skewed_h:.1f} |"


def why_of(scenario: str, reports: Sequence[Report]) -> str:
    """Hours in skew of one scenario by what was decided then, minutes by seed, when steps were found, days of flaps."""
    windows = sum((Counter(report.skewed_by_reason) for report in reports), Counter[str]())
    by_reason = ", ".join(f"{reason} {count / 60:.1f}" for reason, count in windows.most_common())
    line = f"  {scenario}: {windows.total() / 60:.1f} h in skew" + (f" ({by_reason})" if by_reason else "")
    if windows:
        line += f"; minutes by seed: {', '.join(str(report.windows_in_skew) for report in reports)}"
    delays = [delay for report in reports for delay in report.found_after_windows if delay is not None]
    if delays:
        line += f"; steps found after {median(delays):g} windows (median)"
    days = sorted(1 + (end_ms - 1) // (DAY_WINDOWS * WINDOW_MS) for report in reports for end_ms in report.flapped_ms)
    return f"{line}; flaps on days {', '.join(str(day) for day in days)}" if days else line


def _sum(reports: Iterable[Report], name: str) -> int:
    return sum(getattr(report, name) for report in reports)


@click.command()
@click.option("--noise", type=float, default=NOISE, show_default=True, help="Standard deviation of a broker's load.")
@click.option("--seed", "seeds", type=int, multiple=True, default=SEEDS, show_default=True, help="A week for each.")
@click.option("--policy", "names", type=click.Choice(list(POLICIES)), multiple=True, default=list(POLICIES))
@click.option("--scenario", "scenarios", type=click.Choice(list(SCENARIOS)), multiple=True, default=COLUMNS)
@click.option("--weeks", type=click.IntRange(1, 52), default=1, show_default=True, help="In a row, for each seed.")
@click.option("--hours", type=click.IntRange(1), help="In place of weeks.")
@click.option("--windows", "k_of_n", type=(int, int), help="K of N windows must be over the threshold, in each policy.")
@click.option(
    "--why", is_flag=True, help="Below each row: hours in skew by what was decided then, and when flaps came."
)
@click.option("--foresight", is_flag=True, help="Instead: a drift that is mended by who knows loads without noise.")
def main(
    noise: float,
    seeds: tuple[int, ...],
    names: tuple[str, ...],
    scenarios: tuple[str, ...],
    weeks: int,
    hours: int | None,
    k_of_n: tuple[int, int] | None,
    why: bool,
    foresight: bool,
) -> None:
    """Print the table for one level of noise."""
    if foresight:
        click.echo("| plan at a share of | plans | hours in skew |\n|---|---|---|")
        for share in SHARES:
            click.echo(foresight_row(share, noise=noise, seeds=seeds))
        return
    windows = weeks * WEEK_WINDOWS if hours is None else hours * DAY_WINDOWS // 24
    click.echo(f"| policy | {' | '.join(scenarios)} | step found after | hours in skew |")
    click.echo("|---" * (len(scenarios) + 3) + "|")
    for name in names:
        policy = POLICIES[name]
        if k_of_n is not None:
            policy = replace(policy, windows_over=k_of_n[0], windows_considered=k_of_n[1])
        reports = figures_of(policy, noise=noise, seeds=seeds, scenarios=scenarios, windows=windows)
        click.echo(row_of(name, reports))
        if why:
            for scenario, rows in reports.items():
                click.echo(why_of(scenario, rows))


if __name__ == "__main__":
    main()
