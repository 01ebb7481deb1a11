"""`rebalancer apply PLAN` and `rebalancer abort`: a person acts.

`apply` writes the approval into the journal. Where a control is running it carries the plan out, and this command
follows; where none is (or it has died), this command takes the lease and does what control would: what is open has its
turn, one after the other. A command that ends before its execution prints it. A plan from a file is read and checked
whole, before anything of it is kept.
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import click
import structlog
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from assignor_core.errors import InputError
from assignor_core.execution.events import Event
from assignor_core.model import INT64_MAX, cluster_from_json
from assignor_core.plan import Plan, plan_from_json, plan_to_json, validate
from assignor_core.price import plan_duration_ms
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.reassignment_file import is_reassignment_file
from assignor_core.resources import Resource
from assignor_core.wording import bytes_text, counted
from streaming.commands.asked_plans import Asked, check_writable, plan_live
from streaming.commands.console import confirmed, echo
from streaming.commands.in_words import duration_text
from streaming.commands.json_lines import InvalidJson, each_key_once
from streaming.commands.options import check_tables, in_use, json_option, settings_from, settings_options
from streaming.errors import LeaseLost, RefusedForSafety, UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings
from streaming.views.approvals import begins_ms_of, waits_for

if TYPE_CHECKING:
    from assignor_core.execution.events import EventRecord, Figures
    from assignor_core.execution.life_cycle import Execution
    from assignor_core.proposed_plan import KeptPlan
    from streaming.cluster.ports import ClusterReader, ControlledCluster
    from streaming.control.carrier import Carrier
    from streaming.control.cluster_marker import ClusterMarker
    from streaming.control.journal import Journal
    from streaming.control.lease import Lease

    Ended = tuple[Execution, EventRecord]

log = structlog.get_logger()
POLL_INTERVAL_S = 1.0
EXIT_CODES = {Event.DONE: 0, Event.APPROVED: 0, Event.ENDORSED: 0, Event.REFUSED: 3}
"""By the newest event of the execution: one that ends it, or the approval if it must not begin now. Any other event is
a failure.
"""


@click.command()
@click.argument("plan", metavar="PLAN")
@settings_options
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--revalidate", is_flag=True, help="If the plan no longer fits the cluster, show a new plan.")
@click.option(
    "--at", metavar="TIME", help="Approve now, begin no earlier: '2026-12-06 02:00' (UTC) or with an offset, '+01:00'."
)
@json_option
def apply(
    plan: str,
    config_file: Path | None,
    assignments: tuple[str, ...],
    yes: bool,
    revalidate: bool,
    at: str | None,
    as_json: bool,
) -> int:
    """Carry out exactly that plan: PLAN is a plan's id (or its beginning), or a file.

    The file is one that `plan --out FILE` wrote, or one for kafka-reassign-partitions: that is shown as a plan first.
    A plan with --at, or one that another person has to approve too, is left to control: the command ends at once.
    With --json standard output has one object, the end; all else goes to standard error.
    """
    settings = settings_from(config_file, assignments)
    begins_ms = None if at is None else begins_ms_of(at, now_ms=clocks.now_ms())
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        ended = _applied(plan, settings, begins_ms, yes=yes, revalidate=revalidate, as_json=as_json)
    if ended is None:
        return 3
    if as_json:
        click.echo(json.dumps(_end_shown(*ended)))
    return EXIT_CODES.get(ended[1].event, 1)


def _end_shown(execution: "Execution", end: "EventRecord") -> dict[str, object]:
    from streaming.views.executions import progress_of

    return {
        "execution_id": execution.execution_id,
        "plan_id": execution.plan_id,
        **progress_of(end),
        "begins_ms": execution.begins_ms,
        "approvers": list(execution.approvers),
        "approvals_needed": end.figures.approvals_needed,
    }


def _applied(
    plan: str, settings: Settings, begins_ms: int | None, *, yes: bool, revalidate: bool, as_json: bool
) -> "Ended | None":
    """The execution and the event that has ended it, or its newest one if it must not begin now; None where the answer
    was no.
    """
    from streaming.cluster.clients import admin_client
    from streaming.cluster.permissions import check_may_execute
    from streaming.commands.acting import is_left_to_control, show_time
    from streaming.control.identity import lease_of, leased_cluster
    from streaming.control.wiring import journal_of
    from streaming.runtime.logs import configure_logging
    from streaming.runtime.secrets import secrets_of

    configure_logging(settings.log, secrets_of(settings))
    journal = journal_of(settings)
    from_file = os.path.isfile(plan)  # not Path's: it raises for a text that no file can have as its name
    if not from_file:
        check_tables(settings)
    approved, is_stored = _plan_of_file(plan, journal, settings) if from_file else (journal.plan(plan), True)
    _show(approved.plan)
    _show_executions(journal, approved)
    show_time(settings.control, begins_ms)
    with closing(admin_client(settings.kafka)) as admin:
        check_may_execute(admin)  # nobody is asked in vain
        check_writable(settings.kafka, approved.plan)
        if not confirmed("Carry out this plan on the live cluster?", yes=yes, err=as_json):
            return None
        lease = lease_of(admin, settings)
        with lease.kept():
            cluster = leased_cluster(admin, lease)
            following = _Following(cluster, journal, lease, settings)
            execution = _approved(journal, settings, approved, is_stored=is_stored, begins_ms=begins_ms)
            if is_left_to_control(execution, settings):
                return execution, execution.last
            end = following.to_the_end(execution)
        if end.event is Event.REFUSED and revalidate:
            _propose_again(cluster, settings)
    _tell(f"{end.event}: {end.detail}")
    return execution, end


def _approved(
    journal: "Journal", settings: Settings, approved: "KeptPlan", *, is_stored: bool, begins_ms: int | None = None
) -> "Execution":
    """The execution of the plan, which is stored first if it is not; it begins no earlier than at `begins_ms`."""
    from streaming.commands.acting import noted, person
    from streaming.serve.api.audit import ActOutcome

    accepted = ActOutcome("accepted", "the plan is approved")
    with noted(settings, "approve", approved.plan.plan_id, accepted) as act:
        if not is_stored:
            approved = journal.write_plan(approved.proposed, decision=None, now_ms=clocks.now_ms())
        now_ms = clocks.now_ms()
        execution, _ = journal.approve_once(approved, person(), now_ms=now_ms, begins_ms=begins_ms)
        act.outcome = replace(accepted, detail=execution.last.detail)
    return execution


def carry_out_stored(settings: Settings, plan_id: str) -> "EventRecord":
    """Approves a stored plan that a person has agreed to; returns the event that ends its execution."""
    from streaming.control.wiring import journal_of

    journal = journal_of(settings)
    with _following_of(settings, journal) as following:
        end = following.to_the_end(_approved(journal, settings, journal.plan(plan_id), is_stored=True))
    if following.is_interrupted and end.event is Event.DONE:
        raise KeyboardInterrupt  # it came too late to stop the execution, and what would follow must not be done
    return end


def finish_open(settings: Settings, wait_s: float) -> None:
    """Follows executions whose turn it is to their ends, and carries them out where no control does. An interrupt ends
    the command and leaves them as they are: other people have approved them. Raises RefusedForSafety for one that
    has not ended after `wait_s`.
    """
    from streaming.control.wiring import journal_of

    ends_s = time.monotonic() + wait_s
    journal, now_ms = journal_of(settings), clocks.now_ms()
    running = [row for row in journal.open_executions(now_ms=now_ms) if row.has_turn(now_ms)]
    if running:
        with _following_of(settings, journal, asks_to_stop=False) as following:
            for execution in running:
                following.to_the_end(execution, ends_s=ends_s)


@contextmanager
def _following_of(settings: Settings, journal: "Journal", *, asks_to_stop: bool = True) -> Iterator["_Following"]:
    """A follower of executions with a lease of its own, which is given back at the end."""
    from streaming.cluster.clients import admin_client
    from streaming.control.identity import lease_of, leased_cluster

    with closing(admin_client(settings.kafka)) as admin:
        lease = lease_of(admin, settings)
        with lease.kept():
            yield _Following(leased_cluster(admin, lease), journal, lease, settings, asks_to_stop=asks_to_stop)


@click.command()
@click.argument("execution", metavar="[EXECUTION]", required=False)
@settings_options
def abort(execution: str | None, config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Stop the execution under way: cancel movements in flight and remove throttles. Finished movements stay.

    EXECUTION is the id of one execution (or its beginning); without it all that are open end, also approved ones that
    have not begun.
    """
    from streaming.control.wiring import journal_of
    from streaming.runtime.logs import configure_logging
    from streaming.runtime.secrets import secrets_of

    settings = settings_from(config_file, assignments)
    configure_logging(settings.log, secrets_of(settings))
    check_tables(settings)
    journal = journal_of(settings)
    running = journal.open_executions(now_ms=clocks.now_ms())
    if execution is not None:
        running = [row for row in running if row.execution_id.startswith(execution)]
        if len(running) != 1:
            problem = "is not unique" if running else "is not open"
            raise UsageProblem(f"execution {execution[:100]!r} {problem}: see rebalancer status{in_use()}")
    if not running:
        echo("nothing is being executed")
        return 0
    with _following_of(settings, journal) as following:
        for row in running:
            following.ask_to_stop(row)
        for row in running:
            end = following.to_the_end(row)
            _tell(f"{row.execution_id}: {end.event}: {end.detail}")
    return 0


def _tell(text: str, *, err: bool = False) -> None:
    """Whoever read the output may have gone. What is under way on the cluster is brought to its end all the same."""
    with suppress(OSError):
        echo(text, err=err)


def progress_line(figures: "Figures", elapsed_ms: float) -> str:
    """How far an execution is that began so long ago: movements, percent, rate, and the time that is left.

    >>> from assignor_core.execution.events import Figures
    >>> progress_line(Figures(4, 8_000_000, 2, 6_000_000), 60_000)
    '2 of 4 movements, 75 %: 6.0 MB of 8.0 MB at 100.0 kB/s, about 20 s left'
    >>> progress_line(Figures(2, 0, 1, 0), 1_000), progress_line(Figures(2, 10, 0, 0), 0)
    ('1 of 2 movements, 50 %', '0 of 2 movements, 0 %: 0 B of 10 B')
    """
    done = f"{figures.movements_done} of {counted(figures.movements_total, 'movement', 'movements')}"
    moved, total = figures.bytes_moved, figures.bytes_total
    if not total:
        return f"{done}, {figures.movements_done / max(1, figures.movements_total):.0%}".replace("%", " %")
    copied = f"{done}, {moved / total * 100:.0f} %: {bytes_text(moved)} of {bytes_text(total)}"
    if not moved or elapsed_ms <= 0:
        return copied
    per_ms = moved / elapsed_ms
    left = f", about {duration_text((total - moved) / per_ms)} left" if moved < total else ""
    return f"{copied} at {bytes_text(per_ms * 1000)}/s{left}"


class _Following:
    """Watches executions to their ends; carries out what is open where no control does, or the one that did is gone.

    From its making on Ctrl-C, SIGTERM or the end of the terminal asks for an abort of what is watched; a second one
    leaves.
    """

    def __init__(
        self,
        cluster: "ControlledCluster",
        journal: "Journal",
        lease: "Lease",
        settings: Settings,
        *,
        asks_to_stop: bool = True,
    ) -> None:
        self._asks_to_stop = asks_to_stop
        self._cluster = cluster
        self._journal = journal
        self._lease = lease
        self._settings = settings
        self._carrier: Carrier | None = None
        self._marker: ClusterMarker | None = None
        self._interrupted = threading.Event()
        self._leaves = False
        self._worked_s = time.monotonic()
        self._shown = (-1, -1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has SIGHUP ignored
                signal.signal(number, self._stop)

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal has asked to stop."""
        return self._interrupted.is_set()

    def to_the_end(self, execution: "Execution", *, ends_s: float | None = None) -> "EventRecord":
        """The event that ends it. If an error or a second Ctrl-C ends the command before, it prints what stays open."""
        try:
            while not execution.ended:
                if ends_s is not None and time.monotonic() > ends_s:
                    name = execution.execution_id
                    raise RefusedForSafety(f"execution {name} is still under way: see rebalancer status{in_use()}")
                execution = self._poll(execution)
                if self._leaves and not execution.ended:
                    # Code that Python calls back, as when an object is destroyed, loses the exception of the handler.
                    raise KeyboardInterrupt
                # Not in `_poll`: a second Ctrl-C mostly comes during the sleep, and must not lose what the step showed.
                if not execution.ended:
                    time.sleep(POLL_INTERVAL_S)
        finally:
            if not execution.ended:
                hint = f"to stop it: rebalancer abort{in_use()}"
                _tell(f"execution {execution.execution_id} stays open ({execution.last_event}); {hint}", err=True)
        assert execution.end is not None
        return execution.end

    def _poll(self, execution: "Execution") -> "Execution":
        """One step. What fails is tried again, as by control, for as long as an execution may last; then it raises."""
        from streaming.control.carrier import RETRIED_ERRORS

        try:
            execution = self._step(execution)
            self._worked_s = time.monotonic()
        except (LeaseLost, *RETRIED_ERRORS) as error:
            if isinstance(error, LeaseLost):
                self._carrier = None  # the next one finds in the journal what has come of it
            if time.monotonic() - self._worked_s > self._settings.control.execution_deadline_ms / 1000:
                raise
            log.warning("tick_failed", error=str(error))
        return execution

    def _step(self, execution: "Execution") -> "Execution":
        self._lease.progress()
        if self._interrupted.is_set() and not execution.abort_requested:
            _tell("asked to stop: moves in flight are cancelled, and throttles removed", err=True)
            self.ask_to_stop(execution)
        if not self._lease.held:
            self._carrier = None
            self._lease.try_acquire()
        if self._lease.held:
            self._carrier = self._carrier or self._new_carrier()
            self._carrier.tick(now_ms=clocks.now_ms())
        known = self._journal.execution(execution.execution_id)
        self._show_progress(known)
        return known

    def ask_to_stop(self, execution: "Execution") -> None:
        """Write the request of the person at this command line."""
        from streaming.commands.acting import noted, person
        from streaming.serve.api.audit import ActOutcome

        detail = f"execution {execution.execution_id} is asked to stop"
        with noted(self._settings, "abort", execution.execution_id, ActOutcome("abort_asked", detail)):
            self._journal.request_abort(execution, person(), now_ms=clocks.now_ms())

    def _new_carrier(self) -> "Carrier":
        from streaming.control.carrier import Carrier
        from streaming.control.cluster_marker import ClusterMarker
        from streaming.control.wiring import executors_of

        # One for all carriers: it knows for how long the markers of others have stood still.
        self._marker = self._marker or ClusterMarker(self._cluster, self._lease)
        executor = executors_of(self._cluster, self._journal, self._settings, self._lease.snapshot_age)
        return Carrier(executor, self._journal, self._marker)

    def _show_progress(self, execution: "Execution") -> None:
        line = progress_line(execution.figures, clocks.now_ms() - execution.begun_ms)
        done = (execution.figures.movements_done, execution.figures.bytes_moved)
        if done != self._shown:
            self._shown = done
            _tell(line)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        if self._interrupted.is_set() or not self._asks_to_stop:
            self._leaves = True
            raise KeyboardInterrupt
        self._interrupted.set()


def _show_executions(journal: "Journal", approved: "KeptPlan") -> None:
    """What has come of this plan before, and what it waits for. Raises RefusedForSafety if it was carried out since it
    was made; what an abort has left of it may be carried out.
    """
    from streaming.commands.acting import approved_before, executions_of

    executions = journal.executions(now_ms=clocks.now_ms())
    ended = [row for row in executions_of(executions, approved) if row.ended]
    if ended:
        _show_end(ended[-1], is_since=approved_before(executions, approved) is ended[-1])
    for other in journal.open_executions(now_ms=clocks.now_ms()):
        waits = waits_for(other, clocks.now_ms())
        turn = (
            f"it {waits}"
            if waits is not None
            else "it goes on"
            if other.plan_id == approved.plan.plan_id
            else "this plan waits for its end, which rebalancer abort brings"
        )
        echo(f"Execution {other.execution_id} is open ({other.last_event}: {other.last.detail}): {turn}.")


def _show_end(earlier: "Execution", *, is_since: bool) -> None:
    """How the newest execution of this plan ended; `is_since`: the plan was not made again after it."""
    from streaming.tables import utc

    assert earlier.end is not None
    end, when = earlier.end, f"{utc(earlier.end.at_ms):%Y-%m-%d %H:%M} UTC"
    if end.event is not Event.DONE:
        echo(f"Execution {earlier.execution_id} of this plan ended at {when} ({end.event}: {end.detail}).")
        return
    carried_out = f"this plan was carried out by execution {earlier.execution_id}, which ended at {when}"
    if is_since:
        raise RefusedForSafety(f"{carried_out}: make a new plan")
    echo(f"{carried_out}, and was made again since.")


def _plan_of_file(file: str, journal: "Journal", settings: Settings) -> "tuple[KeptPlan, bool]":
    """The plan of a file, checked whole, and whether the tables have it; nothing is stored before the person agrees.

    A stored plan stays as it is, with its age, which a file doesn't show. One that was made on no live cluster has no
    age: each approval begins it anew. Raises PlanTampered where the file has other content than the stored plan.
    """
    from assignor_core.errors import PlanTampered
    from assignor_core.plan import HASH_VERSION, checked_content
    from assignor_core.proposed_plan import KeptPlan
    from streaming.control.policies import policy_on

    now_ms = clocks.now_ms()
    content = _content_of(file)
    if is_reassignment_file(content):
        proposed = plan_live(settings, Asked.of_content(file, content), partial(policy_on, settings), now_ms=now_ms)
        return KeptPlan(proposed, now_ms, now_ms + settings.planner.plan_ttl_ms), False
    proposed = read_plan_file(file, settings.kafka.cluster_name)
    plan = proposed.plan
    stored = journal.readable_plan(plan.plan_id)
    if stored is not None and checked_content(stored.plan) != checked_content(plan):
        raise PlanTampered(
            f"plan file {file}: found other waves, sizes or observations than in the stored plan of that id; "
            f"to carry out the stored one: rebalancer apply {plan.plan_id[:12]}{in_use()}"
        )
    if stored is not None and (plan.observed is not None or plan.hash_version < HASH_VERSION):
        return stored, True
    if plan.hash_version < HASH_VERSION:
        raise UsageProblem(
            f"plan file {file}: hash_version: found none, allowed is {HASH_VERSION}: an earlier release wrote it, and "
            "its id does not cover waves and sizes: make a new plan"
        )
    return KeptPlan(proposed, now_ms, now_ms + settings.planner.plan_ttl_ms), False


def _content_of(file: str) -> object:
    """The JSON in the file; None where it has none, of which `read_plan_file` says why."""
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"), object_pairs_hook=each_key_once)
    except (OSError, ValueError, RecursionError, InvalidJson):
        return None


def _propose_again(cluster: "ClusterReader", settings: Settings) -> None:
    from streaming.commands.acting import keeping_plan, propose_and_keep

    now_ms = clocks.now_ms()
    keep = keeping_plan(settings, "plan", now_ms=now_ms)
    plan = propose_and_keep(cluster, settings, keep=keep, now_ms=now_ms).plan
    if not plan.movement_count:
        echo("a new plan was made: there is nothing to move")
        return
    echo(f"a new plan was made; to carry it out: rebalancer apply {plan.plan_id[:12]}{in_use()}")
    _show(plan)


def _show(plan: Plan) -> None:
    """What carrying it out would do: how much, what it brings, and each movement."""
    from streaming.commands.plan_text import movement_lines

    before, after = (
        skew.get(Resource.BYTES_IN, {}).get("max_over_mean") for skew in (plan.skew_before, plan.skew_after)
    )
    known = before is not None and after is not None
    moves = counted(plan.movement_count, "movement", "movements")
    duration_ms = plan_duration_ms(plan)
    echo(
        f"plan {plan.plan_id[:12]}: {moves}, {bytes_text(plan.bytes_to_move)} to copy"
        + (f" in about {duration_text(duration_ms)}" if duration_ms else "")
        + (f", bytes_in max/mean {before:.3f} -> {after:.3f}" if known else ", without its effect on the skew")
    )
    for line in plan.problems:
        echo(f"- {line}")
    for line in movement_lines(plan, shutil.get_terminal_size().columns):
        echo(line)


class _Ratio(BaseModel):
    max_over_mean: FiniteFloat | None = None


class _Observed(BaseModel):
    leaders: list[tuple[str, int, int]]
    partition_counts: dict[str, int]
    brokers_missing: list[int] = []
    kafka_cluster_id: str | None = None
    topic_ids: dict[str, str] = {}


class _Rests(BaseModel):
    """What a plan rests on, in its place in the file."""

    observed: _Observed | None = None


class _Besides(BaseModel):
    """What is kept of a plan besides its movements. What only some writers of plans know may be absent."""

    elapsed_ms: Annotated[float, Field(ge=0, le=INT64_MAX)] = 0.0
    skew_before: dict[str, _Ratio]
    skew_after: dict[str, _Ratio]
    lower_bound: dict[str, FiniteFloat]
    loads_before: dict[str, dict[int, FiniteFloat]] = {}
    loads_after: dict[str, dict[int, FiniteFloat]] = {}
    least_bytes: Annotated[FiniteFloat, Field(ge=0)] | None = None


def read_plan_file(file: str, cluster_name: str) -> ProposedPlan:
    """The contract's "Result of plan" in `file`, for the cluster of that name.

    Raises UsageProblem in one line; PlanTampered where content and id disagree.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        content = _from_json(text)
        if isinstance(content, dict):
            _Rests.model_validate_json(text, strict=True)
        plan = plan_from_json(content)
        besides = _Besides.model_validate_json(text, strict=True)
        plan_to_json(plan)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _misfit(file, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (KeyError, TypeError):
        raise _misfit(file, "lower_bound: names a resource of which skew_after holds no max_over_mean") from None
    except (OSError, ValueError, OverflowError, RecursionError, InputError) as error:
        raise _misfit(file, str(error)) from None
    if plan.cluster_id not in ("", cluster_name):
        raise _misfit(file, f"is for cluster {plan.cluster_id!r}, kafka.cluster_name is {cluster_name!r}")
    problem = _unsound(plan)
    if problem:
        raise _misfit(file, problem)
    return ProposedPlan(plan, elapsed_ms=besides.elapsed_ms)


def _from_json(text: str) -> Any:
    """What the text holds; raises ValueError. Who sends the text for people to a file learns what to ask for."""
    try:
        return json.loads(text, object_pairs_hook=each_key_once)
    except ValueError as error:
        raise ValueError(f"is no JSON, which `rebalancer plan --out FILE` writes: {error}") from None


def _unsound(plan: Plan) -> str | None:
    """Why no cluster may be changed so, if so: asked of the smallest cluster that the plan could be for."""
    if plan.bytes_to_move > INT64_MAX:
        return f"bytes_to_move: found {plan.bytes_to_move:g}"
    if not plan.movements:
        return None
    named = {broker for movement in plan.movements for broker in (*movement.old_replicas, *movement.new_replicas)}
    before = {
        (movement.topic, movement.partition): {
            "topic": movement.topic,
            "partition": movement.partition,
            "replicas": list(movement.old_replicas),
            "load": {"bytes_in_per_sec": 0.0, "bytes_out_per_sec": 0.0, "disk_bytes": movement.bytes_to_move},
        }
        for movement in plan.movements
    }
    try:
        cluster = cluster_from_json(
            {
                "cluster_id": plan.cluster_id,
                "brokers": [{"broker_id": broker} for broker in sorted(named)],
                "partitions": list(before.values()),
            }
        )
    except InputError as error:
        return str(error)
    problems = validate(plan, cluster)
    if problems:
        return problems[0]
    return None


def _misfit(file: str, problem: str) -> UsageProblem:
    return UsageProblem(f"plan file {file}: {problem}")
