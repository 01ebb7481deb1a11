"""One immutable picture of the whole product, read from the tables: what metrics, API, page and `status` show.

Each part is read on its own. A part that can't be read keeps its last known figures and is named in `failures`, so a
broken table, or a row that can't be shown, never hides a healthy one. Imports neither a web framework nor the metrics
library.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from streaming.errors import TableUnavailable
from streaming.settings import ServeSettings, Settings
from streaming.settings.clusters import PAUSED_MODE, is_paused
from streaming.tables import TableReader, TableState, unfit_as_unavailable
from streaming.views.broker_load import LoadPart, LoadReader
from streaming.views.control import ControlPart, ControlReader
from streaming.views.group_memberships import GroupMembership, MembershipReader
from streaming.views.group_ranking import GroupPart, GroupReader
from streaming.views.log_dirs import LogDirState, read_log_dirs
from streaming.views.notifications import WebhookState, read_webhooks
from streaming.views.one_group import MembersNeeded
from streaming.views.restarts import BrokerRestart, read_restarts
from streaming.views.streams import StreamPart, StreamReader, read_table_states

log = structlog.get_logger()

PARTS = ("load", "groups", "memberships", "control", "log_dirs", "restarts", "webhooks", "streams", "tables")


FRESH_INTERVALS = 10
FRESH_MIN_MS = 30_000


def old_after_ms(serve: ServeSettings) -> int:
    """Returns the age above which a snapshot counts as old, ms: no new one was made for many intervals."""
    return max(FRESH_MIN_MS, FRESH_INTERVALS * serve.refresh_interval_ms)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything as the tables were at `read_at_ms`; parts whose table isn't there, or was never read, are empty."""

    kafka_cluster: str
    mode: str
    threshold_enter: float
    threshold_exit: float
    trigger_resources: tuple[str, ...]
    window_ms: int
    read_at_ms: int
    read_seconds: float
    load: LoadPart
    groups: GroupPart
    memberships: tuple[GroupMembership, ...]
    control: ControlPart
    log_dirs: tuple[LogDirState, ...]
    restarts: tuple[BrokerRestart, ...]
    webhooks: tuple[WebhookState, ...]
    streams: StreamPart
    tables: tuple[TableState, ...]
    failures: Mapping[str, str]
    """Part -> why it couldn't be read now."""

    @property
    def brokers_expected(self) -> int | None:
        """Brokers alive as control saw them; without control, those seen lately; None where none was."""
        decision = self.control.decision
        known = decision["brokers_expected"] if decision else None
        return (len(self.load.brokers) or None) if known is None else int(known)

    @property
    def completeness(self) -> float | None:
        """Share of the expected brokers that reported in the newest closed window; None before there is one."""
        if self.load.brokers_reporting is None or not self.brokers_expected:
            return None
        return min(1.0, self.load.brokers_reporting / self.brokers_expected)


def read_snapshot(settings: Settings, now_ms: int) -> Snapshot:
    """One snapshot. Who reads again and again keeps a `SnapshotReader`."""
    return SnapshotReader(settings).read(now_ms)


class SnapshotReader:
    """Reads picture after picture; tables that have not changed are not read again. Not for two threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader = TableReader(settings.storage.tables)
        load = LoadReader(self._reader, settings)
        groups = GroupReader(self._reader, settings, MembersNeeded().of)
        memberships = MembershipReader(self._reader, settings, groups)
        control = ControlReader(self._reader, settings)
        streams = StreamReader(self._reader, settings)
        self._failures: Mapping[str, str] = {}
        # Tables first: were their volume mounted between the two reads, control would seem to have done nothing yet.
        self._parts: dict[str, _Part] = {
            "tables": _Part((), lambda: read_table_states(self._reader), ()),
            "load": _Part(("broker_load", "partition_load"), load.read, LoadPart()),
            "groups": _Part(("group_lag",), groups.read, GroupPart()),
            "memberships": _Part(("group_lag", "group_event"), memberships.read, ()),
            "control": _Part(("decision", "plan", "execution"), control.read, ControlPart()),
            "log_dirs": _Part(("log_dir",), lambda: read_log_dirs(self._reader, settings.kafka.cluster_name), ()),
            "restarts": _Part(
                ("broker_restart",), lambda: read_restarts(self._reader, settings.kafka.cluster_name), ()
            ),
            "webhooks": _Part(
                ("notification",), lambda: read_webhooks(self._reader, settings.kafka.cluster_name, settings.notify), ()
            ),
            "streams": _Part(("pipeline_batch", "rejected_record"), streams.read, StreamPart()),
        }

    def read(self, now_ms: int) -> Snapshot:
        """The picture at `now_ms`."""
        began = time.perf_counter()
        self._reader.look_again()
        failures = {}
        for name, part in self._parts.items():
            try:
                part.refresh(self._reader)
            except TableUnavailable as error:
                failures[name] = str(error)
        self._log_changes(failures)
        values = {name: part.value for name, part in self._parts.items()}
        # In a folder with others, a table of control's that isn't there yet says that nothing has happened. Of an empty
        # one nothing is known: it may be where a volume is to be mounted, and totals would then jump from 0.
        if values["tables"] and "control" not in failures:
            values["control"] = values["control"].from_zero()
        settings = self._settings
        give_up_ms = settings.notify.give_up_ms
        values["webhooks"] = tuple(row.state(give_up_ms, now_ms=now_ms) for row in values["webhooks"])
        return Snapshot(
            kafka_cluster=settings.kafka.cluster_name,
            mode=PAUSED_MODE if is_paused(settings) else settings.control.mode,
            threshold_enter=settings.trigger.enter_ratio,
            threshold_exit=settings.trigger.exit_ratio,
            trigger_resources=tuple(settings.trigger.resources),
            window_ms=settings.pipeline.window_ms,
            read_at_ms=now_ms,
            read_seconds=time.perf_counter() - began,
            **values,
            failures=failures,
        )

    def _log_changes(self, failures: Mapping[str, str]) -> None:
        """Log what has changed: a part that stays broken is not logged every two seconds, nor a reason once a part."""
        broken = [name for name in PARTS if name in failures and name not in self._failures]
        for error in dict.fromkeys(failures[name] for name in broken):
            log.warning(
                "snapshot_part_failed", part=", ".join(name for name in broken if failures[name] == error), error=error
            )
        recovered = [name for name in PARTS if name in self._failures and name not in failures]
        if recovered:
            log.info("snapshot_part_recovered", part=", ".join(recovered))
        self._failures = failures


@dataclass(slots=True)
class _Part:
    """A part, the tables it rests on, and their versions when it was read."""

    tables: tuple[str, ...]
    read: Callable[[], Any]
    value: Any
    versions: tuple[int | None, ...] | None = None

    def refresh(self, reader: TableReader) -> None:
        """Read it if its tables have changed. Raises TableUnavailable, also for rows that can't be shown."""
        reader.check_folder()
        versions = tuple(reader.version(name) for name in self.tables)
        if not self.tables or versions != self.versions:
            with unfit_as_unavailable(*self.tables):
                self.value = self.read()
            self.versions = versions
