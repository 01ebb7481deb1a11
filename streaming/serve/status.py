"""What `/api/status` answers: the newest snapshot as JSON, in at most 1 MB however large the cluster is.

A list that grows with the cluster holds the rows that matter most, as many as fit; `left_out` counts the others. The
page asks for this at each event, see `streaming.serve.api.events`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from assignor_core.resources import Resource
from streaming.serve.api.pages import ITEMS_BYTES_MAX, as_json
from streaming.serve.snapshot import Snapshot
from streaming.views.broker_load import BrokerLoad, LoadPart
from streaming.views.group_ranking import GroupTopic
from streaming.views.json_values import to_json
from streaming.views.log_dirs import LogDirState

Rows = list[dict[str, Any]]

ROWS_MAX = 500
"""Rows of each list."""
GROUPS_BYTES_MAX = 150_000
"""Bytes that the list of groups may take; the list of their topics may take as much again."""
BROKERS_BYTES_MAX = 400_000
"""Bytes that the list of brokers may take, with how far each resource of the brokers is off the mean."""
DEVIATION_BYTES = 40
"""Bytes of one deviation from the mean, with the id of its broker, at most."""
OTHER_BYTES_MAX = 50_000
"""Bytes that each other list may take."""


RESOURCES: Rows = [
    {
        "name": resource.value,
        "words": resource.words,
        "unit": resource.unit,
        "figures": [
            {"name": name, "words": words}
            for name, words in (
                [(resource.value, resource.words)]
                if resource.is_count
                else zip(resource.figures, resource.figure_words, strict=True)
            )
        ],
    }
    for resource in Resource
]
"""How the page names resources and writes their figures. `figures` are members of a broker that add up to the
resource."""


def status_of(snapshot: Snapshot) -> dict[str, Any]:
    """The body. `left_out`: path of a list -> rows that are not shown; `resources`: what resources there are."""
    load, groups = snapshot.load, snapshot.groups
    worst = _fitting(groups.groups, GROUPS_BYTES_MAX)
    lists = {
        "load.brokers": (load.brokers, _brokers(load)),
        "load.hot_partitions": (load.hot_partitions, _fitting(load.hot_partitions, OTHER_BYTES_MAX)),
        "groups.groups": (groups.groups, worst),
        "groups.topics": (groups.topics, _topics(groups.topics, worst)),
        "memberships": (snapshot.memberships, _fitting(snapshot.memberships, OTHER_BYTES_MAX)),
        "log_dirs": (snapshot.log_dirs, _log_dirs(snapshot.log_dirs)),
        "restarts": (
            snapshot.restarts,
            _fitting(sorted(snapshot.restarts, key=lambda row: row.is_safe), OTHER_BYTES_MAX),
        ),
    }
    body = _without_lists(snapshot)
    for path, (_, shown) in lists.items():
        *part, name = path.split(".")
        (body[part[0]] if part else body)[name] = shown
    _keep_deviations(body["load"])
    return body | {
        "resources": RESOURCES,
        "left_out": {path: len(rows) - len(shown) for path, (rows, shown) in lists.items()},
    }


def weights_of(load: LoadPart, topics: Sequence[str]) -> dict[str, Any]:
    """The body of `/api/weights`: of these topics, or of all, as many as fit in 1 MB; `left_out` counts the others."""
    wanted = [topic for topic in dict.fromkeys(topics) or sorted(load.leader_rates) if topic in load.leader_rates]
    shown: dict[str, Any] = {}
    room = ITEMS_BYTES_MAX
    for topic in wanted:
        rates = to_json(load.leader_rates[topic])
        room -= 0 if topics else len(as_json({topic: rates}))
        if room < 0:
            break
        shown[topic] = rates
    return {"window_end_ms": load.window_end_ms, "bytes_in_per_sec": shown, "left_out": len(wanted) - len(shown)}


def _without_lists(snapshot: Snapshot) -> dict[str, Any]:
    body: dict[str, Any] = to_json(
        replace(
            snapshot,
            load=replace(snapshot.load, brokers=(), hot_partitions=()),
            groups=replace(snapshot.groups, groups=(), topics=()),
            memberships=(),
            log_dirs=(),
            restarts=(),
        )
    )
    return body


def _fitting(rows: Iterable[Any], bytes_max: int, *, beside_bytes: int = 0) -> Rows:
    """The first rows, as many as fit; each takes `beside_bytes` elsewhere."""
    shown: Rows = []
    room = bytes_max
    for row in rows:
        entry = to_json(row)
        room -= len(as_json(entry)) + 1 + beside_bytes
        if room < 0 or len(shown) == ROWS_MAX:
            break
        shown.append(entry)
    return shown


def _topics(topics: Iterable[GroupTopic], worst: Rows) -> Rows:
    """Topics of groups that are shown, most lag first; if not all topics fit, those of the worst groups."""
    place = {row["group"]: number for number, row in enumerate(worst)}
    known = [row for row in topics if row.group in place]
    shown = _fitting(sorted(known, key=lambda row: place[row.group]), GROUPS_BYTES_MAX)
    return sorted(shown, key=lambda row: (-(row["lag_records"] or 0), row["group"], row["topic"]))


def _brokers(load: LoadPart) -> Rows:
    """Brokers by id; where not all fit, those without a sample come first, then those furthest off the mean."""
    far: dict[int, float] = {}
    for skew in load.skew.values():
        for broker, deviation in skew.deviation.items():
            far[broker] = max(far.get(broker, 0.0), abs(deviation))

    def importance(row: BrokerLoad) -> tuple[bool, float]:
        return row.broker in far, -far.get(row.broker, 0.0)

    shown = _fitting(
        sorted(load.brokers, key=importance), BROKERS_BYTES_MAX, beside_bytes=DEVIATION_BYTES * len(load.skew)
    )
    return sorted(shown, key=lambda row: int(row["broker"]))


def _keep_deviations(load: dict[str, Any]) -> None:
    """Keeps the deviations only of the brokers that are shown."""
    shown = {str(row["broker"]) for row in load["brokers"]}
    for skew in load["skew"].values():
        skew["deviation"] = {broker: value for broker, value in skew["deviation"].items() if broker in shown}


def _log_dirs(log_dirs: Iterable[LogDirState]) -> Rows:
    """Log dirs by broker and path; where not all fit, those of unknown fill come first, then the fullest."""

    def importance(row: LogDirState) -> tuple[bool, float]:
        return row.used_share is not None, -(row.used_share or 0.0)

    shown = _fitting(sorted(log_dirs, key=importance), OTHER_BYTES_MAX)
    return sorted(shown, key=lambda row: (row["broker"], row["path"]))
