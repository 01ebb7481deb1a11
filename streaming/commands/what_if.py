"""`rebalancer what-if`: what would happen if brokers came or went, if traffic grew, if topics changed."""

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assignor_core.replays.placed_cluster import ReplayedHours, ReplayedPlan
from assignor_core.resources import Resource
from assignor_core.what_if.changes import Changes
from assignor_core.what_if.outlook import Bound, Growth
from assignor_core.what_if.predictions import Compared
from assignor_core.wording import bytes_text, counted, first_named
from streaming.commands.console import echo, write_whole
from streaming.commands.in_words import accuracy_line, duration_text
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import HOUR_MS, Settings, TriggerSettings

if TYPE_CHECKING:
    from streaming.control.what_if import Prediction
    from streaming.views.predictions import KeptPrediction

HOURS_MAX = 24 * 366
NumberT = TypeVar("NumberT", int, float)
FACTOR = re.compile(r"(\d+(?:\.\d+)?)x?")
PLANS_SHOWN = 20
BROKERS_NAMED = 5
HEADROOM_SHOWN = 5
PAUSE_SHOWN_FROM_MS = 60_000
BOUND_SHOWN_FROM = 1.1
"""A bound on max/mean below is no news."""


@click.command("what-if")
@click.option("--add-brokers", type=click.IntRange(0), default=0, metavar="COUNT", help="Add this many brokers.")
@click.option(
    "--rack-down",
    "racks_down",
    multiple=True,
    metavar="RACK",
    help="Assume that all brokers of this rack are offline; repeatable.",
)
@click.option(
    "--broker-down", "brokers_down", type=int, multiple=True, help="Assume that this broker is offline; repeatable."
)
@click.option("--drain", type=int, multiple=True, help="Drain this broker; repeatable.")
@click.option("--traffic", multiple=True, metavar="[TOPIC=]FACTOR", help="Multiply traffic by this factor; repeatable.")
@click.option(
    "--grow", multiple=True, metavar="TOPIC=PARTITIONS", help="Give a topic this many partitions; repeatable."
)
@click.option("--drop-topic", "drop_topics", multiple=True, metavar="TOPIC", help="Leave out this topic; repeatable.")
@click.option(
    "--from",
    "since",
    default="-7d",
    show_default=True,
    help="Start of the recorded hours to replay: -7d, -36h or a time.",
)
@click.option("--png", "png_file", type=click.Path(path_type=Path), help="Write a picture of load and skew over time.")
@click.option("--keep", is_flag=True, help="Store the prediction in the tables, to compare it later.")
@click.option(
    "--compare", "is_comparison", is_flag=True, help="Show the newest stored predictions beside what was measured."
)
@settings_options
@json_option
def what_if(
    add_brokers: int,
    racks_down: tuple[str, ...],
    brokers_down: tuple[int, ...],
    drain: tuple[int, ...],
    traffic: tuple[str, ...],
    grow: tuple[str, ...],
    drop_topics: tuple[str, ...],
    since: str,
    png_file: Path | None,
    keep: bool,
    is_comparison: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> int:
    """Replay recorded hours with a change, and show the plans, the bytes they copy, and how even the load gets.

    The replay decides, plans and copies by the settings, as mode apply would. Without any option it replays the
    recorded hours unchanged. It reads only the tables; --keep writes one row.
    """
    if is_comparison:
        return show_comparison(settings_from(config_file, assignments), as_json=as_json)
    from streaming.control.what_if import predict
    from streaming.tables import TableReader
    from streaming.views.accuracy import read_accuracy
    from streaming.views.recorded_hours import daily_bytes_in, read_history

    factors = _each_once("--traffic", map(_factor, traffic))
    changes = Changes(
        add_brokers=add_brokers,
        racks_down=frozenset(racks_down),
        brokers_down=frozenset(brokers_down),
        drain=frozenset(drain),
        traffic=factors.pop("", 1.0),
        topic_traffic=factors,
        grow=_each_once("--grow", map(_partitions, grow)),
        drop_topics=frozenset(drop_topics),
    )
    since_ms = since_ms_of(since, clocks.now_ms())
    settings = settings_from(config_file, assignments)
    reader = TableReader(settings.storage.tables)
    history = read_history(reader, settings, since_ms=since_ms)
    name = settings.kafka.cluster_name
    prediction = predict(history, changes, settings, daily_bytes_in(reader, name), read_accuracy(reader, name))
    if png_file is not None:
        _write_picture(png_file, prediction, settings.trigger)
    if keep:
        _keep(prediction, settings, now_ms=clocks.now_ms())
    if as_json:
        click.echo(json.dumps(as_data(prediction)))
        return 0
    for line in as_text(prediction, settings):
        echo(line)
    return 0


def _write_picture(file: Path, prediction: "Prediction", trigger: TriggerSettings) -> None:
    from streaming.simulate.plot import png_of
    from streaming.simulate.replay_plot import plot_replays

    drawn = [(f"assumed: {changes_text(prediction.changes)}", prediction.replay)]
    title, ratio = prediction.history.cluster_name, trigger.enter_ratio
    write_whole("--png", file, png_of(plot_replays(drawn, title, enter_ratio=ratio)))


def since_ms_of(text: str, now_ms: int) -> int:
    """`-7d`, `-36h` or a time in UTC as ms since 1970; raises UsageProblem.

    >>> since_ms_of("-1h", 10_000_000), since_ms_of("1970-01-02", 10**10)
    (6400000, 86400000)
    """
    back = re.fullmatch(r"-(\d{1,5})([dh])", text)
    if back:
        hours = int(back[1]) * (24 if back[2] == "d" else 1)
        since_ms = now_ms - round(timedelta(hours=hours).total_seconds() * 1000)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageProblem(f"--from {text}: found no time, allowed are -7d, -36h or 2026-11-21T14:00") from None
        utc = moment if moment.tzinfo else datetime.fromisoformat(f"{moment.isoformat()}+00:00")
        since_ms = round(utc.timestamp() * 1000)
    if not 0 < now_ms - since_ms <= HOURS_MAX * 3_600_000:
        raise UsageProblem(f"--from {text}: allowed is a time in the past, at most {HOURS_MAX} hours ago")
    return since_ms


def _each_once(option: str, pairs: Iterable[tuple[str, NumberT]]) -> dict[str, NumberT]:
    """What is given by topic; raises UsageProblem where that is two things."""
    given: dict[str, NumberT] = {}
    for topic, value in pairs:
        if topic in given:
            raise UsageProblem(f"{option}: given twice for {topic or 'all topics'}, allowed is once")
        given[topic] = value
    return given


def _factor(text: str) -> tuple[str, float]:
    """Topic ("" for all) and factor of one --traffic."""
    topic, _, factor = text.rpartition("=")
    match = FACTOR.fullmatch(factor)
    if match is None:
        raise UsageProblem(f"--traffic {text}: found no factor, allowed are 2x, 1.5 or TOPIC=2x")
    return topic, float(match[1])


def _partitions(text: str) -> tuple[str, int]:
    """Topic and count of one --grow."""
    topic, _, count = text.rpartition("=")
    if not topic or not count.isdecimal() or len(count) > 9:
        raise UsageProblem(f"--grow {text}: found no TOPIC=PARTITIONS, allowed is for instance orders=60")
    return topic, int(count)


def as_data(prediction: "Prediction") -> dict[str, Any]:
    """For programs; times are ms UTC of the recorded hours."""
    result, history = prediction.replay, prediction.history
    return {
        "cluster": history.cluster_name,
        "changes": changes_data(prediction.changes),
        "brokers": len(history.brokers),
        "brokers_away": sorted(prediction.away),
        "brokers_left_out": list(history.silent),
        "partitions": len(history.partitions),
        "partitions_unknown": history.unknown_count,
        **replay_data(result),
        "headroom": [{**asdict(row), "left_share": row.left_share} for row in prediction.headroom],
        "bounds": [asdict(row) for row in prediction.bounds],
        "growth": None if prediction.growth is None else asdict(prediction.growth),
        "accuracy": asdict(prediction.accuracy),
        "brokers_needed": [asdict(row) for row in prediction.brokers_needed],
    }


def replay_data(result: ReplayedHours) -> dict[str, Any]:
    """What came of one replay."""
    return {
        "hours": len(result.hour_start_ms),
        "hour_start_ms": list(result.hour_start_ms),
        "max_over_mean": {name: values.tolist() for name, values in result.max_over_mean.items()},
        "windows": result.windows,
        "windows_in_skew": result.windows_in_skew,
        "even_after_ms": result.even_after_ms,
        "offline_partitions": result.offline_count,
        "holds": result.holds,
        "bytes_to_move": sum(plan.bytes_to_move for plan in result.plans),
        "bytes_copied": result.copied_bytes,
        "plans": [_plan_data(plan) for plan in result.plans],
    }


def changes_data(changes: Changes) -> dict[str, Any]:
    """What is assumed."""
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in asdict(changes).items()}


def as_text(prediction: "Prediction", settings: Settings) -> Iterator[str]:
    """Lines for people."""
    from streaming.tables import utc

    result, history = prediction.replay, prediction.history
    hours, starts = len(result.hour_start_ms), result.hour_start_ms
    span = f"{utc(starts[0]):%Y-%m-%d %H:%M} to {utc(starts[-1] + HOUR_MS):%Y-%m-%d %H:%M} UTC"
    brokers = counted(len(history.brokers), "broker", "brokers")
    partitions = counted(len(history.partitions), "partition", "partitions")
    yield f"{counted(hours, 'recorded hour', 'recorded hours')} ({span}), {brokers}, {partitions}"
    yield f"assumed: {changes_text(prediction.changes)}"
    yield from _notes(prediction)
    yield from skew_lines(result, settings)
    yield from plan_lines(result)
    accuracy = accuracy_line(asdict(prediction.accuracy))
    yield accuracy or "own error: unknown, as fewer than 3 plans here were carried out and measured"
    yield from _headroom_lines(prediction)
    yield from _bound_lines(prediction.bounds)
    yield from _growth_lines(prediction)


def changes_text(changes: Changes) -> str:
    """What is assumed, in words.

    >>> changes_text(Changes(add_brokers=2, traffic=1.5, grow={"orders": 60}))
    '2 brokers more, traffic x 1.5, orders with 60 partitions'
    """
    words = [
        *([f"{counted(changes.add_brokers, 'broker', 'brokers')} more"] if changes.add_brokers else []),
        *(f"rack {rack} down" for rack in sorted(changes.racks_down)),
        *(f"broker {broker} down" for broker in sorted(changes.brokers_down)),
        *(f"broker {broker} drained" for broker in sorted(changes.drain)),
        *([f"traffic x {changes.traffic:g}"] if changes.traffic != 1.0 else []),
        *(f"traffic of {topic} x {factor:g}" for topic, factor in sorted(changes.topic_traffic.items())),
        *(f"{topic} with {counted(count, 'partition', 'partitions')}" for topic, count in sorted(changes.grow.items())),
        *(f"without {topic}" for topic in sorted(changes.drop_topics)),
    ]
    return ", ".join(words) or "nothing"


def skew_lines(result: ReplayedHours, settings: Settings) -> Iterator[str]:
    """How even it is, and how long it was not."""
    for name in settings.trigger.resources:
        ratios = result.max_over_mean[name]
        yield (
            f"{Resource(name).words} max/mean: {ratios[0]:.2f} in the first hour, {ratios.max():.2f} in the worst, "
            f"{ratios[-1]:.2f} in the last"
        )
    minutes = result.windows_in_skew * settings.pipeline.window_ms / 60_000
    after = result.even_after_ms
    even = "still so at the end" if after is None else f"for the last time after {duration_text(after)}"
    enter = settings.trigger.enter_ratio
    yield f"above {enter:g} for {minutes:.0f} min{f', {even}' if result.windows_in_skew else ''}"


def plan_lines(result: ReplayedHours) -> Iterator[str]:
    """The plans, and what they copy."""
    copied = result.copied_bytes
    yield f"{counted(len(result.plans), 'plan', 'plans')}, {bytes_text(copied)} copied"
    for plan in result.plans[:PLANS_SHOWN]:
        yield f"  {_plan_text(plan, result.hour_start_ms[0])}"
    if len(result.plans) > PLANS_SHOWN:
        yield f"  ... and {len(result.plans) - PLANS_SHOWN} more (--json shows all)"


def _plan_text(plan: ReplayedPlan, start_ms: int) -> str:
    figures = plan.max_over_mean.get(Resource.BYTES_IN.value)
    change = f", bytes in {figures[0]:.2f} -> {figures[1]:.2f}" if figures else ""
    took = "not ended" if plan.duration_ms is None else f"in {duration_text(plan.duration_ms)}{_pauses_text(plan)}"
    given_up = ", given up at control.execution_deadline_ms" if plan.given_up else ""
    after = duration_text(plan.begun_ms - start_ms)
    moves = counted(plan.movements, "movement", "movements")
    size = f"{moves}, {bytes_text(plan.bytes_to_move)}"
    return f"after {after}, {plan.reason}: {size} {took}{change}{given_up}"


def _pauses_text(plan: ReplayedPlan) -> str:
    """Returns words for pauses, or hours that nobody recorded, that are no part of the duration; empty without any."""
    passed_ms = (plan.ended_ms or plan.begun_ms) - plan.begun_ms
    return " without pauses" if passed_ms - (plan.duration_ms or 0) >= PAUSE_SHOWN_FROM_MS else ""


def _plan_data(plan: ReplayedPlan) -> dict[str, Any]:
    figures = {name: {"before": pair[0], "after": pair[1]} for name, pair in plan.max_over_mean.items()}
    return {**asdict(plan), "max_over_mean": figures}


def _notes(prediction: "Prediction") -> Iterator[str]:
    history, result = prediction.history, prediction.replay
    if history.silent:
        named = first_named(history.silent, BROKERS_NAMED)
        yield f"brokers that sent nothing in the newest window are left out with their replicas: {named}"
    if history.unknown_count:
        unknown = counted(history.unknown_count, "partition", "partitions")
        yield f"the load of {unknown} is unknown: each counts at the mean of all"
    sizes_unknown = [row.broker_id for row in history.brokers if row.total_bytes is None]
    if sizes_unknown:
        brokers = counted(len(sizes_unknown), "broker", "brokers")
        yield f"what is free on the disks of {brokers} is unknown: taken as enough"
    if result.offline_count:
        lost = counted(result.offline_count, "partition has", "partitions have")
        yield f"{lost} no replica on a broker that is alive, and so no leader"


def _headroom_lines(prediction: "Prediction") -> Iterator[str]:
    if not prediction.headroom:
        yield "headroom: unknown, as no capacities are known (planner.capacities)"
        return
    for row in prediction.headroom[:HEADROOM_SHOWN]:
        words = Resource(row.resource).words
        left = f"{row.left_share:.0%} of its {words} left"
        yield f"headroom of broker {row.broker}: {left} in the worst hour of the last day"


def _bound_lines(bounds: tuple[Bound, ...]) -> Iterator[str]:
    for row in bounds:
        if row.max_over_mean >= BOUND_SHOWN_FROM:
            words = Resource(row.resource).words
            yield f"moving can't bring {words} max/mean below {row.max_over_mean:.2f} in the busiest hour"


def _growth_lines(prediction: "Prediction") -> Iterator[str]:
    growth = prediction.growth
    if growth is None:
        yield "growth: unknown, as too few days are recorded"
        return
    yield _growth_text(growth)
    by_days: dict[int, list[str]] = {}
    for row in prediction.brokers_needed:
        spread = f"{row.likely} ({row.low} to {row.high})"
        by_days.setdefault(row.days_ahead, []).append(f"{Resource(row.resource).words} {spread}")
    for days, needs in by_days.items():
        yield f"  brokers needed in {days} days: {', '.join(needs)}"


def _growth_text(growth: Growth) -> str:
    month = [(rate**30 - 1) * 100 for rate in (growth.per_day, growth.low, growth.high)]
    return f"growth: {month[0]:+.1f} % in 30 days (80 %: {month[1]:+.1f} to {month[2]:+.1f}), of {growth.days} days"


def _keep(prediction: "Prediction", settings: Settings, *, now_ms: int) -> None:
    """Keep it under an id of its own, and show the id; raises TableUnavailable."""
    from streaming.control.what_if import keep_prediction

    prediction_id = uuid.uuid4().hex[:12]
    keep_prediction(prediction, changes_data(prediction.changes), settings, prediction_id, now_ms=now_ms)
    echo(f"kept as prediction {prediction_id}: rebalancer what-if --compare shows it beside what came", err=True)


def show_comparison(settings: Settings, *, as_json: bool) -> int:
    """Print the newest kept predictions beside what came; raises TableUnavailable."""
    from streaming.tables import TableReader
    from streaming.views.predictions import compared_predictions

    kept = compared_predictions(TableReader(settings.storage.tables), settings)
    if as_json:
        click.echo(json.dumps([_data(row) for row in kept]))
        return 0
    for row in kept:
        for line in _lines(row):
            echo(line)
    if not kept:
        echo("no prediction is kept yet: rebalancer what-if --keep keeps one")
    return 0


def _data(kept: "KeptPrediction") -> dict[str, Any]:
    figures = {row.figure: {"predicted": row.predicted, "came": row.came, "error": row.error} for row in kept.rows}
    own = {"prediction_id": kept.prediction_id, "predicted_at_ms": kept.predicted_ms, "hours": kept.hours}
    return own | {"changes": kept.changes, "figures": figures}


def _lines(kept: "KeptPrediction") -> Iterator[str]:
    from streaming.tables import utc

    at = f"{utc(kept.predicted_ms):%Y-%m-%d %H:%M} UTC"
    span = counted(kept.hours, "hour", "hours")
    yield f"prediction {kept.prediction_id} of {at}, for {span}: {changes_text(Changes(**kept.changes))}"
    for row in kept.rows:
        off = "" if row.error is None else f" ({row.error * 100:+.0f} %)"
        words = row.figure.removesuffix("_ms").replace("_", " ")
        yield f"  {words}: predicted {_shown(row, row.predicted)}, came {_shown(row, row.came)}{off}"


def _shown(row: Compared, value: float | None) -> str:
    if value is None:
        return "unknown"
    if row.figure == "duration_ms":
        return duration_text(value)
    if row.figure == "bytes_copied":
        return f"{value / 1e9:,.2f} GB"
    return f"{value:.0%}" if row.figure.endswith("headroom_left") else f"{value:.2f}"
