"""Restart checks for requests that read: one check at a time reads the cluster, and its result is used for some
seconds.
"""

from collections.abc import Callable

from assignor_core.restart import RestartCheck
from streaming.errors import RebalancerError, UsageProblem
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.requests import TRY_AGAIN, Turns

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
