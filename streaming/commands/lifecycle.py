"""`rebalancer drain BROKER`, `undrain` and `add`: taking a broker, or one of its log dirs, out of use and into it.

`drain` and `add` make a plan and show it; `--apply` carries it out through `rebalancer apply`, and notes what the
broker is for, so that a drained one stays empty until it is added again. A drained log dir is cordoned on its broker.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.plan import RACKS_LOST
from streaming.commands.carrying_out import show_and_carry_out
from streaming.commands.console import echo
from streaming.commands.live_cluster import live_cluster
from streaming.commands.options import force_option, json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster
    from assignor_core.planner import PlannerPolicy
    from assignor_core.proposed_plan import ProposedPlan
    from streaming.views.intents import Intent

apply_option = click.option("--apply", "carry_out", is_flag=True, help="Carry the plan out, after asking.")
yes_option = click.option("--yes", is_flag=True, help="Don't ask.")
log_dir_option = click.option("--log-dir", metavar="PATH", help="Only this log dir of the broker.")


@click.command()
@click.argument("broker", type=int)
@log_dir_option
@apply_option
@yes_option
@json_option
@force_option
@settings_options
@click.pass_context
def drain(context: click.Context, /, broker: int, log_dir: str | None, **options: Any) -> int:
    """Empty BROKER: a plan that moves all it holds, internal topics too, and nothing else.

    Of a broker that is gone, the replicas that it held are made anew elsewhere, where there is a copy of them. With
    --log-dir all in it goes to the broker's other log dirs, and the broker puts nothing new into it (Kafka 4.3).
    """
    if log_dir is not None:
        from streaming.commands.log_dirs import drain_log_dir

        if options.pop("on_old_windows"):
            raise UsageProblem("--force: is for plans that rest on windows of load, and this one rests on none")
        return drain_log_dir(context, broker, log_dir, **options)
    from streaming.control.policies import relief_policy
    from streaming.views.intents import Intent

    return _run(context, broker, Intent.DRAIN, relief_policy(frozenset({broker}), drain=True), **options)


@click.command()
@click.argument("broker", type=int)
@log_dir_option
@settings_options
def undrain(broker: int, log_dir: str | None, config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """End the drain of BROKER, or of one of its log dirs, and move nothing: it may get replicas again."""
    from streaming.commands.tables_there import check_tables
    from streaming.tables import TableReader
    from streaming.views.intents import Intent, drained_brokers

    settings = settings_from(config_file, assignments)
    if log_dir is not None:
        from streaming.commands.log_dirs import undrain_log_dir

        return undrain_log_dir(broker, log_dir, settings)
    check_tables(settings)
    drained = drained_brokers(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    if broker not in drained:
        named = ", ".join(map(str, sorted(drained))) or "none"
        raise UsageProblem(f"broker {broker}: is not drained, drained are {named}")
    _note(settings, broker, Intent.USE, "undrain")
    return 0


@click.command()
@click.argument("broker", type=int)
@apply_option
@yes_option
@json_option
@force_option
@settings_options
@click.pass_context
def add(context: click.Context, /, broker: int, **options: Any) -> int:
    """Give BROKER its share: a plan that moves replicas to it and nowhere else. Ends a drain, too."""
    from streaming.views.intents import Intent

    return _run(context, broker, Intent.USE, None, **options)


def _run(
    context: click.Context,
    broker: int,
    intent: "Intent",
    policy: "PlannerPolicy | None",
    *,
    config_file: Path | None,
    assignments: tuple[str, ...],
    on_old_windows: bool,
    **how: Any,
) -> int:
    """Plan, show and, where asked to, carry out; `policy` None stands for that of `add`, `how` goes to
    `show_and_carry_out`.
    """
    from streaming.commands.noted_acts import keeping_plan

    settings = settings_from(config_file, assignments)
    action, now_ms = context.info_name or intent.value, clocks.now_ms()
    keep = keeping_plan(settings, action, str(broker), now_ms=now_ms)
    proposed = plan_for_broker(settings, broker, policy, keep=keep, now_ms=now_ms, on_old_windows=on_old_windows)
    unfit = None if policy is None else why_not_emptied(broker, proposed)
    prepare = partial(_note, settings, broker, intent, action)
    return show_and_carry_out(
        context,
        settings,
        proposed,
        str(broker),
        unfit,
        prepare,
        config_file=config_file,
        assignments=assignments,
        **how,
    )


def _note(settings: Settings, broker: int, intent: "Intent", action: str) -> None:
    from streaming.commands.noted_acts import noted, person
    from streaming.control.intents import note_intent
    from streaming.serve.api.actions import Outcome

    done = f"broker {broker} is noted for {intent.value}"
    with noted(settings, action, str(broker), Outcome("noted", done)):
        root, cluster = settings.storage.tables, settings.kafka.cluster_name
        note_intent(root, cluster, broker, intent, person(), now_ms=clocks.now_ms())
    echo(done, err=True)


def why_not_emptied(broker: int, proposed: "ProposedPlan") -> str | None:
    """Why this plan does not empty the broker; None if it does.

    A rack that loses its last broker is shown, and holds nobody back who empties that broker. Of a broker that is gone
    a part is worth making anew: the plan takes the most endangered partitions first.
    """
    problems = [line for line in proposed.plan.problems if not line.startswith(RACKS_LOST)]
    if not problems or _is_gone(broker, proposed):
        return None
    return f"broker {broker} can't be emptied: {'; '.join(problems)}"


def _is_gone(broker: int, proposed: "ProposedPlan") -> bool:
    """Whether the plan takes replicas from the broker, which was not alive when it was made."""
    return proposed.observed is not None and broker in proposed.observed.brokers_missing


def plan_for_broker(
    settings: Settings,
    broker: int,
    policy: "PlannerPolicy | None",
    *,
    keep: "Callable[[ProposedPlan], object]",
    now_ms: int,
    on_old_windows: bool = False,
) -> "ProposedPlan":
    """The plan, which `keep` stores if it moves anything; raises UsageProblem for a broker that is not there."""
    from streaming.control.planning import propose_and_keep
    from streaming.control.policies import policy_of_plans, relief_policy
    from streaming.control.wiring import window_tables_of
    from streaming.tables import TableReader
    from streaming.views.intents import drained_brokers

    def policy_for(live: "LiveCluster") -> "PlannerPolicy":
        _check_known(broker, live, alive=policy is None)
        by_settings = policy_of_plans(settings, {topic for topic, _ in live.partitions})
        if policy is not None:
            return relief_policy(policy.only_brokers, drain=bool(policy.drain), settings=by_settings)
        return by_settings.to_fill(frozenset({broker}), len(live.broker_racks.keys() - drained))

    drained = drained_brokers(TableReader(settings.storage.tables), settings.kafka.cluster_name) - {broker}
    with live_cluster(settings) as cluster:
        return propose_and_keep(
            cluster,
            window_tables_of(settings),
            settings.planner,
            keep=keep,
            now_ms=now_ms,
            policy_for=policy_for,
            drained=drained,
            on_old_windows=on_old_windows,
        )


def _check_known(broker: int, live: "LiveCluster", *, alive: bool) -> None:
    hosting = {other for partition in live.partitions.values() for other in partition.target_replicas}
    known = set(live.broker_racks) if alive else hosting | set(live.broker_racks)
    if broker not in known:
        state = "alive" if alive else "there"
        raise UsageProblem(f"broker {broker}: is not {state}, allowed are {', '.join(map(str, sorted(known)))}")
