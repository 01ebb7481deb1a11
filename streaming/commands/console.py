"""What commands print and write, and the question before an act. Text is whole where no terminal folds it; files, too.


Names of groups, topics and files hold what rich would take for markup (`[dev]billing`, `pay/[/b]`, `:key:`) and what a
terminal would act on.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.errors import UsageProblem
from streaming.runtime.printable import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

WIDTH_IN_FILES = 100_000
"""In files and pipes one line a row stays one line, whatever stands in it."""
OTHERS_WIDTH = 12


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines in which names of others may stand, on standard output or standard error."""
    click.echo(printable_lines(text), err=err, nl=nl)


def console() -> "Console":
    """A console on standard output that reads no markup, no emoji and no control codes out of what it prints."""
    made = _printable_console()(markup=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDTH_IN_FILES
    return made


@cache
def _printable_console() -> "type[Console]":
    """rich strips only some control characters, and lets escape sequences through: this console shows them instead."""
    from rich.console import Console

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> "Text":
            """Renders text as rich does, with control characters made printable before widths are measured."""
            return super().render_str(printable_lines(text), **options)

        def render(self, renderable: "RenderableType", options: "ConsoleOptions | None" = None) -> "Iterable[Segment]":
            """Renders as rich does. Ready-made `Text` is made printable here; columns may be off by then."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=printable_lines(segment.text))

    return PrintableConsole


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


def write_whole(option: str, file: Path, content: bytes) -> None:
    """Write `content`; a reader never finds half of it. Raises UsageProblem that names the `option`.

    What a link leads to is replaced, not the link. A device or a pipe stays what it is and is written to.
    """
    target = Path(os.path.realpath(file))
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise UsageProblem(f"{option} {file}: {error.strerror}") from None


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, file)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
