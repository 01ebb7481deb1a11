"""Every table stays as analysts and running installations know it: names, order, types, comments, keys."""

import json
from pathlib import Path
from typing import Any

import pytest

from streaming.contract import TABLES, Table

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "tables.json").read_text(encoding="utf-8"))
"""Changed by hand, and only together with a line in CHANGELOG.md: others have such tables on their disks."""


def written(table: Table) -> dict[str, Any]:
    """Everything of the table that its readers or its files see."""
    return {
        "comment": table.comment,
        "key": list(table.key),
        "time_column": table.time_column,
        "configuration": dict(table.configuration),
        "columns": [[column.name, column.type.value, column.nullable, column.comment] for column in table.columns],
    }


def test_there_are_the_same_tables_in_the_same_order() -> None:
    assert list(TABLES) == list(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_table_is_as_it_was(name: str) -> None:
    assert written(TABLES[name]) == GOLDEN[name]
