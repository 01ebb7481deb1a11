"""A plan from a cluster model in JSON: reading the model, the options of the policy, and showing the result.

Knows no cluster and no table: only JSON in, JSON or text out, and the core in between. Imports stay light.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from assignor_core.errors import InputError
from assignor_core.model import cluster_from_json
from assignor_core.plan import plan_to_json
from assignor_core.planner import PlannerPolicy, Statistic, propose

STANDARD_INPUT = "-"
ROWS_SHOWN = 20

Command = Callable[..., Any]


def policy_options(command: Command) -> Command:
    """Adds the options that `policy_from` reads."""
    for option in reversed(_POLICY_OPTIONS):
        command = option(command)
    return command


def policy_from(knobs: dict[str, Any]) -> PlannerPolicy:
    """The policy of the options of `policy_options`.

    With --drain alone only the drained brokers' replicas move: a small plan, not a whole rebalance.
    """
    drain = frozenset(knobs["drain"])
    return PlannerPolicy(
        band=knobs["band"],
        statistic=Statistic(knobs["statistic"]),
        leaders_only=knobs["leaders_only"],
        only_brokers=frozenset(knobs["only_brokers"]) | drain,
        only_topics=frozenset(knobs["only_topics"]),
        excluded_topics=frozenset(knobs["excluded_topics"]),
        excluded_brokers=frozenset(knobs["excluded_brokers"]),
        drain=drain,
        add=frozenset(knobs["add"]),
        movements_max=knobs["movements_max"],
        bytes_max=knobs["bytes_max"],
        inflow_max=knobs["inflow_max"],
        throttle_bytes_per_sec=knobs["throttle_bytes_per_sec"],
    )


_POLICY_OPTIONS = (
    click.option("--band", type=float, default=0.03, show_default=True, help="Most above a fair share, as a fraction."),
    click.option(
        "--only-broker", "only_brokers", type=int, multiple=True, help="Relieve only this broker; repeatable."
    ),
    click.option("--only-topic", "only_topics", multiple=True, help="Move only this topic; repeatable."),
    click.option("--exclude-topic", "excluded_topics", multiple=True, help="Never touch this topic; repeatable."),
    click.option("--exclude-broker", "excluded_brokers", type=int, multiple=True, help="Leave it alone; repeatable."),
    click.option("--drain", type=int, multiple=True, help="Empty this broker, and move nothing else; repeatable."),
    click.option("--add", type=int, multiple=True, help="Move replicas only to this broker; repeatable."),
    click.option(
        "--statistic",
        type=click.Choice([statistic.value for statistic in Statistic]),
        default=Statistic.WINDOWS.value,
        show_default=True,
        help="Of loads by window: plan on each of them, or on one figure.",
    ),
    click.option("--leaders-only", is_flag=True, help="Change leadership only: no bytes are copied."),
    click.option("--max-movements", "movements_max", type=int, help="Most partitions changed."),
    click.option("--max-bytes", "bytes_max", type=float, help="Most bytes copied."),
    click.option("--max-inflow", "inflow_max", type=float, help="Most bytes copied to any one broker."),
    click.option("--throttle", "throttle_bytes_per_sec", type=float, help="Bytes/s per broker, to estimate durations."),
)


def read_model(model_file: str) -> str:
    """Text of a model file; raises InputError in one line."""
    try:
        raw = sys.stdin.buffer.read() if model_file == STANDARD_INPUT else Path(model_file).read_bytes()
        return raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"model {model_file}: {error}") from None


def plan_from_model(text: str, policy: PlannerPolicy) -> dict[str, Any]:
    """The contract's "Result of plan" for a model in JSON; raises InputError in one line."""
    # Millions of small objects that all stay alive: walking them again and again takes longer than making them.
    collecting = gc.isenabled()
    gc.disable()
    try:
        try:
            obj = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"model: found no valid JSON: {error}") from None
        cluster = cluster_from_json(obj)
        del obj
        began = time.perf_counter()
        plan = propose(cluster, policy)
        elapsed_ms = (time.perf_counter() - began) * 1000
        return {**plan_to_json(plan), "elapsed_ms": elapsed_ms}
    finally:
        if collecting:
            gc.enable()


def show(result: dict[str, Any], *, out_file: Path | None, as_json: bool) -> None:
    """Print a result as JSON or as a short text, and write it to `out_file` if given."""
    if out_file:
        try:
            out_file.write_text(json.dumps(result) + "\n")
        except OSError as error:
            raise InputError(f"--out {out_file}: {error}") from None
    if as_json:
        click.echo(json.dumps(result))
    else:
        _print_text(result)


def _print_text(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    skew = Table("resource", "max/mean before", "after", "no less than", title=f"Plan {result['plan_id'][:12]}")
    for name, before in result["skew_before"].items():
        after = result["skew_after"][name]["max_over_mean"]
        figures = (before["max_over_mean"], after, result["lower_bound"].get(name, 1.0))
        skew.add_row(name, *(f"{figure:.3f}" for figure in figures))
    console.print(skew)
    moved = Table("partition", "from", "to", "MB", "why")
    for movement in result["movements"][:ROWS_SHOWN]:
        name = f"{movement['topic']}-{movement['partition']}"
        megabytes = f"{movement['bytes_to_move'] / 1e6:.1f}"
        moved.add_row(name, str(movement["old_replicas"]), str(movement["new_replicas"]), megabytes, movement["reason"])
    console.print(moved)
    hidden = len(result["movements"]) - ROWS_SHOWN
    if hidden > 0:
        console.print(f"... and {hidden} more (--json shows all)")
    console.print(
        f"{len(result['movements'])} movements, {result['bytes_to_move'] / 1e9:.2f} GB to copy, "
        f"{len(result['waves'])} waves, planned in {result['elapsed_ms'] / 1000:.2f} s"
    )
    for line in (*result["problems"], *result["diagnosis"]):
        console.print(f"- {line}")
