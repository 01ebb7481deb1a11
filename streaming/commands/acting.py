"""Acts of people: at the command line, and by HTTP through serve, by the journal and the planning of the commands.

An approval, an abort or a note is a row: the control that holds the lease acts on it, now or after a take-over. Each
act has a row in `audit` before it and one after it. A command shows for whom an approval waits.
"""

import hashlib
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from assignor_core.errors import CoreError, InputError
from assignor_core.execution.life_cycle import Execution
from assignor_core.maintenance import may_act, next_opening
from assignor_core.wording import counted
from streaming.commands.console import echo
from streaming.commands.in_words import duration_text
from streaming.commands.options import in_use, live_cluster
from streaming.control.policies import maintenance_windows
from streaming.errors import TableUnavailable, UsageProblem
from streaming.runtime import clocks
from streaming.runtime.accounts import Role
from streaming.runtime.own_process import os_user
from streaming.serve.access import Person
from streaming.serve.api.audit import Act, ActOutcome, Audit
from streaming.settings import ControlSettings, Settings
from streaming.tables import TableReader, of_cluster, to_ms
from streaming.views.approvals import check_begins_ms, instant_text, waits_for
from streaming.views.past_rows import read_execution_of
from streaming.views.plans import plan_ids

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster
    from assignor_core.planner import PlannerPolicy
    from assignor_core.proposed_plan import KeptPlan, ProposedPlan
    from assignor_core.restart import RestartCheck
    from streaming.cluster.ports import ClusterReader
    from streaming.commands.lifecycle import BrokerAct

COMMAND_LINE = "command line"
AS_BEFORE = ", and no order of replicas has to change"
OF_BROKERS = {
    "drain": ("drained", " and holds nothing"),
    "add": ("added", " and has its share"),
    "demote": ("demoted", AS_BEFORE),
    "undemote": ("undemoted", AS_BEFORE),
}
"""By act on a broker, its state once nothing is left to move, and what is said then of the broker."""


class JournalActions:
    """Acts on the cluster and the tables of these settings; connects to brokers only to make a plan."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def make_plan(self, *, now_ms: int) -> ActOutcome:
        """The plan that control would make, of the newest windows and the placement as it is."""
        with live_cluster(self._settings) as cluster:
            return planned(propose_and_keep(cluster, self._settings, keep=self._keeping(now_ms), now_ms=now_ms))

    def approve(self, plan_id: str, by: str, *, now_ms: int, begins_ms: int | None = None) -> ActOutcome:
        """Approve once: an open execution of the plan stands, and one that has ended is not repeated. The execution
        begins no earlier than `begins_ms`. Raises RefusedForSafety for a person who has approved before.
        """
        from streaming.control.obstacles import expired
        from streaming.control.wiring import journal_of

        if begins_ms is not None:
            try:
                check_begins_ms(begins_ms, now_ms)
            except InputError as error:
                raise UsageProblem(f"begins_ms: {error}") from None
        journal = journal_of(self._settings)
        if plan_id not in plan_ids(self._reader(), self._cluster, plan_id):
            return ActOutcome("unknown", f"plan {plan_id!r} is unknown: /api/v1/plans lists those that are stored", 404)
        try:
            kept = journal.plan(plan_id)
        except (CoreError, KeyError, TypeError, ValueError) as error:
            detail = f"plan {plan_id[:12]} can't be read, so make a new one: {type(error).__name__}: {error}"
            return ActOutcome("unreadable", detail, 409)
        earlier = approved_before(journal.executions(now_ms=now_ms), kept)
        if earlier is not None and not earlier.needs_approval:
            return _approved_before(earlier, now_ms)
        if expired(kept, now_ms, None if earlier is None else earlier.begins_ms) is not None:
            return ActOutcome(
                "expired", f"plan {plan_id[:12]} has expired: make a new one", 409, {"expires_ms": kept.expires_ms}
            )
        if not kept.plan.movement_count:
            return ActOutcome(
                "nothing_to_move", f"plan {plan_id[:12]} moves nothing, so there is nothing to approve", 409
            )
        before = journal.open_executions(now_ms=now_ms)
        execution, is_new = journal.approve_once(kept, by, now_ms=now_ms, begins_ms=begins_ms)
        if not is_new:
            return _approved_before(execution, now_ms)
        name, waits = execution.execution_id, waits_for(execution, now_ms)
        if execution.needs_approval:
            detail = f"execution {name} {waits}: another person has to approve it"
            return ActOutcome("needs_approval", detail, fields=_named(execution))
        ahead = [row for row in before if row.has_turn(now_ms)]
        turn = f" after execution {ahead[-1].execution_id}" if ahead else ""
        time = f" and {waits}" if waits else ""
        detail = f"execution {name} is approved{time}; {self._who_carries_out(now_ms)}{turn}"
        return ActOutcome("accepted", detail, fields=_named(execution))

    def abort(self, execution_id: str, by: str, *, now_ms: int) -> ActOutcome:
        """Ask to stop; one that has ended stays as it is."""
        from streaming.control.wiring import journal_of

        execution = read_execution_of(self._reader(), self._cluster, execution_id)
        if execution is None:
            return ActOutcome(
                "unknown", f"execution {execution_id!r} is unknown: /api/v1/executions lists those that are stored", 404
            )
        if execution.ended:
            detail = f"execution {execution_id} has ended, {_end(execution)}: nothing is left to stop"
            return ActOutcome("already_ended", detail, 409, _named(execution))
        if execution.abort_requested:
            detail = f"execution {execution_id} was already asked to stop: nothing was changed"
            return ActOutcome("already_requested", detail, fields=_named(execution))
        journal_of(self._settings).request_abort(execution, by, now_ms=now_ms)
        detail = f"execution {execution_id} is asked to stop; {self._who_carries_out(now_ms)}"
        return ActOutcome("abort_asked", detail, fields=_named(execution))

    def drain(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """A plan that empties the broker; if it is carried out, the broker is noted first, so that it stays empty."""
        from streaming.commands.lifecycle import plan_drain

        act = plan_drain(self._settings, (broker,), keep=self._keeping(now_ms), now_ms=now_ms)
        return self._noted_and_approved(act, by, carry_out=carry_out, now_ms=now_ms)

    def add(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """A plan that gives the broker its share; if it is carried out, a drain of the broker ends first."""
        from streaming.commands.lifecycle import plan_add

        act = plan_add(self._settings, (broker,), keep=self._keeping(now_ms), now_ms=now_ms)
        return self._noted_and_approved(act, by, carry_out=carry_out, now_ms=now_ms)

    def demote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """A plan that takes all leadership off the broker; if it is carried out, the broker is noted first."""
        from streaming.commands.demotion import plan_demotion

        act = plan_demotion(self._settings, (broker,), keep=self._keeping(now_ms))
        return self._noted_and_approved(act, by, carry_out=carry_out, now_ms=now_ms)

    def undemote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """A plan that brings back the order of replicas of before; if it is carried out, the demotion ends first."""
        from streaming.commands.demotion import plan_undemotion

        act = plan_undemotion(self._settings, (broker,), keep=self._keeping(now_ms))
        return self._noted_and_approved(act, by, carry_out=carry_out, now_ms=now_ms)

    def _noted_and_approved(self, act: "BrokerAct", by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """The plan of an act on one broker. Where it is to be carried out and nothing is in the way: note what the
        broker is for, then approve the plan. Control cordons and uncordons as the note wants, before it carries out the
        plan.
        """
        from streaming.control.cordons import to_cordon
        from streaming.control.intents import note_intent
        from streaming.views.intents import Intent, newest_intents

        made, (broker,) = planned(act.proposed), act.brokers
        if not carry_out:
            return made
        done, nothing_moves = OF_BROKERS[act.action]
        if act.unfit is not None:
            unable = "emptied" if act.intent is Intent.DRAIN else done
            return ActOutcome(f"can_not_be_{unable}", act.unfit, 409, made.fields)
        cordons: tuple[str, ...] = ()
        if act.intent is Intent.DRAIN:
            before = newest_intents(self._reader(), self._cluster)
            with live_cluster(self._settings) as cluster:
                cordons = to_cordon(cluster, before, (broker,)).get(broker, ())
        root, orders = self._settings.storage.tables, None if act.orders is None else act.orders[broker]
        note_intent(root, self._cluster, broker, act.intent, by, now_ms=now_ms, cordons=cordons, demotions=orders)
        if not act.proposed.plan.movement_count:
            detail = f"broker {broker} is noted for {act.intent.value}{nothing_moves}"
            return ActOutcome(done, detail, fields=made.fields)
        approved = self.approve(act.proposed.plan.plan_id, by, now_ms=now_ms)
        return ActOutcome(approved.state, approved.detail, approved.status, {**made.fields, **approved.fields})

    def undrain(self, broker: int, by: str, *, now_ms: int) -> ActOutcome:
        """Note that the broker takes its share again."""
        from streaming.control.intents import note_intent
        from streaming.views.intents import Intent, drained_brokers

        if broker not in drained_brokers(self._reader(), self._cluster):
            return ActOutcome("not_drained", f"broker {broker} is not drained: nothing was changed")
        note_intent(self._settings.storage.tables, self._cluster, broker, Intent.USE, by, now_ms=now_ms)
        return ActOutcome("undrained", f"broker {broker} may get replicas again; nothing was moved")

    def restart_check(self, broker: int) -> "RestartCheck":
        """What a restart of the broker would do, by a snapshot of the cluster; changes nothing."""
        from streaming.commands.restart_check import checked

        return checked(self._settings, broker)

    def _keeping(self, now_ms: int) -> "Callable[[ProposedPlan], object]":
        """Stores a plan in the tables; serve has noted the act."""
        from streaming.control.wiring import journal_of

        return partial(journal_of(self._settings).write_plan, decision=None, now_ms=now_ms)

    @property
    def _cluster(self) -> str:
        return self._settings.kafka.cluster_name

    def _reader(self) -> TableReader:
        return TableReader(self._settings.storage.tables)

    def _who_carries_out(self, now_ms: int) -> str:
        return who_carries_out(self._settings, now_ms=now_ms)


def who_carries_out(settings: Settings, *, now_ms: int) -> str:
    """Whether a control holds the lease, in words: by the clock of whoever renewed it."""
    reader = TableReader(settings.storage.tables)
    for row in reader.rows("lease", where=of_cluster(settings.kafka.cluster_name)):
        if not row["released"] and now_ms < to_ms(row["renewed_at"]) + row["ttl_ms"]:
            return f"{row['owner']} carries it out"
    return "no control holds the lease: it waits until one runs"


def planned(proposed: "ProposedPlan") -> ActOutcome:
    """What came of an act that was to make a plan."""
    plan = proposed.plan
    fields: dict[str, Any] = {"movement_count": plan.movement_count, "bytes_to_move": round(plan.bytes_to_move)}
    if not plan.movement_count:
        return ActOutcome("nothing_to_move", "the plan moves nothing and is not kept", fields=fields)
    moves = counted(plan.movement_count, "movement", "movements")
    detail = f"{moves}, {plan.bytes_to_move:,.0f} bytes; nothing moves until it is approved"
    return ActOutcome("planned", detail, fields={"plan_id": plan.plan_id, **fields})


def _approved_before(execution: Execution, now_ms: int) -> ActOutcome:
    if execution.ended:
        detail = f"execution {execution.execution_id} of this plan has ended, {_end(execution)}: make a new plan"
        return ActOutcome("already_ended", detail, 409, _named(execution))
    waits = None if execution.abort_requested else waits_for(execution, now_ms)
    time = f" and {waits}" if waits else ""
    detail = f"execution {execution.execution_id} of this plan is {execution.phase}{time}"
    return ActOutcome("already_approved", detail, fields=_named(execution))


def _named(execution: Execution) -> dict[str, Any]:
    named = {"plan_id": execution.plan_id, "execution_id": execution.execution_id, "phase": execution.phase.value}
    return named if execution.begins_ms is None else {**named, "begins_ms": execution.begins_ms}


def _end(execution: Execution) -> str:
    return "" if execution.end is None else f"{execution.end.event.value}"


def person() -> str:
    """Who asks, for control's journal: the user of the operating system, and the machine."""
    return f"{os_user()} ({COMMAND_LINE} on {socket.gethostname()})"


@dataclass(slots=True)
class Noted:
    """An act that has begun; `outcome` is what is noted when it has ended."""

    outcome: ActOutcome


@contextmanager
def noted(settings: Settings, action: str, target: str, outcome: ActOutcome) -> Iterator[Noted]:
    """Note in `audit` that an act begins, and at the end what came of it: `outcome`, or why it failed.

    Raises TableUnavailable where the act can't be noted: then it must not be done.
    """
    begun = Noted(outcome)
    digest = hashlib.sha256(f"{action}\0{target}".encode()).hexdigest()
    who = Person(os_user(), Role.OPERATOR, COMMAND_LINE, socket.gethostname())
    act = Act(action, target, who, uuid.uuid4().hex, digest)
    audit = Audit(settings.storage.tables, settings.kafka.cluster_name)

    def end(outcome: ActOutcome) -> None:
        answer = {"state": outcome.state, "detail": outcome.detail, **outcome.fields}
        audit.end(act, outcome, answer, now_ms=clocks.now_ms())

    audit.begin(act, now_ms=clocks.now_ms())
    try:
        yield begun
    except BaseException as error:
        failed = ActOutcome("failed", f"{type(error).__name__}: {error}", 500)
        with suppress(TableUnavailable):
            end(failed)
        raise
    with suppress(TableUnavailable):  # the act is done
        end(begun.outcome)


def keeping_plan(
    settings: Settings, action: str, target: str | None = None, *, now_ms: int
) -> "Callable[[ProposedPlan], None]":
    """Stores a plan in the tables as an act of the person at this command line; `target` None stands for its id."""
    from streaming.control.wiring import journal_of

    def keep(proposed: "ProposedPlan") -> None:
        with noted(settings, action, target or proposed.plan.plan_id, planned(proposed)):
            journal_of(settings).write_plan(proposed, decision=None, now_ms=now_ms)

    return keep


def propose_and_keep(
    cluster: "ClusterReader",
    settings: Settings,
    *,
    keep: "Callable[[ProposedPlan], object]",
    now_ms: int,
    policy_for: "Callable[[LiveCluster], PlannerPolicy] | None" = None,
    drained: frozenset[int] | None = None,
    on_old_windows: bool = False,
) -> "ProposedPlan":
    """The plan for the cluster as it is now, that of control unless `policy_for` gives another policy; `keep` stores a
    plan that moves anything. Raises as `propose_live` does, which says what the others are.
    """
    from streaming.control.planning import propose_live
    from streaming.control.policies import policy_on
    from streaming.control.wiring import window_tables_of

    live = cluster.describe()
    policy = policy_for(live) if policy_for else policy_on(settings, live)
    proposed = propose_live(
        cluster, live, window_tables_of(settings), settings.planner,
        now_ms=now_ms, policy=policy, drained=drained, on_old_windows=on_old_windows,
    )  # fmt: skip
    if proposed.plan.movement_count:
        keep(proposed)
    return proposed


def executions_of(executions: Sequence[Execution], kept: "KeptPlan") -> list[Execution]:
    """Returns the executions of this plan, in their order."""
    return [row for row in executions if row.plan_id == kept.plan.plan_id]


def approved_before(executions: Sequence[Execution], kept: "KeptPlan") -> Execution | None:
    """The newest execution of this plan that is open, or has ended since the plan was made; None where there is none.

    `executions` are all, oldest first. A plan that was made again since is new, though it may have the same id.
    """
    of_plan = reversed(executions_of(executions, kept))
    return next((row for row in of_plan if not row.ended or row.approved_ms >= kept.created_ms), None)


def show_time(control: ControlSettings, begins_ms: int | None) -> None:
    """Shows when a plan that is approved now is to begin; None stands for at once."""
    now_ms = clocks.now_ms()
    if begins_ms is not None:
        wait = duration_text(max(0, begins_ms - now_ms))
        echo(f"The plan begins in {wait}, at {instant_text(begins_ms)} or later. If it no longer fits, it is refused.")
    hours, at_ms = maintenance_windows(control), now_ms if begins_ms is None else begins_ms
    if not may_act(hours, at_ms):
        when = "" if begins_ms is None else " at that time"
        echo(f"No maintenance window is open{when}: this plan does not wait for {next_opening(hours, at_ms)}.")


def is_left_to_control(execution: "Execution", settings: Settings) -> bool:
    """Whether the execution must not begin now, as it waits for its time or for approvals; shows that, and what to do.

    The command that has approved it does not wait: control begins it, or a command that works in place of control.
    """
    now_ms = clocks.now_ms()
    waits = None if execution.abort_requested else waits_for(execution, now_ms)
    if waits is None:
        return False
    name = execution.execution_id
    then = who_carries_out(settings, now_ms=now_ms)
    if execution.needs_approval:
        then = f"another person has to approve it: rebalancer apply {execution.plan_id[:12]}{in_use()}"
    echo(f"execution {name} {waits}; {then}; to cancel it: rebalancer abort {name}{in_use()}")
    return True
