"""Records, tables and resources stay as collectors, analysts and running installations know them."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from assignor_core.model import LOAD_KEYS, RATE_KEYS, Capacity
from assignor_core.resources import MEASURED, ONE, PLANNED, REPORTED, TRIGGERING, Resource
from streaming.contract import BROKER_LOAD, EXECUTION, PLAN, TABLES, Table
from streaming.contract.rates import BYTES_IN, RATES, REPLICA_RATES, Rate, Traffic
from streaming.contract.records import BYTE_RATE, CONSUMER_LAG, FOREIGN_BYTE_RATE, Field, RecordShape
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings import CapacitySettings, Settings

GOLDEN_RECORDS: dict[str, Any] = json.loads((Path(__file__).parent / "records.json").read_text(encoding="utf-8"))
"""Changed by hand, and only together with a line in CHANGELOG.md: a field that is gone rejects records of others."""
PAGE = (PROJECT_ROOT / "docs/records.md").read_text(encoding="utf-8")
SHAPES = {"byte_rate": BYTE_RATE, "consumer_lag": CONSUMER_LAG, "foreign_byte_rate": FOREIGN_BYTE_RATE}


def record_written(shape: RecordShape) -> dict[str, Any]:
    """Fields in their order with their types, and the rules in the order in which they are asked."""
    return {
        "fields": [[field.name, field.type.value] for field in shape.fields],
        "required": list(shape.required),
        "not_negative": list(shape.not_negative),
        "together": list(shape.together),
        "greatest": [[name, most] for name, most in shape.greatest],
    }


@pytest.mark.parametrize("name", GOLDEN_RECORDS)
def test_a_record_is_as_it_was(name: str) -> None:
    assert record_written(SHAPES[name]) == GOLDEN_RECORDS[name]


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


GOLDEN_TABLES: dict[str, Any] = json.loads((Path(__file__).parent / "tables.json").read_text(encoding="utf-8"))
"""Changed by hand, and only together with a line in CHANGELOG.md: others have such tables on their disks."""


def table_written(table: Table) -> dict[str, Any]:
    """Everything of the table that its readers or its files see."""
    return {
        "comment": table.comment,
        "key": list(table.key),
        "time_column": table.time_column,
        "configuration": dict(table.configuration),
        "columns": [[column.name, column.type.value, column.nullable, column.comment] for column in table.columns],
    }


def test_there_are_the_same_tables_in_the_same_order() -> None:
    assert list(TABLES) == list(GOLDEN_TABLES)


@pytest.mark.parametrize("name", GOLDEN_TABLES)
def test_a_table_is_as_it_was(name: str) -> None:
    assert table_written(TABLES[name]) == GOLDEN_TABLES[name]


JMX_RULES = (PROJECT_ROOT / "deploy/jmx/kafka-broker.yaml").read_text(encoding="utf-8")
RATE_OF = {rate.name: rate for rate in RATES}


@pytest.mark.parametrize("resource", MEASURED)
def test_windows_keep_what_a_resource_is_made_of(resource: Resource) -> None:
    assert set(resource.figures) <= set(BROKER_LOAD.column_names())
    assert all(RATE_OF[figure].traffic is not Traffic.REASSIGNMENT for figure in resource.figures if figure in RATE_OF)


@pytest.mark.parametrize("resource", Resource)
def test_a_resource_is_measured_against_a_capacity_that_can_be_set(resource: Resource) -> None:
    assert resource.capacity_key in {field.name for field in fields(Capacity)} & set(CapacitySettings.model_fields)


@pytest.mark.parametrize("resource", PLANNED)
def test_the_model_of_a_partition_has_what_replicas_carry_of_a_planned_resource(resource: Resource) -> None:
    assert resource.carried is not None
    figures = {resource.carried.leader, resource.carried.follower, resource.carried.per_follower} - {None}
    assert figures <= ({ONE} if resource.is_count else set(LOAD_KEYS))
    assert resource.carried.leader is not None, "somebody has to carry it"


def test_every_figure_of_a_partition_is_planned_on_and_every_rate_of_it_is_measured() -> None:
    carried = [row.carried for row in PLANNED if row.carried is not None]
    assert set(LOAD_KEYS) <= {row.leader for row in carried} | {row.per_follower for row in carried}
    assert set(RATE_KEYS) <= {rate.name for rate in REPLICA_RATES}
    assert RATE_KEYS[0] == BYTES_IN.name, "the rate whose absence makes a load unknown"


@pytest.mark.parametrize("resource", REPORTED)
def test_plans_and_executions_keep_its_skew(resource: Resource) -> None:
    assert f"{resource}_max_over_mean_before" in PLAN.column_names()
    assert f"{resource}_max_over_mean_measured" in EXECUTION.column_names()


def test_every_resource_that_may_trigger_can_be_set_and_no_other() -> None:
    named = [str(resource) for resource in TRIGGERING]
    assert Settings.model_validate({"trigger": {"resources": named}}).trigger.resources == named
    for other in set(Resource) - set(TRIGGERING):
        with pytest.raises(ValueError, match="Input should be 'bytes_in', "):
            Settings.model_validate({"trigger": {"resources": [str(other)]}})


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: rate.name)
def test_brokers_export_the_meter_of_every_rate(rate: Rate) -> None:
    assert f"name={rate.meter}PerSec" in JMX_RULES
