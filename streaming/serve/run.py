"""The serve process: binds its port, refreshes snapshots, answers, and ends on a signal."""

import gc
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context

import structlog
import uvicorn

from assignor_core.wording import address_text
from streaming.errors import RebalancerError
from streaming.notify.sender import Notifier
from streaming.runtime import clocks
from streaming.runtime.own_process import stop_on_signals
from streaming.serve.api.audit import Actions
from streaming.serve.api.events import Events
from streaming.serve.connections import server_config
from streaming.serve.metrics import FORMS, Exposition, ExpositionOfAll, Form
from streaming.serve.snapshot import Snapshot, SnapshotReader
from streaming.serve.web import ClusterRouter, Door, build_app, build_shared_app
from streaming.settings import ServeSettings, Settings
from streaming.settings.changes import AdjustBy, are_several, reads_the_same

log = structlog.get_logger()
SWITCH_S = 0.001
"""How long the thread that reads tables may hold the interpreter while an answer waits; Python's own is 5 ms. An answer
has to wait a handful of times."""


class PortUnavailable(RebalancerError):
    """The address can't be listened on."""


ActionsOf = Callable[[Settings], Actions]
"""What requests that act on a cluster ask: it knows control's journal and Kafka."""


def run_serve(clusters: Mapping[str, Settings], actions_of: ActionsOf, adjust_by: AdjustBy) -> int:
    """Serve one cluster or several until SIGTERM or SIGINT; returns the exit code. Raises PortUnavailable."""
    settings = next(iter(clusters.values()))
    listener = _listen(settings.serve)
    server: Server | None = None

    def stop() -> None:
        if server is not None:
            server.should_exit = True

    with listener:
        parts: OneCluster | ClusterParts
        if are_several(clusters):
            parts = several = ClusterParts(clusters, actions_of)
            adjust_by(several.adjust)
        else:
            parts = OneCluster(settings, actions_of, stop)
        server = Server(server_config(parts.app, settings.serve), parts.close_events)
        stop_on_signals(lambda _number: stop())
        host, port = listener.getsockname()[:2]
        scheme = "http" if settings.serve.tls_certificate_file is None else "https"
        log.info("serve_started", url=f"{scheme}://{address_text(host, port)}/", tables=settings.storage.tables)
        _put_answers_first()
        parts.start()
        try:
            server.run(sockets=[listener])
        finally:
            parts.stop()
    if isinstance(parts, OneCluster) and parts.refresher.failure is not None:
        raise parts.refresher.failure
    log.info("serve_stopped")
    return 0


def _put_answers_first() -> None:
    """Seen with 50 brokers and 200 groups: full collections stopped everything for 50 ms, most of it to look through
    what was imported at the start and will never be garbage. Frozen, that is not looked at again."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


class OneCluster:
    """What serve does for a cluster: refreshes its snapshot, notifies, answers requests about it."""

    def __init__(
        self,
        settings: Settings,
        actions_of: ActionsOf,
        on_failure: Callable[[], None] | None,
        *,
        door: Door | None = None,
        of_all: Callable[[], Sequence[Snapshot]] | None = None,
    ) -> None:
        """`on_failure` is called after a bug, if this cluster is the only one. `door` and `of_all`, the snapshots of
        all clusters, are given if it is one of several.
        """
        self.settings = settings
        forms = FORMS if of_all is None else ()  # nobody asks for those of each of many clusters all the time
        self.refresher = Refresher(settings, on_failure, clocks.now_ms, forms)
        self._notifier = Notifier(
            settings, lambda: self.refresher.snapshot().groups.topics, clocks.now_ms, self._abandoned_groups
        )
        self.app = build_app(
            self.refresher.snapshot, self.refresher.exposition, settings, clocks.now_ms, actions_of(settings),
            door=door, of_all=of_all,
        )  # fmt: skip

    def _abandoned_groups(self) -> frozenset[str]:
        return frozenset(row.group for row in self.refresher.snapshot().memberships if row.is_abandoned)

    def start(self) -> None:
        """Starts its threads."""
        self.refresher.start()
        self._notifier.start()

    def close_events(self) -> None:
        """Ends streams of events, which requests may be waiting for."""
        events: Events = self.app.state.events
        events.close()

    def end_soon(self) -> None:
        """Asks its threads to end."""
        self.refresher.end_soon()
        self._notifier.end_soon()

    def stop(self) -> None:
        """Ends its threads and waits for them."""
        self.refresher.stop()
        self._notifier.stop()


class ClusterParts:
    """What serve does for several clusters, which may change while it runs. One door stands before all of them."""

    def __init__(self, clusters: Mapping[str, Settings], actions_of: ActionsOf) -> None:
        self._actions_of = actions_of
        self._door = Door.of(next(iter(clusters.values())).serve, clocks.now_ms)
        self._lock = threading.Lock()
        self._runs = False
        self._parts: dict[str, OneCluster] = {}
        self.app = ClusterRouter()
        self._put_up(clusters)

    def start(self) -> None:
        """Starts the threads of all clusters."""
        with self._lock:
            self._runs = True
            for part in self._parts.values():
                part.start()

    def adjust(self, clusters: Mapping[str, Settings]) -> None:
        """Begin to serve what is new among these clusters, and end what is not among them. A cluster whose settings
        have changed is served by those of before until the new ones are ready.
        """
        with self._lock:
            before = self._parts
            self._put_up(clusters)
            for name, part in before.items():
                if self._runs and self._parts.get(name) is not part:
                    part.close_events()
                    part.stop()
            for name, part in self._parts.items():
                if self._runs and before.get(name) is not part:
                    part.start()

    def close_events(self) -> None:
        """Ends all streams of events."""
        for part in [*self._parts.values()]:
            part.close_events()

    def stop(self) -> None:
        """Ends all threads and waits for them: together for as long as for the slowest one."""
        with self._lock:
            self._runs = False
            for part in self._parts.values():
                part.end_soon()
            for part in self._parts.values():
                part.stop()

    def _put_up(self, clusters: Mapping[str, Settings]) -> None:
        self._parts = {
            name: self._kept(name, settings) or self._new(name, settings) for name, settings in clusters.items()
        }
        shown = [(part.refresher.snapshot, part.settings) for part in self._parts.values()]
        shared = build_shared_app(shown, ExpositionOfAll(shown), clocks.now_ms, self._door)
        self.app.replace(shared, {name: part.app for name, part in self._parts.items()})

    def _kept(self, name: str, settings: Settings) -> OneCluster | None:
        part = self._parts.get(name)
        return part if part is not None and reads_the_same("serve", part.settings, settings) else None

    def _new(self, name: str, settings: Settings) -> OneCluster:
        with structlog.contextvars.bound_contextvars(kafka_cluster=name):  # log lines of its threads name the cluster
            return OneCluster(settings, self._actions_of, None, door=self._door, of_all=self._snapshots)

    def _snapshots(self) -> list[Snapshot]:
        return [part.refresher.snapshot() for part in self._parts.values()]


class Refresher:
    """Holds the newest snapshot; the first is read before `start` returns. `clock` gives ms since 1970."""

    def __init__(
        self,
        settings: Settings,
        on_failure: Callable[[], None] | None,
        clock: Callable[[], int],
        forms: Sequence[Form],
    ) -> None:
        """`forms` are those of the metrics that are made before anybody asks for them. Without `on_failure` a bug ends
        nothing: other clusters are served by the same process, and /readyz names the snapshot that grows old.
        """
        self._clock = clock
        self._reader = SnapshotReader(settings)
        self._interval_s = settings.serve.refresh_interval_ms / 1000
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=copy_context().run, args=(self._loop,), name="refresh", daemon=True)
        self._snapshot = self._reader.read(self._clock())
        self.exposition = Exposition(self._snapshot, settings, forms)
        """The newest snapshot's metrics."""
        self.failure: Exception | None = None
        """What ended the thread: a bug, as the snapshot shows everything that can be expected."""

    def start(self) -> None:
        """Starts the thread that refreshes the snapshot."""
        self._thread.start()

    def snapshot(self) -> Snapshot:
        """Returns the newest snapshot."""
        return self._snapshot

    def end_soon(self) -> None:
        """Asks the thread to end."""
        self._stopping.set()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self.end_soon()
        self._thread.join()

    def _loop(self) -> None:
        logged = ""
        while not self._stopping.wait(self._interval_s):
            try:
                self._snapshot = self._reader.read(self._clock())
                self.exposition.update(self._snapshot)
                logged = ""
            except Exception as error:  # noqa: BLE001 - handed to the main thread, which ends the process with it
                if self._on_failure is not None:
                    self.failure = error
                    self._on_failure()
                    return
                if repr(error) != logged:
                    logged = repr(error)
                    log.error("snapshot_failed", error=logged)


class Server(uvicorn.Server):
    """uvicorn, with signals left to us: its own way ends the process by the signal, we end with an exit code.

    `on_end` is called before it waits for the answers that are under way.
    """

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing more, and wait for answers."""
        self._on_end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Catches no signals, in place of uvicorn's own handlers."""
        yield


def _listen(settings: ServeSettings) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((address[0], address[1]), family=family, backlog=128)
    except OSError as error:
        raise PortUnavailable(
            f"can't listen on serve.host {settings.host}, serve.port {settings.port}: {error.strerror or error}"
        ) from None
