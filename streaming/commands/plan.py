"""`rebalancer plan`: a plan from a cluster model, or from the newest windows and the live cluster."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from streaming.commands.options import settings_from, settings_options
from streaming.commands.plan_model import plan_from_model, policy_from, policy_options, read_model, show


@click.command()
@click.option(
    "--model", "model_file", metavar="FILE", help="Cluster model, JSON; - is standard input. No Kafka needed."
)
@click.option("--out", "out_file", type=click.Path(path_type=Path), help="Write the result there as well.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")
@settings_options
@policy_options
def plan(
    model_file: str | None,
    out_file: Path | None,
    as_json: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
    **knobs: Any,
) -> int:
    """A plan from the newest closed windows and the live placement, or from a cluster model; moves nothing.

    A plan from the live cluster is kept in the tables: `rebalancer apply PLAN_ID` carries it out.
    """
    policy = policy_from(knobs)
    if model_file is not None:
        result = plan_from_model(read_model(model_file), policy)
    else:
        result = _plan_live(config_file, assignments, knobs)
    show(result, out_file=out_file, as_json=as_json or not sys.stdout.isatty())
    return 0


def _plan_live(config_file: Path | None, assignments: tuple[str, ...], knobs: dict[str, Any]) -> dict[str, Any]:
    from streaming.cluster import Cluster
    from streaming.control.deciding import propose_now
    from streaming.control.journal import Journal
    from streaming.control.policies import planner_policy
    from streaming.kafka_clients import admin_client

    settings = settings_from(config_file, assignments)
    now_ms = time.time_ns() // 1_000_000
    admin = admin_client(settings.kafka)
    try:
        cluster = Cluster(admin)
        live = cluster.describe()
        topics = {topic for topic, _ in live.partitions}
        excluded = planner_policy(settings, topics).excluded_topics | frozenset(knobs["excluded_topics"])
        policy = policy_from({**knobs, "excluded_topics": excluded})
        proposal = propose_now(cluster, live, settings, policy=policy, now_ms=now_ms)
    finally:
        admin.close()
    if proposal.plan.movements:
        span = (proposal.windows[0].start_ms, proposal.windows[-1].end_ms)
        Journal(settings).write_plan(proposal.json, decision=None, window=span, now_ms=now_ms)
    return proposal.json
