"""Acts at the command line: who asks, and a row in `audit` before each act and one after it, as for acts by HTTP."""

import hashlib
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming.errors import TableUnavailable
from streaming.runtime import clocks
from streaming.runtime.api_tokens import Role
from streaming.runtime.os_user import os_user
from streaming.serve.api.actions import Outcome
from streaming.serve.api.audit import Act, Audit
from streaming.serve.api.sign_in import Person
from streaming.settings import Settings

if TYPE_CHECKING:
    from assignor_core.proposed_plan import ProposedPlan

COMMAND_LINE = "command line"


def person() -> str:
    """Who asks, for control's journal: the user of the operating system, and the machine."""
    return f"{os_user()} ({COMMAND_LINE} on {socket.gethostname()})"


@dataclass(slots=True)
class Noted:
    """An act that has begun; `outcome` is what is noted when it has ended."""

    outcome: Outcome


@contextmanager
def noted(settings: Settings, action: str, target: str, outcome: Outcome) -> Iterator[Noted]:
    """Note in `audit` that an act begins, and at the end what came of it: `outcome`, or why it failed.

    Raises TableUnavailable where the act can't be noted: then it must not be done.
    """
    begun = Noted(outcome)
    digest = hashlib.sha256(f"{action}\0{target}".encode()).hexdigest()
    who = Person(os_user(), Role.OPERATOR, COMMAND_LINE, socket.gethostname())
    act = Act(action, target, who, uuid.uuid4().hex, digest)
    audit = Audit(settings.storage.tables, settings.kafka.cluster_name)
    audit.begin(act, now_ms=clocks.now_ms())
    try:
        yield begun
    except BaseException as error:
        failed = Outcome("failed", f"{type(error).__name__}: {error}", 500)
        with suppress(TableUnavailable):
            _end(audit, act, failed)
        raise
    with suppress(TableUnavailable):  # the act is done
        _end(audit, act, begun.outcome)


def keeping_plan(
    settings: Settings, action: str, target: str | None = None, *, now_ms: int
) -> "Callable[[ProposedPlan], None]":
    """Stores a plan in the tables as an act of the person at this command line; `target` None stands for its id."""
    from streaming.commands.acting import planned
    from streaming.control.wiring import journal_of

    def keep(proposed: "ProposedPlan") -> None:
        with noted(settings, action, target or proposed.plan.plan_id, planned(proposed)):
            journal_of(settings).write_plan(proposed, decision=None, now_ms=now_ms)

    return keep


def _end(audit: Audit, act: Act, outcome: Outcome) -> None:
    audit.end(
        act, outcome, {"state": outcome.state, "detail": outcome.detail, **outcome.fields}, now_ms=clocks.now_ms()
    )
