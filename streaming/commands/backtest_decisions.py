"""`rebalancer backtest --decisions`: the decisions of the past made again, with these settings and this version."""

import json
from collections.abc import Sequence
from typing import Any

import click

from assignor_core.errors import NothingToPlanOn
from assignor_core.wording import counted
from streaming.control.replaying import DecidedAgain
from streaming.settings import Settings

SHOWN_MAX = 20
"""Most decisions that the table shows; --json prints all."""


def backtest_decisions(settings: Settings, since_ms: int, *, as_json: bool) -> int:
    """Prints how many decisions are the same, and those that are not."""
    from streaming.control.policies import decision_policy
    from streaming.control.replaying import decisions_again

    rows = decisions_again(settings, decision_policy(settings, ()), since_ms=since_ms)
    if not rows:
        raise NothingToPlanOn(f"--decisions: found none in that time in {settings.storage.tables}")
    differing = [row for row in rows if not row.is_same]
    if as_json:
        same = len(rows) - len(differing)
        data = {"decisions": len(rows), "same": same, "different": list(map(_data, differing))}
        click.echo(json.dumps(data))
    else:
        _print(rows, differing)
    return 0


def _print(rows: Sequence[DecidedAgain], differing: Sequence[DecidedAgain]) -> None:
    from streaming.commands.console import echo, print_whole

    same = counted(len(rows) - len(differing), "of them is", "of them are")
    echo(f"{counted(len(rows), 'decision', 'decisions')}, {same} the same now")
    if differing:
        columns = ("decided at", "then", "now", "detail now")
        print_whole(columns, [_shown(row) for row in differing[:SHOWN_MAX]])
    if len(differing) > SHOWN_MAX:
        echo(f"... and {len(differing) - SHOWN_MAX} more; --json prints all")


def _shown(row: DecidedAgain) -> tuple[str, ...]:
    data = _data(row)
    return data["decided_at"], data["reason_then"], data["reason_now"], data["detail_now"]


def _data(row: DecidedAgain) -> dict[str, Any]:
    from streaming.tables import utc

    return {
        "decided_at": utc(row.then.decided_ms).isoformat(timespec="seconds"),
        "verdict_then": row.then.verdict.value,
        "reason_then": row.then.reason.value,
        "detail_then": row.then.detail,
        "verdict_now": row.now.verdict.value,
        "reason_now": row.now.reason.value,
        "detail_now": row.now.detail,
    }
