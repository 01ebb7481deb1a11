"""What simulations led to, as text and as a page for people and as plain data for programs. Counts nothing itself."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assignor_core.group.figures import Rebalance, RunTotals
from assignor_core.group.simulation import Run
from streaming.simulate.scenario_file import Variant

if TYPE_CHECKING:
    from rich.console import RenderableType

REBALANCES_SHOWN = 12


def summary_json(runs: Sequence[tuple[Variant, Run]]) -> dict[str, Any]:
    """All figures: totals and every rebalance of every variant; the first rebalance is the group's beginning."""
    return {
        "title": runs[0][0].title,
        "about": runs[0][0].about,
        "variants": [
            {
                "name": variant.name,
                "end_ms": run.end_ms,
                "settled": run.settled,
                "totals": dataclasses.asdict(run.totals),
                "rebalances": [_rebalance_json(rebalance) for rebalance in run.rebalances],
            }
            for variant, run in runs
        ],
    }


def summary_text(runs: Sequence[tuple[Variant, Run]]) -> "RenderableType":
    """Totals side by side, then each variant's rebalances."""
    from rich.console import Group
    from rich.text import Text

    variant = runs[0][0]
    parts: list[RenderableType] = [Text(variant.title, style="bold"), Text(variant.about), Text(), _totals(runs)]
    for one, run in runs:
        parts += [Text(), _rebalances(one.name, run.rebalances)]
        hidden = len(run.rebalances) - REBALANCES_SHOWN
        if hidden > 0:
            parts.append(Text(f"... and {hidden} more (--json shows all)"))
        if not run.settled:
            parts.append(Text("the group had not come to rest when the run was ended", style="red"))
    return Group(*parts)


def totals_rows(totals: RunTotals) -> Mapping[str, str]:
    """Totals by label, as they are shown."""
    return {
        "rebalances": f"{totals.rebalances:,}",
        "rounds": f"{totals.rounds:,}",
        "members stopped": f"{totals.members_stopped:,}",
        "partitions revoked": f"{totals.revoked:,}",
        "partitions moved": f"{totals.moved:,}",
        "idle partition-s": f"{totals.idle_partition_ms / 1000:,.1f}",
        "longest pause, s": f"{totals.idle_longest_ms / 1000:,.1f}",
        "lag built up, records": f"{totals.lag_records:,.0f}",
        "read twice, partition-s": f"{totals.overlap_partition_ms / 1000:,.1f}",
        "members refused": f"{totals.failed:,}",
    }


def _totals(runs: Sequence[tuple[Variant, Run]]) -> "RenderableType":
    from rich.table import Table

    table = Table("", box=None, pad_edge=False)
    for variant, _ in runs:
        table.add_column(variant.name or "total", justify="right")
    columns = [totals_rows(run.totals) for _, run in runs]
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    return table


def _rebalances(name: str, rebalances: Sequence[Rebalance]) -> "RenderableType":
    from rich.table import Table

    title = f"{name or 'rebalances'} (idle in partition-s)"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for label in ("at s", "why", "rounds", "stopped", "revoked", "moved", "kept", "idle", "took s"):
        table.add_column(label, justify="left" if label == "why" else "right")
    for one in rebalances[:REBALANCES_SHOWN]:
        took = "not ended" if one.duration_ms is None else f"{one.duration_ms / 1000:.1f}"
        counts = (one.rounds, one.members_stopped, one.revoked, one.moved, one.kept)
        idle = f"{one.idle_partition_ms / 1000:,.1f}"
        table.add_row(f"{one.started_ms / 1000:.1f}", one.cause, *map(str, counts), idle, took)
    return table


def _rebalance_json(rebalance: Rebalance) -> dict[str, Any]:
    return {**dataclasses.asdict(rebalance), "duration_ms": rebalance.duration_ms}


def page_of(runs: Sequence[tuple[Variant, Run]], png: bytes) -> str:
    """HTML with the picture inside; the same runs give the same text."""
    import jinja2

    environment = jinja2.Environment(loader=jinja2.PackageLoader("streaming.simulate", "."), autoescape=True)
    columns = [totals_rows(run.totals) for _, run in runs]
    return environment.get_template("page.html.jinja").render(
        title=runs[0][0].title,
        about=runs[0][0].about,
        image=base64.b64encode(png).decode(),
        names=[variant.name or "total" for variant, _ in runs],
        rows=[(label, [column[label] for column in columns]) for label in columns[0]],
        runs=[(variant.name, run.rebalances) for variant, run in runs],
    )
