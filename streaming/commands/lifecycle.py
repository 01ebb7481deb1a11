"""`rebalancer drain BROKER...`, `undrain` and `add`: taking brokers, or a log dir, out of use and into it.

`drain` and `add` make one plan and show it; `--apply` carries it out through `rebalancer apply`, and notes what each
broker is for, so that a drained one stays empty until it is added again. Drained brokers and log dirs are cordoned.
`BrokerAct` is what a plan of these commands, of `demote` and of `undemote` is for.
"""

import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.plan import RACKS_LOST
from assignor_core.wording import counted
from streaming.commands.apply import apply
from streaming.commands.console import confirmed, echo
from streaming.commands.in_words import broker_names, loads_lines
from streaming.commands.options import (
    check_tables,
    force_option,
    in_use,
    json_option,
    live_cluster,
    settings_from,
    settings_options,
)
from streaming.commands.plan import show
from streaming.errors import ClusterRequestFailed, RefusedForSafety, UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings

if TYPE_CHECKING:
    from assignor_core.disks import LogDirDescription, LogDirs
    from assignor_core.live import LiveCluster
    from assignor_core.log_dirs.planning import BrokerDisks, WithinBroker
    from assignor_core.planner import PlannerPolicy
    from assignor_core.proposed_plan import ProposedPlan
    from streaming.cluster.ports import ControlledCluster
    from streaming.views.intents import Intent

apply_option = click.option("--apply", "carry_out", is_flag=True, help="Carry out the plan after a confirmation.")
yes_option = click.option("--yes", is_flag=True, help="Skip the confirmation.")
brokers_argument = click.argument("brokers", metavar="BROKER...", type=int, nargs=-1, required=True)
log_dir_option = click.option("--log-dir", metavar="PATH", help="Only this log dir of the broker.")
CORDON_READS = 20
CORDON_PAUSE_S = 0.5
"""Brokers hear of a changed setting a moment later."""


@click.command()
@brokers_argument
@log_dir_option
@apply_option
@yes_option
@json_option
@force_option
@settings_options
@click.pass_context
def drain(
    context: click.Context, /, brokers: tuple[int, ...], log_dir: str | None, on_old_windows: bool, **options: Any
) -> int:
    """Make one plan that moves all replicas off each BROKER, those of internal topics too, and nothing else.

    A drained broker gets no new replicas; brokers from Kafka 4.3 on are cordoned. If a broker is offline, its replicas
    are re-created on other brokers from another copy. With --log-dir, replicas move to the broker's other log dirs,
    and the broker places no new replica in that log dir (Kafka 4.3).
    """
    if log_dir is not None:
        if on_old_windows:
            raise UsageProblem("--force: is for plans that rest on windows of load, and this one rests on none")
        return drain_log_dir(context, _the_one(brokers), log_dir, **options)
    plan = partial(plan_drain, now_ms=clocks.now_ms(), on_old_windows=on_old_windows)
    return run_act(context, "drain", brokers, plan, **options)


@click.command()
@brokers_argument
@log_dir_option
@settings_options
def undrain(
    brokers: tuple[int, ...], log_dir: str | None, config_file: Path | None, assignments: tuple[str, ...]
) -> int:
    """End the drain of each BROKER, or of a log dir, and move nothing: plans may place replicas there again.

    Cordons that the drain has set are removed; other cordons stay.
    """
    from streaming.tables import TableReader
    from streaming.views.intents import Intent, drained_brokers

    settings = settings_from(config_file, assignments)
    if log_dir is not None:
        return undrain_log_dir(_the_one(brokers), log_dir, settings)
    check_tables(settings)
    drained = drained_brokers(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    for broker in brokers:
        if broker not in drained:
            named = ", ".join(map(str, sorted(drained))) or "none"
            raise UsageProblem(f"broker {broker}: is not drained, drained are {named}")
    note_and_cordon(settings, "undrain", Intent.USE, brokers)
    return 0


def _the_one(brokers: tuple[int, ...]) -> int:
    if len(brokers) > 1:
        raise UsageProblem(f"--log-dir: needs exactly one BROKER, found {len(brokers)}")
    return brokers[0]


@click.command()
@click.argument("broker", type=int)
@apply_option
@yes_option
@json_option
@force_option
@settings_options
@click.pass_context
def add(context: click.Context, /, broker: int, on_old_windows: bool, **options: Any) -> int:
    """Give BROKER its share: a plan that moves replicas to it and nowhere else. Ends a drain, too."""
    plan = partial(plan_add, now_ms=clocks.now_ms(), on_old_windows=on_old_windows)
    return run_act(context, "add", (broker,), plan, **options)


@dataclass(frozen=True, slots=True)
class BrokerAct:
    """A `drain`, `add`, `demote` or `undemote` of some brokers, as it is planned; it is noted before anything moves."""

    action: str
    intent: "Intent"
    brokers: tuple[int, ...]
    proposed: "ProposedPlan"
    unfit: str | None = None
    """Why the plan is not to be carried out; None if it may be."""
    orders: Mapping[int, tuple[str, ...]] | None = None
    """By broker, ids of the plans whose movements hold the order of replicas before its demotion, oldest first; None
    where the act concerns no order.
    """

    def note(self, settings: Settings) -> None:
        """Note what the brokers are for."""
        if self.orders is None:
            note_and_cordon(settings, self.action, self.intent, self.brokers)
        else:
            note_brokers(settings, self.action, self.intent, self.brokers, orders=self.orders)

    def note_end(self, settings: Settings) -> None:
        """Note, once the plan is carried out, that an undemotion has nothing left to bring back."""
        from streaming.control.intents import note_restored

        restored = self.orders if self.action == "undemote" else None
        for broker, plans in (restored or {}).items():
            note_restored(settings.storage.tables, settings.kafka.cluster_name, broker, plans)


def run_act(
    context: click.Context,
    action: str,
    brokers: tuple[int, ...],
    plan: Callable[..., BrokerAct],
    *,
    config_file: Path | None,
    assignments: tuple[str, ...],
    needs_tables: bool = False,
    **how: Any,
) -> int:
    """Plan, show and, where asked to, carry out; `how` goes to `show_and_carry_out`."""
    from streaming.commands.acting import keeping_plan

    settings = settings_from(config_file, assignments)
    if needs_tables:
        check_tables(settings)
    brokers = tuple(dict.fromkeys(brokers))
    named = " ".join(map(str, brokers))
    act = plan(settings, brokers, keep=keeping_plan(settings, action, named, now_ms=clocks.now_ms()))
    prepare = partial(act.note, settings)
    how |= {"config_file": config_file, "assignments": assignments}
    answer = show_and_carry_out(context, settings, act.proposed, named, act.unfit, prepare, **how)
    if answer == 0 and how["carry_out"]:
        act.note_end(settings)
    return answer


def note_brokers(
    settings: Settings,
    action: str,
    intent: "Intent",
    brokers: Collection[int],
    *,
    cordons: Mapping[int, tuple[str, ...]] | None = None,
    orders: Mapping[int, tuple[str, ...]] | None = None,
) -> None:
    """Note what the brokers are for, each as an act of the person at this command line; see `note_intent`."""
    from streaming.commands.acting import noted, person
    from streaming.control.intents import note_intent
    from streaming.serve.api.audit import ActOutcome

    root, cluster_name = settings.storage.tables, settings.kafka.cluster_name
    for broker in brokers:
        done = f"broker {broker} is noted for {intent.value}"
        ours, plans = (cordons or {}).get(broker, ()), None if orders is None else orders[broker]
        with noted(settings, action, str(broker), ActOutcome("noted", done)):
            now_ms = clocks.now_ms()
            note_intent(root, cluster_name, broker, intent, person(), now_ms=now_ms, cordons=ours, demotions=plans)
        echo(done, err=True)


def note_and_cordon(settings: Settings, action: str, intent: "Intent", brokers: tuple[int, ...]) -> None:
    """Note what the brokers are for, and cordon or uncordon them as that wants."""
    from streaming.control.cordons import STILL_CORDONED, settle, to_cordon
    from streaming.tables import TableReader
    from streaming.views.intents import Intent, cordons_of, newest_intents

    cluster_name = settings.kafka.cluster_name
    reader, cordons = TableReader(settings.storage.tables), dict[int, tuple[str, ...]]()
    if intent is Intent.DRAIN:
        before = newest_intents(reader, cluster_name)
        with live_cluster(settings) as cluster:
            cordons = to_cordon(cluster, before, brokers)
    note_brokers(settings, action, intent, brokers, cordons=cordons)
    reader.look_again()
    newest = newest_intents(reader, cluster_name)
    if not any(cordons_of(newest[broker]) for broker in brokers):
        return
    with live_cluster(settings) as cluster:
        problems = settle(cluster, reader, cluster_name, brokers)
        for _ in range(CORDON_READS):
            late = [broker for broker, why in problems.items() if why == STILL_CORDONED]
            if not late:
                break
            time.sleep(CORDON_PAUSE_S)
            reader.look_again()
            problems = {broker: why for broker, why in problems.items() if broker not in late}
            problems |= settle(cluster, reader, cluster_name, late)
    for broker, why in problems.items():
        what = "cordoned" if intent is Intent.DRAIN else "uncordoned"
        echo(f"broker {broker} could not be {what}, control tries again: {why}", err=True)


def plan_drain(settings: Settings, brokers: tuple[int, ...], **how: Any) -> BrokerAct:
    """The drain of these brokers; `how` goes to `plan_for_brokers`, which may raise."""
    from streaming.control.policies import relief_policy
    from streaming.views.intents import Intent

    proposed = plan_for_brokers(settings, brokers, relief_policy(frozenset(brokers), drain=True), **how)
    return BrokerAct("drain", Intent.DRAIN, brokers, proposed, why_not_emptied(brokers, proposed))


def plan_add(settings: Settings, brokers: tuple[int, ...], **how: Any) -> BrokerAct:
    """What gives these brokers their share; `how` goes to `plan_for_brokers`, which may raise."""
    from streaming.views.intents import Intent

    return BrokerAct("add", Intent.USE, brokers, plan_for_brokers(settings, brokers, None, **how))


def why_not_emptied(brokers: Collection[int], proposed: "ProposedPlan") -> str | None:
    """Why this plan does not empty the brokers; None if it does.

    A rack that loses its last broker is shown, and holds nobody back who empties that broker. Of a broker that is gone
    a part is worth making anew: the plan takes the most endangered partitions first.
    """
    problems = [line for line in proposed.plan.problems if not line.startswith(RACKS_LOST)]
    if not problems or _are_gone(brokers, proposed):
        return None
    return f"{broker_names(brokers)} can't be emptied: {'; '.join(problems)}"


def _are_gone(brokers: Collection[int], proposed: "ProposedPlan") -> bool:
    """Whether the plan takes replicas from brokers none of which was alive when it was made."""
    return proposed.observed is not None and proposed.observed.brokers_missing.issuperset(brokers)


def plan_for_brokers(
    settings: Settings,
    brokers: Collection[int],
    policy: "PlannerPolicy | None",
    *,
    keep: "Callable[[ProposedPlan], object]",
    now_ms: int,
    on_old_windows: bool = False,
) -> "ProposedPlan":
    """The plan, which `keep` stores if it moves anything; raises UsageProblem for a broker that is not there.

    `policy` None stands for that of `add`: the brokers are filled, as they are without cordons of ours.
    """
    from streaming.commands.acting import propose_and_keep
    from streaming.control.cordons import Uncordoned
    from streaming.control.policies import policy_of_plans, relief_policy
    from streaming.tables import TableReader
    from streaming.views.intents import Intent, brokers_by_intent, drained_brokers, newest_intents

    def policy_for(live: "LiveCluster") -> "PlannerPolicy":
        for broker in brokers:
            check_known(broker, live, alive=policy is None)
        by_settings = policy_of_plans(settings, {topic for topic, _ in live.partitions})
        if policy is not None:
            return relief_policy(policy.only_brokers, drain=bool(policy.drain), settings=by_settings)
        return by_settings.to_fill(frozenset(brokers), len(live.broker_racks.keys() - drained))

    reader, cluster_name = TableReader(settings.storage.tables), settings.kafka.cluster_name
    demoted = sorted(brokers_by_intent(reader, cluster_name)[Intent.DEMOTE].intersection(brokers))
    if demoted and policy is None:
        raise UsageProblem(f"broker {demoted[0]}: is demoted, undemote it first")
    drained = drained_brokers(reader, cluster_name).difference(brokers)
    newest = newest_intents(reader, cluster_name)
    with live_cluster(settings) as cluster:
        return propose_and_keep(
            cluster if policy is not None else Uncordoned(cluster, {broker: newest.get(broker) for broker in brokers}),
            settings,
            keep=keep,
            now_ms=now_ms,
            policy_for=policy_for,
            drained=drained,
            on_old_windows=on_old_windows,
        )


def check_known(broker: int, live: "LiveCluster", *, alive: bool) -> None:
    """Raise UsageProblem for a broker that is not alive, or that is not there at all."""
    hosting = {other for partition in live.partitions.values() for other in partition.target_replicas}
    known = set(live.broker_racks) if alive else hosting | set(live.broker_racks)
    if broker not in known:
        state = "alive" if alive else "there"
        raise UsageProblem(f"broker {broker}: is not {state}, allowed are {', '.join(map(str, sorted(known)))}")


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
    how |= {"config_file": config_file, "assignments": assignments}
    return show_and_carry_out(context, settings, proposed, arguments, unfit, prepare, **how)


def _target(broker: int, path: str) -> str:
    """The log dir as the audit names it."""
    return f"{broker} {path}"


def _cordon_first(settings: Settings, broker: int, path: str) -> None:
    from streaming.commands.acting import noted
    from streaming.serve.api.audit import ActOutcome

    done = ActOutcome("cordoned", f"broker {broker} puts no new replicas into {path} any more")
    _note_own(settings, broker, path)
    with live_cluster(settings) as cluster, noted(settings, "drain", _target(broker, path), done) as act:
        if not cordon(cluster, broker, path, cordoned=True):
            unseen = f"broker {broker} does not show a cordon: it may still put new replicas into {path}"
            act.outcome = ActOutcome("not_cordoned", unseen)
    echo(act.outcome.detail, err=True)


def _note_own(settings: Settings, broker: int, path: str) -> None:
    """Note that the person at this command line decides on the log dir, whatever a drain of its broker cordons."""
    from streaming.control.intents import note_own_log_dir

    note_own_log_dir(settings.storage.tables, settings.kafka.cluster_name, broker, path)


def undrain_log_dir(broker: int, path: str, settings: Settings) -> int:
    """Let the broker put new replicas into the log dir again; raises RefusedForSafety where it does not."""
    from streaming.commands.acting import noted
    from streaming.serve.api.audit import ActOutcome

    done = ActOutcome("undrained", f"broker {broker} may put new replicas into {path} again")
    with live_cluster(settings) as cluster:
        _row_of(cluster, broker, path)
        _note_own(settings, broker, path)
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
    is_cordoned = _row_of(cluster, broker, path).is_cordoned
    if is_cordoned is None or is_cordoned == cordoned:
        return bool(is_cordoned) == cordoned
    try:
        cluster.cordon_log_dirs(broker, [path], cordoned=cordoned)
    except ClusterRequestFailed as error:
        echo(f"broker {broker} refuses the cordon: {error}", err=True)
        return False
    for _ in range(CORDON_READS):
        if _row_of(cluster, broker, path).is_cordoned == cordoned:
            return True
        pause(CORDON_PAUSE_S)
    return False


def _proposed(cluster: "ControlledCluster", settings: Settings, broker: int, path: str) -> "ProposedPlan":
    """The plan, kept in the tables; raises UsageProblem, RefusedForSafety, NothingToPlanOn."""
    from assignor_core.log_dirs.planning import FillPolicy, empty
    from streaming.commands.acting import keeping_plan

    live = cluster.describe()
    row = _row_of(cluster, broker, path)
    if row.is_offline:
        raise RefusedForSafety(f"log dir {path} of broker {broker} is offline: its replicas can't be copied")
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


def show_and_carry_out(
    context: click.Context,
    settings: Settings,
    proposed: "ProposedPlan",
    arguments: str,
    unfit: str | None,
    prepare: Callable[[], None],
    *,
    carry_out: bool,
    yes: bool,
    as_json: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Show a plan that is kept in the tables; where asked to, `prepare` and carry it out. Returns the exit code.

    `arguments` are those that the command was called with, `unfit` is why the plan is not to be carried out.
    """
    from streaming.views.accuracy import accuracy_beside_plan

    # Plans within brokers and those of `demote` promise no skew.
    accuracy = accuracy_beside_plan(settings) if proposed.plan.skew_before else None
    about = tuple(loads_lines(proposed, settings.pipeline.window_ms, now_ms=clocks.now_ms()))
    show(proposed, out_file=None, as_json=as_json, accuracy=accuracy, about=about)
    if not carry_out:
        command = f"rebalancer {context.info_name} {arguments} --apply{in_use()}"
        echo(f"nothing has been changed{_what_next(proposed, unfit, command)}", err=True)
        return 0
    if unfit is not None:
        raise RefusedForSafety(unfit)
    moves = proposed.plan.movement_count
    size = counted(moves, "movement", "movements")
    if not confirmed(f"Carry out {size} on the live cluster?", yes=yes, err=True):
        return 3
    prepare()
    if not moves:
        return 0
    with redirect_stdout(sys.stderr) if as_json else nullcontext():  # of JSON standard output has one object, the plan
        answer: int = context.invoke(
            apply,
            plan=proposed.plan.plan_id,
            config_file=config_file,
            assignments=assignments,
            yes=True,
            revalidate=False,
        )
    if answer == 0 and _is_open(settings, proposed):  # what follows in a script must not take the plan for carried out
        echo("nothing has been moved yet: another person has to approve the plan first", err=True)
        return 3
    return answer


def _is_open(settings: Settings, proposed: "ProposedPlan") -> bool:
    """Whether an execution of the plan has not ended."""
    from streaming.control.wiring import journal_of

    opened = journal_of(settings).open_executions(now_ms=clocks.now_ms())
    return any(row.plan_id == proposed.plan.plan_id for row in opened)


def _what_next(proposed: "ProposedPlan", unfit: str | None, command: str) -> str:
    if unfit is not None:
        return f", and --apply would be refused: {unfit}"
    if proposed.plan.movement_count:
        return f"; to carry it out: {command}"
    return f", and there is nothing to move; to have it noted alone: {command}"
