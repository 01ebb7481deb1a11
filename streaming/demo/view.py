"""What the demo shows while it runs: broker bars and the present step on a terminal, plain lines in a log."""

from collections.abc import Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from streaming.demo.measure import max_over_mean, ratio_text
from streaming.demo.story import Story

BAR_WIDTH = 40
BESIDE_BARS = 26
"""Columns of the terminal that frame, names and figures take."""
PLAIN_INTERVAL_S = 10.0
RECENT_STEPS = 8


class View:
    """Draws one state after another; `add_step` adds a line that stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._steps: list[str] = []
        self._last_plain_s = -PLAIN_INTERVAL_S
        self._last_now = ""

    def start(self) -> None:
        """Takes the screen for the view."""
        if self._live:
            self._live.start()

    def stop(self) -> None:
        """Give the screen back."""
        if self._live:
            self._live.stop()
            for step in self._steps:
                self._console.print(step, highlight=False)

    def add_step(self, seconds: float, text: str) -> None:
        """Prints a step of the demo that is done."""
        line = f"{seconds:6.1f} s  {text}"
        self._steps.append(line)
        if not self._live:
            self._console.print(line, highlight=False, soft_wrap=True)

    def show(self, seconds: float, rates: Mapping[int, float | None], story: Story, threshold: float) -> None:
        """The present: rates by broker as measured over JMX, skew against the threshold, what is going on."""
        if self._live:
            steps = Text("\n".join(self._steps[-RECENT_STEPS:]))
            now = Text(f"{seconds:6.1f} s  {story.now()}", style="bold")
            bars = _bars(rates, threshold, self._console.width, "#" if self._console.options.ascii_only else "█")
            self._live.update(Group(Panel(bars, title="bytes in, measured on the brokers"), steps, now))
        elif seconds - self._last_plain_s >= PLAIN_INTERVAL_S or story.now() != self._last_now:
            self._last_plain_s, self._last_now = seconds, story.now()
            figures = "  ".join(f"broker {broker} {_rate(rate)}" for broker, rate in sorted(rates.items()))
            self._console.print(
                f"{seconds:6.1f} s  {figures}  max/mean {ratio_text(max_over_mean(rates))}  | {story.now()}",
                highlight=False, soft_wrap=True,
            )  # fmt: skip


def _bars(rates: Mapping[int, float | None], threshold: float, console_width: int, block: str) -> Table:
    table = Table.grid(padding=(0, 1))
    known = [rate for rate in rates.values() if rate is not None]
    highest = max(known, default=0.0) or 1.0
    mean = sum(known) / len(known) if known else 0.0
    width = max(0, min(BAR_WIDTH, console_width - BESIDE_BARS))
    for broker, rate in sorted(rates.items()):
        colour = "red" if mean and (rate or 0.0) / mean > threshold else "green"
        bar = Text(block * round(width * (rate or 0.0) / highest), style=colour)
        table.add_row(f"broker {broker}", Text(_rate(rate), justify="right"), bar)
    ratio = max_over_mean(rates)
    style = "" if ratio is None else "bold red" if ratio > threshold else "bold green"
    table.add_row(
        "max/mean", Text(ratio_text(ratio), style=style), Text(f"(skew counts above {threshold})", style="dim")
    )
    return table


def _rate(bytes_per_sec: float | None) -> str:
    if bytes_per_sec is None:
        return "unknown"
    return f"{bytes_per_sec / 1e6:.2f} MB/s" if bytes_per_sec >= 1e6 else f"{bytes_per_sec / 1e3:.1f} kB/s"
