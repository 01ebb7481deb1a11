"""The records of both topics stay as collectors and other producers write them: fields, types, rules."""

import json
from pathlib import Path
from typing import Any

import pytest

from streaming.contract.records import BYTE_RATE, CONSUMER_LAG, FOREIGN_BYTE_RATE, Field, RecordShape
from streaming.runtime.jars import PROJECT_ROOT

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "records.json").read_text(encoding="utf-8"))
"""Changed by hand, and only together with a line in CHANGELOG.md: a field that is gone rejects records of others."""
PAGE = (PROJECT_ROOT / "docs/records.md").read_text(encoding="utf-8")
SHAPES = {"byte_rate": BYTE_RATE, "consumer_lag": CONSUMER_LAG, "foreign_byte_rate": FOREIGN_BYTE_RATE}


def written(shape: RecordShape) -> dict[str, Any]:
    """Fields in their order with their types, and the rules in the order in which they are asked."""
    return {
        "fields": [[field.name, field.type.value] for field in shape.fields],
        "required": list(shape.required),
        "not_negative": list(shape.not_negative),
        "together": list(shape.together),
        "greatest": [[name, most] for name, most in shape.greatest],
    }


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_is_as_it_was(name: str) -> None:
    assert written(SHAPES[name]) == GOLDEN[name]


def allowed(field: Field) -> str:
    """What a value must be, in a cell of the page."""
    most = "" if field.most is None else f"{field.most:.10g}".replace("e+", "e")
    limits = (f"0 to {most}" if most else "0 or more") if field.not_negative else (f"up to {most}" if most else "")
    return ", ".join(part for part in ("required" if field.required else "", limits) if part)


def section(title: str, shape: RecordShape) -> str:
    """The page's section on one topic's records, as it has to be."""
    lines = [f"## {title}", "", "| field | type and unit | must be | meaning |", "|---|---|---|---|"]
    for field in shape.fields:
        kind = ", ".join(part for part in (field.type, field.unit) if part)
        meaning = field.meaning[0].upper() + field.meaning[1:]
        lines.append(f"| `{field.name}` | {kind} | {allowed(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("title", "shape"), [("Byte rate", BYTE_RATE), ("Consumer lag", CONSUMER_LAG)])
def test_the_page_of_the_records_shows_each_field(title: str, shape: RecordShape) -> None:
    assert section(title, shape) in PAGE
