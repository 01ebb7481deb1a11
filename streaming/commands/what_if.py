"""`rebalancer what-if`: what would happen if brokers came or went, if traffic grew, if topics changed."""

import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from streaming.commands.console import echo
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.commands.whole_files import write_whole
from streaming.errors import UsageProblem
from streaming.runtime import clocks

if TYPE_CHECKING:
    from streaming.control.what_if import Prediction
    from streaming.settings import Settings

HOURS_MAX = 24 * 366
NumberT = TypeVar("NumberT", int, float)
FACTOR = re.compile(r"(\d+(?:\.\d+)?)x?")


@click.command("what-if")
@click.option("--add-brokers", type=click.IntRange(0), default=0, metavar="COUNT", help="So many brokers more.")
@click.option(
    "--rack-down", "racks_down", multiple=True, metavar="RACK", help="All brokers of it are away; repeatable."
)
@click.option("--broker-down", "brokers_down", type=int, multiple=True, help="This broker is away; repeatable.")
@click.option("--drain", type=int, multiple=True, help="This broker must end empty; repeatable.")
@click.option(
    "--traffic", multiple=True, metavar="[TOPIC=]FACTOR", help="Traffic is so many times as much; repeatable."
)
@click.option("--grow", multiple=True, metavar="TOPIC=PARTITIONS", help="A topic has so many partitions; repeatable.")
@click.option("--drop-topic", "drop_topics", multiple=True, metavar="TOPIC", help="Without this topic; repeatable.")
@click.option(
    "--from", "since", default="-7d", show_default=True, help="Recorded hours since then: -7d, -36h or a time."
)
@click.option("--png", "png_file", type=click.Path(path_type=Path), help="Write a picture of load and skew over time.")
@click.option("--keep", is_flag=True, help="Keep the prediction in the tables, to compare it later.")
@click.option("--compare", "is_comparison", is_flag=True, help="Show the newest kept predictions beside what came.")
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
    """Replays recorded hours with something changed: which plans there would be, what they copy, and how even it gets.

    Decisions, planner, throttle and maintenance hours are those of the settings, as mode apply would act. Without any
    option it shows the recorded hours as they are. It reads the tables alone; only --keep writes, a row.
    """
    if is_comparison:
        return _compare(settings_from(config_file, assignments), as_json=as_json)
    from assignor_core.what_if import Changes
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
        _write_picture(png_file, prediction, settings)
    if keep:
        _keep(prediction, settings)
    _show(prediction, settings, as_json=as_json)
    return 0


def _show(prediction: "Prediction", settings: "Settings", *, as_json: bool) -> None:
    from streaming.commands.what_if_text import as_data, as_text

    if as_json:
        click.echo(json.dumps(as_data(prediction)))
        return
    for line in as_text(prediction, settings):
        echo(line)


def _keep(prediction: "Prediction", settings: "Settings") -> None:
    from streaming.commands.what_if_kept import keep

    keep(prediction, settings, now_ms=clocks.now_ms())


def _compare(settings: "Settings", *, as_json: bool) -> int:
    from streaming.commands.what_if_kept import show_comparison

    return show_comparison(settings, as_json=as_json)


def _write_picture(file: Path, prediction: "Prediction", settings: "Settings") -> None:
    from streaming.commands.what_if_text import changes_text
    from streaming.simulate.plot import png_of
    from streaming.simulate.replay_plot import plot_replays

    drawn = [(f"assumed: {changes_text(prediction.changes)}", prediction.replay)]
    title, ratio = prediction.history.cluster_name, settings.trigger.enter_ratio
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
