"""The records of both topics stay as collectors and other producers write them: fields, types, rules."""

import json
from pathlib import Path
from typing import Any

import pytest

from streaming.contract.records import BYTE_RATE, CONSUMER_LAG, FOREIGN_BYTE_RATE, RecordShape

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "records.json").read_text(encoding="utf-8"))
"""Changed by hand, and only together with a line in CHANGELOG.md: a field that is gone rejects records of others."""
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
