"""The texts that users read outside of pages: descriptions of settings, help of commands, alerts and metrics."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import click
import yaml
from pydantic import BaseModel

from streaming.cli import COMMANDS, rebalancer
from streaming.serve.families import FAMILIES
from streaming.settings import Settings

ALERTS = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "alerts.yml"
IN_BRACES = re.compile(r"\{\{.*?\}\}", re.DOTALL)

Texts = Iterator[tuple[str, str]]
"""Where a text stands, and the text."""


def texts() -> dict[str, str]:
    """Each text by where it stands, such as `setting kafka.cluster_name`."""
    return dict([*settings_of(Settings), *help_of(rebalancer, "rebalancer"), *summaries(), *annotations(), *meanings()])


def settings_of(model: type[BaseModel], above: str = "") -> Texts:
    for name, field in model.model_fields.items():
        place = f"{above}{name}"
        if field.description:
            yield f"setting {place}", field.description
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from settings_of(part, f"{place}.")


def help_of(command: click.Command, name: str) -> Texts:
    yield f"command {name}", command.help or ""
    context = click.Context(command)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield f"command {name} {parameter.opts[-1]}", parameter.help or ""
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from help_of(cast(click.Command, command.get_command(context, inner)), f"{name} {inner}")


def summaries() -> Texts:
    for name, (_, summary) in COMMANDS.items():
        yield f"summary of rebalancer {name}", summary


def annotations() -> Texts:
    """What is in braces is a value to a reader, or chooses between texts: one word in both cases."""
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            notes: dict[str, Any] = rule.get("annotations", {})
            for key in sorted({"summary", "description"} & set(notes)):
                yield f"alert {rule['alert']} {key}", IN_BRACES.sub(" Value ", str(notes[key]))


def meanings() -> Texts:
    for family in FAMILIES:
        yield f"metric {family.name}", family.help
