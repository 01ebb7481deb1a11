"""A plan from a cluster model in JSON: reading the model, the options of the policy, and showing the result.

Knows no cluster and no table: only JSON in, JSON or text out, and the core in between. Imports stay light.
"""

import difflib
import gc
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.errors import InputError
from assignor_core.model import BrokerState, cluster_from_json
from assignor_core.planner import PlannerPolicy, Statistic, propose
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.wording import bytes_text, counted, first_named
from streaming.commands.broker_names import BROKERS_SHOWN
from streaming.commands.plan_price import accuracy_line, duration_text, price_texts
from streaming.commands.whole_files import write_whole

if TYPE_CHECKING:
    from rich.console import Console

    from assignor_core.live import LiveCluster

STANDARD_INPUT = "-"
ROWS_SHOWN = 20
NO_SETTINGS = PlannerPolicy()

Command = Callable[..., Any]
PolicyFor = Callable[[frozenset[str], Mapping[int, bool]], PlannerPolicy]


def policy_options(command: Command) -> Command:
    """Adds the options that `policy_from` reads."""
    for option in reversed(_POLICY_OPTIONS):
        command = option(command)
    return command


def policy_from(
    knobs: dict[str, Any],
    settings: PlannerPolicy = NO_SETTINGS,
    topics: Collection[str] | None = None,
    brokers: Mapping[int, bool] | None = None,
) -> PlannerPolicy:
    """The policy of the options of `policy_options`; where they say nothing, that of the `settings`. Raises InputError
    for options that contradict each other, and for one that names none of `topics` or `brokers`, where those are known.

    `brokers` tells of each whether it is alive. With --drain alone only the drained brokers' replicas move: a small
    plan, not a whole rebalance.
    """
    _check_options(knobs)
    if topics is not None:
        _check_topics(knobs, settings, topics)
    if brokers is not None:
        _check_brokers(knobs, brokers)
    drain = frozenset(knobs["drain"])
    given = {name: knobs[name] for name in _AS_IN_SETTINGS if knobs[name] is not None}
    if knobs["statistic"] is not None:
        given["statistic"] = Statistic(knobs["statistic"])
    return replace(
        settings,
        leaders_only=knobs["leaders_only"],
        only_brokers=frozenset(knobs["only_brokers"]) | drain,
        only_topics=frozenset(knobs["only_topics"]),
        excluded_topics=frozenset(knobs["excluded_topics"]) | settings.excluded_topics,
        excluded_brokers=frozenset(knobs["excluded_brokers"]),
        drain=drain,
        add=frozenset(knobs["add"]),
        **given,
    )


def _check_options(knobs: dict[str, Any]) -> None:
    """A plan that nothing may be moved by would look like a cluster that needs none."""
    for one, other in CONTRADICTIONS:
        both = sorted(set(knobs[one]) & set(knobs[other]))
        if both:
            raise InputError(f"{OPTIONS[one]} {both[0]} and {OPTIONS[other]} {both[0]} contradict each other")


def _check_topics(knobs: dict[str, Any], settings: PlannerPolicy, topics: Collection[str]) -> None:
    for name in ("only_topics", "excluded_topics"):
        for topic in sorted(set(knobs[name]) - set(topics)):
            close = difflib.get_close_matches(topic, topics, n=1, cutoff=0.6)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise InputError(f"{OPTIONS[name]}: there is no topic {topic!r}{meant}")
    for topic in sorted(set(knobs["only_topics"]) & settings.excluded_topics):
        raise InputError(f"{OPTIONS['only_topics']} {topic}: planner.excluded_topics keeps it from moving")


def _check_brokers(knobs: dict[str, Any], brokers: Mapping[int, bool]) -> None:
    for name in ("only_brokers", "excluded_brokers", "drain", "add"):
        for broker in sorted(set(knobs[name]) - brokers.keys()):
            known = first_named(sorted(brokers), BROKERS_SHOWN)
            raise InputError(f"{OPTIONS[name]} {broker}: there is no such broker, allowed are {known}")
    if knobs["drain"] and not any(alive for broker, alive in brokers.items() if broker not in knobs["drain"]):
        raise InputError(f"{OPTIONS['drain']}: names every broker that is alive: none is left to take what they hold")


def brokers_of(live: "LiveCluster") -> dict[int, bool]:
    """Brokers that are alive or hold replicas, and whether they are alive."""
    return {**dict.fromkeys(live.hosts_away(), False), **dict.fromkeys(live.broker_racks, True)}


OPTIONS = {
    "only_topics": "--only-topic",
    "excluded_topics": "--exclude-topic",
    "only_brokers": "--only-broker",
    "excluded_brokers": "--exclude-broker",
    "drain": "--drain",
    "add": "--add",
}
CONTRADICTIONS = (
    ("only_topics", "excluded_topics"),
    ("only_brokers", "excluded_brokers"),
    ("drain", "excluded_brokers"),
    ("add", "excluded_brokers"),
    ("drain", "add"),
)

_AS_IN_SETTINGS = ("band", "movements_max", "bytes_max", "inflow_max", "throttle_bytes_per_sec")
"""What the settings hold unless an option gives it."""

_POLICY_OPTIONS = (
    click.option("--band", type=float, help="Most above a fair share, as a fraction.  [default: planner.band]"),
    click.option(
        "--only-broker", "only_brokers", type=int, multiple=True, help="Relieve only this broker; repeatable."
    ),
    click.option("--only-topic", "only_topics", multiple=True, help="Move only this topic; repeatable."),
    click.option(
        "--exclude-topic",
        "excluded_topics",
        multiple=True,
        help="Never touch this topic, besides planner.excluded_topics; repeatable.",
    ),
    click.option("--exclude-broker", "excluded_brokers", type=int, multiple=True, help="Leave it alone; repeatable."),
    click.option("--drain", type=int, multiple=True, help="Empty this broker, and move nothing else; repeatable."),
    click.option("--add", type=int, multiple=True, help="Move replicas only to this broker; repeatable."),
    click.option(
        "--statistic",
        type=click.Choice([statistic.value for statistic in Statistic]),
        help="Of loads by window: plan on each of them, or on one figure.  [default: planner.statistic]",
    ),
    click.option("--leaders-only", is_flag=True, help="Change leadership only: no bytes are copied."),
    click.option(
        "--max-movements", "movements_max", type=int, help="Most partitions changed.  [default: planner.movements_max]"
    ),
    click.option("--max-bytes", "bytes_max", type=float, help="Most bytes copied.  [default: planner.bytes_max]"),
    click.option(
        "--max-inflow",
        "inflow_max",
        type=float,
        help="Most bytes copied to any one broker.  [default: planner.inflow_max]",
    ),
    click.option(
        "--throttle",
        "throttle_bytes_per_sec",
        type=float,
        help="Bytes/s per broker, to estimate durations.  [default: control.throttle_bytes_per_sec]",
    ),
)


def read_model(model_file: str) -> str:
    """Text of a model file; raises InputError in one line."""
    try:
        raw = sys.stdin.buffer.read() if model_file == STANDARD_INPUT else Path(model_file).read_bytes()
        return raw.decode()
    except OSError as error:
        raise InputError(f"model {model_file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"model {model_file}: is not UTF-8 text") from None


def plan_from_model(text: str, policy_for: PolicyFor) -> ProposedPlan:
    """A plan for a model in JSON, by the policy of its topics and brokers; raises InputError."""
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
        policy = policy_for(
            frozenset(partition.topic for partition in cluster.partitions),
            {broker.broker_id: broker.state is BrokerState.ALIVE for broker in cluster.brokers},
        )
        began = time.perf_counter()
        plan = propose(cluster, policy, proves_least=True)
        elapsed_ms = (time.perf_counter() - began) * 1000
        return ProposedPlan(plan, elapsed_ms=elapsed_ms)
    finally:
        if collecting:
            gc.enable()


def show(
    proposed: ProposedPlan, *, out_file: Path | None, as_json: bool, accuracy: Mapping[str, Any] | None = None
) -> None:
    """Print a plan as JSON or as a short text, and write its JSON to `out_file` if given.

    `accuracy` is how far the promises of earlier plans were off (`accuracy_data`); None where that is not known.
    """
    content = proposed.to_json() if accuracy is None else {**proposed.to_json(), "accuracy": accuracy}
    if out_file:
        write_whole("--out", out_file, f"{json.dumps(content)}\n".encode())
    if as_json:
        click.echo(json.dumps(content))
    else:
        _print_text(proposed, accuracy)


def _print_text(proposed: ProposedPlan, accuracy: Mapping[str, Any] | None) -> None:
    from rich.table import Table

    from streaming.commands.console import console

    to, plan = console(), proposed.plan
    skew = Table("resource", "max/mean before", "after", "no less than", title=f"Plan {plan.plan_id[:12]}")
    for name, before in plan.skew_before.items():
        after = plan.skew_after[name]["max_over_mean"]
        figures = (before["max_over_mean"], after, plan.lower_bound.get(name, 1.0))
        skew.add_row(name, *(f"{figure:.3f}" for figure in figures))
    to.print(skew)
    moved = Table("partition", "from", "to", "copies", "why")
    for movement in plan.movements[:ROWS_SHOWN]:
        name = f"{movement.topic}-{movement.partition}"
        replicas = (str(list(movement.old_replicas)), str(list(movement.new_replicas)))
        moved.add_row(name, *replicas, bytes_text(movement.bytes_to_move), movement.reason)
    for inner in plan.log_dir_movements[:ROWS_SHOWN]:
        name = f"{inner.topic}-{inner.partition} on broker {inner.broker}"
        moved.add_row(name, inner.old_log_dir, inner.new_log_dir, bytes_text(inner.bytes_to_move), inner.reason)
    to.print(moved)
    hidden = plan.movement_count - ROWS_SHOWN
    if hidden > 0:
        to.print(f"... and {hidden} more (--json shows all)")
    to.print(
        f"{counted(plan.movement_count, 'movement', 'movements')}, "
        f"{bytes_text(plan.bytes_to_move)} to copy, {counted(len(plan.waves), 'wave', 'waves')}, "
        f"planned in {proposed.elapsed_ms / 1000:.2f} s"
    )
    _print_price(proposed, to)
    own_error = accuracy_line(accuracy)
    if own_error is not None:
        to.print(own_error)
    for line in (*plan.problems, *plan.diagnosis):
        to.print(f"- {line}")


def _print_price(proposed: ProposedPlan, to: "Console") -> None:
    """What each broker copies and when, how long it takes, and what would bring most of it."""
    from rich.table import Table

    price = proposed.to_json()
    rows = list(_wave_rows(price["schedule"]))
    if rows:
        table = Table("wave", "starts after", "takes", "broker", "receives", "sends")
        for row in rows[:ROWS_SHOWN]:
            table.add_row(*row)
        to.print(table)
    if len(rows) > ROWS_SHOWN:
        to.print(f"... and {len(rows) - ROWS_SHOWN} more (--json shows all)")
    for line in price_texts(price, whole_bytes=proposed.plan.bytes_to_move):
        to.print(line)


def _wave_rows(schedule: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """A row for each broker of each wave; one for a wave that copies nothing, if others do."""
    if not any(wave["brokers"] for wave in schedule):
        return
    for number, wave in enumerate(schedule, start=1):
        times = ["" if wave[key] is None else duration_text(wave[key]) for key in ("starts_after_ms", "duration_ms")]
        for row in wave["brokers"]:
            figures = (bytes_text(row[key]) for key in ("received_bytes", "sent_bytes"))
            yield str(number), *times, str(row["broker"]), *figures
        if not wave["brokers"]:
            yield str(number), *times, "none", bytes_text(0), bytes_text(0)
