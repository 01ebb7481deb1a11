"""docs/planner.md has every knob of a policy once, with its default and its option."""

import re
from dataclasses import fields

from assignor_core.planner import PlannerPolicy
from streaming.commands.plan import plan
from streaming.runtime.jars import PROJECT_ROOT

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
