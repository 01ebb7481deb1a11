"""The console of all commands: text is shown as it is, and whole where no terminal folds it.

Names of groups, topics and files hold what rich would take for markup (`[dev]billing`, `pay/[/b]`, `:key:`) and what a
terminal would act on.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING

import click

from streaming.runtime.printable import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_IN_FILES = 100_000
"""In files and pipes one line a row stays one line, whatever stands in it."""
OTHERS_WIDTH = 12


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines in which names of others may stand, on standard output or standard error."""
    click.echo(printable_lines(text), err=err, nl=nl)


def console() -> "Console":
    """A console on standard output that reads no markup, no emoji and no control codes out of what it prints."""
    from streaming.commands.rich_console import PrintableConsole

    made = PrintableConsole(markup=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDTH_IN_FILES
    return made


def print_whole(columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print a table of which nothing is cut: on a terminal values fold, elsewhere lines are as long as they must be.

    Ids, which are copied, don't fold where there is room for them; `styles` are those of the rows, "" for none.
    """
    from rich.table import Table

    rows = [list(map(printable, row)) for row in rows]
    on = console()
    table = Table(box=None, pad_edge=False)
    unfolded = _unfolded(columns, rows, on.width)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in unfolded)
    for row, style in zip(rows, styles or repeat(""), strict=False):
        table.add_row(*row, style=style or None)
    on.print(table)


def _unfolded(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> frozenset[str]:
    """Columns of ids, if the others keep a width in which they can be read."""
    ids = {name: place for place, name in enumerate(columns) if name.endswith("_id")}
    taken = sum(2 + max((len(row[place]) for row in rows), default=0) for place in ids.values())
    return frozenset(ids) if taken + OTHERS_WIDTH * (len(columns) - len(ids)) <= width else frozenset()
