"""Types that fields of settings share, the base of each section, and how a setting is made of a policy of the core."""

import os
import re
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args
from urllib.parse import unquote_to_bytes, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, core_schema

from assignor_core.policies import WAIT_MAX_MS, Policy, knob_of

Milliseconds = Annotated[int, Field(ge=1, le=WAIT_MAX_MS)]
RETENTION_MAX_MS = 100 * 365 * 86_400_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
Port = Annotated[int, Field(ge=0, le=65535)]
PathOrText = TypeVar("PathOrText", str, Path)
AnyPolicy = TypeVar("AnyPolicy", bound=Policy)
Ratio = Annotated[float, Field(ge=0.0, le=1.0)]


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


RegularExpression = Annotated[str, AfterValidator(_regular_expression)]


def _no_home(path: PathOrText) -> PathOrText:
    if str(path).startswith("~"):
        raise ValueError("a leading ~ is not read as a home: write the whole path")
    return path


SHARDS_MAX = 64


def shard_numbers(text: str) -> tuple[int, int]:
    """(Number, count) of a text like `2/3`; raises ValueError."""
    match = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text, re.ASCII)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count <= SHARDS_MAX:
        raise ValueError(f"{text!r} is no part like 1/2 or 2/2, of at most {SHARDS_MAX} parts")
    return number, count


def _shard(text: str) -> str:
    shard_numbers(text)
    return text


ShardText = Annotated[str, AfterValidator(_shard)]


def _http_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and (parts.hostname or "").encode("idna") and parts.port != 0
    except ValueError:  # no number between 0 and 65535, brackets that don't match, a host that can't be one
        sound = False
    if not sound or " " in url or not url.isprintable():
        raise ValueError("must be like http://host:port/path")
    return url


def shown(**keys: Any) -> Any:
    """What the JSON schema of a type has besides, where a validator of ours is what refuses values.

    Patterns are for every engine: Helm's has no look-ahead. They may allow more than the validator, and never less.
    """
    return Field(json_schema_extra=keys)


NOT_OF_HOME = shown(pattern=r"^[^~]")
HttpUrl = Annotated[str, AfterValidator(_http_url), shown(pattern=r"^[hH][tT][tT][pP][sS]?://[^/?# ]")]
Location = Annotated[str, AfterValidator(_no_home), NOT_OF_HOME]
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*)")
_LOCAL = re.compile(r"(//(localhost)?)?(?P<path>/(?!/)[^?#]*)")


def split_uri(location: str) -> tuple[str, str] | None:
    """Returns scheme and rest of a location that is spelled as a URI, of a folder or an object store; None for a path.

    >>> split_uri("S3://bucket/tables"), split_uri("./data:cp")
    (('s3', '//bucket/tables'), None)
    """
    uri = _URI.fullmatch(location)
    return (uri["scheme"].lower(), uri["rest"]) if uri else None


def path_of(location: str) -> str | None:
    """Returns the path of a folder of this machine; None for an object store, and for a file URI that names no folder.

    A path is taken literally. In a URI `%20` stands for a space, as RFC 3986 has it and delta-rs reads it.
    """
    uri = split_uri(location)
    if uri is None:
        return location
    local = _LOCAL.fullmatch(uri[1]) if uri[0] == "file" else None
    return os.fsdecode(unquote_to_bytes(local["path"])) if local else None


def _named(path: Any) -> Any:
    """An empty text would be the working directory, as pathlib has it."""
    if path == "":
        raise ValueError("must name a file; null, or no such key, for none")
    return path


File = Annotated[Path, BeforeValidator(_named), AfterValidator(_no_home), NOT_OF_HOME]


class Section(BaseModel):
    """A part of the settings: frozen, and a key it doesn't know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML makes true of `yes` and `on`, and pydantic would make 1 of that."""
        given = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        if any(isinstance(one, bool) for one in given):
            types = _types_within(cls.model_fields[str(info.field_name)].annotation)
            if types & {int, float} and bool not in types:
                raise ValueError("must be a number, not true or false; YAML reads yes, no, on and off as these")
        return value


def _types_within(annotation: Any) -> set[Any]:
    """All that an annotation is made of."""
    return {annotation}.union(*map(_types_within, get_args(annotation)))


class OneOf:
    """Allows some members of an enumeration, as the annotation of a field: `Annotated[Resource, OneOf(...)]`."""

    def __init__(self, *members: StrEnum) -> None:
        self._values = [member.value for member in members]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.chain_schema([core_schema.literal_schema(self._values), handler(source)])


def from_policy(policy: type[Policy], name: str) -> Any:
    """The field of a section that sets `name` of a policy of the core: default, limits and description are there."""
    known, default = knob_of(policy, name)
    limits: dict[str, Any] = known.limits
    return Field(default, description=known.text, **limits)


def filled(policy: type[AnyPolicy], section: Section, **others: object) -> AnyPolicy:
    """A policy of the core with the values of all settings of a section that have names of its fields, and `others`.

    Raises InputError for values that the policy refuses together.
    """
    named = {field.name for field in fields(policy)} & type(section).model_fields.keys()
    values = {name: getattr(section, name) for name in named}
    return policy(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()} | others
    )
