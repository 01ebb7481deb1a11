"""Approvals by people: who counts as another person, and how long an approval holds.

Knows neither clock nor tables. That enough people approve before a start is in `life_cycle`.
"""

import re

from assignor_core.execution.life_cycle import Execution
from assignor_core.wording import counted

AHEAD_MAX_MS = 14 * 86_400_000
"""How far ahead an execution may be set to begin, ms: the load that its plan was made for is history by then."""
APPROVALS_MAX = 5
"""Most people that may have to approve."""

_COMMAND_LINE = re.compile(r"(?:.*, signed in as )?(?P<name>.*) \(command line on [^()]*\)", re.DOTALL)
_OF_ISSUER = re.compile(r"(?P<name>.*) \((?P<subject>oidc .*)\)", re.DOTALL)


def person_of(by: str) -> str:
    """Person in what an approval is signed with: the name, and for people of an issuer what it knows them by. Whoever
    became another user counts as who signed in.

    >>> [person_of(by) for by in ("ann (token 3f)", "root, signed in as ann (command line on h)", "a test")]
    ['ann', 'ann', 'a test']
    >>> person_of("Ann (oidc 17)")
    'Ann (oidc 17)'
    """
    if _OF_ISSUER.fullmatch(by):
        return by
    match = _COMMAND_LINE.fullmatch(by)
    return match["name"] if match else by.rpartition(" (")[0] or by


def has_approved(execution: Execution, by: str) -> bool:
    """Whether the person of this signature has approved the execution.

    One name is one person, however signed in and in upper or lower case. So is one subject of an issuer: a name there
    may be changed by whoever has it.
    """
    known: set[str] = set()
    return not _signs(person_of(by)).isdisjoint(known.union(*map(_signs, execution.approvers)))


def _signs(person: str) -> set[str]:
    match = _OF_ISSUER.fullmatch(person)
    return {person.casefold()} if match is None else {match["name"].casefold(), match["subject"]}


def approvals_text(execution: Execution) -> str:
    """How many of the approvals that are needed the execution has, such as `1 of 2 approvals`."""
    needed = counted(execution.figures.approvals_needed or 1, "approval", "approvals")
    return f"{len(execution.approvers)} of {needed}"


def approvals_missing(execution: Execution, plan_ttl_ms: int, now_ms: int) -> str | None:
    """Why an execution that waits for approvals is given up: nobody gave them for as long as plans live; None if not.

    If it has a time to begin, the time counts from there.
    """
    since_ms = max(execution.approved_ms, execution.begins_ms or 0)
    if not execution.needs_approval or now_ms - since_ms <= plan_ttl_ms:
        return None
    return f"only {approvals_text(execution)} came in time: make a new plan"
