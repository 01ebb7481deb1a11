"""The way from a plan that a command shows to one that is carried out."""

import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assignor_core.wording import counted
from streaming.commands.apply import apply
from streaming.commands.asking import confirmed
from streaming.commands.console import echo
from streaming.commands.options import in_use
from streaming.commands.plan_model import show
from streaming.commands.window_age import loads_lines
from streaming.errors import RefusedForSafety
from streaming.runtime import clocks
from streaming.settings import Settings

if TYPE_CHECKING:
    from assignor_core.proposed_plan import ProposedPlan


def show_and_carry_out(
    context: click.Context,
    settings: Settings,
    proposed: "ProposedPlan",
    arguments: str,
    unfit: str | None,
    prepare: Callable[[], None],
    *,
    carry_out: bool,
    yes: bool,
    as_json: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Show a plan that is kept in the tables; where asked to, `prepare` and carry it out. Returns the exit code.

    `arguments` are those that the command was called with, `unfit` is why the plan is not to be carried out.
    """
    from streaming.views.accuracy import accuracy_beside_plan

    # Plans within brokers promise no skew, and none is measured after them.
    accuracy = None if proposed.plan.within_brokers else accuracy_beside_plan(settings)
    about = tuple(loads_lines(proposed, settings.pipeline.window_ms, now_ms=clocks.now_ms()))
    show(proposed, out_file=None, as_json=as_json, accuracy=accuracy, about=about)
    if not carry_out:
        command = f"rebalancer {context.info_name} {arguments} --apply{in_use()}"
        echo(f"nothing has been changed{_what_next(proposed, unfit, command)}", err=True)
        return 0
    if unfit is not None:
        raise RefusedForSafety(unfit)
    moves = proposed.plan.movement_count
    size = counted(moves, "movement", "movements")
    if not confirmed(f"Carry out {size} on the live cluster?", yes=yes, err=True):
        return 3
    prepare()
    if not moves:
        return 0
    with redirect_stdout(sys.stderr) if as_json else nullcontext():  # of JSON standard output has one object, the plan
        answer: int = context.invoke(
            apply,
            plan=proposed.plan.plan_id,
            config_file=config_file,
            assignments=assignments,
            yes=True,
            revalidate=False,
        )
    return answer


def _what_next(proposed: "ProposedPlan", unfit: str | None, command: str) -> str:
    if unfit is not None:
        return f", and --apply would be refused: {unfit}"
    if proposed.plan.movement_count:
        return f"; to carry it out: {command}"
    return f", and there is nothing to move; to have it noted alone: {command}"
