"""Policies: what they refuse, what patterns of the settings become, and that docs/planner.md has every knob."""

import re
from dataclasses import fields
from typing import Any

import pytest

from assignor_core.errors import InputError
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.policy import BrokerSet
from streaming.commands.plan import plan
from streaming.control.policies import planner_policy
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings import Settings

PAGE = (PROJECT_ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("| knob (option) | default |")[2].partition("\n\n")[0].splitlines()[2:]
ROWS = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in TABLE]


def test_each_knob_stands_there_once() -> None:
    named = [name for knobs, _, _ in ROWS for name in re.findall(r"`(\w+)`", knobs)]
    assert sorted(named) == sorted(field.name for field in fields(PlannerPolicy))


def test_a_default_that_is_a_number_is_that_of_the_code() -> None:
    defaults = {field.name: field.default for field in fields(PlannerPolicy)}
    stated = {re.findall(r"`(\w+)`", knobs)[0]: float(default) for knobs, default, _ in ROWS if default[0].isdigit()}
    assert stated == {name: value for name, value in defaults.items() if type(value) in (int, float)}


def test_the_options_are_those_of_the_command() -> None:
    options = {option for parameter in plan.params for option in parameter.opts}
    named = {option for knobs, _, _ in ROWS for option in re.findall(r"`(--[\w-]+)`", knobs)}
    assert len(named) > 8
    assert named <= options


ORDERS, PAYMENTS = frozenset({"orders", "orders.eu"}), frozenset({"payments"})


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("leader_racks", {"^orders": ["a"], "s$": ["b", "c"]}, ((ORDERS, ("a",)), (PAYMENTS, ("b", "c")))),
        (
            "broker_sets",
            {"^orders": {"brokers": [1, 2]}, "s": {"racks": ["b"]}},
            (BrokerSet(ORDERS, brokers=frozenset({1, 2})), BrokerSet(PAYMENTS, racks=frozenset({"b"}))),
        ),
        ("leaders_min", {"^orders": 2, "s": 1}, ((ORDERS, 2), (PAYMENTS, 1))),
        ("spread_topics", ["^o", "^p"], ORDERS | PAYMENTS),
    ],
)
def test_of_several_patterns_the_first_that_a_topic_matches_counts(
    setting: str, value: object, expected: object
) -> None:
    of_settings = Settings.model_validate({"planner": {setting: value}}).planner
    assert getattr(planner_policy(of_settings, [*sorted(ORDERS | PAYMENTS), "audit"]), setting) == expected


@pytest.mark.parametrize(
    ("fields_of_policy", "message"),
    [
        ({"leader_racks": ((ORDERS, ()),)}, "leader_racks: found no rack, allowed are one or more"),
        ({"leaders_min": ((ORDERS, 0),)}, "leaders_min: found less than one leader"),
        ({"failover_headroom": "zone"}, "failover_headroom: found zone, allowed are none, broker, rack"),
    ],
)
def test_what_a_policy_can_not_mean_is_refused(fields_of_policy: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"planner policy {message}"):
        PlannerPolicy(**fields_of_policy)


@pytest.mark.parametrize("given", [{}, {"brokers": frozenset({1}), "racks": frozenset({"a"})}])
def test_a_set_needs_brokers_or_racks(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="planner policy broker_sets: a set needs brokers or racks, and not both"):
        BrokerSet(ORDERS, **given)
