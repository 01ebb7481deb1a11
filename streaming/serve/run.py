"""The serve process: binds its port, refreshes snapshots, answers, and ends on a signal."""

import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp

from streaming.errors import RebalancerError
from streaming.notify.sender import Notifier
from streaming.runtime import clocks
from streaming.serve.access import check_clusters_of_roles
from streaming.serve.api.audit import Actions
from streaming.serve.api.events import Events
from streaming.serve.cluster_router import ClusterRouter, build_shared_app
from streaming.serve.connections import server_config
from streaming.serve.metrics import FORMS, Exposition, ExpositionOfAll, Form
from streaming.serve.snapshot import Snapshot, SnapshotReader
from streaming.serve.web import Door, build_app
from streaming.settings import ServeSettings, Settings

log = structlog.get_logger()
SWITCH_S = 0.001
"""How long the thread that reads tables may hold the interpreter while an answer waits; Python's own is 5 ms. An answer
has to wait a handful of times."""


class PortUnavailable(RebalancerError):
    """The address can't be listened on."""


ActionsOf = Callable[[Settings], Actions]
"""What requests that act on a cluster ask: it knows control's journal and Kafka."""


def run_serve(clusters: Mapping[str, Settings], actions_of: ActionsOf) -> int:
    """Serve one cluster or several until SIGTERM or SIGINT; returns the exit code. Raises PortUnavailable, and
    UsageProblem for a role on an unknown cluster.
    """
    (settings, *others) = clusters.values()
    check_clusters_of_roles(settings.serve, clusters)
    listener = _listen(settings.serve)
    server: Server | None = None

    def stop(_signal: int = 0, _frame: FrameType | None = None) -> None:
        if server is not None:
            server.should_exit = True

    with listener:
        forms = () if others else FORMS  # nobody asks for those of each of many clusters all the time
        refreshers, notifiers = dict[str, Refresher](), list[Notifier]()
        for name, each in clusters.items():
            # Log lines of their threads name the cluster, if there are several.
            with structlog.contextvars.bound_contextvars(**({"kafka_cluster": name} if others else {})):
                refreshers[name] = Refresher(each, None if others else stop, clocks.now_ms, forms)
                notifiers.append(_notifier(each, refreshers[name]))
        app, events = _apps(clusters, refreshers, actions_of) if others else _app(settings, refreshers, actions_of)

        def close_events() -> None:
            for each in events:
                each.close()

        server = Server(server_config(app, settings.serve), close_events)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        host, port = listener.getsockname()[:2]
        scheme = "http" if settings.serve.tls_certificate_file is None else "https"
        log.info("serve_started", url=f"{scheme}://{host}:{port}/", tables=settings.storage.tables)
        _put_answers_first()
        parts: list[Refresher | Notifier] = [*refreshers.values(), *notifiers]
        for part in parts:
            part.start()
        try:
            server.run(sockets=[listener])
        finally:
            for part in parts:
                part.stop()
    for refresher in refreshers.values():
        if refresher.failure is not None:
            raise refresher.failure
    log.info("serve_stopped")
    return 0


def _put_answers_first() -> None:
    """Seen with 50 brokers and 200 groups: full collections stopped everything for 50 ms, most of it to look through
    what was imported at the start and will never be garbage. Frozen, that is not looked at again."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


def _notifier(settings: Settings, refresher: "Refresher") -> Notifier:
    return Notifier(settings, lambda: refresher.snapshot().groups.topics, clocks.now_ms)


def _app(
    settings: Settings, refreshers: Mapping[str, "Refresher"], actions_of: ActionsOf
) -> tuple[ASGIApp, list[Events]]:
    """Returns the application of the one cluster, and its streams of events."""
    (refresher,) = refreshers.values()
    app = build_app(refresher.snapshot, refresher.exposition, settings, clocks.now_ms, actions_of(settings))
    return app, [app.state.events]


def _apps(
    clusters: Mapping[str, Settings], refreshers: Mapping[str, "Refresher"], actions_of: ActionsOf
) -> tuple[ASGIApp, list[Events]]:
    """Returns the application of several clusters, and their streams of events."""
    door = Door.of(next(iter(clusters.values())).serve, clocks.now_ms)

    def of_all() -> list[Snapshot]:
        return [refresher.snapshot() for refresher in refreshers.values()]

    apps = {
        name: build_app(
            refreshers[name].snapshot, refreshers[name].exposition, settings, clocks.now_ms, actions_of(settings),
            door=door, of_all=of_all,
        )
        for name, settings in clusters.items()
    }  # fmt: skip
    parts = [(refreshers[name].snapshot, settings) for name, settings in clusters.items()]
    shared = build_shared_app(parts, ExpositionOfAll(parts), clocks.now_ms, door)
    return ClusterRouter(shared, apps), [app.state.events for app in apps.values()]


class Refresher:
    """Holds the newest snapshot; the first is read before `start` returns. `clock` gives ms since 1970."""

    def __init__(
        self,
        settings: Settings,
        on_failure: Callable[[], None] | None,
        clock: Callable[[], int],
        forms: Sequence[Form] = FORMS,
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

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping.set()
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
