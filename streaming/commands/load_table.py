"""The load of each broker as `rebalancer status` draws it: figures, and bars in the room that they leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

BAR_WIDTH = 30
BAR_WIDTH_MIN = 8
"""Narrower bars would hide skew: there are none then."""
BAR_TITLE = "bytes in"
BETWEEN_COLUMNS = 2
FIGURES = ("bytes_in_per_sec", "bytes_out_per_sec", "disk_bytes")


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Drawn when the width of the terminal is known; `loads` as in `status --json`, by broker."""

    loads: Mapping[str, Mapping[str, float | None]]
    threshold: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, as wide as there is room."""
        room = options.max_width - Measurement.get(console, options, self._table()).maximum - BETWEEN_COLUMNS
        if room < BAR_WIDTH_MIN:
            yield self._table()
        else:
            yield self._table(self._bars(min(room, BAR_WIDTH), "#" if options.ascii_only else "█"))

    def _table(self, bars: Sequence[Text] = ()) -> Table:
        title = [BAR_TITLE] if bars else []
        table = Table("broker", "bytes in/s", "bytes out/s", "disk", *title, box=None, pad_edge=False)
        for (broker, row), bar in zip_longest(self.loads.items(), bars):
            table.add_row(broker, *(_number(row[name]) for name in FIGURES), *([bar] if bars else []))
        return table

    def _bars(self, width: int, block: str) -> list[Text]:
        """One for each broker, the highest `width` wide; none where the rate is unknown.

        Per mean, as skew is: a broker of twice the capacity with twice the load has a bar like the others.
        """
        known = [row["bytes_in_per_mean"] or 0.0 for row in self.loads.values()]
        highest = max(known, default=0.0) or 1.0
        return [Text(block * round(width * value / highest), style=self._style(value)) for value in known]

    def _style(self, per_mean: float) -> str:
        return "red" if per_mean > self.threshold else "green"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"
