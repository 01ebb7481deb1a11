"""Rows of `decision`: evaluations of the trigger, and what trigger and planner saw when they decided.

No sample changes a window once it is closed, so its rows are still those that were read. They may have expired
before the decision; what each broker carried in relation to the mean stands in the decision, too.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from assignor_core.resources import MEASURED, Resource
from streaming.contract import BROKER_LOAD, DECISION
from streaming.tables import Row, TableReader, at_least, at_most, of_cluster, to_ms, utc
from streaming.views.broker_windows import COLUMNS, loads
from streaming.views.json_values import WRONG_SHAPE, stored_object, stored_rows
from streaming.views.past_rows import DECISIONS, PLANS, Before, figures, read_past, read_row

BROKERS_MAX = 1_000
"""Brokers of an answer; those with the highest load come first."""
EARLIER_MAX = 10
"""Evaluations before it that are shown: a breach is one of several windows."""
OF_EARLIER = (
    "decision_id", "decided_ms", "window_end_ms", "verdict", "reason", "resource", "max_over_mean", "breached",
    "plan_id",
)  # fmt: skip
Relative = Mapping[int, Mapping[str, float]]
"""Broker: resource: its load per mean; 1 is even. Of the brokers that counted."""
Traced = Mapping[str, Any]
"""One need that a decision considered: need, is_found, text, passed, held_by, why; see `deciding.trace`."""


def newest_decision(reader: TableReader, kafka_cluster: str, *, columns: Sequence[str] | None = None) -> Row | None:
    """The newest evaluation, by default with all its columns; None where there was none. Raises TableUnavailable."""
    return reader.newest_row(DECISION.name, "decided_at", columns=columns, where=of_cluster(kafka_cluster))


def read_decisions(reader: TableReader, kafka_cluster: str, *, columns: Sequence[str]) -> list[dict[str, Any]]:
    """All evaluations, `decided_at` among the columns, oldest first. Raises TableUnavailable."""
    rows = reader.rows(DECISION.name, columns=columns, where=of_cluster(kafka_cluster))
    return sorted(rows, key=itemgetter("decided_at"))


def read_seen(reader: TableReader, kafka_cluster: str, decision_id: str) -> dict[str, Any] | None:
    """Members of the answer: the decision, the brokers in its window, its plan, and what was decided before it.

    None where there is no such decision. Raises TableUnavailable.
    """
    decision = read_row(reader, DECISIONS, kafka_cluster, decision_id)
    if decision is None:
        return None
    window = _window(reader, kafka_cluster, decision)
    shown = figures(decision)
    skew = stored_object(shown.pop("skew_json", None)) or {}
    trace = trace_of(shown.pop("trace", None))
    brokers = _brokers(window, _relative(skew), shown["resource"] or Resource.BYTES_IN.value)
    plan = read_row(reader, PLANS, kafka_cluster, decision["plan_id"]) if decision["plan_id"] else None
    return {
        **shown,
        "skew": _ratios(skew),
        "trace": trace,
        "window_start_ms": to_ms(window[0]["window_start"]) if window else None,
        "is_window_kept": bool(window),
        "brokers": brokers[:BROKERS_MAX],
        "brokers_left_out": max(0, len(brokers) - BROKERS_MAX),
        "plan": figures(plan) if plan else None,
        "earlier": _earlier(reader, kafka_cluster, decision),
    }


def _window(reader: TableReader, kafka_cluster: str, decision: Row) -> list[dict[str, Any]]:
    end = decision["window_end"]
    if end is None:
        return []
    # Column and literal to the millisecond: the end of a window is a whole number of them.
    where = of_cluster(kafka_cluster) & at_least("window_end", utc(to_ms(end))) & at_most("window_end", utc(to_ms(end)))
    return reader.rows(BROKER_LOAD.name, columns=(*COLUMNS, "rack"), where=where)


def _brokers(window: Sequence[Row], relative: Relative, resource: str) -> list[dict[str, Any]]:
    """The highest load of `resource` per mean first."""
    by_resource = {measured.value: loads(window, measured) for measured in MEASURED}
    racks = {row["broker"]: row["rack"] for row in window}
    rows = [
        {
            "broker": broker,
            "rack": racks.get(broker),
            "load": {name: known[broker] for name, known in by_resource.items() if broker in known},
            "relative_load": dict(relative.get(broker, {})),
            "is_counted": broker in relative,
        }
        for broker in sorted(racks.keys() | relative.keys())
    ]
    return sorted(rows, key=lambda row: -row["relative_load"].get(resource, 0.0))


def _relative(skew: Mapping[str, Any]) -> Relative:
    """Returns each broker's load relative to the mean, by resource, from the skew figures that the decision kept.

    >>> _relative({"bytes_in": {"deviation": {"1": 0.5, "2": -0.5}}, "disk": 7})
    {1: {'bytes_in': 1.5}, 2: {'bytes_in': 0.5}}
    """
    found: dict[int, dict[str, float]] = {}
    for name, ratios in skew.items():
        try:
            deviations = {int(broker): 1.0 + value for broker, value in ratios["deviation"].items()}
        except WRONG_SHAPE:
            continue
        for broker, value in deviations.items():
            found.setdefault(broker, {})[name] = value
    return found


def _ratios(skew: Mapping[str, Any]) -> dict[str, Any]:
    """Without those of brokers, which stand beside the brokers."""
    return {
        name: {figure: value for figure, value in ratios.items() if figure != "deviation"}
        for name, ratios in skew.items()
        if isinstance(ratios, dict)
    }


def _earlier(reader: TableReader, kafka_cluster: str, decision: Row) -> list[dict[str, Any]]:
    """Returns the decisions before this one, the newest first."""
    before = Before(key=DECISIONS.key(decision))
    rows = map(figures, read_past(reader, DECISIONS, kafka_cluster, before, rows_max=EARLIER_MAX))
    return [{name: row[name] for name in OF_EARLIER} for row in rows]


def trace_of(text: str | None) -> list[dict[str, Any]]:
    """Needs of a decision's column `trace`, the most urgent first; empty where it has none, or none that can be read.

    >>> trace_of('[{"need": "skewed", "is_found": true, "text": "hot", "passed": ["low load"], "held_by": null}, 7]')
    [{'need': 'skewed', 'is_found': True, 'text': 'hot', 'passed': ['low load'], 'held_by': None, 'why': ''}]
    """
    return [
        {
            "need": str(row.get("need", "")),
            "is_found": row.get("is_found") is True,
            "text": str(row.get("text", "")),
            "passed": [str(name) for name in _list(row.get("passed"))],
            "held_by": None if row.get("held_by") is None else str(row["held_by"]),
            "why": str(row.get("why", "")),
        }
        for row in stored_rows(text)
    ]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def trace_lines(trace: Sequence[Traced]) -> list[str]:
    """What a decision considered, one line for each need.

    >>> row = {"need": "skewed", "is_found": True, "text": "hot", "passed": ["low load"], "held_by": "cooldown"}
    >>> trace_lines([{**row, "why": "for 8 s more"}, {**row, "held_by": None, "why": ""}])
    ['skewed: hot; passed: low load; held by cooldown: for 8 s more', 'skewed: hot; passed: low load; makes the plan']
    >>> trace_lines([{"need": "broker_failed", "is_found": False, "why": ""}])
    ['broker failed: no need']
    """
    return list(map(_line, trace))


def _line(row: Traced) -> str:
    name, why = row["need"].replace("_", " "), row["why"]
    if not row["is_found"]:
        return f"{name}: no need" + (f": {why}" if why else "")
    passed = f"; passed: {', '.join(row['passed'])}" if row["passed"] else ""
    held = f"held by {row['held_by']}: {why}" if row["held_by"] else "makes the plan"
    return f"{name}: {row['text']}{passed}; {held}"
