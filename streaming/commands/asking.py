"""The question before a command changes the live cluster."""

import sys

import click

from streaming.commands.console import echo
from streaming.errors import UsageProblem


def confirmed(question: str, *, yes: bool, err: bool = False) -> bool:
    """Whether a person agrees, or has with --yes; a no is noted in one line. Raises UsageProblem where nobody answers.

    `err`: ask on standard error, as standard output is for a program.
    """
    if yes:
        return True
    try:
        agreed = click.confirm(question, err=err)
    except click.Abort as abort:
        if sys.stdin is not None and (sys.stdin.isatty() or not isinstance(abort.__context__, EOFError)):
            raise  # Ctrl-C
        echo("", err=err)  # the question has no line end
        raise UsageProblem("no terminal to ask on: use --yes") from None
    if not agreed:
        echo("not carried out: nothing was changed on the cluster", err=True)
    return agreed
