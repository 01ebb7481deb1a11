"""`rebalancer restart-check BROKER`: whether the broker may be restarted now, and what its restart would move."""

import json
import re
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assignor_core.live import PartitionKey, partition_name
from assignor_core.restart import RestartCheck, restart_check
from assignor_core.wording import counted, first_named
from streaming.commands.console import echo
from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import ClusterRequestFailed, ClusterUnreachable, RefusedForSafety, UsageProblem
from streaming.views.restarts import restart_content

if TYPE_CHECKING:
    from streaming.settings import Settings

NAMED_MAX = 5
"""Partitions named in one line of the text; JSON has more."""
READ_AGAIN_S = 5.0
WAIT_MAX_S = 24 * 3600
SECONDS = {"s": 1, "m": 60, "h": 3600}


def duration_s(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int:
    """Seconds of a text like 30s, 10m or 2h, a day at most; 0 for None."""
    if text is None:
        return 0
    match = re.fullmatch(r"([1-9]\d{0,5})([smh])", text, re.ASCII)
    seconds = int(match[1]) * SECONDS[match[2]] if match else 0
    if not 0 < seconds <= WAIT_MAX_S:
        raise click.BadParameter(f"{text!r} is no duration like 30s, 10m or 2h, of a day at most")
    return seconds


@click.command("restart-check")
@click.argument("broker", type=int)
@click.option(
    "--wait",
    "wait_s",
    metavar="DURATION",
    callback=duration_s,
    help="Repeat the check until a restart is safe, for at most this long: 10m.",
)
@click.option(
    "--accept-single",
    "accepts_single",
    is_flag=True,
    help="Accept that partitions with a single replica are offline during the restart.",
)
@json_option
@settings_options
def restart_check_command(
    broker: int,
    wait_s: int,
    accepts_single: bool,
    as_json: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Check whether BROKER may be restarted now: partitions that would be offline or refuse writes, copies, and the
    leaders and coordinators that would move.

    The check changes nothing. It also judges a broker that is offline: the next broker may be restarted once this one
    has caught up.
    """
    settings = settings_from(config_file, assignments)
    ends_s = time.monotonic() + wait_s
    while True:
        left_s = ends_s - time.monotonic()
        try:
            check = checked(settings, broker)
            stops = check.stops(accepts_single=accepts_single)
        except (ClusterUnreachable, ClusterRequestFailed) as error:  # as while a broker is just coming up
            if left_s <= 0:
                raise
            stops = (str(error),)
        else:
            if not stops or left_s <= 0:
                break
        echo(f"waits: {'; '.join(stops)}", err=True)
        time.sleep(min(READ_AGAIN_S, left_s))
    if as_json:
        click.echo(json.dumps(restart_content(check, stops)))
    else:
        _print(check, accepts_single=accepts_single)
    if stops:
        raise RefusedForSafety(f"broker {broker} should not be restarted now: {'; '.join(stops)}")
    return 0


def checked(settings: "Settings", broker: int) -> RestartCheck:
    """One read of the cluster; raises UsageProblem for a broker that it does not know."""
    from streaming.cluster.clients import admin_client
    from streaming.cluster.topics import min_in_sync
    from streaming.control.identity import cluster_of

    with closing(admin_client(settings.kafka)) as admin:
        live = cluster_of(admin, settings).describe()
        held = {topic for (topic, _), row in live.partitions.items() if broker in row.replicas}
        if not held and broker not in live.broker_racks:
            known = first_named(sorted(live.broker_racks), NAMED_MAX)
            raise UsageProblem(f"broker {broker}: the cluster has no such broker, it has {known}")
        return restart_check(broker, live, min_in_sync(admin, held))


def _print(check: RestartCheck, *, accepts_single: bool) -> None:
    away = "" if check.is_alive else ", which is away"
    echo(f"broker {check.broker}{away}: {counted(check.replicas, 'replica', 'replicas')}, "
         f"{counted(check.leaders, 'leader', 'leaders')} that would move")  # fmt: skip
    coordinators = (
        (check.group_coordinators, "coordinates the groups of {} of __consumer_offsets"),
        (check.transaction_coordinators, "coordinates the transactions of {} of __transaction_state"),
    )
    for count, words in coordinators:
        if count:
            echo(f"  {words.format(counted(count, 'partition', 'partitions'))}")
    single = set(check.single)
    rows: tuple[tuple[str, Sequence[PartitionKey]], ...] = (
        ("offline: no other replica is in sync", [key for key in check.offline if key not in single]),
        (f"offline: no other replica at all{', accepted' if accepts_single else ''}", check.single),
        ("refuse writes with acks=all: too few replicas stay in sync", check.refusing),
        ("at the edge: one more broker that fails stops their writes", check.at_edge),
        ("not caught up on this broker", check.behind),
        ("being reassigned", check.moving),
        ("of topics whose min.insync.replicas is hidden from this login", check.unknown),
    )
    for words, keys in rows:
        if keys:
            named = first_named(keys, NAMED_MAX, partition_name)
            echo(f"  {counted(len(keys), 'partition', 'partitions')} {words} ({named})")
    if not check.stops(accepts_single=accepts_single):
        echo("safe to restart now")
