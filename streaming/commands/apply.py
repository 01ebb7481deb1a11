"""`rebalancer apply PLAN` and `rebalancer abort`: a person acts.

`apply` writes the approval into the journal. Where a control is running it carries the plan out, and this command
follows; where none is, this command holds the executor's lock and does it itself.
"""

import json
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.options import settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.settings import Settings

if TYPE_CHECKING:
    from streaming.cluster import Cluster
    from streaming.control.executor import Executor
    from streaming.control.journal import ExecutionRecord, Journal, PlanRecord

POLL_INTERVAL_S = 1.0


@click.command()
@click.argument("plan", metavar="PLAN")
@settings_options
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--revalidate", is_flag=True, help="Where the plan no longer fits, show a new one.")
def apply(plan: str, config_file: Path | None, assignments: tuple[str, ...], yes: bool, revalidate: bool) -> int:
    """Carry out exactly that plan: PLAN is a plan's id (or its beginning), or a file that `rebalancer plan` wrote."""
    from streaming.cluster import Cluster
    from streaming.control.executor import Executor
    from streaming.control.journal import Journal, owner
    from streaming.control.lock import executor_lock
    from streaming.kafka_clients import admin_client
    from streaming.logs import configure_logging

    settings = settings_from(config_file, assignments)
    configure_logging(settings.log)
    journal = Journal(settings)
    approved = journal.plan(_import_plan(plan, journal) if Path(plan).is_file() else plan)
    _show(approved.json)
    if not yes and not click.confirm("Carry out this plan on the live cluster?"):
        return 3
    admin = admin_client(settings.kafka)
    try:
        cluster = Cluster(admin)
        record = journal.approve(approved, f"a person ({owner()})", now_ms=_now_ms())
        with executor_lock(settings.storage.tables) as ours:
            executor = Executor(cluster, journal, settings) if ours else None
            if executor is None or executor.begin(record, approved, now_ms=_now_ms()):
                _follow(executor, journal, record, approved)
        if record.last_event == "refused" and revalidate:
            _propose_again(cluster, journal, settings)
    finally:
        admin.close()
    click.echo(f"{record.last_event}: {record.events[-1]['detail']}")
    return {"done": 0, "measured": 0, "refused": 3}.get(record.last_event, 1)


@click.command()
@settings_options
def abort(config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Stop the execution under way, cancel its moves in flight and take its throttles away."""
    from streaming.cluster import Cluster
    from streaming.control.executor import Executor
    from streaming.control.journal import Journal
    from streaming.control.lock import executor_lock
    from streaming.kafka_clients import admin_client

    settings = settings_from(config_file, assignments)
    journal = Journal(settings)
    now_ms = _now_ms()
    running = [record for record in journal.executions(now_ms=now_ms) if not record.ended]
    if not running:
        click.echo("nothing is being executed")
        return 0
    for record in running:
        journal.request_abort(record, now_ms=now_ms)
        record.abort_requested = True
    with executor_lock(settings.storage.tables) as ours:
        if not ours:
            click.echo(f"asked the running executor to abort {', '.join(record.execution_id for record in running)}")
            return 0
        admin = admin_client(settings.kafka)
        try:
            for record in running:
                executor = Executor(Cluster(admin), journal, settings)
                while not executor.tick(record, journal.plan(record.plan_id).plan, now_ms=_now_ms()):
                    time.sleep(POLL_INTERVAL_S)
                click.echo(f"{record.execution_id}: {record.events[-1]['detail']}")
        finally:
            admin.close()
    return 0


def _follow(executor: "Executor | None", journal: "Journal", record: "ExecutionRecord", approved: "PlanRecord") -> None:
    """Tick (or watch the control that does) until it has ended; Ctrl-C asks for an abort, a second one leaves."""
    interrupted = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    shown = -1
    while not record.ended:
        known = next(row for row in journal.executions(now_ms=_now_ms()) if row.execution_id == record.execution_id)
        if interrupted.is_set() and not known.abort_requested:
            journal.request_abort(known, now_ms=_now_ms())
        record.abort_requested = known.abort_requested or interrupted.is_set()
        if executor is None:
            record.events[:] = known.events
        else:
            executor.tick(record, approved.plan, now_ms=_now_ms())
        last = record.events[-1]
        if last["movements_done"] != shown:
            shown = last["movements_done"]
            click.echo(f"{shown} of {last['movements_total']} movements, {last['bytes_moved']:,} bytes")
        time.sleep(POLL_INTERVAL_S)


def _import_plan(file: str, journal: "Journal") -> str:
    """Put a plan from a file into the tables; its content must match its id."""
    from assignor_core.plan import plan_from_json

    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageProblem(f"plan file {file}: {error}") from None
    plan_id = plan_from_json(content).plan_id
    journal.write_plan(content, decision=None, window=None, now_ms=_now_ms())
    return plan_id


def _propose_again(cluster: "Cluster", journal: "Journal", settings: Settings) -> None:
    from streaming.control.deciding import propose_now

    proposal = propose_now(cluster, cluster.describe(), settings, now_ms=_now_ms())
    journal.write_plan(proposal.json, decision=None, window=None, now_ms=_now_ms())
    click.echo(f"a new plan was made; to carry it out: rebalancer apply {proposal.plan.plan_id[:12]}")
    _show(proposal.json)


def _show(plan: Mapping[str, Any]) -> None:
    before, after = plan["skew_before"]["bytes_in"]["max_over_mean"], plan["skew_after"]["bytes_in"]["max_over_mean"]
    click.echo(
        f"plan {plan['plan_id'][:12]}: {len(plan['movements'])} movements, {plan['bytes_to_move']:,.0f} bytes, "
        f"bytes_in max/mean {before:.3f} -> {after:.3f}"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
