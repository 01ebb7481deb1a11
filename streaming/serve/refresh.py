"""A thread that reads snapshot after snapshot; everyone else sees the newest one and never waits for a table."""

import threading
from collections.abc import Callable

import structlog

from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import Snapshot, SnapshotReader
from streaming.settings import Settings

log = structlog.get_logger()


class Refresher:
    """Holds the newest snapshot; the first is read before `start` returns. `clock` gives ms since 1970."""

    def __init__(self, settings: Settings, on_failure: Callable[[], None], clock: Callable[[], int]) -> None:
        self._clock = clock
        self._reader = SnapshotReader(settings)
        self._interval_s = settings.serve.refresh_interval_ms / 1000
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="refresh", daemon=True)
        self._snapshot = self._reader.read(self._clock())
        self.exposition = Exposition(self._snapshot, settings)
        """The newest snapshot's metrics."""
        self.failure: Exception | None = None
        """What ended the thread: a bug, as the snapshot shows everything that can be expected."""

    def start(self) -> None:
        """Begin to refresh."""
        self._thread.start()

    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._snapshot

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._snapshot = self._reader.read(self._clock())
                self.exposition.update(self._snapshot)
            except Exception as error:  # noqa: BLE001 - handed to the main thread, which ends the process with it
                self.failure = error
                self._on_failure()
                return
