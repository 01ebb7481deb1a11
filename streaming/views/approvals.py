"""Approvals in words, and the instants that people write: with their zone, which is UTC where none is given."""

import re
from datetime import UTC, datetime, timedelta

from assignor_core.errors import InputError
from assignor_core.execution.approvals import AHEAD_MAX_MS, approvals_text
from assignor_core.execution.life_cycle import Execution
from assignor_core.wording import counted
from streaming.errors import UsageProblem

SHORTLY_PAST_MS = 60_000
"""A time that has passed by less counts as now: it is the minute in which the person wrote it."""
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?) ?(UTC|[Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES_END_MS = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def instant_ms(text: str) -> int:
    """The instant that the text names, ms since 1970; without an offset it is UTC. Raises InputError.

    >>> instant_ms("1970-01-02 00:00"), instant_ms("1970-01-02T02:00:30+02:00"), instant_ms("1970-01-02 00:00Z")
    (86400000, 86430000, 86400000)
    """
    match = _INSTANT.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        day, time, zone = match.groups()
        offset = "+00:00" if zone is None or zone.upper() in ("UTC", "Z") else zone
        named = datetime.fromisoformat(f"{day}T{time}{offset}")
        return (named - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise InputError(
            f"time {text[:60]!r}: allowed is a form like '2026-12-06 02:00' (UTC) or '2026-12-06 02:00+01:00'"
        ) from None


def instant_text(time_ms: int) -> str:
    """The instant with its zone.

    >>> instant_text(86_400_000), instant_text(86_430_000)
    ('1970-01-02 00:00 UTC', '1970-01-02 00:00:30 UTC')
    """
    named = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{named:%Y-%m-%d %H:%M:%S} UTC" if named.second else f"{named:%Y-%m-%d %H:%M} UTC"


def check_begins_ms(begins_ms: int, now_ms: int) -> None:
    """Raises InputError for a time that has passed, or that is further ahead than `AHEAD_MAX_MS`."""
    if not -SHORTLY_PAST_MS < begins_ms - now_ms <= AHEAD_MAX_MS:
        named = instant_text(begins_ms) if 0 <= begins_ms < _TIMES_END_MS else f"{begins_ms} ms since 1970"
        problem = "has passed" if begins_ms < now_ms else f"is more than {AHEAD_MAX_MS // 86_400_000} days ahead"
        raise InputError(f"time {named} {problem}; it is {instant_text(now_ms - now_ms % 1000)} now")


def begins_ms_of(text: str, *, now_ms: int) -> int:
    """The time of `--at`, ms since 1970; raises UsageProblem for what is no time, or a time that is not allowed."""
    try:
        begins_ms = instant_ms(text)
        check_begins_ms(begins_ms, now_ms)
    except InputError as error:
        raise UsageProblem(f"--at: {error}") from None
    return begins_ms


def approval_detail(plan_id: str, by: str, place: int, needed: int, begins_ms: int | None) -> str:
    """What an approval is noted as: it is the approval number `place` of the `needed` ones.

    >>> approval_detail("p1", "ann (token 3f)", 1, 2, None)
    'plan p1 approved by ann (token 3f): 1 of 2 approvals'
    >>> approval_detail("p1", "ann (token 3f)", 1, 1, 86_400_000)
    'plan p1 approved by ann (token 3f); begins at 1970-01-02 00:00 UTC or later'
    """
    share = f": {place} of {counted(needed, 'approval', 'approvals')}" if needed > 1 else ""
    begins = f"; begins at {instant_text(begins_ms)} or later" if begins_ms is not None else ""
    return f"plan {plan_id[:12]} approved by {by}{share}{begins}"


def waits_for(execution: Execution, now_ms: int) -> str | None:
    """What keeps an approved execution from its turn, in words: approvals, or its time; None if nothing does.

    An execution that waits for both names the approvals.
    """
    if execution.needs_approval:
        return f"has {approvals_text(execution)}, by {', '.join(execution.approvers)}"
    if execution.begins_ms is not None and execution.waiting and now_ms < execution.begins_ms:
        return f"begins at {instant_text(execution.begins_ms)} or later"
    return None
