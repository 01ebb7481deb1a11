"""What requests read from: a cluster's newest snapshot, its tables, and checks whether a broker may be restarted.

One request at a time reads tables, and one restart check at a time reads the cluster; a check is used for some seconds.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from assignor_core.restart import RestartCheck
from streaming.errors import RebalancerError, UsageProblem
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.requests import TRY_AGAIN, Turns
from streaming.serve.snapshot import Snapshot
from streaming.settings import Settings
from streaming.tables import TableReader

TURN_S = 10.0
"""How long a request waits for its turn."""
QUEUE_MAX = 16
"""Requests that wait for their turn; each holds a thread of the process."""
AGE_MAX_MS = 5_000
KNOWN_MAX = 100
"""Brokers whose newest check is kept."""


class RestartChecks:
    """Runs and stores checks of brokers. `check` connects to Kafka; `clock` returns ms since 1970."""

    def __init__(self, check: Callable[[int], RestartCheck], clock: Callable[[], int]) -> None:
        self._check = check
        self._clock = clock
        self._turns = Turns("restart check")
        self._known: dict[int, tuple[int, RestartCheck]] = {}

    def of(self, broker: int) -> RestartCheck:
        """The check of this broker, at most `AGE_MAX_MS` old. Raises ApiProblem."""
        with self._turns.place(), self._turns.turn():
            checked_ms, check = self._known.get(broker, (0, None))
            if check is not None and 0 <= self._clock() - checked_ms < AGE_MAX_MS:
                return check
            now_ms = self._clock()
            try:
                check = self._check(broker)
            except UsageProblem as error:
                raise ApiProblem(404, str(error)) from None
            except RebalancerError as error:
                raise ApiProblem(503, str(error), headers=TRY_AGAIN) from None
            self._known.pop(broker, None)
            self._known[broker] = (now_ms, check)
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
            return check


class ReadSources:
    """The newest snapshot and the tables of one cluster; `clock` returns ms since 1970.

    One request reads tables at a time, so that serve needs the memory of one answer.

    `of_all` returns the newest snapshot of every cluster of the deployment; None if there is only this one. `restarts`
    is None for an application that shows all clusters.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        settings: Settings,
        clock: Callable[[], int],
        of_all: Callable[[], Sequence[Snapshot]] | None = None,
        restarts: RestartChecks | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.of_all = of_all or (lambda: (snapshot(),))
        self.settings = settings
        self.clock = clock
        self.restarts = restarts
        self._reader = TableReader(settings.storage.tables)
        self._turn = threading.Lock()
        self._queue = threading.BoundedSemaphore(QUEUE_MAX)

    def seen_by(self, may_see: Callable[[str], bool]) -> "ReadSources":
        """Returns a copy with `of_all` reduced to the clusters whose names pass `may_see`; turns are shared."""
        seen = copy.copy(self)
        seen.of_all = lambda: [snapshot for snapshot in self.of_all() if may_see(snapshot.kafka_cluster)]
        return seen

    @property
    def kafka_cluster(self) -> str:
        """Name of the cluster in the tables."""
        return self.settings.kafka.cluster_name

    @contextmanager
    def tables(self) -> Iterator[TableReader]:
        """Tables in their newest versions; raises ApiProblem where too many requests wait."""
        busy = ApiProblem(
            503, "too many requests read the tables at this moment: try again in 5 s", headers={"Retry-After": "5"}
        )
        if not self._queue.acquire(blocking=False):
            raise busy
        try:
            if not self._turn.acquire(timeout=TURN_S):
                raise busy
            try:
                self._reader.look_again()
                self._reader.check_folder()
                yield self._reader
            finally:
                self._turn.release()
        finally:
            self._queue.release()
