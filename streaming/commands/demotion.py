"""`rebalancer demote BROKER...` and `undemote`: taking all leadership off brokers, and bringing it back.

Both make a plan that changes the order of replicas, show it, and with `--apply` carry it out through `rebalancer apply`
as every plan. The row of a demoted broker lists the plans that have demoted it: they hold the order of before.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.in_words import broker_names
from streaming.commands.lifecycle import (
    apply_option,
    brokers_argument,
    check_known,
    show_and_carry_out,
    yes_option,
)
from streaming.commands.options import check_tables, json_option, live_cluster, settings_from, settings_options
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings
from streaming.tables import TableReader, to_ms

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster, PartitionKey
    from assignor_core.proposed_plan import ProposedPlan
    from streaming.views.intents import Intent

Orders = Mapping[int, tuple[str, ...]]
"""By broker, ids of the plans whose movements hold the order of replicas before its demotion, oldest first."""
DEMOTIONS_MAX = 100
"""Plans that one row lists: whoever demotes a broker again moves what has come to it since."""


@click.command()
@brokers_argument
@apply_option
@yes_option
@json_option
@settings_options
@click.pass_context
def demote(context: click.Context, /, brokers: tuple[int, ...], **options: Any) -> int:
    """Take all leadership off each BROKER and keep it off: the order of replicas changes, and nothing is copied.

    No plan and no election of control lets it lead until `undemote`. A partition whose only replica it holds stays.
    """
    from streaming.views.intents import Intent

    return _run(context, brokers, Intent.DEMOTE, plan_demotion, **options)


@click.command()
@brokers_argument
@apply_option
@yes_option
@json_option
@settings_options
@click.pass_context
def undemote(context: click.Context, /, brokers: tuple[int, ...], **options: Any) -> int:
    """End the demotion of each BROKER: replicas get the order of before, and it leads again what it led."""
    from streaming.views.intents import Intent

    return _run(context, brokers, Intent.USE, plan_undemotion, **options)


def _run(
    context: click.Context,
    brokers: tuple[int, ...],
    intent: "Intent",
    plan: "Callable[..., tuple[ProposedPlan, Orders]]",
    *,
    config_file: Path | None,
    assignments: tuple[str, ...],
    **how: Any,
) -> int:
    """Plan, show and, where asked to, carry out; `how` goes to `show_and_carry_out`."""
    from streaming.commands.acting import keeping_plan

    settings = settings_from(config_file, assignments)
    check_tables(settings)
    brokers = tuple(dict.fromkeys(brokers))
    named, action, now_ms = " ".join(map(str, brokers)), context.info_name or intent.value, clocks.now_ms()
    proposed, orders = plan(settings, brokers, keep=keeping_plan(settings, action, named, now_ms=now_ms))
    prepare = partial(_note, settings, intent, action, orders)
    how |= {"config_file": config_file, "assignments": assignments}
    why_not = unfit(action, brokers, proposed)
    answer = show_and_carry_out(context, settings, proposed, named, why_not, prepare, **how)
    if answer == 0 and how["carry_out"] and action == "undemote":
        _forget_orders(settings, orders)
    return answer


def reorder(settings: Settings, action: str, broker: int, wait_s: float) -> str | None:
    """Carry out `demote` or `undemote` of one broker without a question, as a roll does; executions that are open end
    before. Returns how the execution ended if it was not carried out; None if it was, or if nothing had to change.
    Raises RefusedForSafety if the plan must not be carried out, UsageProblem.
    """
    from assignor_core.execution.events import Event
    from streaming.commands.acting import keeping_plan
    from streaming.commands.apply import carry_out_stored, finish_open
    from streaming.views.intents import Intent

    finish_open(settings, wait_s)
    plan, intent = (plan_demotion, Intent.DEMOTE) if action == "demote" else (plan_undemotion, Intent.USE)
    proposed, orders = plan(
        settings, (broker,), keep=keeping_plan(settings, action, str(broker), now_ms=clocks.now_ms())
    )
    problem = unfit(action, (broker,), proposed)
    if problem is not None:
        raise RefusedForSafety(problem)
    _note(settings, intent, action, orders)
    if proposed.plan.movement_count:
        end = carry_out_stored(settings, proposed.plan.plan_id)
        if end.event is Event.REFUSED:  # nothing was changed, and a plan of now may fit
            raise RefusedForSafety(end.detail)
        if end.event is not Event.DONE:
            return f"{end.event}: {end.detail}"
    if action == "undemote":
        _forget_orders(settings, orders)
    return None


def unfit(action: str, brokers: Collection[int], proposed: "ProposedPlan") -> str | None:
    """Why this plan of `demote` or `undemote` is not to be carried out; None if it may be."""
    problems = "; ".join(proposed.plan.problems)
    return f"{broker_names(brokers)} can't be {action}d: {problems}" if problems else None


def plan_demotion(
    settings: Settings, brokers: Collection[int], *, keep: "Callable[[ProposedPlan], object]"
) -> "tuple[ProposedPlan, Orders]":
    """The plan, which `keep` stores if it moves anything, and what the row of each broker is to list; raises
    UsageProblem.

    A row lists the plans of other brokers that are demoted, too: a list that this plan changes may have been changed by
    theirs, and the oldest one is the order of before. What is left of an earlier demotion stays listed.
    """
    from assignor_core.live_plans.demotion import propose_demotion
    from streaming.views.intents import Intent, demotions_of, newest_intents

    cluster_name = settings.kafka.cluster_name
    newest = newest_intents(TableReader(settings.storage.tables), cluster_name)
    for broker in brokers:
        row = newest.get(broker)
        if row is not None and row["intent"] == Intent.DRAIN:
            raise UsageProblem(f"broker {broker}: is drained and will lead nothing, undrain it first")
        if len(demotions_of(row)) >= DEMOTIONS_MAX:
            raise UsageProblem(f"broker {broker}: {DEMOTIONS_MAX} plans have demoted it, undemote it first")
    demoted = frozenset(broker for broker, row in newest.items() if row["intent"] == Intent.DEMOTE)
    with live_cluster(settings) as cluster:
        live = cluster.describe()
    for broker in brokers:
        check_known(broker, live, alive=True)
    proposed = propose_demotion(
        live, frozenset(brokers), demoted=demoted.difference(brokers), cluster_name=cluster_name
    )
    own = [proposed.plan.plan_id] if proposed.plan.movement_count else []
    of_others = [plan_id for broker in sorted(demoted) for plan_id in demotions_of(newest[broker])]
    root = settings.storage.tables
    left = {broker: _left_of(root, live, broker, demotions_of(newest.get(broker))) for broker in brokers}
    orders = {broker: tuple(dict.fromkeys((*left[broker], *of_others, *own)))[-DEMOTIONS_MAX:] for broker in brokers}
    if own:
        keep(proposed)
    return proposed, orders


def _left_of(root: str, live: "LiveCluster", broker: int, plan_ids: tuple[str, ...]) -> tuple[str, ...]:
    """The plans of an earlier demotion, if some list that they changed still has the broker at its end."""
    from assignor_core.live_plans.demotion import restored

    rows = ((live.partitions.get(key), before) for key, before in _orders_before(root, plan_ids).items())
    is_left = any(
        row is not None and row.replicas[-1] == broker and restored(row.replicas, before, {broker}) != row.replicas
        for row, before in rows
    )
    return plan_ids if is_left else ()


def plan_undemotion(
    settings: Settings, brokers: Collection[int], *, keep: "Callable[[ProposedPlan], object]"
) -> "tuple[ProposedPlan, Orders]":
    """The plan, which `keep` stores if it moves anything, and what the row of each broker is to list; raises
    UsageProblem.

    A broker whose demotion has ended may still have to get its leadership back, if an earlier plan for that was not
    carried out. So its row lists the order of before until there is nothing left to bring back.
    """
    from assignor_core.live_plans.demotion import propose_restoration
    from streaming.views.intents import Intent, demotions_of, newest_intents

    newest = newest_intents(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    demoted = frozenset(broker for broker, row in newest.items() if row["intent"] == Intent.DEMOTE)
    never = [broker for broker in brokers if broker not in demoted]
    _check_demoted([broker for broker in never if not demotions_of(newest.get(broker))], demoted)
    orders = _orders_before(
        settings.storage.tables, {plan_id for broker in brokers for plan_id in demotions_of(newest.get(broker))}
    )
    with live_cluster(settings) as cluster:
        live = cluster.describe()
    proposed = propose_restoration(
        live, frozenset(brokers), orders, demoted=demoted.difference(brokers), cluster_name=settings.kafka.cluster_name
    )
    if not proposed.plan.movement_count:
        return proposed, dict.fromkeys(brokers, ())
    keep(proposed)
    return proposed, {broker: demotions_of(newest.get(broker)) for broker in brokers}


def _check_demoted(never: Sequence[int], demoted: Collection[int]) -> None:
    """Raises UsageProblem if there are brokers that were `never` demoted, or have all back."""
    if never:
        named = ", ".join(map(str, sorted(demoted))) or "none"
        raise UsageProblem(f"broker {never[0]}: is not demoted, demoted are {named}")


def _orders_before(root: str, plan_ids: Collection[str]) -> "dict[PartitionKey, tuple[int, ...]]":
    """Replicas of each partition before the first of these plans that moved it; a plan that has expired is left out."""
    from streaming.contract import MOVEMENT
    from streaming.tables import one_of

    if not plan_ids:
        return {}
    columns = ("created_at", "topic", "partition", "old_replicas")
    rows = TableReader(root).rows(MOVEMENT.name, columns=columns, where=one_of("plan_id", sorted(plan_ids)))
    oldest_first = sorted(rows, key=lambda row: to_ms(row["created_at"]))
    return {(row["topic"], row["partition"]): tuple(row["old_replicas"]) for row in reversed(oldest_first)}


def _note(settings: Settings, intent: "Intent", action: str, orders: "Orders") -> None:
    """Note before anything moves what the brokers are for."""
    from streaming.commands.acting import noted, person
    from streaming.commands.console import echo
    from streaming.control.intents import note_intent
    from streaming.serve.api.audit import ActOutcome

    root, cluster_name = settings.storage.tables, settings.kafka.cluster_name
    for broker, plans in orders.items():
        done = f"broker {broker} is noted for {intent.value}"
        with noted(settings, action, str(broker), ActOutcome("noted", done)):
            note_intent(root, cluster_name, broker, intent, person(), now_ms=clocks.now_ms(), demotions=plans)
        echo(done, err=True)


def _forget_orders(settings: Settings, orders: "Orders") -> None:
    """Note that nothing of these orders is left to bring back."""
    from streaming.control.intents import note_restored

    for broker, plans in orders.items():
        note_restored(settings.storage.tables, settings.kafka.cluster_name, broker, plans)
