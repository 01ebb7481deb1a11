"""How `rebalancer status` shows the plan that waits for a person: as plain data, and in one line."""

from collections.abc import Mapping
from typing import Any

from assignor_core.resources import REPORTED, Resource
from assignor_core.wording import bytes_text, counted
from streaming.commands.options import in_use
from streaming.commands.plan_price import price_texts
from streaming.tables import Row, to_ms


def shown_plan(plan: Row, price: Mapping[str, Any], *, now_ms: int) -> dict[str, Any]:
    """A plan that waits, with what it costs, as plain data."""
    return {
        "plan_id": plan["plan_id"],
        "created_at": plan["created_at"],
        "expires_at": plan["expires_at"],
        "expires_in_s": (to_ms(plan["expires_at"]) - now_ms) / 1000,
        "movements": plan["movement_count"],
        "leader_movements": plan["leader_movement_count"],
        "bytes_to_move": plan["bytes_to_move"],
        **price,
        "max_over_mean": {
            resource.value: {when: plan[f"{resource}_max_over_mean_{when}"] for when in ("before", "after")}
            for resource in REPORTED
        },
    }


def plan_line(plan: Mapping[str, Any]) -> str:
    """In one line, with the command that carries it out."""
    short = plan["plan_id"][:12]
    ratios = plan["max_over_mean"][Resource.BYTES_IN]
    known = None not in ratios.values()
    return ", ".join(
        (
            f"plan {short}: {counted(plan['movements'], 'movement', 'movements')}",
            bytes_text(plan["bytes_to_move"]),
            *price_texts(plan, whole_bytes=plan["bytes_to_move"]),
            *([f"bytes in max/mean {ratios['before']:.2f} -> {ratios['after']:.2f}"] if known else ()),
            f"expires in {max(0, round(plan['expires_in_s'] / 60))} min: rebalancer apply {short}{in_use()}",
        )
    )
