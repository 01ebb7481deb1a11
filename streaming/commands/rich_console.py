"""rich's console, for text of others. Apart from `console`, which commands import before they need rich."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from streaming.runtime.printable import printable_lines


class PrintableConsole(Console):
    """rich strips only some control characters, and lets escape sequences through: this console shows them instead."""

    def render_str(self, text: str, **options: Any) -> Text:
        """As rich does, before widths are measured."""
        return super().render_str(printable_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does. What is left in ready-made `Text` is made printable here; columns may be off by then."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))
