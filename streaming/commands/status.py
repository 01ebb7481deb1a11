"""`rebalancer status`: brokers, load, skew, last decision, plan and execution at a glance, from the tables alone."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.broker_names import broker_names
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.runtime.printable import printable
from streaming.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assignor_core.execution.life_cycle import Execution
    from streaming.tables import TableReader
    from streaming.views.broker_load import LoadPart

WATCH_INTERVAL_S = 2.0
DECISION_SHOWN = ("decided_at", "verdict", "reason", "detail", "plan_id")


@click.command()
@settings_options
@json_option
@click.option("--groups", "of_groups", is_flag=True, help="Consumer groups instead: rebalances, flapping members.")
@click.option("--why", is_flag=True, help="Also each need that the last decision looked at, and the gate that held it.")
@click.option("--watch", is_flag=True, help="Draw again every two seconds, until Ctrl-C.")
def status(
    config_file: Path | None, assignments: tuple[str, ...], as_json: bool, of_groups: bool, why: bool, watch: bool
) -> int:
    """Brokers, load, skew, last decision, plan and execution. Reads the tables; needs neither Spark nor the cluster."""
    from streaming.commands.tables_there import check_tables

    if as_json and watch:
        raise UsageProblem("status: --json and --watch can't go together: a program asks again itself")
    if why and of_groups:
        raise UsageProblem("status: --why and --groups can't go together: groups are no part of a decision")
    settings = settings_from(config_file, assignments)
    check_tables(settings)

    def read() -> Any:
        if not of_groups:
            return read_status(settings, now_ms=clocks.now_ms(), why=why)
        from streaming.commands.status_groups import read_groups_status

        return read_groups_status(settings)

    if as_json:
        click.echo(json.dumps(read(), indent=2, default=str))
        return 0
    from rich.live import Live

    from streaming.commands.console import console

    draw: Callable[[Any], RenderableType] = drawn
    if of_groups:
        from streaming.commands.status_groups import drawn_groups

        draw = drawn_groups
    if not watch:
        console().print(draw(read()))
        return 0
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(draw(read()), refresh=True)
            time.sleep(WATCH_INTERVAL_S)


def read_status(settings: Settings, *, now_ms: int, why: bool = False) -> dict[str, Any]:
    """Everything that is shown, as plain data; parts that don't exist yet are None or empty.

    With `why` the decision has the needs that it looked at.
    """
    from assignor_core.execution.life_cycle import in_focus
    from assignor_core.resources import Resource
    from streaming.commands.bytes_out_known import bytes_out_unknown
    from streaming.commands.status_plan import shown_plan
    from streaming.commands.window_age import is_old
    from streaming.tables import TableReader
    from streaming.views.accuracy import accuracy_data, read_accuracy
    from streaming.views.broker_load import read_load
    from streaming.views.executions import brokers_owed, given_up, read_executions
    from streaming.views.log_dirs import read_log_dirs
    from streaming.views.plans import plan_price, waiting_plan

    reader, cluster = TableReader(settings.storage.tables), settings.kafka.cluster_name
    load = read_load(reader, settings)
    executions = read_executions(reader, cluster, now_ms=now_ms)
    execution = in_focus(executions)
    plan = waiting_plan(reader, cluster, executions, now_ms=now_ms)
    skew = load.skew.get(Resource.BYTES_IN)
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
        "accuracy": accuracy_data(read_accuracy(reader, cluster)),
        "throttles_left": list(brokers_owed(executions)),
        "log_dirs": [
            {"broker": row.broker, "path": row.path, "state": row.state, "used_ratio": row.used_share}
            for row in read_log_dirs(reader, cluster)
        ],
        "log_dir_fill_max": settings.trigger.log_dir_fill_max,
        "bytes_out_unknown": bytes_out_unknown(load),
    }


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
    from assignor_core.resources import Resource

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

    record, figures = execution.shown, execution.shown.figures
    return {
        "execution_id": execution.execution_id,
        "event_time": utc(record.at_ms),
        "event": record.event.value,
        "detail": record.detail,
        "movements_done": figures.movements_done,
        "movements_total": figures.movements_total,
        "bytes_moved": figures.bytes_moved,
        "bytes_total": figures.bytes_total,
    }


def _ratios(execution: "Execution") -> dict[str, dict[str, float | None]]:
    from assignor_core.resources import REPORTED

    ratios = execution.shown.figures.max_over_mean
    return {resource.value: {when: row.get(resource) for when, row in ratios.items()} for resource in REPORTED}


def drawn(status: dict[str, Any]) -> "RenderableType":
    """What `read_status` has read, for people."""
    from rich.console import Group
    from rich.text import Text

    from assignor_core.lag.reasons import duration
    from streaming.commands.load_table import LoadTable
    from streaming.commands.plan_price import accuracy_line
    from streaming.commands.status_log_dirs import log_dir_lines
    from streaming.commands.status_plan import plan_line
    from streaming.commands.window_age import OLD_FIGURES
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
    from streaming.commands.bytes_out_known import bytes_out_text

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
