"""Rows of `execution` as executions, and back: the one place that knows both the columns and the events.

Control, serve, the commands and the demo read executions here. What follows from events is decided in the core.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.deciding.observation import GivenUp
from assignor_core.errors import IllegalTransition
from assignor_core.execution.events import ABORT_SEQUENCE, Event, EventRecord, Figures
from assignor_core.execution.life_cycle import ENDING_EVENTS, EVENTS_AFTER_THE_END, Execution, fold, in_focus
from assignor_core.resources import REPORTED, Resource
from streaming import tables
from streaming.contract import EXECUTION
from streaming.errors import TableUnavailable
from streaming.views.spans import of_span

TABLE = EXECUTION.name
WHEN = ("before", "predicted", "measured")
OF_MOVEMENTS = ("movements_made", "movements_undone", "movements_under_way", "movements_cancelled")
"""Lists of movements, which may be long."""
COLUMNS = (
    "execution_id", "sequence", "plan_id", "event_time", "event", "detail", "movements_total", "movements_done",
    "bytes_total", "bytes_moved", "throttle_bytes_per_sec", "throttled_brokers", "produce_p99_ms_before",
    "in_windows_only", "kafka_cluster_id", "begins_at", "approvals_needed", "approver",
    *(f"{resource}_max_over_mean_{when}" for resource in REPORTED for when in WHEN),
)  # fmt: skip
"""What an execution is folded from, but for `OF_MOVEMENTS`."""
_COUNTS = ("movements_total", "movements_done", "bytes_total", "bytes_moved")
_LISTS = ("throttled_brokers", *OF_MOVEMENTS)
_OTHERS = (
    "throttle_bytes_per_sec", "produce_p99_ms_before", "in_windows_only", "kafka_cluster_id", "approvals_needed",
    "approver",
)  # fmt: skip
"""Columns that `Figures` has by the same names: whole numbers that every row has, lists, and others."""
_RATIO_COLUMNS = {when: tuple((resource, f"{resource}_max_over_mean_{when}") for resource in REPORTED) for when in WHEN}
SEARCH_MS = 30 * 86_400_000
"""How far back executions are read at each tick. What is older and unfinished is searched for once, at the start."""
BEGUN_MAX = 200
"""Most executions that are set against one prediction."""
DAYS_BACK = (2, 20, 200, 2000)
"""How far before the newest measurement others are searched; the next only where fewer than asked for were found."""
_OF_UNFINISHED = ("execution_id", "sequence", "event", "event_time", "throttled_brokers")
_SHOW_AN_END = ENDING_EVENTS | EVENTS_AFTER_THE_END
CLOCKS_APART_MS = 60_000
"""Rows that a clock dates so much too early are seen at once."""
WHOLE_READ_INTERVAL_MS = 60_000
"""All other rows are seen within this time."""


def read_executions(reader: tables.TableReader, kafka_cluster: str, *, now_ms: int) -> list[Execution]:
    """Executions with an event in the last 30 days, and older ones that are open or owe, with all their events.

    Oldest first; raises TableUnavailable.
    """
    rows = reader.rows(TABLE, where=_recent(kafka_cluster, now_ms))
    cut = cut_histories(rows) | _unfinished_before(reader, kafka_cluster, now_ms)
    if cut:
        whole = reader.rows(TABLE, where=tables.one_of("execution_id", sorted(cut)))
        rows = [*(row for row in rows if row["execution_id"] not in cut), *whole]
    return folded(rows)


def read_open_executions(
    reader: tables.TableReader, kafka_cluster: str, *, now_ms: int, known_open: Collection[str] | None = None
) -> list[Execution]:
    """Returns the executions that have not ended, oldest first; raises TableUnavailable.

    The function reads two columns of the ended executions' rows of 30 days, which may be 10,000s of events. An
    execution that is open for longer is among `known_open`, ids of the read before; without `known_open` the function
    searches for it. A caller that reads again and again uses `OpenExecutions`.
    """
    where = _recent(kafka_cluster, now_ms)
    rows = reader.rows(TABLE, columns=["execution_id", "event"], where=where)
    ended = {row["execution_id"] for row in rows if row["event"] in _SHOW_AN_END}
    older = _unfinished_before(reader, kafka_cluster, now_ms) if known_open is None else set(known_open)
    open_ids = sorted(({row["execution_id"] for row in rows} | older) - ended)
    if not open_ids:
        return []
    executions = folded(reader.rows(TABLE, where=tables.one_of("execution_id", open_ids)))
    return [row for row in executions if not row.ended]


def finished_before(reader: tables.TableReader, kafka_cluster: str, before: datetime) -> list[str]:
    """Ids of executions without an event since then that ended and owe nothing, the oldest first.

    A request to abort what is no longer there is among them. Raises TableUnavailable.
    """
    own = tables.of_cluster(kafka_cluster)
    rows = reader.arrow(TABLE, columns=_OF_UNFINISHED, where=own & tables.below("event_time", before))
    if not rows.num_rows:
        return []
    ages = rows.group_by("execution_id").aggregate([("event_time", "max")]).sort_by("event_time_max")
    since = own & tables.at_least("event_time", before)
    going_on = reader.arrow(TABLE, columns=("execution_id",), where=since)
    kept = _unfinished(rows) | set(pc.unique(going_on["execution_id"]).to_pylist())
    return [execution_id for execution_id in ages["execution_id"].to_pylist() if execution_id not in kept]


def plans_carried_out(reader: tables.TableReader, kafka_cluster: str) -> set[str]:
    """Ids of the plans of all executions in the table; raises TableUnavailable."""
    first = tables.of_cluster(kafka_cluster) & tables.equal("sequence", 0)
    plans = reader.arrow(TABLE, columns=("plan_id",), where=first)
    return set(pc.unique(plans["plan_id"]).to_pylist())


def changed_ms(reader: tables.TableReader, kafka_cluster: str, *, now_ms: int) -> int:
    """When an execution last ended after which replicas or leaders may lie elsewhere; 0 where none did in 30 days."""
    return max(changes_ms(reader, kafka_cluster, since_ms=max(0, now_ms - SEARCH_MS)), default=0)


def changes_ms(reader: tables.TableReader, kafka_cluster: str, *, since_ms: int) -> list[int]:
    """Ends of executions since `since_ms` that may have changed replicas or leaders, ascending, ms."""
    ended = tables.one_of("event", [Event.DONE.value, Event.ABORTED.value])
    where = of_span(kafka_cluster, "event_time", since_ms) & ended
    return sorted(tables.to_ms(row["event_time"]) for row in reader.rows(TABLE, columns=["event_time"], where=where))


def given_up(reader: tables.TableReader, kafka_cluster: str, *, now_ms: int) -> GivenUp:
    """Executions of mode `apply` that ended as aborted since one was done, in the last 30 days; those that a person
    stopped don't count. Raises TableUnavailable.
    """
    events = (Event.DONE.value, Event.ABORTED.value, Event.ABORT_REQUESTED.value)
    where = _recent(kafka_cluster, now_ms) & tables.one_of("event", events)
    rows = reader.rows(TABLE, columns=["execution_id", "event", "event_time", "in_windows_only"], where=where)
    stopped = {row["execution_id"] for row in rows if row["event"] == Event.ABORT_REQUESTED}
    newest_first = sorted(rows, key=itemgetter("event_time"), reverse=True)
    since_done = takewhile(lambda row: row["event"] != Event.DONE, newest_first)
    ended_ms = [
        tables.to_ms(row["event_time"])
        for row in since_done
        if row["event"] == Event.ABORTED and row["in_windows_only"] and row["execution_id"] not in stopped
    ]
    return GivenUp(len(ended_ms), max(ended_ms, default=0))


def newest_measured(reader: tables.TableReader, kafka_cluster: str, count: int) -> list[str]:
    """Ids of the newest executions whose load was measured beside a promise, newest first; raises TableUnavailable.

    Those within brokers are left out: they promise no max/mean.
    """
    own = tables.of_cluster(kafka_cluster) & tables.equal("event", Event.MEASURED.value)
    for when in ("predicted", "measured"):
        own &= tables.is_known(f"bytes_in_max_over_mean_{when}")
    newest = reader.newest(TABLE, "event_time", where=own)
    if newest is None:
        return []
    ids: list[str] = []
    for days in DAYS_BACK:
        ids = _ids_newest_first(reader, own & tables.at_least("event_time", newest - timedelta(days=days)))
        if len(ids) >= count:
            break
    return ids[:count]


def begun_between(reader: tables.TableReader, kafka_cluster: str, since_ms: int, until_ms: int) -> list[Execution]:
    """Executions that were approved in between, the newest `BEGUN_MAX` of them; raises TableUnavailable."""
    between = of_span(kafka_cluster, "event_time", since_ms, until_ms)
    ids = _ids_newest_first(reader, between & tables.equal("sequence", 0))
    if not ids:
        return []
    return folded(reader.rows(TABLE, columns=COLUMNS, where=tables.one_of("execution_id", ids[:BEGUN_MAX])))


def _ids_newest_first(reader: tables.TableReader, where: tables.Condition) -> list[str]:
    """Ids of executions in the order of the times of these rows."""
    rows = reader.arrow(TABLE, columns=("execution_id", "event_time"), where=where)
    rows = rows.sort_by([("event_time", "descending"), ("execution_id", "ascending")])
    ids: list[str] = rows["execution_id"].to_pylist()
    return ids


def read_execution(reader: tables.TableReader, execution_id: str) -> Execution:
    """One that was there before, as it is now; raises TableUnavailable where there is nothing of it any more."""
    executions = folded(reader.rows(TABLE, where=tables.equal("execution_id", execution_id)))
    if not executions:
        raise TableUnavailable(f"execution {execution_id} is gone from the tables at {reader.root}: are they mounted?")
    return executions[0]


def folded(rows: Iterable[tables.Row]) -> list[Execution]:
    """Executions from all their rows, oldest first; raises TableUnavailable for a history that can't have happened.

    A lone request to abort is no execution.
    """
    executions = (_folded(execution_id, history) for execution_id, history in _by_execution(rows).items())
    return sorted((execution for execution in executions if execution is not None), key=by_age)


def grown(
    known: Mapping[str, Execution], rows: Iterable[tables.Row], read_whole: Callable[[str], Iterable[tables.Row]]
) -> Iterator[tuple[Execution | None, Execution]]:
    """Yields each execution that `rows` are of: as it was in `known`, by id, and as it is. Raises TableUnavailable.

    Rows that are known already count once. `read_whole` gives all rows of an execution: it is asked where rows before
    the new ones are not known.
    """
    for execution_id, new in _by_execution(rows).items():
        before = known.get(execution_id)
        length = len(before.events) if before else 0
        unknown = {row["sequence"] for row in new if length <= row["sequence"] < ABORT_SEQUENCE}
        if unknown != set(range(length, length + len(unknown))) or (before is None and not unknown):
            execution = _folded(execution_id, list(read_whole(execution_id)))
        else:
            execution = _folded(execution_id, new) if before is None else _grown(before, new)
        if execution is not None:
            yield before, execution


class KnownExecutions:
    """Executions of a table that is read again and again, and totals of them.

    A read costs what is new or open: an execution that has ended is counted once and never folded again.
    """

    def __init__(self) -> None:
        self._known: dict[str, Execution] = {}
        self._open: dict[str, Execution] = {}
        self._owing: dict[str, Execution] = {}
        self._newest: Execution | None = None
        self._counted_from_ms = 0
        self._failed_ms: list[int] = []
        self._durations: list[tuple[int, float]] = []
        self.last_done_ms: int | None = None
        """When an execution was last carried out in full."""

    @property
    def failures(self) -> int:
        """Executions that were refused or aborted."""
        return sum(at_ms >= self._counted_from_ms for at_ms in self._failed_ms)

    @property
    def durations_s(self) -> tuple[float, ...]:
        """Seconds from start to done of each execution that was carried out in full."""
        return tuple(seconds for at_ms, seconds in self._durations if at_ms >= self._counted_from_ms)

    def count_from(self, time_ms: int) -> None:
        """Leave executions that ended before `time_ms` out of the totals."""
        self._counted_from_ms = time_ms

    @property
    def open(self) -> tuple[Execution, ...]:
        """Executions that have not ended."""
        return tuple(self._open.values())

    @property
    def throttles_left(self) -> tuple[int, ...]:
        """Brokers that keep the throttle of an execution that has ended: they were down at its end, or refused."""
        return brokers_owed(self._owing.values())

    @property
    def in_focus(self) -> Execution | None:
        """The execution to show (see `in_focus` of the core)."""
        candidates = {row.execution_id: row for row in (*self._open.values(), self._newest) if row is not None}
        return in_focus(sorted(candidates.values(), key=by_age))

    def add(self, rows: Iterable[tables.Row], read_whole: Callable[[str], Iterable[tables.Row]]) -> None:
        """Take in rows that may be new, as `grown` does; raises TableUnavailable."""
        for before, execution in grown(self._known, rows, read_whole):
            self._keep(execution, was_open=before is None or not before.ended)

    def _keep(self, execution: Execution, *, was_open: bool) -> None:
        self._known[execution.execution_id] = execution
        if self._newest is None or by_age(execution) >= by_age(self._newest):
            self._newest = execution
        if not execution.ended:
            self._open[execution.execution_id] = execution
            return
        self._open.pop(execution.execution_id, None)
        self._owing.pop(execution.execution_id, None)
        if execution.owes:
            self._owing[execution.execution_id] = execution
        if was_open:
            self._count(execution)

    def _count(self, ended: Execution) -> None:
        if ended.failed and ended.ended_ms is not None:
            self._failed_ms.append(ended.ended_ms)
        done_ms, started_ms = ended.done_ms, ended.started_ms
        if done_ms is not None and started_ms is not None:
            self._durations.append((done_ms, (done_ms - started_ms) / 1000))
            self.last_done_ms = max(done_ms, self.last_done_ms or 0)


def brokers_owed(executions: Iterable[Execution]) -> tuple[int, ...]:
    """Brokers that keep the throttle of an execution of these that has ended."""
    return tuple(sorted({broker for row in executions if row.owes for broker in row.throttled_brokers}))


def cut_histories(rows: Iterable[tables.Row]) -> frozenset[str]:
    """Ids of executions whose first event is not among these rows."""
    ids: set[str] = set()
    begun: set[str] = set()
    for row in rows:
        ids.add(row["execution_id"])
        if row["sequence"] == 0:
            begun.add(row["execution_id"])
    return frozenset(ids - begun)


def event_of(row: tables.Row) -> EventRecord:
    """One row as an event; columns that an earlier version did not write are unknown. Raises TableUnavailable."""
    try:
        event = Event(row["event"])
    except ValueError as error:
        raise _unreadable(row["execution_id"], error) from None
    cells: dict[str, Any] = {name: int(row[name]) for name in _COUNTS}
    cells |= {name: row.get(name) for name in _OTHERS}
    cells |= {name: tuple(row[name]) for name in _LISTS if row.get(name) is not None}
    cells |= {when: _ratios(row, when) for when in WHEN}
    figures = Figures(**cells, begins_ms=None if row.get("begins_at") is None else tables.to_ms(row["begins_at"]))
    return EventRecord(event, int(row["sequence"]), tables.to_ms(row["event_time"]), str(row["detail"]), figures)


def row_of(execution: Execution, record: EventRecord, *, kafka_cluster: str, owner: str) -> dict[str, Any]:
    """An event of `execution` as a row."""
    return {**event_columns(execution, record), "kafka_cluster": kafka_cluster, "owner": owner}


def event_columns(execution: Execution, record: EventRecord) -> dict[str, Any]:
    """`COLUMNS` and `OF_MOVEMENTS` of an event of `execution`."""
    figures = record.figures
    return {
        "execution_id": execution.execution_id,
        "sequence": record.sequence,
        "plan_id": execution.plan_id,
        "event_time": tables.utc(record.at_ms),
        "event": record.event.value,
        "detail": record.detail,
        **{name: getattr(figures, name) for name in (*_COUNTS, *_OTHERS)},
        **{name: _listed(getattr(figures, name)) for name in _LISTS},
        "begins_at": None if figures.begins_ms is None else tables.utc(figures.begins_ms),
        **{
            name: ratio
            for when, row in figures.max_over_mean.items()
            for name, ratio in ratio_columns(row, when).items()
        },
    }


def _listed(numbers: tuple[int, ...] | None) -> list[int] | None:
    return None if numbers is None else list(numbers)


def progress_of(record: EventRecord) -> dict[str, Any]:
    """An event for programs, and how far its execution was then."""
    figures = record.figures
    return {
        "event": record.event.value,
        "detail": record.detail,
        "movements_done": figures.movements_done,
        "movements_total": figures.movements_total,
        "bytes_moved": figures.bytes_moved,
        "bytes_total": figures.bytes_total,
    }


def ratio_columns(ratios: Mapping[Resource, float], when: str) -> dict[str, float | None]:
    """max/mean of every reported resource by column; None where it is unknown.

    >>> ratio_columns({Resource.DISK: 1.5}, "before")["disk_max_over_mean_before"]
    1.5
    """
    return {f"{resource}_max_over_mean_{when}": ratios.get(resource) for resource in REPORTED}


def _ratios(row: tables.Row, when: str) -> dict[Resource, float]:
    ratios = ((resource, row.get(column)) for resource, column in _RATIO_COLUMNS[when])
    return {resource: float(ratio) for resource, ratio in ratios if ratio is not None}


def _by_execution(rows: Iterable[tables.Row]) -> dict[str, list[tables.Row]]:
    histories: dict[str, list[tables.Row]] = defaultdict(list)
    for row in rows:
        histories[row["execution_id"]].append(row)
    return histories


def by_age(execution: Execution) -> tuple[int, str]:
    """Key to sort executions by, the oldest first."""
    return execution.approved_ms, execution.execution_id


def _folded(execution_id: str, rows: Sequence[tables.Row]) -> Execution | None:
    """Returns an execution from all its rows; None if the only row is a request to abort."""
    if all(row["sequence"] == ABORT_SEQUENCE for row in rows):
        return None
    try:
        return fold(execution_id, rows[0]["plan_id"], map(event_of, rows))
    except IllegalTransition as error:
        raise _unreadable(execution_id, error) from None


def _grown(known: Execution, rows: Iterable[tables.Row]) -> Execution:
    """A known execution with its new rows."""
    new = (row for row in rows if row["sequence"] >= len(known.events))
    try:
        return known.after(*sorted(map(event_of, new), key=lambda record: record.sequence))
    except IllegalTransition as error:
        raise _unreadable(known.execution_id, error) from None


def _unreadable(execution_id: str, error: Exception) -> TableUnavailable:
    return TableUnavailable(f"table execution: the history of {execution_id} makes no sense: {error}")


def _recent(kafka_cluster: str, now_ms: int) -> tables.Condition:
    return of_span(kafka_cluster, "event_time", max(0, now_ms - SEARCH_MS))


def _unfinished_before(reader: tables.TableReader, kafka_cluster: str, now_ms: int) -> set[str]:
    """Ids of executions that were open, or owed the removal of a throttle, 30 days ago.

    Reads few columns of all rows before: as columns, for the table may hold millions of rows.
    """
    where = tables.of_cluster(kafka_cluster) & tables.at_most("event_time", tables.utc(max(0, now_ms - SEARCH_MS)))
    return _unfinished(reader.arrow(TABLE, columns=_OF_UNFINISHED, where=where))


def _unfinished(rows: pa.Table) -> set[str]:
    """Ids of executions that are open, or owe the removal of a throttle, by rows with `_OF_UNFINISHED`."""
    if not rows.num_rows:
        return set()
    ended = pc.is_in(rows["event"], pa.array([event.value for event in _SHOW_AN_END]))
    numbered = rows.filter(pc.less(rows["sequence"], ABORT_SEQUENCE))
    is_open = set(pc.unique(numbered["execution_id"]).to_pylist()) - set(rows.filter(ended)["execution_id"].to_pylist())
    throttled = pc.greater(pc.fill_null(pc.list_value_length(numbered["throttled_brokers"]), 0), 0)
    last, last_throttled = (_newest_sequences(events) for events in (numbered, numbered.filter(throttled)))
    return is_open | {execution_id for execution_id, _ in last_throttled.items() & last.items()}


def _newest_sequences(events: pa.Table) -> dict[str, int]:
    newest = events.group_by("execution_id").aggregate([("sequence", "max")])
    return dict(zip(newest["execution_id"].to_pylist(), newest["sequence_max"].to_pylist(), strict=True))


class OpenExecutions:
    """Open executions of one Kafka cluster. Keep the object, and read from it again and again; not for two threads."""

    def __init__(self, root: str, kafka_cluster: str) -> None:
        self._kafka_cluster = kafka_cluster
        self._reader = tables.TableReader(root)
        self._known: dict[str, Execution] = {}
        """Executions, by id, that were open when all rows were last read, or have new rows since."""
        self._version: int | None = None
        self._read_ms = 0
        self._whole_version: int | None = None
        self._whole_ms: int | None = None

    def read(self, *, now_ms: int) -> list[Execution]:
        """Open executions: started ones first, then approved ones, the oldest first. Raises TableUnavailable."""
        self._reader.look_again()
        version = self._reader.version(TABLE)
        if version is None or self._is_whole_read_due(version, now_ms):
            known_open = None if self._whole_ms is None else [row.execution_id for row in self._open()]
            rows = read_open_executions(self._reader, self._kafka_cluster, now_ms=now_ms, known_open=known_open)
            self._known = {row.execution_id: row for row in rows}
            self._whole_version, self._whole_ms = version, None if version is None else now_ms
        elif version != self._version:
            self._take_in_new_rows(self._version or 0, min(now_ms, self._read_ms))
        self._version, self._read_ms = version, now_ms
        return sorted(self._open(), key=lambda row: (row.waiting, by_age(row)))

    def _open(self) -> list[Execution]:
        return [row for row in self._known.values() if not row.ended]

    def _is_whole_read_due(self, version: int, now_ms: int) -> bool:
        if self._whole_ms is None:
            return True
        return version != self._whole_version and abs(now_ms - self._whole_ms) >= WHOLE_READ_INTERVAL_MS

    def _take_in_new_rows(self, version: int, since_ms: int) -> None:
        where = of_span(self._kafka_cluster, "event_time", max(0, since_ms - CLOCKS_APART_MS))
        rows = self._reader.rows_since(TABLE, version, where=where)
        changed = list(grown(self._known, rows, self._whole_history))
        self._known |= {execution.execution_id: execution for _, execution in changed}

    def _whole_history(self, execution_id: str) -> list[dict[str, Any]]:
        return self._reader.rows(TABLE, where=tables.equal("execution_id", execution_id))
