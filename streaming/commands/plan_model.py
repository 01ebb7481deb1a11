"""A plan from a cluster model in JSON: reading the model, the options of the policy, and showing the result.

Knows no cluster and no table: only JSON in, JSON or text out, and the core in between. Imports stay light.
"""

import difflib
import gc
import json
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.errors import InputError
from assignor_core.model import BrokerState, cluster_from_json
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.wording import first_named
from streaming.commands.broker_names import BROKERS_SHOWN
from streaming.commands.plan_text import print_plan
from streaming.commands.whole_files import write_whole

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster

STANDARD_INPUT = "-"
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

    `brokers` tells of each whether it is alive. With --drain alone only the drained brokers' replicas move, by the
    rules of `rebalancer drain`: internal topics too, and only options are budgets, not the settings.
    """
    _check_options(knobs)
    if knobs["drain"]:
        settings = settings.for_relief(frozenset(knobs["drain"]))
    if topics is not None:
        _check_topics(knobs, settings, topics)
    if brokers is not None:
        _check_brokers(knobs, brokers)
    drain = frozenset(knobs["drain"])
    given = {name: knobs[name] for name in _AS_IN_SETTINGS if knobs[name] is not None}
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

_AS_IN_SETTINGS = (
    "band", "count_band", "replicas_max", "keep_racks", "movements_max", "bytes_max", "inflow_max",
    "throttle_bytes_per_sec",
)  # fmt: skip
"""What the settings hold unless an option gives it."""

_POLICY_OPTIONS = (
    click.option("--band", type=float, help="Most above a fair share, as a fraction.  [default: planner.band]"),
    click.option(
        "--count-band",
        type=float,
        help="The same for the number of leaders and replicas, a soft limit.  [default: planner.count_band]",
    ),
    click.option(
        "--max-replicas",
        "replicas_max",
        type=int,
        help="Most replicas on any one broker.  [default: planner.replicas_max]",
    ),
    click.option(
        "--keep-racks/--any-rack",
        "keep_racks",
        default=None,
        help="Replicas move within their racks only.  [default: planner.keep_racks]",
    ),
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
    proposed: ProposedPlan,
    *,
    out_file: Path | None,
    as_json: bool,
    accuracy: Mapping[str, Any] | None = None,
    about: Sequence[str] = (),
    end: Sequence[str] = (),
) -> None:
    """Print a plan as JSON or as a short text, and write its JSON to `out_file` if given.

    `accuracy` is how far the promises of earlier plans were off (`accuracy_data`); None where that is not known.
    `about` and `end` are further lines of the text.
    """
    content = proposed.to_json() if accuracy is None else {**proposed.to_json(), "accuracy": accuracy}
    if out_file:
        write_whole("--out", out_file, f"{json.dumps(content)}\n".encode())
    if as_json:
        click.echo(json.dumps(content))
    else:
        print_plan(proposed, accuracy, about=about, end=end)
