"""`rebalancer demote BROKER...` and `undemote`: taking all leadership off brokers, and bringing it back.

Both make a plan that changes the order of replicas, show it, and with `--apply` carry it out through `rebalancer apply`
as every plan. The row of a demoted broker lists the plans that have demoted it: they hold the order of before.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.in_words import broker_names
from streaming.commands.lifecycle import BrokerAct, apply_option, brokers_argument, check_known, run_act, yes_option
from streaming.commands.options import json_option, live_cluster, settings_options
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings
from streaming.tables import TableReader, to_ms

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster, PartitionKey
    from assignor_core.proposed_plan import ProposedPlan

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
    return run_act(context, "demote", brokers, plan_demotion, needs_tables=True, **options)


@click.command()
@brokers_argument
@apply_option
@yes_option
@json_option
@settings_options
@click.pass_context
def undemote(context: click.Context, /, brokers: tuple[int, ...], **options: Any) -> int:
    """End the demotion of each BROKER: replicas get the order of before, and it leads again what it led."""
    return run_act(context, "undemote", brokers, plan_undemotion, needs_tables=True, **options)


def reorder(settings: Settings, action: str, broker: int, wait_s: float) -> str | None:
    """Carry out `demote` or `undemote` of one broker without a question, as a roll does; executions that are open end
    before. Returns how the execution ended if it was not carried out; None if it was, or if nothing had to change.
    Raises RefusedForSafety if the plan must not be carried out, UsageProblem.
    """
    from assignor_core.execution.events import Event
    from streaming.commands.acting import keeping_plan
    from streaming.commands.apply import carry_out_stored, finish_open

    finish_open(settings, wait_s)
    plan = plan_demotion if action == "demote" else plan_undemotion
    act = plan(settings, (broker,), keep=keeping_plan(settings, action, str(broker), now_ms=clocks.now_ms()))
    if act.unfit is not None:
        raise RefusedForSafety(act.unfit)
    act.note(settings)
    if act.proposed.plan.movement_count:
        end = carry_out_stored(settings, act.proposed.plan.plan_id)
        if end.event is Event.REFUSED:  # nothing was changed, and a plan of now may fit
            raise RefusedForSafety(end.detail)
        if end.event is not Event.DONE:
            return f"{end.event}: {end.detail}"
    act.note_end(settings)
    return None


def _unfit(action: str, brokers: Collection[int], proposed: "ProposedPlan") -> str | None:
    """Why this plan of `demote` or `undemote` is not to be carried out; None if it may be."""
    problems = "; ".join(proposed.plan.problems)
    return f"{broker_names(brokers)} can't be {action}d: {problems}" if problems else None


def plan_demotion(
    settings: Settings, brokers: tuple[int, ...], *, keep: "Callable[[ProposedPlan], object]"
) -> BrokerAct:
    """The demotion of these brokers, whose plan `keep` stores if it moves anything; raises UsageProblem.

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
    return BrokerAct("demote", Intent.DEMOTE, brokers, proposed, _unfit("demote", brokers, proposed), orders)


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
    settings: Settings, brokers: tuple[int, ...], *, keep: "Callable[[ProposedPlan], object]"
) -> BrokerAct:
    """The end of the demotion of these brokers, whose plan `keep` stores if it moves anything; raises UsageProblem.

    A broker whose demotion has ended may still have to get its leadership back, if an earlier plan for that was not
    carried out. So its row lists the order of before until there is nothing left to bring back.
    """
    from assignor_core.live_plans.demotion import propose_restoration
    from streaming.views.intents import Intent, demotions_of, newest_intents

    newest = newest_intents(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    demoted = frozenset(broker for broker, row in newest.items() if row["intent"] == Intent.DEMOTE)
    listed = {broker: demotions_of(newest.get(broker)) for broker in brokers}
    for broker, plans in listed.items():
        if broker not in demoted and not plans:  # never demoted, or it has all back
            named = ", ".join(map(str, sorted(demoted))) or "none"
            raise UsageProblem(f"broker {broker}: is not demoted, demoted are {named}")
    before = _orders_before(settings.storage.tables, {plan_id for plans in listed.values() for plan_id in plans})
    with live_cluster(settings) as cluster:
        live = cluster.describe()
    proposed = propose_restoration(
        live, frozenset(brokers), before, demoted=demoted.difference(brokers), cluster_name=settings.kafka.cluster_name
    )
    orders: dict[int, tuple[str, ...]] = dict.fromkeys(brokers, ())
    if proposed.plan.movement_count:
        keep(proposed)
        orders = listed
    return BrokerAct("undemote", Intent.USE, brokers, proposed, _unfit("undemote", brokers, proposed), orders)


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
