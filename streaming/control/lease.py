"""One executor at a time, on any storage: a lease in a Delta table, renewed while its holder lives.

Every renewal is a commit that succeeds only if nobody else has made the next one, so two holders can't both renew. A
holder judges its own lease by a clock that goes on while the process is stopped, and asks before each change of the
cluster; one that waits judges by how long the row has stood still before its own eyes. No two clocks are compared.

That clock stands still with the whole machine, if it is a virtual one that is paused. So the holder also reads the row
again before each change. And it renews only while its main loop makes progress: a loop that hangs loses the lease.
"""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import structlog

from assignor_core.marker import Holder
from streaming import tables
from streaming.control.cluster_snapshot import SnapshotAge
from streaming.control.journal import owner
from streaming.errors import AnotherCluster, LeaseExpired, LeaseLost, TableUnavailable
from streaming.runtime import clocks
from streaming.runtime.logs import with_log_fields

log = structlog.get_logger()

TABLE = "lease"
RENEWALS_PER_TTL = 3
TAKE_OVER_MARGIN_MS = 2_000
"""A lease that stood still for its length and this much longer may be taken."""
RENEWALS_PER_TIDY = 500
LOOP_SILENT_MAX_MS = 1_800_000
"""A holder whose main loop has not taken a turn, nor changed the cluster, for so long renews no more. Longer than the
longest call of a loop that works: to plan for 10,000 brokers takes minutes (docs/planner.md).
"""


@dataclass(slots=True)
class Lease:
    """The right to change one Kafka cluster; `kafka_cluster` is its name in the tables."""

    root: str
    kafka_cluster: str
    ttl_ms: int
    clock: Callable[[], int] = clocks.boot_ms
    """Judges how old the lease is."""
    wall_clock: Callable[[], int] = clocks.now_ms
    """What the row is dated with, for people."""
    kafka_cluster_id: str | None = None
    """Kafka's own id of the cluster that this process has reached; None keeps what the row holds."""
    takes_over_cluster: bool = False
    """Whether a row that names another Kafka cluster may be taken: a person has set `kafka.cluster_id`."""
    loop_silent_max_ms: int = LOOP_SILENT_MAX_MS
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    """Draws ids of leases."""
    lease_id: str | None = None
    """Id of the lease in the row that this process has written: two folders of tables have two leases, and two ids."""
    holder: Holder | None = None
    """What the markers of this process bear, since it took the lease the last time."""
    table: str = TABLE
    """Table that holds the row: a roll has a lease of its own."""
    before_change: Callable[[], None] = lambda: None
    """Called by `check` first, while the lease is held; may raise. The marker on the cluster is kept up here."""
    snapshot_age: SnapshotAge = field(init=False)
    """Called by `check` last."""
    _sequence: int = 0
    _valid_until_ms: int | None = None
    _watched: tuple[int, int] = (-1, 0)
    _seen: bool = False
    _reader: tables.TableReader = field(init=False)
    """Kept open: to open a table on an object store takes a request or two for each of its newest commits."""
    _guard: threading.RLock = field(default_factory=threading.RLock)
    _progress_ms: int | None = None

    def __post_init__(self) -> None:
        self.snapshot_age = SnapshotAge(self.clock, self.wall_clock)
        self._reader = tables.TableReader(self.root)

    @property
    def held(self) -> bool:
        """Whether this process is the holder, though its lease may have run out and wait to be renewed."""
        return self._valid_until_ms is not None

    def try_acquire(self) -> bool:
        """Take the lease if it is free, given back, or its holder is gone; to be called again and again.

        Raises TableUnavailable, and AnotherCluster if the row is of another Kafka cluster.
        """
        self.progress()
        row, sequence = self._row_and_sequence()
        self._check_cluster(row)
        asked_ms = self.clock()
        # Where the newest row is missing, an older one, or none, shows nothing of a holder that may live.
        is_newest = sequence == (-1 if row is None else row["sequence"])
        is_gone = is_newest and (row is None or row["released"] or _has_died(row) or self._wrote(row))
        if not is_gone:
            if sequence != self._watched[0]:
                self._watched = (sequence, asked_ms)
            if asked_ms - self._watched[1] <= (row["ttl_ms"] if row else self.ttl_ms) + TAKE_OVER_MARGIN_MS:
                return False
            holder = row["owner"] if row else "unknown"
            log.warning("lease_taken_over", kafka_cluster=self.kafka_cluster, holder=holder)
        with self._guard:
            if row is not None:
                self.kafka_cluster_id = self.kafka_cluster_id or row.get("kafka_cluster_id")
            self.lease_id = (row or {}).get("lease_id") or self.new_id()
            replaced_id = None if row is None else row.get("holder_id") or ""
            self.holder = Holder(self.lease_id, self.new_id()[:16], replaced_id, is_gone)
            return self._write(sequence + 1, asked_ms)

    def progress(self) -> None:
        """The main loop calls this at each turn: without it the lease is renewed for `LOOP_SILENT_MAX_MS` only."""
        self._progress_ms = self.clock()

    def renew(self) -> None:
        """Prolong it; a holder whose lease ran out gets it back if nobody took it.

        Raises LeaseLost once another has it, LeaseExpired where the main loop hangs, TableUnavailable where the table
        can't be written: try again.
        """
        with self._guard:
            asked_ms = self.clock()
            if self.held and self._progress_ms is not None and asked_ms - self._progress_ms > self.loop_silent_max_ms:
                silent_s = (asked_ms - self._progress_ms) / 1000
                raise LeaseExpired(
                    f"the main loop has made no progress for {silent_s:.0f} s: this control does not keep the lease"
                )
            if self.held and not (self._write(self._sequence + 1, asked_ms) or self._renewed_unheard(asked_ms)):
                self._valid_until_ms = None
                raise LeaseLost(f"another process has taken over {self.kafka_cluster}")

    def _renewed_unheard(self, asked_ms: int) -> bool:
        """True where an earlier renewal was written and its answer was lost, as may be on an object store, and another
        has followed it. The earlier one is as old as its unknown beginning: it does not count.
        """
        row = self._row()
        if row is None or not self._wrote(row) or row["sequence"] != self._sequence + 1:
            return False
        self._sequence = row["sequence"]
        return self._write(self._sequence + 1, asked_ms)

    def _wrote(self, row: tables.Row) -> bool:
        """Whether the row is of this process since it tried to take the lease the last time: each try draws an id."""
        return self.holder is not None and not row["released"] and row.get("holder_id") == self.holder.holder_id

    def release(self) -> None:
        """Give it back, so that the next one needn't wait."""
        with self._guard, suppress(TableUnavailable):
            try:
                if self.held:
                    self._write(self._sequence + 1, self.clock(), released=True)
            finally:  # the write may have arrived though its answer was lost: another may hold the lease by now
                self._valid_until_ms = None

    def check(self) -> None:
        """Called right before each change of the cluster; raises LeaseLost, LeaseExpired, SnapshotTooOld or
        TableUnavailable, and what `before_change` raises.

        Reads the row again: one request costs one read of a table of a few rows, however many partitions it names.
        """
        self.progress()
        if self.held:
            self.before_change()
        with self._guard:
            if not self.held:
                raise LeaseLost(f"this process may not change {self.kafka_cluster}: it does not hold the lease")
            self._check_clock()
            row = self._row()
            # A renewal whose answer was lost stands there one further than this process knows.
            if row is None or not (row["sequence"] == self._sequence or self._wrote(row)):
                self._valid_until_ms = None
                raise LeaseLost(f"another process has taken over {self.kafka_cluster}")
            self._check_clock()  # again: to read the row may take longer than the lease holds
        self.snapshot_age.check()

    def _check_clock(self) -> None:
        if self._valid_until_ms is None or self.clock() >= self._valid_until_ms:
            raise LeaseExpired(f"the lease on {self.kafka_cluster} has run out and could not be renewed in time")

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew in the background while held, and give it back at the end."""
        ended = threading.Event()
        keeper = threading.Thread(target=with_log_fields(self._keep), args=(ended,), name="lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
            self.release()

    def _keep(self, ended: threading.Event) -> None:
        renewals = 0
        while not ended.wait(self.ttl_ms / RENEWALS_PER_TTL / 1000):
            try:
                self.renew()
                renewals += self.held
                if self.held and renewals % RENEWALS_PER_TIDY == 0:
                    tables.tidy(self.root, self.table)
            except LeaseLost as error:
                log.error("lease_lost", reason=str(error))
            except (TableUnavailable, LeaseExpired) as error:
                log.warning("lease_not_renewed", error=str(error))
            except Exception as error:  # noqa: BLE001 - a keeper that ends would leave a control that can't act again
                log.warning("lease_not_renewed", error=repr(error))

    def _check_cluster(self, row: tables.Row | None) -> None:
        noted = None if row is None else row.get("kafka_cluster_id")
        if self.kafka_cluster_id is None or noted in (None, self.kafka_cluster_id):
            return
        if not self.takes_over_cluster:
            raise AnotherCluster(
                f"the brokers are Kafka cluster {self.kafka_cluster_id}, the lease on {self.kafka_cluster} is for "
                f"Kafka cluster {noted}"
            )
        log.warning("cluster_taken_over", kafka_cluster=self.kafka_cluster, before=noted, now=self.kafka_cluster_id)

    def _row_and_sequence(self) -> tuple[tables.Row | None, int]:
        """The row, and the greatest sequence that was ever written; -1 if none was. It is greater than the row's where
        rows were deleted or the table was restored: Delta refuses any that is not above it.

        Both of one read: with a sequence of a later one, two that find the lease free would both get it.
        """
        with self._guard:
            row = self._row()
            written = self._reader.transaction_version(self.table, self._transaction_id)
        return row, max(-1 if row is None else row["sequence"], -1 if written is None else written)

    @property
    def _transaction_id(self) -> str:
        return f"lease:{self.kafka_cluster}"

    def _row(self) -> tables.Row | None:
        with self._guard:
            self._reader.look_again()
            rows = self._reader.rows(self.table, where=tables.of_cluster(self.kafka_cluster))
        row = tables.newest(rows, "sequence")
        if row is None and self._seen:
            raise self._gone()
        self._seen = row is not None
        return row

    def _gone(self) -> TableUnavailable:
        return TableUnavailable(
            f"the lease on {self.kafka_cluster} was in the tables at {self.root} and is gone: is the folder mounted? "
            "Where it was removed on purpose, start again"
        )

    def _table_has_gone(self) -> bool:
        with self._guard:
            self._reader.look_again()
            return self._reader.version(self.table) is None

    def _write(self, sequence: int, asked_ms: int, *, released: bool = False) -> bool:
        # Only who has never seen the table may make it: in the place of a folder that is not mounted any more it would
        # be a lease of our own, while another process takes over the real one.
        if self._seen and self._table_has_gone():
            raise self._gone()
        namespace = _namespace()
        row = {
            "kafka_cluster": self.kafka_cluster,
            "sequence": sequence,
            "owner": owner(),
            "owner_namespace": namespace,
            "owner_started_ms": _own_start_ms(os.getpid()) if namespace else None,
            "renewed_at": tables.utc(self.wall_clock()),
            "ttl_ms": self.ttl_ms,
            "released": released,
            "kafka_cluster_id": self.kafka_cluster_id,
            "lease_id": self.lease_id,
            "holder_id": self.holder.holder_id if self.holder else None,
        }
        written = tables.replace(
            self.root, self.table, [row], kafka_cluster=self.kafka_cluster,
            transaction_id=self._transaction_id, transaction_version=sequence,
        )  # fmt: skip
        self._seen = True
        if written:
            self._sequence = sequence
            # Counted from before the write: a slow commit must not lengthen the lease.
            self._valid_until_ms = asked_ms + self.ttl_ms
        return written


def _has_died(row: tables.Row) -> bool:
    """Returns whether the holder has died, True only where that can be known: the holder ran among the processes this
    one sees, and is no longer there.
    """
    if row["owner_namespace"] is None or row["owner_namespace"] != _namespace():
        return False
    pid = int(row["owner"].rpartition("/")[2])
    try:
        started_ms = _own_start_ms(pid) if pid == os.getpid() else _started_ms(pid)
    except OSError:
        return not _is_there(pid)
    return started_ms is None or started_ms != row["owner_started_ms"]


@cache
def _own_start_ms(pid: int) -> int | None:
    """`_started_ms` of this process, which has the id `pid`: a fork has another."""
    return _started_ms(pid)


def _started_ms(pid: int) -> int | None:
    """When a process started, ms since the boot; None of one that has ended and waits to be reaped. Raises OSError.

    psutil gives it since 1970, by a boot time that moves whenever the clock is set: a live holder would look like
    another process that got its id. The kernel's own figure stands still.
    """
    # The second field is the name, in parentheses, and may hold anything; the third is the state, the 22nd the start.
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19]) * 1000 // os.sysconf("SC_CLK_TCK")


def _is_there(pid: int) -> bool:
    """Whether there is such a process, though it may be another user's and hidden from this one (hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@cache
def _namespace() -> str | None:
    """Names the set of processes whose ids and starts this one can compare: a boot, a pid and a time namespace.

    None off Linux. Rows of earlier versions name no time namespace and so match none: their starts count from 1970.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}/{_time_namespace()}"
    except OSError:
        return None


def _time_namespace() -> str:
    """Starts are counted since the boot as the reader's time namespace counts it; kernels before 5.6 know one only."""
    try:
        return os.readlink("/proc/self/ns/time")
    except FileNotFoundError:
        return "time:none"
