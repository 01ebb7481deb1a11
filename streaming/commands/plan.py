"""`rebalancer plan`: a plan from a cluster model, or from the newest windows and the live cluster."""

import gc
import json
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from assignor_core.errors import InputError
from assignor_core.lag.reasons import duration
from assignor_core.model import BrokerState, ClusterState, cluster_from_json, cluster_to_json
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.policy import BrokerSet, FailoverHeadroom
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.wording import first_named, many
from streaming.commands.asked_plans import Asked, check_writable, plan_live, topics_named
from streaming.commands.console import write_whole
from streaming.commands.in_words import BROKERS_SHOWN, loads_lines
from streaming.commands.json_lines import InvalidJson, each_key_once
from streaming.commands.options import (
    effective_from,
    force_option,
    in_use,
    json_option,
    live_cluster,
    settings_from,
    settings_options,
)
from streaming.commands.plan_text import print_plan
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import PlannerSettings, Settings

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster
    from streaming.cluster.ports import ClusterReader

STANDARD_INPUT = "-"
NO_SETTINGS = PlannerPolicy()
Command = Callable[..., Any]
PolicyFor = Callable[[frozenset[str], Mapping[int, bool]], PlannerPolicy]
PlanMaker = Callable[[ClusterState, PlannerPolicy], Plan]


OPTIONS = {
    "only_topics": "--only-topic",
    "excluded_topics": "--exclude-topic",
    "spread_topics": "--spread-topic",
    "only_brokers": "--only-broker",
    "excluded_brokers": "--exclude-broker",
    "drain": "--drain",
    "add": "--add",
}


BROKER_SET = re.compile(
    r"(?P<topics>.+)=(?:rack:(?P<racks>[^,]+(?:,[^,]+)*)|(?P<brokers>\d{1,10}(?:,\d{1,10})*))", re.ASCII
)
"""Topics, and the brokers or racks that alone may hold them."""
LEADERS_MIN = re.compile(r"(?P<topics>.+)=(?P<least>[1-9]\d{0,5})", re.ASCII)
"""Topics, and how many of their leaders each broker should have."""
CONTRADICTIONS = (
    ("only_topics", "excluded_topics"),
    ("only_brokers", "excluded_brokers"),
    ("drain", "excluded_brokers"),
    ("add", "excluded_brokers"),
    ("drain", "add"),
)


_AS_IN_SETTINGS = (
    "band", "count_band", "replicas_max", "keep_racks", "failover_headroom", "movements_max", "bytes_max",
    "inflow_max", "throttle_bytes_per_sec",
)  # fmt: skip
"""What the settings hold unless an option gives it."""


def _planner_option(flag: str, name: str, type: type | click.Choice[str] | None = None) -> Callable[[Command], Command]:  # noqa: A002
    """An option that holds instead of a setting of the planner, whose description it has."""
    described = PlannerSettings.model_fields[name].description
    return click.option(flag, name, type=type, default=None, help=f"{described}  [default: planner.{name}]")


_POLICY_OPTIONS = (
    _planner_option("--band", "band", type=float),
    _planner_option("--count-band", "count_band", type=float),
    _planner_option("--max-replicas", "replicas_max", type=int),
    _planner_option("--keep-racks/--any-rack", "keep_racks"),
    _planner_option("--failover-headroom", "failover_headroom", type=click.Choice(get_args(FailoverHeadroom))),
    click.option(
        "--broker-set",
        "broker_sets",
        metavar="TOPIC=SET",
        multiple=True,
        help="Only these brokers may hold this topic (or pattern): TOPIC=1,2,3 or TOPIC=rack:a,b; repeatable.  "
        "[default: planner.broker_sets]",
    ),
    click.option(
        "--spread-topic",
        "spread_topics",
        multiple=True,
        help="Spread this topic (or pattern) evenly over brokers where loads allow it; repeatable.  "
        "[default: planner.spread_topics]",
    ),
    click.option(
        "--min-leaders",
        "leaders_min",
        metavar="TOPIC=N",
        multiple=True,
        help="Each broker should lead N partitions of this topic (or pattern) at least; repeatable.  "
        "[default: planner.leaders_min]",
    ),
    click.option(
        "--only-broker", "only_brokers", type=int, multiple=True, help="Relieve only this broker; repeatable."
    ),
    click.option(
        "--only-topic",
        "only_topics",
        multiple=True,
        help="Move only this topic, or topics that match this pattern; repeatable.",
    ),
    click.option(
        "--exclude-topic",
        "excluded_topics",
        multiple=True,
        help="Never touch this topic (or pattern), besides planner.excluded_topics; repeatable.",
    ),
    click.option(
        "--exclude-broker",
        "excluded_brokers",
        type=int,
        multiple=True,
        help="Move nothing to or from this broker; repeatable.",
    ),
    click.option("--drain", type=int, multiple=True, help="Empty this broker, and move nothing else; repeatable."),
    click.option("--add", type=int, multiple=True, help="Move replicas only to this broker; repeatable."),
    click.option("--leaders-only", is_flag=True, help="Change leadership only: no bytes are copied."),
    _planner_option("--max-movements", "movements_max", type=int),
    _planner_option("--max-bytes", "bytes_max", type=float),
    _planner_option("--max-inflow", "inflow_max", type=float),
    click.option(
        "--throttle",
        "throttle_bytes_per_sec",
        type=float,
        help="Throttle of a broker for estimates, bytes/s.  [default: control.throttle_bytes_per_sec]",
    ),
)


_best_plan: PlanMaker = partial(propose, proves_least=True)


def policy_options(command: Command) -> Command:
    """Adds the options that `policy_from` reads."""
    for option in reversed(_POLICY_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.option(
    "--model",
    "model_file",
    metavar="FILE",
    help="Plan for this cluster model (JSON; - is standard input) without Kafka.",
)
@click.option("--out", "out_file", type=click.Path(path_type=Path), help="Also write the result to this file.")
@json_option
@click.option(
    "--log-dirs", is_flag=True, help="Even out the log dirs within brokers (of --only-broker, or all); nothing else."
)
@click.option(
    "--export",
    "export_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Make no plan: write the live cluster and its load to this file, for --model.",
)
@click.option("--anonymous", is_flag=True, help="With --export: replace names of topics and racks by numbers.")
@click.option(
    "--reassignment",
    "reassignment_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Plan exactly the reassignments in this file of kafka-reassign-partitions.",
)
@click.option(
    "--replication-factor",
    "factors",
    metavar="TOPIC=N",
    multiple=True,
    help="Plan N replicas for these topics (names or patterns); repeatable.",
)
@force_option
@settings_options
@policy_options
def plan(
    model_file: str | None,
    log_dirs: bool,
    export_file: Path | None,
    anonymous: bool,
    reassignment_file: Path | None,
    factors: tuple[str, ...],
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
    if anonymous and export_file is None:
        raise UsageProblem("--anonymous: is for --export, which names the file")
    if export_file is not None:
        _check_export_alone()
        settings = settings_from(config_file, assignments)
        return _export(settings, export_file, anonymous=anonymous, on_old_windows=on_old_windows)
    asked = Asked.of_options(reassignment_file, factors)
    if asked is not None:
        _check_asked_alone(asked, log_dirs, knobs)
    if log_dirs:
        _check_log_dirs_alone(model_file, knobs)
    elif model_file is not None:
        show(_plan_model(model_file, config_file, assignments, knobs, asked), out_file=out_file, as_json=as_json)
        return 0
    settings, now_ms = settings_from(config_file, assignments), clocks.now_ms()
    accuracy = None
    if asked is not None:
        result = _plan_asked(settings, asked, knobs, now_ms=now_ms)
    else:
        from streaming.views.accuracy import accuracy_beside_plan

        with live_cluster(settings) as cluster:
            if log_dirs:
                result = plan_log_dirs_on(cluster, settings, frozenset(knobs["only_brokers"]), now_ms=now_ms)
            else:
                result = plan_on(cluster, settings, knobs, now_ms=now_ms, on_old_windows=on_old_windows)
                accuracy = accuracy_beside_plan(settings)
    show(
        result,
        out_file=out_file,
        as_json=as_json,
        accuracy=accuracy,
        about=tuple(loads_lines(result, settings.pipeline.window_ms, now_ms=now_ms)),
        end=_how_to_apply(result, settings.planner, now_ms=now_ms),
    )
    return 0


def _how_to_apply(proposed: ProposedPlan, planner: PlannerSettings, *, now_ms: int) -> tuple[str, ...]:
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
    model_file: str,
    config_file: Path | None,
    assignments: tuple[str, ...],
    knobs: dict[str, Any],
    asked: Asked | None,
) -> ProposedPlan:
    """Limits and aims of the settings count here too. Topics that are never moved do only where
    somebody has named them: the default is the internal ones, and whoever puts those into a model means them.
    """
    from streaming.control.policies import policy_of_plans

    effective = effective_from(config_file, assignments)
    named = effective.origin("planner.excluded_topics") != "default"

    def policy_for(topics: frozenset[str], brokers: Mapping[int, bool]) -> PlannerPolicy:
        policy = policy_of_plans(effective.settings, topics)
        return policy_from(knobs, policy if named else replace(policy, excluded_topics=frozenset()), topics, brokers)

    if asked is None:
        return plan_from_model(read_model(model_file), policy_for)
    return plan_from_model(read_model(model_file), policy_for, lambda cluster, policy: asked.plan(cluster, policy, {}))


def _check_export_alone() -> None:
    given = _given_options(
        click.get_current_context().params,
        but={"export_file", "anonymous", "on_old_windows", "config_file", "assignments"},
    )
    if given:
        raise UsageProblem(f"--export: writes the cluster as it is, so it can't go with {' or '.join(given)}")


def _export(settings: Settings, file: Path, *, anonymous: bool, on_old_windows: bool) -> int:
    """Write the model of the live cluster; raises NothingToPlanOn."""
    from assignor_core.anonymous import anonymous as without_names
    from streaming.control.planning import model_of
    from streaming.control.wiring import window_tables_of

    with live_cluster(settings) as cluster:
        model = model_of(
            cluster, window_tables_of(settings), settings.planner,
            now_ms=clocks.now_ms(), on_old_windows=on_old_windows,
        )  # fmt: skip
    content = cluster_to_json(without_names(model) if anonymous else model)
    write_whole("--export", file, f"{json.dumps(content)}\n".encode())
    brokers, partitions = many(len(model.brokers), "broker"), many(len(model.partitions), "partition")
    click.echo(f"{file}: {brokers} and {partitions}; to plan on it: rebalancer plan --model {file}", err=True)
    return 0


def _check_asked_alone(asked: Asked, log_dirs: bool, knobs: dict[str, Any]) -> None:
    """Raises UsageProblem for an option that could change nothing about what is asked for."""
    count = {"throttle_bytes_per_sec"}
    if asked.lists is None:
        count |= {"excluded_brokers", "broker_sets"}
    others = _given_options({**knobs, "log_dirs": log_dirs}, but=count)
    if others:
        option = "--reassignment" if asked.lists is not None else "--replication-factor"
        raise UsageProblem(f"{option}: changes just what it names, so it can't go with {' or '.join(others)}")


def _plan_asked(settings: Settings, asked: Asked, knobs: dict[str, Any], *, now_ms: int) -> ProposedPlan:
    """The plan for the live cluster, kept in the tables if it changes anything."""
    from streaming.commands.acting import keeping_plan

    proposed = plan_live(settings, asked, partial(_policy_on, settings, knobs), now_ms=now_ms)
    check_writable(settings.kafka, proposed.plan)
    if proposed.plan.movement_count:
        keeping_plan(settings, "plan", now_ms=now_ms)(proposed)
    return proposed


def _check_log_dirs_alone(model_file: str | None, knobs: dict[str, Any]) -> None:
    """An option that counts for nothing would be taken to have counted; raises UsageProblem."""
    if model_file is not None:
        raise UsageProblem("--log-dirs: brokers are asked how full their log dirs are, so it can't go with --model")
    others = _given_options(knobs, but={"only_brokers"})
    if others:
        raise UsageProblem(f"--log-dirs: moves replicas within brokers, so it can't go with {' or '.join(others)}")


def _given_options(knobs: Mapping[str, Any], *, but: Collection[str]) -> list[str]:
    """Options that were given a value, by the names that people write; those of `but` left out."""
    options = {param.name: param.opts[0] for param in click.get_current_context().command.params}
    return [options[name] for name, value in knobs.items() if name not in but and value not in (None, (), False)]


def plan_log_dirs_on(
    cluster: "ClusterReader", settings: Settings, only_brokers: frozenset[int], *, now_ms: int
) -> ProposedPlan:
    """The plan that evens out log dirs of these brokers (of all where there are none), kept in the tables.

    Raises UsageProblem for a broker that does not show several log dirs.
    """
    from assignor_core.log_dirs.planning import FillPolicy, even_out
    from streaming.commands.acting import keeping_plan
    from streaming.commands.lifecycle import keep_within
    from streaming.control.policies import policy_of_plans

    live, shown = cluster.describe(), cluster.log_dirs()
    several = {broker for broker, rows in shown.items() if len(rows) > 1}
    unfit = sorted(only_brokers - several)
    if unfit:
        named = ", ".join(map(str, sorted(several))) or "none"
        raise UsageProblem(f"--only-broker {unfit[0]}: this broker does not show two log dirs, allowed are {named}")
    excluded = policy_of_plans(settings, {topic for topic, _ in live.partitions}).excluded_topics
    make = partial(even_out, policy=FillPolicy(reserve=settings.planner.disk_reserve))
    keep = keeping_plan(settings, "plan", now_ms=now_ms)
    name, brokers = settings.kafka.cluster_name, only_brokers or several
    made = keep_within(name, live, shown, brokers, make, excluded_topics=excluded, keep=keep)
    if several:
        return made
    nothing = "no broker shows more than one log dir: there is nothing to move between"
    return replace(made, plan=replace(made.plan, diagnosis=(*made.plan.diagnosis, nothing)))


def plan_on(
    cluster: "ClusterReader", settings: Settings, knobs: dict[str, Any], *, now_ms: int, on_old_windows: bool = False
) -> ProposedPlan:
    """The plan for the live `cluster` that control would make, but for what the options say; kept in the tables."""
    from streaming.commands.acting import keeping_plan, propose_and_keep

    return propose_and_keep(
        cluster,
        settings,
        keep=keeping_plan(settings, "plan", now_ms=now_ms),
        now_ms=now_ms,
        policy_for=partial(_policy_on, settings, knobs),
        on_old_windows=on_old_windows,
    )


def _policy_on(settings: Settings, knobs: dict[str, Any], live: "LiveCluster") -> PlannerPolicy:
    """The policy of the options and the settings on the live cluster; raises InputError as `policy_from` does."""
    from streaming.control.policies import policy_on

    topics = {topic for topic, _ in live.partitions}
    return policy_from(knobs, policy_on(settings, live), topics, brokers_of(live))


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
    only, excluded = frozenset(knobs["only_topics"]), frozenset(knobs["excluded_topics"])
    if topics is not None:
        excluded = _topics_of(knobs, "excluded_topics", topics)
        only = _only_topics(knobs, settings.excluded_topics | excluded, topics)
    if brokers is not None:
        _check_brokers(knobs, brokers)
    drain, sets = frozenset(knobs["drain"]), _broker_sets(knobs, topics or (), brokers)
    given = {name: knobs[name] for name in _AS_IN_SETTINGS if knobs[name] is not None}
    return replace(
        settings,
        leaders_only=knobs["leaders_only"],
        only_brokers=frozenset(knobs["only_brokers"]) | drain,
        only_topics=only,
        excluded_topics=excluded | settings.excluded_topics,
        excluded_brokers=frozenset(knobs["excluded_brokers"]),
        drain=drain,
        add=frozenset(knobs["add"]),
        broker_sets=sets or settings.broker_sets,
        spread_topics=(_topics_of(knobs, "spread_topics", topics) if topics else None) or settings.spread_topics,
        leaders_min=_leaders_min(knobs, topics or ()) or settings.leaders_min,
        **given,
    )


def _check_options(knobs: dict[str, Any]) -> None:
    """A plan that nothing may be moved by would look like a cluster that needs none."""
    for one, other in CONTRADICTIONS:
        both = sorted(set(knobs[one]) & set(knobs[other]))
        if both:
            raise InputError(f"{OPTIONS[one]} {both[0]} and {OPTIONS[other]} {both[0]} contradict each other")


def _topics_of(knobs: dict[str, Any], name: str, topics: Collection[str]) -> frozenset[str]:
    """Topics that an option names, each by its name or by a pattern; raises InputError for one that names none."""
    return frozenset(topic for text in knobs[name] for topic in topics_named(text, topics, OPTIONS[name]))


def _only_topics(knobs: dict[str, Any], excluded: Collection[str], topics: Collection[str]) -> frozenset[str]:
    """Topics of --only-topic that may move; raises InputError where none of one option may."""
    for text in sorted(knobs["only_topics"]):
        named = set(topics_named(text, topics, OPTIONS["only_topics"]))
        if named <= set(excluded):
            keeper = OPTIONS["excluded_topics"] if knobs["excluded_topics"] else "planner.excluded_topics"
            raise InputError(f"{OPTIONS['only_topics']} {text}: {keeper} keeps it from moving")
    return _topics_of(knobs, "only_topics", topics) - frozenset(excluded)


def _leaders_min(knobs: dict[str, Any], topics: Collection[str]) -> tuple[tuple[frozenset[str], int], ...]:
    """Topics of --min-leaders, and their least numbers; raises InputError."""
    found = []
    for text in knobs["leaders_min"]:
        match = LEADERS_MIN.fullmatch(text)
        if not match:
            raise InputError(f"--min-leaders {text}: must be like TOPIC=3")
        found.append(
            (
                frozenset(topics_named(match["topics"], topics, "--min-leaders")) if topics else frozenset(),
                int(match["least"]),
            )
        )
    return tuple(found)


def _broker_sets(
    knobs: dict[str, Any], topics: Collection[str], brokers: Mapping[int, bool] | None
) -> tuple[BrokerSet, ...]:
    """The sets of --broker-set, where the first one that names a topic counts; raises InputError for one that is no
    set, or that names a broker or (where they are known) a topic that is not there.
    """
    found, left = [], set(topics)
    for text in knobs["broker_sets"]:
        match = BROKER_SET.fullmatch(text)
        if not match:
            raise InputError(f"--broker-set {text}: must be like TOPIC=1,2,3 or TOPIC=rack:a,b")
        ids = frozenset(map(int, filter(None, (match["brokers"] or "").split(","))))
        racks = frozenset(filter(None, (match["racks"] or "").split(",")))
        unknown = sorted(ids - brokers.keys()) if brokers is not None else []
        if unknown:
            known = first_named(sorted(brokers or ()), BROKERS_SHOWN)
            raise InputError(f"--broker-set {text}: there is no broker {unknown[0]}, allowed are {known}")
        named = frozenset(topics_named(match["topics"], topics, "--broker-set")) if topics else frozenset()
        found.append(BrokerSet(named & left, ids, racks))
        left -= named
    return tuple(found)


def _check_brokers(knobs: dict[str, Any], brokers: Mapping[int, bool]) -> None:
    for name in ("only_brokers", "excluded_brokers", "drain", "add"):
        for broker in sorted(set(knobs[name]) - brokers.keys()):
            known = first_named(sorted(brokers), BROKERS_SHOWN)
            raise InputError(f"{OPTIONS[name]} {broker}: this broker does not exist, allowed are {known}")
    for broker in sorted(knobs["add"]):
        if not brokers[broker]:
            raise InputError(f"{OPTIONS['add']} {broker}: this broker is dead or draining, so it takes no replicas")
    if knobs["drain"] and not any(alive for broker, alive in brokers.items() if broker not in knobs["drain"]):
        raise InputError(f"{OPTIONS['drain']}: names every broker that is alive: no broker can take the replicas")


def brokers_of(live: "LiveCluster") -> dict[int, bool]:
    """Brokers that are alive or hold replicas, and whether they are alive."""
    return {**dict.fromkeys(live.hosts_away(), False), **dict.fromkeys(live.broker_racks, True)}


def read_model(model_file: str) -> str:
    """Text of a model file; raises InputError in one line."""
    try:
        raw = sys.stdin.buffer.read() if model_file == STANDARD_INPUT else Path(model_file).read_bytes()
        return raw.decode()
    except OSError as error:
        raise InputError(f"model {model_file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"model {model_file}: is not UTF-8 text") from None


def plan_from_model(text: str, policy_for: PolicyFor, make: PlanMaker = _best_plan) -> ProposedPlan:
    """The plan that `make` makes for a model in JSON, by the policy of its topics and brokers; raises InputError."""
    # Millions of small objects that all stay alive: walking them again and again takes longer than making them.
    collecting = gc.isenabled()
    gc.disable()
    try:
        try:
            obj = json.loads(text, object_pairs_hook=each_key_once)
        except (ValueError, RecursionError) as error:
            raise InputError(f"model: found no valid JSON: {error}") from None
        except InvalidJson as error:
            raise InputError(f"model: {error}") from None
        cluster = cluster_from_json(obj)
        del obj
        policy = policy_for(
            frozenset(partition.topic for partition in cluster.partitions),
            {broker.broker_id: broker.state is BrokerState.ALIVE for broker in cluster.brokers},
        )
        began = time.perf_counter()
        plan = make(cluster, policy)
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

    `accuracy` is how far the promises of earlier plans were off (`Accuracy` as data); None where that is not known.
    `about` and `end` are further lines of the text.
    """
    content = proposed.to_json() if accuracy is None else {**proposed.to_json(), "accuracy": accuracy}
    if out_file:
        write_whole("--out", out_file, f"{json.dumps(content)}\n".encode())
    if as_json:
        click.echo(json.dumps(content))
    else:
        print_plan(proposed, accuracy, about=about, end=end)
