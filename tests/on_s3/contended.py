"""Processes that commit to one table on S3 at the same moment: each version has one writer, and the lease one holder.

Nothing but the store decides between them, as between machines.
"""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import click

from streaming import tables
from streaming.control.lease import TABLE, Lease
from streaming.errors import TableUnavailable
from streaming.settings import StorageSettings
from streaming.tables.object_stores import use_object_store
from tests.s3 import BUCKET, CREDENTIALS, commit_lost, proxy, s3_server

APPENDED = "broker_intent"
START_MS = 1_795_000_000_000
TTL_MS = 600_000
"""Longer than a run: nobody takes over a lease that is held."""
RENEWALS = 3


@dataclass(slots=True)
class Written:
    """What one process was told: numbers that it has written, and the times for which it held the lease."""

    numbers: list[int] = field(default_factory=list)
    held: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0
    """Writes that failed: another was first, or the answer was lost."""


Contender = Callable[[str, int, int], Written]


def contend(contender: Contender, root: str, store_url: str, *, processes: int, commits: int) -> list[Written]:
    """What each of `processes` was told, which together make about `commits`."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_reach, initargs=(root, store_url)) as pool:
        each = -(-commits // processes)
        futures = [pool.submit(contender, root, number, each) for number in range(processes)]
        return [future.result() for future in futures]


def _reach(root: str, store_url: str) -> None:
    os.environ.update(CREDENTIALS)
    use_object_store(StorageSettings(tables=root, s3_endpoint=store_url))


def run_both(commits: int, processes: int, *, lost_answers: bool) -> None:
    """Half of the commits are appends, half are writes of the lease; prints what was seen."""
    with ExitStack() as stack:
        store = stack.enter_context(s3_server())
        endpoint = store
        if lost_answers:
            before = stack.enter_context(proxy(store))
            before.fault = commit_lost(each=9)
            before.on_asked = lambda _asked: None
            endpoint = before.url
        root = f"s3://{BUCKET}/contended/tables"
        _reach(root, store)
        problems: list[str] = []
        for name, contender in (("appends", append_rows), ("lease", take_lease_in_turns)):
            began_s = time.monotonic()
            written = contend(contender, root, endpoint, processes=processes, commits=commits // 2)
            made, refused = sum(len(row.numbers) for row in written), sum(row.refused for row in written)
            shown = f"{name}: {made} commits reported, {refused} tries not written or not heard of"
            click.echo(f"{shown}, {time.monotonic() - began_s:.0f} s")
            is_lease = contender is take_lease_in_turns
            problems += (
                problems_of_lease(root, written, lost_answers=lost_answers) if is_lease
                else problems_of_appends(root, written, lost_answers=lost_answers)
            )  # fmt: skip
        use_object_store(StorageSettings())
    if problems:
        raise click.ClickException("; ".join(problems))
    click.echo("no version and no turn had two winners")


def append_rows(root: str, process: int, commits: int) -> Written:
    """Rows appended one by one, each under a number of its own; one that fails is repeated until it is there."""
    written = Written()
    for index in range(commits):
        number = process * 1_000_000 + index
        row = {
            "kafka_cluster": "c", "broker": number, "event_time": tables.utc(START_MS + number),
            "intent": "drain", "by": str(process),
        }  # fmt: skip
        while not _once(partial(_append, root, row, number), written):
            pass
        written.numbers.append(number)
    return written


def _append(root: str, row: dict[str, Any], number: int) -> None:
    tables.append(root, APPENDED, [row], transaction_id=f"t{number}", transaction_version=0)


def take_lease_in_turns(root: str, process: int, commits: int) -> Written:
    """Take the lease, renew it, give it back, again and again; numbers are those of the writes that were reported."""
    written = Written()
    lease = Lease(root, "main", TTL_MS)
    while len(written.numbers) < commits:
        if not _once(lease.try_acquire, written) or not lease.held:
            continue
        began_s = time.monotonic()
        written.numbers.append(lease._sequence)
        for _ in range(RENEWALS):
            while not _once(lease.renew, written):
                pass  # a holder that nobody has followed is never told that it has lost the lease
            written.numbers.append(lease._sequence)
        lease.check()
        written.held.append((began_s, time.monotonic()))
        lease.release()
        if lease._sequence > written.numbers[-1]:
            written.numbers.append(lease._sequence)
    return written


def _once(write: Callable[[], object], written: Written) -> bool:
    """Whether the store has taken it."""
    try:
        write()
    except TableUnavailable:
        written.refused += 1
        return False
    return True


def problems_of_appends(root: str, written: list[Written], *, lost_answers: bool) -> list[str]:
    """What speaks against one writer for each version; reads the table."""
    wanted = Counter(number for row in written for number in row.numbers)
    stored = Counter(row["broker"] for row in tables.read(root, APPENDED, columns=["broker"]))
    table = tables.open_table(root, APPENDED)
    assert table is not None
    versions = sum(commit.get("operation") == "WRITE" for commit in table.history())  # others have made the table
    problems = []
    if stored != wanted:
        problems.append(f"{(wanted - stored).total()} rows are missing, {(stored - wanted).total()} are there twice")
    if not lost_answers and versions != wanted.total():
        problems.append(f"{wanted.total()} commits were reported, the log has {versions}")
    return problems


def problems_of_lease(root: str, written: list[Written], *, lost_answers: bool) -> list[str]:
    """What speaks against one holder at a time; reads the table.

    A write whose answer was lost is not known to its writer, so numbers may be missing then, but none occurs twice.
    """
    numbers = Counter(number for row in written for number in row.numbers)
    (row,) = tables.read(root, TABLE)
    twice = sorted(number for number, count in numbers.items() if count > 1)
    problems = [f"more than one process has written {twice[:5]}"] if twice else []
    if not lost_answers and numbers.keys() != set(range(row["sequence"] + 1)):
        problems.append(f"{len(numbers)} writes were reported, the row has number {row['sequence']}")
    spans = sorted(span for row in written for span in row.held)
    meetings = [late for early, late in pairwise(spans) if late[0] < early[1]]
    if meetings:
        problems.append(f"{len(meetings)} times a second process held the lease")
    return problems
