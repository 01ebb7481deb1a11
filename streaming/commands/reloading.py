"""Settings that are read again while a role runs, on SIGHUP or because the file has changed.

A role that can't take the new settings in its stride ends in order, as at SIGTERM, and begins anew in its process: the
process id stays, and what supervises it notices nothing. Roles of all clusters start and end the parts of single
clusters instead. Settings that are refused are logged, and those of before stay in force.

`SettingsFile` shows whether the file has changed, by its time and size; `check_places` whether several clusters may use
their folders.
"""

import dataclasses
import hashlib
import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import structlog

from streaming.commands.options import cluster_named, flags_of
from streaming.config import chosen, load_clusters
from streaming.contract import BROKER_LOAD, LEASE
from streaming.errors import RebalancerError, RefusedForSafety, UsageProblem
from streaming.runtime.accounts import check_clusters_of_roles
from streaming.runtime.logs import mask_too
from streaming.runtime.own_process import STOP_SIGNALS, StopHandler, has_own_terminal, taken
from streaming.runtime.secrets import secrets_of_all
from streaming.settings import Settings
from streaming.settings.changes import (
    OF_ONE_CLUSTER,
    Adjust,
    Clusters,
    RoleChanges,
    RoleOf,
    changes,
    must_adjust,
    must_restart,
    roles_of,
    sharing,
)
from streaming.settings.clusters import is_paused, one_spelling, own_place

log = structlog.get_logger()

RETRY_S = 0.5
"""Time between two tries to end a role, which may not have begun its work yet."""


class SettingsSource:
    """The file, flags and cluster of a command line, from which its settings are read again and again."""

    def __init__(self, config_file: Path | None, assignments: tuple[str, ...], role: str | None = None) -> None:
        """`role` is the one that the command runs; None if it runs all roles, or none."""
        self.file = config_file
        self._flags = flags_of(assignments)
        self._cluster = cluster_named()
        self._role = role

    def read(self) -> tuple[dict[str, Settings], dict[str, Settings]]:
        """Returns the settings of all clusters, and of those among them that the command line means. Raises
        SettingsRefused, UsageProblem, RefusedForSafety.
        """
        clusters = {
            name: effective.settings for name, effective in load_clusters(self.file, self._flags, os.environ).items()
        }
        self.check(clusters)
        return clusters, self.meant(clusters)

    def check(self, clusters: Clusters) -> None:
        """Checks what settings alone don't show, for serve the roles of accounts, too. Raises RefusedForSafety,
        UsageProblem.
        """
        check_places(clusters)
        if self._role in (None, "serve"):
            check_clusters_of_roles(next(iter(clusters.values())).serve, clusters)

    def meant(self, clusters: Clusters) -> dict[str, Settings]:
        """Returns those of the clusters that the command line means, or all if some of several share a process of the
        role. Raises UsageProblem.
        """
        is_of_one = self._role in OF_ONE_CLUSTER and not sharing(str(self._role), clusters)
        if self._cluster is None and not is_of_one:
            return {**clusters}
        settings = chosen(clusters, self._cluster)
        return {settings.kafka.cluster_name: settings}


class Reloading:
    """Lets one role follow its settings on SIGHUP. Build it in the main thread, before the settings are read: a signal
    before that ends the process, whose next start reads them.
    """

    def __init__(self, role: str) -> None:
        self.begins_anew = False
        """Whether the role has been ended in order to begin anew."""
        self._role = RoleOf(role)
        self._adjust: Adjust | None = None
        self._must_end = self._is_ending = False
        self._asked = queue.SimpleQueue[None]()  # alone safe to use in a signal handler
        self._has_terminal = has_own_terminal()
        signal.signal(signal.SIGHUP, self._on_signal)

    def adjust_by(self, adjust: Adjust) -> None:
        """The role takes changed clusters by `adjust`, called in another thread than the main one."""
        self._adjust = adjust

    def follow(self, source: SettingsSource, clusters: Clusters) -> None:
        """From now on settings that differ from those of these clusters count."""
        threading.Thread(target=self._follow, args=(source, clusters), name="settings", daemon=True).start()

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        if self._has_terminal and not has_own_terminal():  # the terminal is closed, and means that all is to end
            signal.raise_signal(signal.SIGTERM)
        elif self._must_end:
            self._end_role(frame)
        else:
            self._asked.put(None)

    def _follow(self, source: SettingsSource, clusters: Clusters) -> None:
        while True:
            self._asked.get()
            taken(self._asked)  # one look answers all requests of before
            new = _read(source)
            if new is None:
                continue
            needs_restart = must_restart(self._role, clusters, new)
            if not needs_restart and not must_adjust(self._role, clusters, new):
                log.info("settings_unchanged", role=self._role.role)
            elif needs_restart or self._adjust is None:
                log.info("settings_changed", restarted=[self._role.role])
                self._begin_anew()
                return
            else:
                mask_too(secrets_of_all(new.values()))
                try:
                    self._adjust(new)
                except Exception as error:  # noqa: BLE001 - the role does its work by the settings of before
                    _refused(error)
                    continue
                log.info("settings_changed", adjusted=[self._role.role], clusters=[*new])
                clusters = new

    def _begin_anew(self) -> None:
        """Let the main thread, in which signals are handled, end the role."""
        self._must_end = True
        pause = threading.Event()
        while not self._is_ending:
            os.kill(os.getpid(), signal.SIGHUP)
            pause.wait(RETRY_S)

    def _end_role(self, frame: FrameType | None) -> None:
        """End it as SIGTERM does. A signal that comes meanwhile, or has come before, means an end for good."""
        end = signal.getsignal(signal.SIGTERM)
        if self._is_ending or not callable(end):  # it has not begun its work
            return
        self._is_ending = True
        if isinstance(end, StopHandler) and end.was_called:
            return
        self.begins_anew = True

        def end_for_good(number: int, frame: FrameType | None) -> None:
            if not self.begins_anew:
                end(number, frame)
            self.begins_anew = False

        for number in STOP_SIGNALS:
            signal.signal(number, end_for_good)
        end(signal.SIGTERM, frame)

    def will_begin_anew(self) -> bool:
        """Whether the role, which has ended, begins anew. If so, a stop from now on ends the process at once."""
        if self.begins_anew:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        return self.begins_anew


class RunSettings:
    """The settings in force of `rebalancer run`, and its locks on the tables of all clusters."""

    def __init__(self, source: SettingsSource) -> None:
        """Build it before the settings are read: a file that changes in between has then changed."""
        self._source = source
        self._file = SettingsFile(source.file)
        self._locks: dict[str, ExitStack] = {}
        self.clusters: Clusters = {}

    @contextmanager
    def locked(self, clusters: Clusters) -> Iterator[None]:
        """Puts the settings of these clusters in force; gives all locks back at the end."""
        self.clusters = clusters
        try:
            yield
        finally:
            self._unlock([*self._locks])

    def lock(self) -> None:
        """Take the lock of each cluster's tables. Raises RefusedForSafety if another run has one."""
        self._lock(self.clusters)

    def roles(self) -> list[RoleOf]:
        """Returns the roles that these settings need."""
        return roles_of(self.clusters)

    def reload(self, *, asked: bool) -> RoleChanges | None:
        """See `streaming.runtime.supervisor.Settled`."""
        if not asked and not self._file.has_changed():
            return None
        self._file.note_read()
        new = _read(self._source)
        if new is None:
            return None
        try:
            self._lock(new)
        except RebalancerError as error:
            _refused(error)
            return None
        found = changes(self.clusters, new)
        mask_too(secrets_of_all(new.values()))
        _log_changes(found, self.clusters, new)
        self._unlock(self._locks.keys() - _roots(new))
        self.clusters = new
        return found

    def _lock(self, clusters: Clusters) -> None:
        from streaming.runtime.locks import exclusive, holder  # loads Arrow, for which control has a wish of its own

        taken: list[str] = []
        for root in _roots(clusters) - self._locks.keys():
            held = ExitStack()
            try:
                if not held.enter_context(exclusive(root, "run")):
                    raise RefusedForSafety(f"rebalancer run uses the tables in {root} already: {holder(root, 'run')}")
            except RebalancerError:
                held.close()
                self._unlock(taken)
                raise
            self._locks[root] = held
            taken.append(root)

    def _unlock(self, roots: "Sequence[str] | set[str]") -> None:
        for root in roots:
            self._locks.pop(root).close()


def _roots(clusters: Clusters) -> set[str]:
    return {settings.storage.tables for settings in clusters.values()}


def _read(source: SettingsSource) -> dict[str, Settings] | None:
    """The clusters that are meant; None if the settings are refused."""
    try:
        if source.file is not None and not source.file.read_bytes().strip():
            raise UsageProblem(f"settings file {source.file} is empty: restart the roles if only defaults are meant")
        clusters, meant = source.read()
        if any(":" in each.storage.tables for each in clusters.values()):  # no plain folder
            from streaming.tables.object_stores import use_object_store

            use_object_store(*(each.storage for each in clusters.values()))
    except Exception as error:  # noqa: BLE001 - whatever it is, the roles that run must not end by it
        _refused(error)
        return None
    return meant


def _refused(error: Exception) -> None:
    named = str(error) if isinstance(error, RebalancerError) else f"{type(error).__name__}: {error}"
    log.error("settings_refused", error=named, hint="the settings of before stay in force")


def _log_changes(found: RoleChanges, old: Clusters, new: Clusters) -> None:
    if not found:
        log.info("settings_unchanged", role="run")
        return
    fields: dict[str, Any] = {
        kind.name: [role.name for role in getattr(found, kind.name)]
        for kind in dataclasses.fields(found)
        if kind.name != "shared_sections"
    }
    fields |= {
        "clusters_added": [name for name in new if name not in old],
        "clusters_removed": [name for name in old if name not in new],
        "clusters_paused": [name for name, settings in new.items() if is_paused(settings)],
        "shared_sections": list(found.shared_sections),
    }
    log.info("settings_changed", **{name: value for name, value in fields.items() if value})


def check_places(clusters: Mapping[str, Settings]) -> None:
    """Raises RefusedForSafety if the folder that clusters share is itself that of one cluster's tables, and no cluster
    is named as their owner: a deployment of one cluster would begin anew beside its old plans and leases.
    """
    from streaming import tables

    places = {name: one_spelling(settings.storage.tables) for name, settings in clusters.items()}
    shared = {
        place.removesuffix(own_place("", name)) for name, place in places.items() if place.endswith(own_place("", name))
    }
    for root in shared - {*places.values()}:
        if any(tables.open_table(root, name) is not None for name in (LEASE.name, BROKER_LOAD.name)):
            raise RefusedForSafety(
                f"storage.tables: {root} holds tables of one cluster: name this cluster by "
                f"clusters.NAME.storage.tables: {root}, and its checkpoints in the same way (docs/clusters.md)"
            )


READ_INTERVAL_S = 5.0
"""Time between two reads. A change counts once two reads in a row have found the same file: somebody may be writing."""

Signature = tuple[int, int, int]
"""Time of the last change (ns), bytes, number of the file."""


class SettingsFile:
    """Remembers which content was read last. Without a file nothing ever changes."""

    def __init__(self, file: Path | None, *, interval_s: float = READ_INTERVAL_S) -> None:
        self._file = file
        self._interval_s = interval_s
        self.note_read()

    def note_read(self) -> None:
        """From now on the content of this moment is the known one. Call it before the file is read."""
        self._read_s = monotonic()
        self._seen = self._signature()
        self._known = self._content() if self._seen else b""
        self._is_read = bool(self._known)

    def has_changed(self) -> bool:
        """Returns whether there is other content than the known one, and nobody is writing it any more. A file that is
        not there, is empty or can't be read has not changed: whoever replaces it may be about to write it, or to give
        the right to read it, which changes neither its time nor its size.
        """
        if self._file is None or monotonic() - self._read_s < self._interval_s:
            return False
        self._read_s = monotonic()
        seen, before = self._signature(), self._seen
        self._seen = seen
        if seen is None or seen != before:
            self._is_read = False
            return False
        if self._is_read:
            return False
        content = self._content()
        self._is_read = bool(content)
        return bool(content) and content != self._known

    def _signature(self) -> Signature | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _content(self) -> bytes:
        """A digest of the content; nothing if there is none."""
        assert self._file is not None
        try:
            content = self._file.read_bytes()
        except OSError:
            return b""
        return hashlib.sha256(content).digest() if content.strip() else b""
