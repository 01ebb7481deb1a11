"""Loading settings: defaults < file < environment < flags, and where each value came from.

The file is YAML (JSON is YAML too). An environment variable is `REBALANCER_` and the path joined by two underscores:
`REBALANCER_KAFKA__BOOTSTRAP_SERVERS=broker-1:9092,broker-2:9092`. A variable without two underscores is nobody's:
Kubernetes sets `REBALANCER_PORT` and the like for a service of that name. It is refused only where it is a setting but
for the second underscore. Keys that don't exist are refused, wherever they come from. `null`, or nothing, unsets what
may be without a value. What is allowed stands in `streaming.settings`.
"""

import difflib
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from assignor_core.wording import counted
from streaming.errors import SettingsRefused, UsageProblem
from streaming.settings import Settings
from streaming.settings.hints import GONE, value_hint
from streaming.settings.secret_names import SECRET_NAME, is_webhook_address, may_hold_secret

ENVIRONMENT_PREFIX = "REBALANCER_"
NESTING = "__"
PROBLEMS_SHOWN = 10
DEFAULT = "default"
"""The origin that is shown of a value that nobody has set."""
TEXTS = frozenset[object]({str, SecretStr, Path})
"""Types whose values are taken as they were typed."""
MERGE = "tag:yaml.org,2002:merge"

Nested = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effective:
    """Settings and, by dotted key, where each value that is not a default came from."""

    settings: Settings
    origins: Mapping[str, str]

    def origin(self, key: str) -> str:
        """`file conf.yaml`, `environment REBALANCER_…`, `flag`, or `default`."""
        parts = key.split(".")
        candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        above = next((self.origins[known] for known in candidates if known in self.origins), None)
        below = next((origin for known, origin in self.origins.items() if known.startswith(f"{key}.")), None)
        return above or below or DEFAULT


def load_settings(file: Path | None, flags: Mapping[str, object] | None = None) -> Settings:
    """Effective settings; `flags` by dotted key, text as it was typed. Raises UsageProblem, with a line a problem."""
    return load_effective(file, flags, os.environ).settings


def load_effective(file: Path | None, flags: Mapping[str, object] | None, environment: Mapping[str, str]) -> Effective:
    """Returns the effective settings with the origin of each value, for `rebalancer config`; `flags` by dotted key,
    text as it was typed. Raises SettingsRefused.
    """
    merged: Nested = {}
    origins: dict[str, str] = {}
    if file is not None:
        _merge(merged, _read_file(file), origins, f"file {file}")
    for name, value in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        if NESTING in name[len(ENVIRONMENT_PREFIX) :]:
            path = _path_of(name[len(ENVIRONMENT_PREFIX) :])
            _merge(merged, _nest(path, _from_text(path, value)), origins, f"environment {name}")
        else:
            _check_underscores(name, value)
    for key, flag in (flags or {}).items():
        path = key.split(".")
        _merge(merged, _nest(path, _from_flag(path, flag) if isinstance(flag, str) else flag), origins, "flag")
    try:
        effective = Effective(Settings.model_validate(merged), origins)
    except ValidationError as error:
        raise SettingsRefused(_problems(error, Effective(Settings(), origins))) from None
    _check_tables_last(effective)
    return effective


def _check_tables_last(effective: Effective) -> None:
    """delta-rs keeps tables below `memory:` in memory: a role would lose its journal. Simulations, which may have such
    tables, build their settings themselves.
    """
    tables = effective.settings.storage.tables
    if tables.lower().startswith("memory:"):
        origin = effective.origin("storage.tables")
        raise UsageProblem(
            f"storage.tables: must outlive the process, found {tables!r} ({origin}), allowed is a folder"
        )


def flatten(settings: BaseModel) -> dict[str, object]:
    """Every setting by dotted key, secrets masked."""
    flat: dict[str, object] = {}

    def visit(prefix: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                visit(f"{prefix}.{key}" if prefix else str(key), inner)
        else:
            flat[prefix] = str(SecretStr(value)) if isinstance(value, str) and is_webhook_address(prefix) else value

    visit("", settings.model_dump(mode="json"))
    return flat


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error instead of a silent override."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:  # `<<` holds no key itself; what stands beside it wins over what it brings
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} can't be a key", key_node.start_mark)
            if str(key) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(str(key))
        return super().construct_mapping(node, deep)


def _read_file(file: Path) -> Nested:
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise UsageProblem(f"settings file {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"settings file {file}: is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # a day like 2026-02-30, brackets without end
        raise UsageProblem(f"settings file {file}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageProblem(f"settings file {file}{where}: {getattr(error, 'problem', None) or error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageProblem(f"settings file {file}: holds a {type(content).__name__}, must hold sections like 'kafka:'")
    return content


def _path_of(variable: str) -> list[str]:
    """Keys are small letters. A name within a map, as of a topic or a role, is not ours: one with small letters is
    taken as it is written, and of capitals alone it is that of a variable.
    """
    path: list[str] = []
    annotation: object = Settings
    for part in variable.split(NESTING):
        is_name = get_origin(_bare(annotation)) is dict and not part.isupper()
        path.append(part if is_name else part.lower())
        annotation = _type_at(_bare(annotation), path[-1])
    return path


def _nest(path: list[str], value: object) -> Nested:
    for part in reversed(path):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def _merge(into: Nested, new: Nested, origins: dict[str, str], origin: str, prefix: str = "") -> None:
    for name, value in new.items():
        key = str(name)  # YAML makes a number of a broker's id; in the environment and in flags it is text
        path = f"{prefix}{key}"
        if isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
                origins.pop(path, None)
            _merge(into[key], value, origins, origin, f"{path}.")
        else:
            into[key] = value
            origins[path] = origin


def _check_underscores(name: str, value: str) -> None:
    """Refuse the one slip that would go unseen: a setting's own name with one underscore too few."""
    meant = {key.replace(".", "_").upper(): key for key in flatten(Settings())}.get(name[len(ENVIRONMENT_PREFIX) :])
    # REBALANCER_SERVE_PORT=tcp://… is set by Kubernetes for a service called rebalancer-serve.
    if meant is not None and "://" not in value:
        right = ENVIRONMENT_PREFIX + meant.replace(".", NESTING).upper()
        raise UsageProblem(f"environment {name}: is no setting; did you mean {right}?")


def _from_text(path: list[str], value: str) -> object:
    """A list's value may be given as `a,b`; JSON is taken as such; the rest is for pydantic to convert."""
    types = _types(path)
    if value in ("", "null") and NoneType in types:
        return None
    if value[:1] in ("[", "{") and not types & TEXTS:
        return _from_yaml(value)
    if list in types:
        return [part.strip() for part in value.split(",")] if value.strip() else []
    return value


def _from_flag(path: list[str], value: str) -> object:
    """Converts a flag's text as `_from_text` does, but YAML counts: `"a"` and `[1, 2]`. A number in the place of a text
    is a text: a name, a password.
    """
    parsed = _from_text(path, value)
    if parsed != value or (_types(path) & TEXTS and value[:1] not in ('"', "'")):
        return parsed
    return _from_yaml(value)


def _from_yaml(value: str) -> object:
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return value


def _types(path: list[str]) -> set[object]:
    """Types that the setting takes, without what they hold; none where there is no such setting."""
    annotation: object = Settings
    for part in path:
        annotation = _type_at(_bare(annotation), part)
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    bare = map(_bare, options)
    return {get_origin(option) or option for option in bare}


def _type_at(annotation: object, part: str) -> object:
    """Type of what stands below this key of a section, or of a map of settings; None where there is no such setting."""
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    known = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    field = annotation.model_fields.get(part) if known else None  # type: ignore[attr-defined]
    return field.annotation if field else None


def _bare(annotation: object) -> object:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _problems(error: ValidationError, effective: Effective) -> tuple[str, ...]:
    """One line for each wrong setting, of many only the first ones."""
    details = error.errors(include_url=False)
    shown = tuple(_describe(detail, effective) for detail in details[:PROBLEMS_SHOWN])
    return (*shown, f"and {len(details) - PROBLEMS_SHOWN} more") if len(details) > PROBLEMS_SHOWN else shown


def _describe(detail: ErrorDetails, effective: Effective) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    origin = effective.origin(key)
    if detail["type"] == "extra_forbidden":
        if key in GONE:
            return f"{key}: this setting is gone, remove it ({origin}); {GONE[key]}"
        return f"{key}: unknown key ({origin}){_suggestion(key)}"
    shown = "" if isinstance(detail["input"], dict) else f", found {detail['input']!r}"
    if may_hold_secret(key) or SECRET_NAME.search(shown) or "@" in shown:  # a section that is none; a URL with a login
        return f"{key}: {_reason(detail)} ({origin})"
    return f"{key}: {_reason(detail)}{shown} ({origin}){value_hint(key, detail['type'], detail['input'])}"


def _reason(detail: ErrorDetails) -> str:
    """Why a value is wrong. pydantic's words for it name Python's classes here and there."""
    if detail["type"] in ("model_type", "model_attributes_type"):
        return "must be a section with keys of its own"
    if detail["type"] in ("too_short", "too_long"):
        is_short = detail["type"] == "too_short"
        bound = detail["ctx"]["min_length" if is_short else "max_length"]
        return f"must hold at {'least' if is_short else 'most'} {counted(bound, 'entry', 'entries')}"
    reason = detail["msg"].removeprefix("Value error, ").replace("valid dictionary", "section of keys and values")
    return f"{reason[:1].lower()}{reason[1:]}"


def _suggestion(key: str) -> str:
    known = list(flatten(Settings())) + list(Settings.model_fields)
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    section = key.rpartition(".")[0]
    siblings = sorted({name for name in known if name.rpartition(".")[0] == section})
    return f"; known: {', '.join(name.rpartition('.')[2] for name in siblings)}" if siblings else ""
