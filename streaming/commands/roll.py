"""`rebalancer roll [BROKER...]`: restarts brokers one after the other, each when it is safe and without leadership.

What has to be done next is decided by `assignor_core.roll` from stored events and a snapshot of the cluster. The
command does it: it demotes a broker as `rebalancer demote` does, runs the command of `--exec` or waits for a person,
waits until the broker was away and has caught up, and ends the demotion. A command that is killed leaves an open roll
in the table `roll`, and the next `rebalancer roll` continues it.
"""

import json
import shlex
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.roll import (
    MARGINS,
    Roll,
    RollAct,
    RollEvent,
    RollPolicy,
    RollStep,
    TurnView,
    next_step,
    obstacles,
    roll_order,
    standing_obstacle,
    turn_view,
)
from assignor_core.wording import counted, first_named
from streaming.commands.console import confirmed, echo
from streaming.commands.options import check_tables, in_use, json_option, settings_from, settings_options
from streaming.commands.restart_check import duration_s
from streaming.commands.restart_command import RestartCommand, filled, template_of
from streaming.errors import LeaseLost, RefusedForSafety, RollStopped, UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster
    from streaming.cluster.ports import ClusterReader
    from streaming.control.lease import Lease
    from streaming.control.rolls import RollJournal

READ_INTERVAL_S = 1.0
PAUSE_SHARE = 4
"""To read a large cluster takes long: the pause between two snapshots is at least this many times as long."""
REPEAT_INTERVAL_S = 10.0
"""Pause before a demotion, or its end, is tried again."""
IN_SYNC_AGE_MAX_S = 30.0
NOTED = {
    RollAct.DEMOTE: RollEvent.DEMOTING,
    RollAct.UNDEMOTE: RollEvent.UNDEMOTING,
    RollAct.NOTE_AWAY: RollEvent.AWAY,
    RollAct.NOTE_RESTARTED: RollEvent.RESTARTED,
    RollAct.FINISH: RollEvent.DONE,
    RollAct.ABORT: RollEvent.ABORTED,
}
REORDERED = {RollAct.DEMOTE: "demote", RollAct.UNDEMOTE: "undemote"}
NAMED_MAX = 3


@click.command()
@click.argument("brokers", metavar="[BROKER...]", type=int, nargs=-1)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Restarts one broker; {host} and {broker} stand for its host and id. Without it a person restarts it.",
)
@click.option(
    "--wait",
    "wait_s",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=duration_s,
    help="How long each step may wait: 30s, 10m or 2h.",
)
@click.option(
    "--margin",
    type=click.Choice([str(margin) for margin in MARGINS]),
    help="Replicas in sync that each partition keeps above min.insync.replicas while a broker is away. An open roll "
    "keeps its own.  [default: 0]",
)
@click.option(
    "--accept-single",
    "accepts_single",
    is_flag=True,
    help="Partitions without a second replica may be offline meanwhile. An open roll keeps its own.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Show the order and what would be waited for; change nothing.")
@click.option("--status", "is_status", is_flag=True, help="Show the open roll and what it waits for.")
@click.option("--abort", "is_abort", is_flag=True, help="End the open roll, and the demotion of its broker.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@settings_options
def roll(
    brokers: tuple[int, ...],
    command: str | None,
    wait_s: int,
    margin: str | None,
    accepts_single: bool,
    is_dry: bool,
    is_status: bool,
    is_abort: bool,
    yes: bool,
    as_json: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Restart each BROKER, or all, one after the other and rack by rack; an open roll is continued.

    A broker is restarted once that stops no partition, and after its leadership was taken off. The next one has to wait
    until it was away, is back and has caught up.
    """
    if sum((is_dry, is_status, is_abort)) > 1:
        raise UsageProblem("--dry-run, --status and --abort: only one of them can be used")
    if is_status or is_abort:
        given = {"BROKER": brokers, "--exec": command, "--margin": margin, "--accept-single": accepts_single}
        _check_unused("--status" if is_status else "--abort", given)
    template = None if command is None else template_of(command)
    settings = settings_from(config_file, assignments)
    if settings.control.approvals > 1 and not (is_dry or is_status or is_abort):
        raise RefusedForSafety(
            f"control.approvals is {settings.control.approvals}, and roll approves the demotion of each broker alone: "
            "restart brokers by hand, with restart-check, demote and undemote"
        )
    asked = _Asked(None if margin is None else int(margin), accepts_single or None)
    with redirect_stdout(sys.stderr) if as_json else nullcontext(), _Session.opened(settings) as session:
        if is_status:
            answer = _status(session)
        elif is_dry:
            answer = _dry_run(session, brokers, asked.policy)
        elif is_abort:
            answer = _aborted(session, wait_s)
        else:
            answer = _rolled(session, brokers, asked, template, wait_s, yes=yes)
    if as_json and answer.content is not None:
        click.echo(json.dumps(answer.content))
    return answer.code


def _check_unused(flag: str, given: Mapping[str, object]) -> None:
    """Raises UsageProblem if an option that `flag` would ignore is given: the open roll has its own value."""
    unused = [name for name, value in given.items() if value not in (None, False, ())]
    if unused:
        raise UsageProblem(f"{flag}: concerns the open roll as it began, leave out {', '.join(unused)}")


@dataclass(frozen=True, slots=True)
class _RollAnswer:
    """The exit code, and the object that `--json` prints."""

    code: int
    content: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """Options of this call that a roll keeps from its beginning; None where the option is not given."""

    margin: int | None
    accepts_single: bool | None

    @property
    def policy(self) -> RollPolicy:
        """What a roll that begins now is to keep to."""
        return RollPolicy(self.margin or 0, bool(self.accepts_single))

    def check(self, roll: Roll) -> None:
        """Raises RefusedForSafety if an option differs from what the open roll began with."""
        found = roll.policy.differences(self.margin, self.accepts_single)
        if found:
            raise RefusedForSafety(
                f"roll {roll.roll_id} is open, and {' and '.join(found)}: leave the option out to continue the roll as "
                f"it began, or end the roll: rebalancer roll --abort{in_use()}"
            )


@dataclass(slots=True)
class _Session:
    """The cluster and the tables, for one call of the command."""

    settings: Settings
    admin: Any
    """An admin client of kafka-python, which only the room `cluster` imports."""
    cluster: "ClusterReader"
    journal: "RollJournal"
    _in_sync_min: dict[str, int] = field(default_factory=dict)
    _in_sync_read_s: float | None = None
    _last_view: TurnView | None = None

    @classmethod
    @contextmanager
    def opened(cls, settings: Settings) -> "Iterator[_Session]":
        from streaming.cluster.clients import admin_client
        from streaming.control.identity import cluster_of
        from streaming.control.rolls import RollJournal
        from streaming.runtime.logs import configure_logging
        from streaming.runtime.secrets import secrets_of

        configure_logging(settings.log, secrets_of(settings))
        check_tables(settings)
        with closing(admin_client(settings.kafka)) as admin:
            journal = RollJournal(settings.storage.tables, settings.kafka.cluster_name)
            yield cls(settings, admin, cluster_of(admin, settings), journal)

    def open_roll(self) -> Roll | None:
        from streaming.tables import TableReader
        from streaming.views.rolls import open_roll

        return open_roll(TableReader(self.settings.storage.tables), self.settings.kafka.cluster_name)

    def in_sync_min(self, topics: Collection[str]) -> Mapping[str, int]:
        """`min.insync.replicas` by topic, at most `IN_SYNC_AGE_MAX_S` old."""
        from streaming.cluster.topics import min_in_sync

        now_s = time.monotonic()
        is_old = self._in_sync_read_s is None or now_s - self._in_sync_read_s > IN_SYNC_AGE_MAX_S
        if is_old or not self._in_sync_min.keys() >= set(topics):
            self._in_sync_min = min_in_sync(self.admin, topics)
            self._in_sync_read_s = now_s
        return self._in_sync_min

    def view(self, roll: Roll, command: "RestartCommand | None" = None) -> TurnView | None:
        """What the cluster and the tables show of the broker in turn; None if no broker is left."""
        from streaming.control.wiring import journal_of
        from streaming.tables import TableReader
        from streaming.views.intents import Intent, demotions_of, newest_intents

        broker = roll.next_broker
        if broker is None:
            return None
        live = self.cluster.describe()
        row = newest_intents(TableReader(self.settings.storage.tables), self.settings.kafka.cluster_name).get(broker)
        intent = Intent.USE if row is None else Intent(row["intent"])
        now_ms = clocks.now_ms()
        opened = journal_of(self.settings).open_executions(now_ms=now_ms) if roll.phase is None else []
        executing = [row for row in opened if row.has_turn(now_ms)]
        held = {topic for (topic, _), row in live.partitions.items() if broker in row.replicas}
        code = None if command is None else command.code()
        self._last_view = turn_view(
            broker,
            live,
            self.in_sync_min(held),
            is_noted=intent is Intent.DEMOTE or bool(demotions_of(row)),
            is_out_of_use=intent is not Intent.USE,
            executing=f"execution {executing[0].execution_id}" if executing else None,
            is_command_running=command is not None and code is None,
            command_code=code,
            earlier=self._last_view,
        )
        return self._last_view


def _dry_run(session: _Session, named: tuple[int, ...], policy: RollPolicy) -> _RollAnswer:
    live, order = _order(session, named)
    hosts = _hosts(session)
    in_sync_min = session.in_sync_min({topic for topic, _ in live.partitions})
    rows = []
    echo(f"order of {counted(len(order), 'broker', 'brokers')}:")
    for place, broker in enumerate(order, start=1):
        view = turn_view(broker, live, in_sync_min)
        stops = obstacles(view, policy)
        never = standing_obstacle(broker, live, in_sync_min, policy)
        rack = live.broker_racks.get(broker)
        leaders = counted(view.check.leaders, "leader", "leaders")
        state = f"can't be restarted: {never}" if never else f"waits: {'; '.join(stops)}" if stops else "safe now"
        echo(f"  {place}. broker {broker} on {hosts.get(broker)}, rack {rack}: {leaders}; {state}")
        rows.append(
            {
                "broker": broker, "rack": rack, "host": hosts.get(broker), "replicas": view.check.replicas,
                "leaders": view.check.leaders, "stops": list(stops), "obstacle": never,
            }
        )  # fmt: skip
    echo("nothing has been changed", err=True)
    return _RollAnswer(0, {"brokers": rows})


def _order(session: _Session, named: tuple[int, ...]) -> "tuple[LiveCluster, tuple[int, ...]]":
    from streaming.cluster.admin import quorum_leader

    live = session.cluster.describe()
    for broker in named:
        if broker not in live.broker_racks:
            known = first_named(sorted(live.broker_racks), NAMED_MAX)
            raise UsageProblem(f"broker {broker}: is not alive, the cluster has {known}")
    return live, roll_order(named or tuple(live.broker_racks), live.broker_racks, quorum_leader(session.admin))


def _hosts(session: _Session) -> dict[int, str]:
    from streaming.cluster.admin import broker_hosts

    return broker_hosts(session.admin)


def _status(session: _Session) -> _RollAnswer:
    """The open roll, with what it waits for by a snapshot taken now."""
    from streaming.tables import TableReader
    from streaming.views.rolls import last_event, roll_content

    open_roll = session.open_roll()
    if open_roll is None:
        echo("no roll is open")
        return _RollAnswer(0, {"roll_id": None})
    # A command that another process runs is not seen here: a roll with one never asks a person to restart.
    step = next_step(open_roll, session.view(open_roll), has_command=True)
    at, last = last_event(TableReader(session.settings.storage.tables), open_roll.roll_id)
    single = ", partitions without a second replica may be offline" if open_roll.policy.accepts_single else ""
    echo(f"roll {open_roll.roll_id}: {len(open_roll.restarted)} of {len(open_roll.brokers)} brokers are restarted; "
         f"margin {open_roll.policy.margin}{single}")  # fmt: skip
    if open_roll.next_broker is not None:
        phase = "waits for its turn" if open_roll.phase is None else open_roll.phase.value
        echo(f"broker {open_roll.next_broker}: {phase}; {step.detail}")
    echo(f"newest event, {at:%Y-%m-%d %H:%M} UTC: {last}")
    echo(_how_to_continue())
    return _RollAnswer(0, roll_content(open_roll) | {"detail": step.detail})


def _how_to_continue() -> str:
    return (
        f"to continue it, with its --exec again: rebalancer roll{in_use()}; "
        f"to end it: rebalancer roll --abort{in_use()}"
    )


def _rolled(
    session: _Session,
    named: tuple[int, ...],
    asked: _Asked,
    template: tuple[str, ...] | None,
    wait_s: int,
    *,
    yes: bool,
) -> _RollAnswer:
    """Begin a roll, or continue the open one, to its end."""
    from streaming import tables
    from streaming.cluster.permissions import check_may_execute
    from streaming.contract import ROLL_LEASE
    from streaming.control.rolls import roll_lease
    from streaming.views.rolls import roll_content

    check_may_execute(session.admin)
    lease = roll_lease(session.settings)
    with lease.kept():
        _take(lease)
        tables.tidy(session.settings.storage.tables, ROLL_LEASE.name)  # its holder is its one writer
        roll = session.open_roll()
        if roll is not None and named and set(named) != set(roll.brokers):
            of = first_named(roll.brokers, NAMED_MAX)
            raise RefusedForSafety(f"roll {roll.roll_id} of brokers {of} is open; {_how_to_continue()}")
        if roll is not None:
            asked.check(roll)
        order = _order_without_obstacle(session, named, asked.policy) if roll is None else roll.brokers
        left = order if roll is None else [broker for broker in order if broker not in roll.restarted]
        how = "by a person" if template is None else f"by {shlex.join(template)}"
        echo(f"{'begins' if roll is None else f'continues roll {roll.roll_id}'}: brokers {', '.join(map(str, left))}, "
             f"restarted {how}", err=True)  # fmt: skip
        if not confirmed(f"Restart {counted(len(left), 'broker', 'brokers')}, one by one?", yes=yes, err=True):
            return _RollAnswer(3)
        roll = roll or _begun(session, order, asked.policy)
        ended = _Rolling(session, lease, roll, template, wait_s).to_the_end()
    if ended.end is RollEvent.ABORTED:
        echo(f"roll {ended.roll_id} was aborted", err=True)
        return _RollAnswer(1, roll_content(ended))
    echo(f"roll {ended.roll_id}: {counted(len(ended.restarted), 'broker is', 'brokers are')} restarted")
    return _RollAnswer(0, roll_content(ended))


def _take(lease: "Lease") -> None:
    """Take the lease of rolls; one that its holder has left is free after a while. Raises RefusedForSafety."""
    from streaming.control.lease import TAKE_OVER_MARGIN_MS

    ends_s = time.monotonic() + (lease.ttl_ms + 2 * TAKE_OVER_MARGIN_MS) / 1000
    is_told = False
    while not lease.try_acquire():
        if time.monotonic() > ends_s:
            raise RefusedForSafety("another process carries out a roll of this cluster: see rebalancer roll --status")
        if not is_told:
            echo("waits whether another process still carries out a roll", err=True)
            is_told = True
        time.sleep(READ_INTERVAL_S)


def _order_without_obstacle(session: _Session, named: tuple[int, ...], policy: RollPolicy) -> tuple[int, ...]:
    """Order of a new roll; raises RefusedForSafety if one of the brokers could never be restarted."""
    live, order = _order(session, named)
    in_sync_min = session.in_sync_min({topic for topic, _ in live.partitions})
    found = {broker: standing_obstacle(broker, live, in_sync_min, policy) for broker in order}
    problems = [f"broker {broker}: {why}" for broker, why in found.items() if why is not None]
    if problems:
        raise RefusedForSafety(f"waiting would not make these restarts safe: {first_named(problems, NAMED_MAX)}")
    return order


def _begun(session: _Session, order: tuple[int, ...], policy: RollPolicy) -> Roll:
    from streaming.commands.acting import noted, person
    from streaming.serve.api.audit import ActOutcome

    named = " ".join(map(str, order))
    with noted(session.settings, "roll", named, ActOutcome("begun", f"brokers {named} are restarted in this order")):
        return session.journal.begin(order, person(), policy, now_ms=clocks.now_ms())


def _aborted(session: _Session, wait_s: int) -> _RollAnswer:
    """Ask for the end of the open roll, and bring it about if no other process does."""
    from streaming.commands.acting import noted, person
    from streaming.control.rolls import roll_lease
    from streaming.serve.api.audit import ActOutcome
    from streaming.views.rolls import roll_content

    roll = session.open_roll()
    if roll is None:
        echo("no roll is open")
        return _RollAnswer(0, {"roll_id": None})
    with noted(session.settings, "roll", f"abort {roll.roll_id}", ActOutcome("abort_asked", "the roll is to end")):
        session.journal.request_abort(roll, person(), now_ms=clocks.now_ms())
    lease, ends_s = roll_lease(session.settings), time.monotonic() + wait_s
    with lease.kept():
        while roll.end is None and not lease.try_acquire():
            if time.monotonic() > ends_s:
                raise RollStopped(
                    f"roll {roll.roll_id} was asked to end and has not ended yet: see rebalancer roll --status"
                )
            time.sleep(READ_INTERVAL_S)
            roll = session.journal.newest(roll)
        roll = session.journal.newest(roll)
        if roll.end is None:
            roll = _Rolling(session, lease, roll, None, wait_s).to_the_end()
    echo(f"roll {roll.roll_id}: {roll.end}")
    return _RollAnswer(0, roll_content(roll))


class _Rolling:
    """Carries out a roll: read, decide, note, act, until it has ended or a step has waited too long."""

    def __init__(
        self, session: _Session, lease: "Lease", roll: Roll, template: tuple[str, ...] | None, wait_s: int
    ) -> None:
        self._session = session
        self._lease = lease
        self._roll = roll
        self._template = template
        self._wait_s = wait_s
        self._command: RestartCommand | None = None
        self._step_began_s = time.monotonic()
        self._told = ""
        self._has_reordered = False
        """Whether this process has carried out the demotion of this phase, or its end, before."""

    def to_the_end(self) -> Roll:
        """The roll that has ended. Raises RefusedForSafety or RollStopped, and leaves the roll open, if a step waits
        for too long or fails.
        """
        try:
            while self._roll.end is None:
                self._turn()
        finally:
            if self._command is not None:
                self._command.end()
            if self._roll.end is None:
                echo(f"roll {self._roll.roll_id} stays open; {_how_to_continue()}", err=True)
        return self._roll

    def _turn(self) -> None:
        from streaming.control.carrier import RETRIED_ERRORS

        began_s = time.monotonic()
        try:
            self._lease.check()
            self._continue(self._session.journal.newest(self._roll))
            step = self._next()
            self._take(step)
        except RETRIED_ERRORS as error:  # as while the broker that was asked goes away
            step = RollStep(RollAct.WAIT, str(error))
            self._wait_for(step.detail)
        if step.act is RollAct.WAIT:
            # A restart counts only if a snapshot sees the broker away.
            share = 0 if self._roll.phase is RollEvent.RESTARTING else PAUSE_SHARE
            time.sleep(max(READ_INTERVAL_S, share * (time.monotonic() - began_s)))

    def _continue(self, newest: Roll) -> None:
        """Continue with this state of the stored roll. Another phase than before begins now, also if this process wrote
        its event and the answer was lost.
        """
        if newest.next_broker != self._roll.next_broker:
            self._command = None
        if (newest.next_broker, newest.phase) != (self._roll.next_broker, self._roll.phase):
            self._step_began_s, self._told, self._has_reordered = time.monotonic(), "", False
        self._roll = newest

    def _next(self) -> RollStep:
        seen = self._session.view(self._roll, self._command)
        return next_step(self._roll, seen, has_command=self._template is not None)

    def _take(self, step: RollStep) -> None:
        match step.act:
            case RollAct.WAIT:
                self._wait_for(step.detail)
            case RollAct.RESTART:
                self._restart(step.detail)
            case RollAct.STOP:
                raise RollStopped(f"broker {self._roll.next_broker}: {step.detail}{self._left_demoted()}")
            case act:
                self._note(NOTED[act], step.detail)
                if act in REORDERED:
                    self._reorder(REORDERED[act], step.detail)

    def _note(self, event: RollEvent, detail: str) -> None:
        """Store the event, unless the broker is in that phase already; a new step begins."""
        if self._roll.phase is event:
            return
        broker = self._roll.next_broker
        self._continue(self._session.journal.write(self._roll, event, detail, now_ms=clocks.now_ms()))
        echo(f"broker {broker}: {event}: {detail}" if self._roll.end is None else f"{event}: {detail}", err=True)

    def _wait_for(self, reason: str) -> None:
        """Print what is waited for if that has changed. Raises RefusedForSafety or RollStopped after `--wait`."""
        waited_s = time.monotonic() - self._step_began_s
        who = f"broker {self._roll.next_broker}"
        if reason != self._told:
            echo(f"{who}: waits: {reason}", err=True)
            self._told = reason
        if waited_s <= self._wait_s:
            return
        after = f"{who}: {reason}, after {waited_s:.0f} s (--wait)"
        if self._roll.phase in (None, RollEvent.DEMOTING, RollEvent.RESTARTING) and self._command is None:
            raise RefusedForSafety(f"{after}; it was not restarted{self._left_demoted()}")
        raise RollStopped(f"{after}{self._left_demoted()}")

    def _left_demoted(self) -> str:
        return "; it stays demoted" if self._roll.is_demoted_by_roll else ""

    def _reorder(self, action: str, detail: str) -> None:
        """Demote the broker in turn, or end its demotion. If something stands in the way, or the act has not brought
        about what it was for, the act is repeated after a pause.
        """
        from streaming.commands.demotion import reorder

        broker = self._roll.next_broker
        assert broker is not None
        if self._session.settings.control.approvals > 1:  # an abort: the roll itself is refused at its start
            raise RefusedForSafety(
                f"broker {broker}: rebalancer {action} {broker} --apply first, which several approve"
            )
        if self._has_reordered:
            self._pause_for(detail)
        try:
            with _own_handlers():
                left_s = self._wait_s - (time.monotonic() - self._step_began_s)
                ended = reorder(self._session.settings, action, broker, max(0.0, left_s))
        except LeaseLost:
            raise
        except (RefusedForSafety, UsageProblem) as error:
            self._pause_for(str(error))
            return
        self._has_reordered = True
        if ended is not None:
            raise RollStopped(f"broker {broker}: its {action} was not carried out: {ended}")

    def _pause_for(self, reason: str) -> None:
        self._wait_for(reason)
        time.sleep(min(REPEAT_INTERVAL_S, self._wait_s))

    def _restart(self, detail: str) -> None:
        self._note(RollEvent.RESTARTING, detail)
        broker = self._roll.next_broker
        assert broker is not None
        if self._template is None:
            return
        host = _hosts(self._session).get(broker)
        if host is None:  # it has just gone: a later snapshot notes that
            self._pause_for("the cluster shows no host of the broker")
            return
        words = filled(self._template, host, broker)
        echo(f"broker {broker}: runs {shlex.join(words)}", err=True)
        self._command = RestartCommand(words)


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Signals are handled as before once this is over: who follows an execution takes them for itself."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
