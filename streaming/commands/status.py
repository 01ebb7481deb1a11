"""`rebalancer status`: brokers, load, skew, last decision, plan and execution at a glance, from the tables alone.

With --groups each group's rebalances of the last hours and its membership now.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assignor_core.resources import REPORTED, Resource
from assignor_core.wording import bytes_text, counted
from streaming.commands.in_words import (
    OLD_FIGURES,
    accuracy_line,
    broker_names,
    bytes_out_text,
    bytes_out_unknown,
    is_old,
    price_texts,
)
from streaming.commands.options import check_tables, in_use, json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.runtime.printable import printable
from streaming.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from assignor_core.execution.life_cycle import Execution
    from streaming.tables import Row, TableReader
    from streaming.views.broker_load import LoadPart
    from streaming.views.group_history import GroupPast

WATCH_INTERVAL_S = 2.0
DECISION_SHOWN = ("decided_at", "verdict", "reason", "detail", "plan_id")
GROUPS_SHOWN = 200
"""On a terminal: a row takes about a millisecond."""
NAMED_MAX = 10
BAR_WIDTH = 30
BAR_WIDTH_MIN = 8
"""Narrower bars would hide skew: there are none then."""
BAR_TITLE = "bytes in"
BETWEEN_COLUMNS = 2
FIGURES = ("bytes_in_per_sec", "bytes_out_per_sec", "disk_bytes")
ADVISED = ("rebalances", "restarts", "partitions_moved", "stopped_if_eager")
OF_EVENT = (
    "after_ms", "until_ms", "cause", "rebalances", "members_in", "members_out", "restarted", "partitions_moved",
    "partitions_unowned",
)  # fmt: skip
"""What is shown of a rebalance."""


@click.command()
@settings_options
@json_option
@click.option(
    "--groups", "of_groups", is_flag=True, help="Show rebalances and flapping members of consumer groups instead."
)
@click.option(
    "--why", is_flag=True, help="Also show each need of the last decision, and the gate that held the need back."
)
@click.option("--watch", is_flag=True, help="Refresh every two seconds until Ctrl-C.")
def status(
    config_file: Path | None, assignments: tuple[str, ...], as_json: bool, of_groups: bool, why: bool, watch: bool
) -> int:
    """Brokers, load, skew, last decision, plan and execution. Reads the tables; needs neither Spark nor the cluster."""
    if as_json and watch:
        raise UsageProblem("status: --json and --watch can't go together: a program runs the command again itself")
    if why and of_groups:
        raise UsageProblem("status: --why and --groups can't go together: groups are no part of a decision")
    settings = settings_from(config_file, assignments)
    check_tables(settings)

    def read() -> Any:
        if of_groups:
            return read_groups_status(settings)
        return read_status(settings, now_ms=clocks.now_ms(), why=why)

    if as_json:
        click.echo(json.dumps(read(), indent=2, default=str))
        return 0
    from rich.live import Live

    from streaming.commands.console import console

    draw: Callable[[Any], RenderableType] = drawn_groups if of_groups else drawn
    if not watch:
        console().print(draw(read()))
        return 0
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(draw(read()), refresh=True)
            time.sleep(WATCH_INTERVAL_S)


def read_status(settings: Settings, *, now_ms: int, why: bool = False) -> dict[str, Any]:
    """Everything that is shown, as plain data; parts that don't exist yet are None or empty.

    With `why` the decision has the needs that it considered.
    """
    from assignor_core.execution.life_cycle import in_focus
    from streaming.tables import TableReader
    from streaming.views.accuracy import read_accuracy
    from streaming.views.broker_load import read_load
    from streaming.views.executions import brokers_owed, given_up, read_executions
    from streaming.views.intents import Intent, brokers_by_intent
    from streaming.views.log_dirs import read_log_dirs
    from streaming.views.plans import plan_price, waiting_plan

    reader, cluster = TableReader(settings.storage.tables), settings.kafka.cluster_name
    load = read_load(reader, settings)
    executions = read_executions(reader, cluster, now_ms=now_ms)
    execution = in_focus(executions)
    plan = waiting_plan(reader, cluster, executions, now_ms=now_ms)
    skew = load.skew.get(Resource.BYTES_IN)
    demoted = brokers_by_intent(reader, cluster)[Intent.DEMOTE]
    return {
        "kafka_cluster": cluster,
        "mode": settings.control.mode,
        "window_end_ms": load.window_end_ms,
        "window_age_s": None if load.window_end_ms is None else (now_ms - load.window_end_ms) / 1000,
        "window_is_old": load.window_end_ms is not None
        and is_old(now_ms - load.window_end_ms, settings.pipeline.window_ms),
        "brokers": {str(row.broker): _load_of(load, row.broker) for row in load.brokers},
        "silent_brokers": list(load.silent_brokers),
        "brokers_reported_twice": list(load.brokers_reported_twice),
        "bytes_in_max_over_mean": skew.max_over_mean if skew else None,
        "threshold_enter": settings.trigger.enter_ratio,
        "decision": _decision(reader, cluster, why=why),
        "plan": plan and shown_plan(plan, plan_price(reader, cluster, plan["plan_id"]), now_ms=now_ms),
        "pause": given_up(reader, cluster, now_ms=now_ms).reason(now_ms) if settings.control.mode == "apply" else None,
        "execution": execution and _event_shown(execution),
        "execution_max_over_mean": execution and _ratios(execution),
        "accuracy": asdict(read_accuracy(reader, cluster)),
        "executions_waiting": _waiting(executions, now_ms),
        "throttles_left": list(brokers_owed(executions)),
        "drained": _drained(reader, settings, load.window_start_ms),
        "demoted": [{"broker": row.broker, "leaders": row.leaders} for row in load.brokers if row.broker in demoted],
        "log_dirs": [
            {"broker": row.broker, "path": row.path, "state": row.state, "used_ratio": row.used_share}
            for row in read_log_dirs(reader, cluster)
        ],
        "log_dir_fill_max": settings.trigger.log_dir_fill_max,
        "bytes_out_unknown": bytes_out_unknown(load),
    }


def _drained(reader: "TableReader", settings: Settings, start_ms: int | None) -> list[dict[str, Any]]:
    """Drained brokers by the newest closed window."""
    from streaming.views.intents import read_drained

    if start_ms is None:
        return []
    rows = read_drained(reader, settings.kafka.cluster_name, start_ms, window_ms=settings.pipeline.window_ms)
    return [
        {
            "broker": row.broker,
            "replicas": row.held,
            "arrived": None if row.arrived is None else len(row.arrived),
            "arrived_first": list((row.arrived or ())[:NAMED_MAX]),
        }
        for row in rows
    ]


def _decision(reader: "TableReader", cluster: str, *, why: bool) -> Mapping[str, Any] | None:
    from streaming.views.decisions import newest_decision, trace_of

    if not why:
        return newest_decision(reader, cluster, columns=DECISION_SHOWN)
    row = newest_decision(reader, cluster, columns=(*DECISION_SHOWN, "trace"))
    return row and {**row, "trace": trace_of(row["trace"])}


def _load_of(load: "LoadPart", broker: int) -> dict[str, float | None]:
    """What clients and replication add up to, and bytes in per mean; None where unknown in the newest closed window.

    1 is even, by capacity where all brokers have one.
    """
    skew = load.skew.get(Resource.BYTES_IN)
    deviation = skew.deviation.get(broker) if skew else None
    return {
        "bytes_in_per_sec": load.loads[Resource.BYTES_IN].get(broker),
        "bytes_out_per_sec": load.loads[Resource.BYTES_OUT].get(broker),
        "disk_bytes": load.loads[Resource.DISK].get(broker),
        "bytes_in_per_mean": None if deviation is None else round(1.0 + deviation, 6),
    }


def _event_shown(execution: "Execution") -> dict[str, Any]:
    from streaming.tables import utc
    from streaming.views.executions import progress_of

    record = execution.shown
    return {"execution_id": execution.execution_id, "event_time": utc(record.at_ms), **progress_of(record)}


def _waiting(executions: "Iterable[Execution]", now_ms: int) -> list[dict[str, Any]]:
    """Approved executions that wait for their time, or for more approvals."""
    from streaming.views.approvals import waits_for

    waits = ((row, waits_for(row, now_ms)) for row in executions if row.waiting and not row.abort_requested)
    return [
        {
            "execution_id": row.execution_id,
            "plan_id": row.plan_id,
            "waits_for": reason,
            "begins_ms": row.begins_ms,
            "approvers": list(row.approvers),
            "approvals_needed": row.figures.approvals_needed,
        }
        for row, reason in waits
        if reason is not None
    ]


def _ratios(execution: "Execution") -> dict[str, dict[str, float | None]]:
    ratios = execution.shown.figures.max_over_mean
    return {resource.value: {when: row.get(resource) for when, row in ratios.items()} for resource in REPORTED}


def drawn(status: dict[str, Any]) -> "RenderableType":
    """What `read_status` has read, for people."""
    from rich.console import Group
    from rich.text import Text

    from assignor_core.lag.reasons import duration
    from streaming.views.decisions import trace_lines

    ratio, age = status["bytes_in_max_over_mean"], status["window_age_s"]
    lines = [f"cluster {status['kafka_cluster']}, mode {status['mode']}"]
    if age is None:
        lines.append("no closed window in the tables yet")
    else:
        known = "unknown" if ratio is None else f"{ratio:.3f} (skew above {status['threshold_enter']})"
        ended = f"window ended {duration(age)} ago"
        lines += [f"{OLD_FIGURES}: {ended}. Do collector and pipeline run?"] if status["window_is_old"] else []
        lines.append(f"bytes in max/mean {known}, {ended}")
    lines += _collecting_lines(status)
    lines += [status["pause"]] if status["pause"] else []
    for name in ("decision", "execution"):
        row = status[name]
        if row:
            what = row.get("event") or f"{row['verdict']}, {row['reason']}"
            lines.append(
                f"{name}{_age_text(status, row.get('event_time') or row['decided_at'])}: {what}: {row['detail']}"
            )
        if row and "trace" in row:
            lines += [f"  {line}" for line in trace_lines(row["trace"])] or ["  no trace: an earlier version decided"]
    lines += [f"execution {row['execution_id']} {row['waits_for']}" for row in status["executions_waiting"]]
    promised = status["execution_max_over_mean"] or {}
    promises = [
        f"{resource} {ratios['before']:.2f} -> {ratios['predicted']:.2f}"
        for resource, ratios in promised.items()
        if None not in (ratios["before"], ratios["predicted"])
    ]
    if promises:
        lines.append(f"promised max/mean: {', '.join(promises)}")
    accuracy = accuracy_line(status["accuracy"])
    lines += [accuracy] if accuracy else []
    if status["throttles_left"]:
        brokers, keep = status["throttles_left"], "keeps" if len(status["throttles_left"]) == 1 else "keep"
        lines.append(f"{broker_names(brokers)} {keep} the throttle of an execution that has ended")
    lines += [drained_line(row) for row in status["drained"]]
    for row in status["demoted"]:
        led = "" if row["leaders"] is None else f" and leads {counted(row['leaders'], 'partition', 'partitions')}"
        lines.append(f"broker {row['broker']} is demoted{led}")
    lines += log_dir_lines(status)
    if status["plan"]:
        lines.append(plan_line(status["plan"]))
    return Group(
        Text("\n".join(map(printable, lines))), Text(), LoadTable(status["brokers"], status["threshold_enter"])
    )


def _age_text(status: dict[str, Any], at: datetime) -> str:
    """How long ago it was: of a control that is silent the last word would pass for what is now."""
    from assignor_core.lag.reasons import duration
    from streaming.tables import to_ms

    if status["window_end_ms"] is None:
        return ""
    now_ms = status["window_end_ms"] + 1000 * status["window_age_s"]
    return f" {duration(max(0, now_ms - to_ms(at)) / 1000)} ago"


def _collecting_lines(status: dict[str, Any]) -> list[str]:
    """Brokers of the newest window that not exactly one collector reports, or whose bytes out nobody knows."""
    lines = []
    if status["silent_brokers"]:
        lines.append(
            f"no samples from {broker_names(status['silent_brokers'])} in this window: "
            "`rebalancer check` shows if it is a broker that is down, or a shard that is not taken"
        )
    if status["brokers_reported_twice"]:
        brokers = broker_names(status["brokers_reported_twice"])
        lines.append(f"more than one collector reports {brokers}: collect.shard must differ")
    unknown = bytes_out_text(status["bytes_out_unknown"])
    return [*lines, unknown] if unknown else lines


def read_groups_status(settings: Settings) -> list[dict[str, Any]]:
    """One entry a group, most rebalances first; empty where no window is."""
    from streaming.tables import TableReader
    from streaming.views.group_history import look_back_ms, read_group_pasts

    span_ms = look_back_ms(settings.pipeline.window_ms)
    return [_entry(past, span_ms) for past in read_group_pasts(TableReader(settings.storage.tables), settings)]


def drawn_groups(entries: list[dict[str, Any]]) -> "RenderableType":
    """A row a group, those with most rebalances, and below it what could be better."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from streaming.tables import utc

    if not entries:
        return Text("no window of group_lag in the tables yet")
    shown = entries[:GROUPS_SHOWN]
    table = Table("group", "type", "state", "members", "rebalances", "last", "why", box=None, pad_edge=False)
    for entry in shown:
        last = entry["events"][-1] if entry["events"] else None
        when = f"{utc(last['until_ms']):%H:%M:%S}" if last else ""
        why = last["cause"] if last else ""
        counts = (_known(entry["members"]), str(entry["rebalances"]))
        kind = (printable(entry["group_type"] or ""), printable(entry["state"] or "unknown"))
        table.add_row(printable(entry["group"]), *kind, *counts, when, why)
    hours = entries[0]["look_back_ms"] / 3_600_000
    lines = [Text(f"rebalances seen between windows of the last {hours:g} h; times UTC")]
    lines += [Text(printable(f"{entry['group']}: {hint}")) for entry in shown for hint in entry["hints"]]
    if len(shown) < len(entries):
        lines.append(Text(f"{len(shown)} of {len(entries)} groups, those with most rebalances; --json has all"))
    return Group(table, Text(), *lines)


def _known(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _entry(past: "GroupPast", span_ms: int) -> dict[str, Any]:
    from streaming.views.json_values import to_json

    advised = past.advice
    return {
        "group": past.group,
        "state": past.state,
        "group_type": past.group_type,
        "members": past.members,
        **{name: getattr(advised, name) for name in ADVISED},
        "flapping": dict(advised.flapping),
        "hints": list(advised.hints),
        "look_back_ms": span_ms,
        "events": [
            {name: to_json(getattr(event, name)) for name in OF_EVENT} | {"cause": event.cause.value}
            for event in past.events
        ],
    }


def drained_line(row: Mapping[str, Any]) -> str:
    """What is left on a drained broker, and what has come since.

    >>> drained_line({"broker": 4, "replicas": 0, "arrived": 0, "arrived_first": []})
    'broker 4 is drained and holds no replica'
    >>> drained_line({"broker": 4, "replicas": 7, "arrived": 2, "arrived_first": ["t-0", "t-1"]})
    'broker 4 is drained and holds 7 replicas; arrived since: t-0, t-1'
    """
    held = counted(row["replicas"], "replica", "replicas") if row["replicas"] else "no replica"
    text = f"broker {row['broker']} is drained and holds {held}"
    if not row["arrived"]:
        return text
    more = row["arrived"] - len(row["arrived_first"])
    return f"{text}; arrived since: {', '.join(row['arrived_first'])}{f' and {more} more' if more else ''}"


def log_dir_lines(status: Mapping[str, Any]) -> list[str]:
    """One line for each such log dir; of many the first.

    >>> row = {"broker": 2, "path": "/d1", "state": "online", "used_ratio": 0.9}
    >>> log_dir_lines({"log_dirs": [row], "log_dir_fill_max": 0.85})
    ['log dir /d1 of broker 2 is 90% full']
    """
    lines = list(_lines(status))
    return lines[:NAMED_MAX] + ([f"... and {len(lines) - NAMED_MAX} log dirs more"] if len(lines) > NAMED_MAX else [])


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    from streaming.views.log_dirs import ONLINE

    fill_max = status["log_dir_fill_max"]
    for row in status["log_dirs"]:
        used = row["used_ratio"]
        full = used is not None and fill_max is not None and used > fill_max
        words = [*([row["state"]] if row["state"] != ONLINE else []), *([f"{used:.0%} full"] if full else [])]
        if words:
            yield f"log dir {row['path']} of broker {row['broker']} is {', '.join(words)}"


def shown_plan(plan: "Row", price: Mapping[str, Any], *, now_ms: int) -> dict[str, Any]:
    """A plan that waits, with what it costs, as plain data."""
    from streaming.tables import to_ms

    return {
        "plan_id": plan["plan_id"],
        "created_at": plan["created_at"],
        "expires_at": plan["expires_at"],
        "expires_in_s": (to_ms(plan["expires_at"]) - now_ms) / 1000,
        "movements": plan["movement_count"],
        "leader_movements": plan["leader_movement_count"],
        "bytes_to_move": plan["bytes_to_move"],
        **price,
        "max_over_mean": {
            resource.value: {when: plan[f"{resource}_max_over_mean_{when}"] for when in ("before", "after")}
            for resource in REPORTED
        },
    }


def plan_line(plan: Mapping[str, Any]) -> str:
    """In one line, with the command that carries it out."""
    short = plan["plan_id"][:12]
    ratios = plan["max_over_mean"][Resource.BYTES_IN]
    known = None not in ratios.values()
    return ", ".join(
        (
            f"plan {short}: {counted(plan['movements'], 'movement', 'movements')}",
            bytes_text(plan["bytes_to_move"]),
            *price_texts(plan, whole_bytes=plan["bytes_to_move"]),
            *([f"bytes in max/mean {ratios['before']:.2f} -> {ratios['after']:.2f}"] if known else ()),
            f"expires in {max(0, round(plan['expires_in_s'] / 60))} min: rebalancer apply {short}{in_use()}",
        )
    )


@dataclass(frozen=True, slots=True)
class LoadTable:
    """Drawn when the width of the terminal is known; `loads` as in `status --json`, by broker."""

    loads: Mapping[str, Mapping[str, float | None]]
    threshold: float

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The table, as wide as there is room."""
        from rich.measure import Measurement

        room = options.max_width - Measurement.get(console, options, self._table()).maximum - BETWEEN_COLUMNS
        if room < BAR_WIDTH_MIN:
            yield self._table()
        else:
            yield self._table(self._bars(min(room, BAR_WIDTH), "#" if options.ascii_only else "█"))

    def _table(self, bars: "Sequence[Text]" = ()) -> "Table":
        from rich.table import Table

        title = [BAR_TITLE] if bars else []
        table = Table("broker", "bytes in/s", "bytes out/s", "disk", *title, box=None, pad_edge=False)
        for (broker, row), bar in zip_longest(self.loads.items(), bars):
            table.add_row(broker, *(_number(row[name]) for name in FIGURES), *([bar] if bars else []))
        return table

    def _bars(self, width: int, block: str) -> "list[Text]":
        """One for each broker, the highest `width` wide; none where the rate is unknown.

        Per mean, as skew is: a broker of twice the capacity with twice the load has a bar like the others.
        """
        from rich.text import Text

        known = [row["bytes_in_per_mean"] or 0.0 for row in self.loads.values()]
        highest = max(known, default=0.0) or 1.0
        return [
            Text(block * round(width * value / highest), style="red" if value > self.threshold else "green")
            for value in known
        ]


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"
