"""Loading settings: defaults < file < environment < flags, and where each value came from.

The file is YAML (JSON is YAML too). An environment variable is `REBALANCER_` and the path joined by two underscores:
`REBALANCER_KAFKA__BOOTSTRAP_SERVERS=broker-1:9092,broker-2:9092`. A variable without two underscores is nobody's:
Kubernetes sets `REBALANCER_PORT` and the like for a service of that name. It is refused only where it is a setting but
for the second underscore. Keys that don't exist are refused, wherever they come from. `null`, or nothing, unsets what
may be without a value. What is allowed stands in `streaming.settings`.
A value of the wrong kind is refused with a hint at what the person meant, such as bytes for 50MB.

If the file names `clusters`, each cluster's settings are put together of the shared sections and its own ones. What the
cluster has of its own wins over what is shared in the same source; a later source wins over an earlier one. So
`--set control.mode=observe` holds for every cluster, whatever the file says of one. Only the file names clusters: a
variable or a flag for a cluster that the file does not name is refused.
"""

import difflib
import json
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from assignor_core.wording import counted
from streaming.errors import SettingsRefused, UsageProblem
from streaming.settings import Settings, StorageSettings
from streaming.settings.clusters import (
    ClusterSettings,
    ClusterStorage,
    DeploymentSettings,
    NamedClusterSettings,
    conflicts,
    name_problems,
    own_place,
    spelling_in_environment,
)
from streaming.settings.secret_names import SECRET_NAME, is_webhook_address, may_hold_secret

ENVIRONMENT_PREFIX = "REBALANCER_"
NESTING = "__"
PROBLEMS_SHOWN = 10
DEFAULT = "default"
"""The origin that is shown of a value that nobody has set."""
TEXTS = frozenset[object]({str, SecretStr, Path})
"""Types whose values are taken as they were typed."""
CLUSTERS = "clusters"
"""The key of the file below which clusters are named."""
MERGE = "tag:yaml.org,2002:merge"

Nested = dict[str, Any]
OfCluster = TypeVar("OfCluster")


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


@dataclass(frozen=True, slots=True)
class _Given:
    """Values that one source gives: the shared ones, or those of the cluster that `cluster` names."""

    kind: int
    """Number of the kind of source: file, environment, flags. A higher one wins."""
    cluster: str | None
    values: Nested
    origin: str

    @property
    def order(self) -> tuple[int, bool]:
        """What is merged first is overridden by what comes later."""
        return self.kind, self.cluster is not None


def load_settings(file: Path | None, flags: Mapping[str, object] | None = None) -> Settings:
    """Effective settings of the one cluster; `flags` by dotted key, text as it was typed. Raises UsageProblem, with a
    line a problem, also if the file names several clusters.
    """
    return load_effective(file, flags, os.environ).settings


def load_effective(
    file: Path | None, flags: Mapping[str, object] | None, environment: Mapping[str, str], cluster: str | None = None
) -> Effective:
    """Returns the effective settings of `cluster` with the origin of each value; `cluster` may be None if there is only
    one. `flags` by dotted key, text as it was typed. Raises SettingsRefused, and UsageProblem for an unknown cluster.
    """
    return chosen(load_clusters(file, flags, environment), cluster)


def chosen(clusters: Mapping[str, OfCluster], name: str | None) -> OfCluster:
    """Returns the value of the cluster with this name, or of the only one if `name` is None. Raises UsageProblem."""
    known = ", ".join(clusters)
    if name is None and len(clusters) > 1:
        raise UsageProblem(f"the settings name several clusters: choose one by --cluster; known are {known}")
    if name is not None and name not in clusters:
        raise UsageProblem(f"--cluster: found {name!r}, the settings know {known}")
    return next(iter(clusters.values())) if name is None else clusters[name]


def load_clusters(
    file: Path | None, flags: Mapping[str, object] | None, environment: Mapping[str, str]
) -> dict[str, Effective]:
    """Returns the effective settings of every cluster, by name, in the order of the file; of the one cluster where the
    file names none. Raises SettingsRefused.
    """
    content = _read_file(file) if file is not None else {}
    named = _clusters_of(content)
    _refuse(list(name_problems(named)))
    origin = f"file {file}"
    given = [_Given(0, None, {key: value for key, value in content.items() if key != CLUSTERS}, origin)]
    given += [_Given(0, name, own, f"{origin}, {CLUSTERS}.{name}") for name, own in named.items()]
    given += [each for name, value in sorted(environment.items()) for each in _of_variable(name, value, [*named])]
    for key, flag in (flags or {}).items():
        path = _path_of_flag(key, [*named])
        value = _from_flag(path, flag) if isinstance(flag, str) else flag
        given += _split(2, _nest(path, value), "flag", [*named])
    if not named:
        effective = _effective(None, given)
        return {effective.settings.kafka.cluster_name: effective}
    _refuse(list(dict.fromkeys(problem for each in given for problem in _misplaced(each))))
    clusters, problems = dict[str, Effective](), dict[str, tuple[str, ...]]()
    for name in named:
        try:
            clusters[name] = _effective(name, given)
        except SettingsRefused as error:
            problems[name] = error.problems
    _refuse(_by_cluster(problems, len(named)))
    _refuse(list(conflicts({name: effective.settings for name, effective in clusters.items()})))
    return clusters


def _path_of_flag(key: str, named: Sequence[str]) -> list[str]:
    """Splits a dotted key; a name of a cluster may have points, too."""
    fitting = (name for name in named if f"{key}.".startswith(f"{CLUSTERS}.{name}."))
    own = max(fitting, key=len, default=None)
    return key.split(".") if own is None else [CLUSTERS, own, *key.removeprefix(f"{CLUSTERS}.{own}").split(".")[1:]]


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = [f"and {len(problems) - PROBLEMS_SHOWN} more"] if len(problems) > PROBLEMS_SHOWN else []
        raise SettingsRefused((*problems[:PROBLEMS_SHOWN], *more))


def _by_cluster(problems: Mapping[str, Sequence[str]], clusters_total: int) -> list[str]:
    """Returns each problem once: with the names of the clusters that have it, unless all of them do."""
    having: dict[str, list[str]] = {}
    for name, lines in problems.items():
        for line in lines:
            having.setdefault(line, []).append(name)
    return [
        line if len(names) == clusters_total else f"cluster {', '.join(names)}: {line}"
        for line, names in having.items()
    ]


def _clusters_of(content: Nested) -> dict[str, Nested]:
    """Returns what the file has of each cluster, by name."""
    named = content.get(CLUSTERS, {})
    if named is None:
        raise UsageProblem(f"{CLUSTERS}: names no cluster: name one, or remove the key")
    if not isinstance(named, dict):
        found = "a list" if isinstance(named, list) else repr(named)  # secrets may stand in it
        raise UsageProblem(f"{CLUSTERS}: must be a section of names, found {found}")
    for name, own in named.items():
        if own is not None and not isinstance(own, dict):
            raise UsageProblem(f"{CLUSTERS}.{name}: must be a section with keys of its own")
    return {str(name): own or {} for name, own in named.items()}


def _of_variable(name: str, value: str, named: Sequence[str]) -> Iterator[_Given]:
    """Yields what a variable of the environment gives; nothing if the variable is nobody's."""
    if not name.startswith(ENVIRONMENT_PREFIX):
        return
    if NESTING not in name[len(ENVIRONMENT_PREFIX) :]:
        _check_underscores(name, value, named)
        return
    path = _path_of(name[len(ENVIRONMENT_PREFIX) :])
    if path[0] == CLUSTERS:
        spelled = spelling_in_environment(path[1])
        path[1] = next((known for known in named if spelling_in_environment(known) == spelled), path[1])
    yield from _split(1, _nest(path, _from_text(path, value)), f"environment {name}", named)


def _split(kind: int, values: Nested, origin: str, named: Sequence[str]) -> Iterator[_Given]:
    """Yields the shared part of the values and that of each cluster. Raises UsageProblem for an unknown cluster."""
    yield _Given(kind, None, {key: value for key, value in values.items() if key != CLUSTERS}, origin)
    if CLUSTERS not in values:
        return
    for name, own in _clusters_of(values).items():
        if name not in named:
            known = f"known are {', '.join(named)}" if named else "the settings file names none"
            raise UsageProblem(f"{CLUSTERS}.{name}: unknown cluster ({origin}); {known}")
        yield _Given(kind, name, own, f"{origin}, {CLUSTERS}.{name}")


def _misplaced(given: _Given) -> Iterator[str]:
    """Yields a line for each key that a cluster may not have, or may have alone."""
    if given.cluster is None:
        kafka = given.values.get("kafka")
        if isinstance(kafka, dict) and "cluster_name" in kafka:
            yield f"kafka.cluster_name: remove it ({given.origin}), since {CLUSTERS} names each cluster"
        return
    prefix = f"{CLUSTERS}.{given.cluster}"
    for key, value in given.values.items():
        if key not in ClusterSettings.model_fields:
            which = "holds for all clusters, set it at the top" if key in Settings.model_fields else "unknown key"
            sections = ", ".join(ClusterSettings.model_fields)
            yield f"{prefix}.{key}: {which} ({given.origin}); sections of a cluster: {sections}"
        inner = value if isinstance(value, dict) else {}
        if key == "kafka" and "cluster_name" in inner:
            yield f"{prefix}.kafka.cluster_name: remove it ({given.origin}), the cluster's name is {given.cluster}"
        for name in inner if key == "storage" else ():
            if name not in ClusterStorage.model_fields:
                yield f"{prefix}.storage.{name}: holds for all clusters, set it at the top ({given.origin})"


def _effective(cluster: str | None, given: Sequence[_Given]) -> Effective:
    """The settings of one cluster, or of the only one if `cluster` is None. Raises SettingsRefused."""
    merged: Nested = {}
    origins: dict[str, str] = {}
    for each in sorted(given, key=lambda each: each.order):
        if each.cluster in (None, cluster):
            _merge(merged, each.values, origins, each.origin)
            if each.cluster is not None:
                _put_first(merged, each.values)
    if cluster is not None:
        _place(cluster, given, merged, origins)
    try:
        form = Settings if cluster is None else NamedClusterSettings
        effective = Effective(form.model_validate(merged), origins)
    except ValidationError as error:
        raise SettingsRefused(_problems(error, Effective(Settings(), origins))) from None
    _check_tables_last(effective)
    return effective


def _place(cluster: str, given: Sequence[_Given], merged: Nested, origins: dict[str, str]) -> None:
    """Give the cluster its name, and its own places of tables and checkpoints. A place that the cluster has of its own
    wins over a shared one of any source: the shared place is a folder for all clusters.
    """
    of_cluster = f"{CLUSTERS}.{cluster}"
    if isinstance(merged.setdefault("kafka", {}), dict):
        _merge(merged, {"kafka": {"cluster_name": cluster}}, origins, of_cluster)
    if not isinstance(merged.setdefault("storage", {}), dict):
        return
    for key, default in (("tables", StorageSettings().tables), ("checkpoints", StorageSettings().checkpoints)):
        shared, _ = _place_given(given, None, key) or (default, DEFAULT)
        derived = own_place(shared, cluster) if isinstance(shared, str) else shared
        place, origin = _place_given(given, cluster, key) or (derived, of_cluster)
        _merge(merged, {"storage": {key: place}}, origins, origin)


def _place_given(given: Sequence[_Given], cluster: str | None, key: str) -> tuple[Any, str] | None:
    """Returns the place that counts among those given for `cluster`, with its origin; None if there is none."""
    sections = [(each.values.get("storage"), each.origin) for each in given if each.cluster == cluster]
    places = [(section[key], origin) for section, origin in sections if isinstance(section, dict) and key in section]
    return places[-1] if places and places[-1][0] is not None else None


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
    annotation: object = DeploymentSettings
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


def _put_first(merged: Nested, own: Nested) -> None:
    """Puts what a cluster has of its own before what is shared: of patterns the first one that matches counts."""
    for name, value in own.items():
        inner = merged[str(name)]
        if isinstance(value, dict) and isinstance(inner, dict):
            _put_first(inner, value)
            merged[str(name)] = {key: inner[key] for key in (*map(str, value), *inner)}


def _check_underscores(name: str, value: str, named: Sequence[str]) -> None:
    """Refuse the one slip that would go unseen: the name of a setting, or of a cluster's, with single underscores."""
    keys = [*flatten(Settings())]
    keys += [f"{CLUSTERS}.{spelling_in_environment(one)}.{key}" for one in named for key in keys]
    meant = {key.replace(".", "_").upper(): key for key in keys}.get(name[len(ENVIRONMENT_PREFIX) :])
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
    annotation: object = DeploymentSettings
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


NUMBER_TYPES = ("int_parsing", "float_parsing")
"""pydantic's names of the error that a text is no number."""
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)(?:/s|ps)?")
BYTES = {
    "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
MILLISECONDS = {
    "ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


GONE = {
    "trigger.relief_min": "a plan that is worth it is not held back for its bytes",
    "trigger.cheap_hour_wait_max_ms": "control.maintenance_windows name the hours in which plans are carried out",
    "trigger.windows_over_urgent": "it is two thirds of trigger.windows_over, and at least 2",
    "planner.finish_movements_max": "the search has no closing phase any more; planner.movements_max limits a plan",
    "planner.statistic": "every window is planned on, the worst one counts",
}
"""Settings of before that are no more, and what holds instead."""


def value_hint(key: str, error_type: str, given: object) -> str:
    """The value to write instead, after a semicolon; nothing where it can't be known.

    >>> value_hint("control.throttle_bytes_per_sec", "int_parsing", "50MB")
    '; write 50000000'
    >>> value_hint("kafka.request_timeout_ms", "int_parsing", "15s")
    '; write 15000'
    >>> value_hint("kafka.bootstrap_servers", "list_type", "a:1, b:2")
    '; write ["a:1", "b:2"]'
    >>> value_hint("kafka.cluster_name", "string_type", 12)
    '; write "12"'
    """
    if error_type == "string_type" and isinstance(given, int | float):
        return f'; write "{given}"'
    if not isinstance(given, str):
        return ""
    if error_type == "list_type":
        return f"; write {json.dumps([part.strip() for part in given.split(',')], ensure_ascii=False)}"
    size = SIZE.fullmatch(given.strip()) if error_type in NUMBER_TYPES else None
    name = key.rpartition(".")[2]
    factors = BYTES if "bytes" in name else MILLISECONDS if name.endswith("_ms") else {}
    factor = factors.get(size[2].lower()) if size else None
    return f"; write {round(float(size[1]) * factor)}" if size and factor else ""
