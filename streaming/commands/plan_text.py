"""A plan as text for people: what it does and costs first, then each movement below its reason, the next command last.

Lines fit a terminal of 80 columns. Topics are shortened in their middle there, and numbers of partitions never.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.wording import bytes_text, counted
from streaming.commands.in_words import accuracy_line, duration_text, price_texts

if TYPE_CHECKING:
    from rich.console import Console

ROWS_SHOWN = 20
NAME_MIN = 16
"""A partition's name is not shortened below this, however narrow the terminal."""
LEFT_OUT = "..."
FIGURES = re.compile(r"(\d+(?:\.\d+)?) -> (\d+(?:\.\d+)?)")
"""How a load changes by one movement, within its reason."""

Cells = tuple[str, str, str, str, str]
"""The columns of one movement: topic, the rest of its name, from, to, bytes."""


def print_plan(
    proposed: ProposedPlan, accuracy: Mapping[str, Any] | None, *, about: Sequence[str] = (), end: Sequence[str] = ()
) -> None:
    """Print the plan on standard output; `about` and `end` are lines after the first and after the last one."""
    from streaming.commands.console import console

    to, plan = console(), proposed.plan
    for line in (_summary(proposed), *about, ""):
        to.print(line)
    _print_skew(plan, to)
    price = proposed.to_json()
    for line in price_texts(price, whole_bytes=plan.bytes_to_move):
        to.print(line)
    own_error = accuracy_line(accuracy)
    if own_error is not None:
        to.print(own_error)
    for line in (*plan.problems, *plan.diagnosis):
        to.print(f"- {line}")
    for line in movement_lines(plan, to.width):
        to.print(line, soft_wrap=line.startswith("  "), highlight=False)
    _print_waves(price["schedule"], to)
    for line in ("", *end) if end else ():
        to.print(line, soft_wrap=True)


def by_reason(movements: Sequence[Movement | LogDirMovement]) -> list[tuple[str, list[Movement | LogDirMovement]]]:
    """Movements by reason, in the order of the plan; reasons that differ in figures alone are one, from the first
    figure of the first movement to the last one of the last.

    >>> moves = [Movement("t", n, (1,), (2,), 1.0, f"broker 1 goes {3 - n}.0 -> {2 - n}.0") for n in range(2)]
    >>> [(reason, len(rows)) for reason, rows in by_reason(moves)]
    [('broker 1 goes 3.0 -> 1.0', 2)]
    """
    groups: dict[str, list[Movement | LogDirMovement]] = {}
    for movement in movements:
        groups.setdefault(FIGURES.sub("", movement.reason), []).append(movement)
    return [(_joined(rows[0].reason, rows[-1].reason), rows) for rows in groups.values()]


def _joined(first: str, last: str) -> str:
    ends = iter(FIGURES.findall(last))
    return FIGURES.sub(lambda begin: f"{begin[1]} -> {next(ends)[1]}", first)


def shortened(topic: str, rest: str, width: int) -> str:
    """The name of a partition within `width`: letters of the topic are left out, and nothing of the `rest`.

    >>> shortened("orders", "-12", 20), shortened("orders.events.enriched", "-12", 16)
    ('orders-12', 'orders.e...ed-12')
    """
    room = max(width, NAME_MIN) - len(rest)
    if len(topic) <= room:
        return f"{topic}{rest}"
    tail = 2
    return f"{topic[: max(1, room - len(LEFT_OUT) - tail)]}{LEFT_OUT}{topic[-tail:]}{rest}"


def _summary(proposed: ProposedPlan) -> str:
    plan = proposed.plan
    parts = [
        counted(plan.movement_count, "movement", "movements"),
        f"{bytes_text(plan.bytes_to_move)} to copy",
        counted(len(plan.waves), "wave", "waves"),
        f"planned in {proposed.elapsed_ms / 1000:.2f} s",
    ]
    return f"Plan {plan.plan_id[:12]}: {', '.join(parts)}"


def _print_skew(plan: Plan, to: "Console") -> None:
    from rich.table import Table

    if not plan.skew_before:
        return
    skew = Table("resource", "max/mean before", "after", "no less than", box=None, pad_edge=False)
    for name, before in plan.skew_before.items():
        after = plan.skew_after[name]["max_over_mean"]
        figures = (before["max_over_mean"], after, plan.lower_bound.get(name, 1.0))
        skew.add_row(name, *(f"{figure:.3f}" for figure in figures))
    to.print(skew)
    to.print()


def movement_lines(plan: Plan, width: int) -> Iterator[str]:
    """Movements below their reasons, of many only the first ones."""
    movements: Sequence[Movement | LogDirMovement] = (*plan.movements, *plan.log_dir_movements)
    groups = by_reason(movements)
    lines = _lines([_cells(row) for _, rows in groups for row in rows][:ROWS_SHOWN], width)
    for reason, rows in groups:
        below = list(islice(lines, len(rows)))
        if not below:
            break
        copied = bytes_text(sum(row.bytes_to_move for row in rows))
        yield ""
        yield ": ".join(filter(None, (f"{counted(len(rows), 'movement', 'movements')}, {copied}", reason)))
        yield from below
    hidden = len(movements) - ROWS_SHOWN
    if hidden > 0:
        yield f"... and {hidden} more (--json shows all)"


def _cells(row: Movement | LogDirMovement) -> Cells:
    size = bytes_text(row.bytes_to_move)
    if isinstance(row, LogDirMovement):
        return row.topic, f"-{row.partition} on broker {row.broker}", row.old_log_dir, row.new_log_dir, size
    old, new = (",".join(map(str, replicas)) for replicas in (row.old_replicas, row.new_replicas))
    return row.topic, f"-{row.partition}", old, new, size


def _lines(rows: Sequence[Cells], width: int) -> Iterator[str]:
    """Rows below each other: the name as wide as the others leave room, replicas from and to, bytes."""
    old, new, size = (max((len(row[at]) for row in rows), default=0) for at in (2, 3, 4))
    room = width - len("   -> ") - len("  ") - old - new - size - 1
    names = [shortened(topic, rest, room) for topic, rest, *_ in rows]
    longest = max(map(len, names), default=0)
    for name, row in zip(names, rows, strict=True):
        yield f"  {name:<{longest}} {row[2]:>{old}} -> {row[3]:<{new}} {row[4]:>{size}}"


def _print_waves(schedule: Sequence[Mapping[str, Any]], to: "Console") -> None:
    """What each broker copies, and when."""
    from rich.table import Table

    rows = list(_wave_rows(schedule))
    if rows:
        table = Table("wave", "starts after", "takes", "broker", "receives", "sends", box=None, pad_edge=False)
        for row in rows[:ROWS_SHOWN]:
            table.add_row(*row)
        to.print()
        to.print(table)
    if len(rows) > ROWS_SHOWN:
        to.print(f"... and {len(rows) - ROWS_SHOWN} more (--json shows all)")


def _wave_rows(schedule: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """A row for each broker of each wave; one for a wave that copies nothing, if others do."""
    if not any(wave["brokers"] for wave in schedule):
        return
    for number, wave in enumerate(schedule, start=1):
        times = ["" if wave[key] is None else duration_text(wave[key]) for key in ("starts_after_ms", "duration_ms")]
        for row in wave["brokers"]:
            figures = (bytes_text(row[key]) for key in ("received_bytes", "sent_bytes"))
            yield str(number), *times, str(row["broker"]), *figures
        if not wave["brokers"]:
            yield str(number), *times, "none", bytes_text(0), bytes_text(0)
