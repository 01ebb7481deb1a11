"""`rebalancer demote BROKER...` and `undemote`: taking all leadership off brokers, and bringing it back.

Both make a plan that changes the order of replicas, show it, and with `--apply` carry it out through `rebalancer apply`
as every plan. The row of a demoted broker lists the plans that have demoted it: they hold the order of before.
"""

from collections.abc import Callable, Collection
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
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings
from streaming.tables import TableReader, to_ms

if TYPE_CHECKING:
    from assignor_core.live import PartitionKey
    from assignor_core.proposed_plan import ProposedPlan
    from streaming.views.intents import Intent

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
    plan: "Callable[..., ProposedPlan]",
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
    proposed = plan(settings, brokers, keep=keeping_plan(settings, action, named, now_ms=now_ms))
    prepare = partial(_note, settings, brokers, intent, action, proposed)
    how |= {"config_file": config_file, "assignments": assignments}
    return show_and_carry_out(context, settings, proposed, named, unfit(action, brokers, proposed), prepare, **how)


def unfit(action: str, brokers: Collection[int], proposed: "ProposedPlan") -> str | None:
    """Why this plan of `demote` or `undemote` is not to be carried out; None if it may be."""
    problems = "; ".join(proposed.plan.problems)
    return f"{broker_names(brokers)} can't be {action}d: {problems}" if problems else None


def plan_demotion(
    settings: Settings, brokers: Collection[int], *, keep: "Callable[[ProposedPlan], object]"
) -> "ProposedPlan":
    """The plan, which `keep` stores if it moves anything; raises UsageProblem."""
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
    if proposed.plan.movement_count:
        keep(proposed)
    return proposed


def plan_undemotion(
    settings: Settings, brokers: Collection[int], *, keep: "Callable[[ProposedPlan], object]"
) -> "ProposedPlan":
    """The plan, which `keep` stores if it moves anything; raises UsageProblem."""
    from assignor_core.live_plans.demotion import propose_restoration
    from streaming.views.intents import Intent, demotions_of, newest_intents

    newest = newest_intents(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    demoted = frozenset(broker for broker, row in newest.items() if row["intent"] == Intent.DEMOTE)
    for broker in brokers:
        if broker not in demoted:
            named = ", ".join(map(str, sorted(demoted))) or "none"
            raise UsageProblem(f"broker {broker}: is not demoted, demoted are {named}")
    orders = _orders_before(
        settings.storage.tables, {plan_id for broker in brokers for plan_id in demotions_of(newest[broker])}
    )
    with live_cluster(settings) as cluster:
        live = cluster.describe()
    proposed = propose_restoration(
        live, frozenset(brokers), orders, demoted=demoted.difference(brokers), cluster_name=settings.kafka.cluster_name
    )
    if proposed.plan.movement_count:
        keep(proposed)
    return proposed


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


def _note(
    settings: Settings, brokers: Collection[int], intent: "Intent", action: str, proposed: "ProposedPlan"
) -> None:
    """Note before anything moves what the brokers are for."""
    from streaming.commands.acting import noted, person
    from streaming.commands.console import echo
    from streaming.control.intents import note_intent
    from streaming.serve.api.audit import Outcome

    root, cluster_name = settings.storage.tables, settings.kafka.cluster_name
    plans = [proposed.plan.plan_id] if proposed.plan.movement_count else []
    for broker in brokers:
        done = f"broker {broker} is noted for {intent.value}"
        with noted(settings, action, str(broker), Outcome("noted", done)):
            note_intent(root, cluster_name, broker, intent, person(), now_ms=clocks.now_ms(), demotions=plans)
        echo(done, err=True)
