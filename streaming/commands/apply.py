"""`rebalancer apply PLAN` and `rebalancer abort`: a person acts.

`apply` writes the approval into the journal. Where a control is running it carries the plan out, and this command
follows; where none is (or it has died), this command takes the lease and does it itself.
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
    from streaming.control.journal import Journal
    from streaming.control.lease import Lease
    from streaming.control.records import ExecutionRecord, PlanRecord

POLL_INTERVAL_S = 1.0


@click.command()
@click.argument("plan", metavar="PLAN")
@settings_options
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--revalidate", is_flag=True, help="Where the plan no longer fits, show a new one.")
def apply(plan: str, config_file: Path | None, assignments: tuple[str, ...], yes: bool, revalidate: bool) -> int:
    """Carry out exactly that plan: PLAN is a plan's id (or its beginning), or a file that `rebalancer plan` wrote."""
    from streaming.cluster import Cluster
    from streaming.control.journal import Journal, owner
    from streaming.control.lease import Lease
    from streaming.control.policies import may_act, next_opening
    from streaming.kafka_clients import admin_client
    from streaming.logs import configure_logging

    settings = settings_from(config_file, assignments)
    configure_logging(settings.log)
    journal = Journal(settings)
    approved = journal.plan(_import_plan(plan, journal) if Path(plan).is_file() else plan)
    _show(approved.json)
    if not may_act(settings, _now_ms()):
        click.echo(f"No maintenance window is open: this plan does not wait for {next_opening(settings, _now_ms())}.")
    if not yes and not click.confirm("Carry out this plan on the live cluster?"):
        return 3
    admin = admin_client(settings.kafka)
    lease = Lease(settings.storage.tables, settings.kafka.cluster_name, settings.control.lease_ms)
    try:
        with lease.kept():
            cluster = Cluster(admin, lease.check)
            record = journal.approve(approved, f"a person ({owner()})", now_ms=_now_ms())
            _Following(cluster, journal, lease, settings).to_the_end(record, approved)
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
    from streaming.control.journal import Journal
    from streaming.control.lease import Lease
    from streaming.kafka_clients import admin_client

    settings = settings_from(config_file, assignments)
    journal = Journal(settings)
    running = [record for record in journal.executions(now_ms=_now_ms()) if not record.ended]
    if not running:
        click.echo("nothing is being executed")
        return 0
    admin = admin_client(settings.kafka)
    lease = Lease(settings.storage.tables, settings.kafka.cluster_name, settings.control.lease_ms)
    try:
        with lease.kept():
            following = _Following(Cluster(admin, lease.check), journal, lease, settings)
            for record in running:
                journal.request_abort(record, now_ms=_now_ms())
                following.to_the_end(record, journal.plan(record.plan_id))
                click.echo(f"{record.execution_id}: {record.last_event}: {record.events[-1]['detail']}")
    finally:
        admin.close()
    return 0 if all(record.ended for record in running) else 1


class _Following:
    """Watches an execution to its end; carries it out where no control does, or the one that did is gone."""

    def __init__(self, cluster: "Cluster", journal: "Journal", lease: "Lease", settings: Settings) -> None:
        from streaming.control.executor import Executor

        self._executor = Executor(cluster, journal, settings)
        self._journal = journal
        self._lease = lease
        self._interrupted = threading.Event()
        self._shown = -1

    def to_the_end(self, record: "ExecutionRecord", approved: "PlanRecord") -> None:
        """Ctrl-C asks for an abort, a second one leaves; raises what the cluster and the tables raise."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        ours = False
        while not record.ended:
            self._read(record)
            if not ours and self._lease.try_acquire():
                ours = True
                self._read(record)
                if not record.ended and record.last_event != "approved":
                    self._executor.resume(record, approved.plan, now_ms=_now_ms())
            if ours and not record.ended:
                self._act(record, approved)
            self._show_progress(record)
            if not record.ended:
                time.sleep(POLL_INTERVAL_S)

    def _act(self, record: "ExecutionRecord", approved: "PlanRecord") -> None:
        if record.last_event == "approved":
            self._executor.begin(record, approved, now_ms=_now_ms())
        else:
            self._executor.tick(record, approved.plan, now_ms=_now_ms())

    def _read(self, record: "ExecutionRecord") -> None:
        """What the journal says now; a wish to stop is written there, whoever carries it out."""
        known = next(
            row for row in self._journal.executions(now_ms=_now_ms()) if row.execution_id == record.execution_id
        )
        if self._interrupted.is_set() and not known.abort_requested:
            self._journal.request_abort(known, now_ms=_now_ms())
        record.abort_requested = known.abort_requested or self._interrupted.is_set()
        record.events[:] = known.events

    def _show_progress(self, record: "ExecutionRecord") -> None:
        last = record.events[-1]
        if last["movements_done"] != self._shown:
            self._shown = last["movements_done"]
            click.echo(f"{self._shown} of {last['movements_total']} movements, {last['bytes_moved']:,} bytes")

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        if self._interrupted.is_set():
            raise KeyboardInterrupt
        self._interrupted.set()


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
