"""Restart checks for requests that read: one look at the cluster at a time, and each is used for some seconds."""

from collections.abc import Callable

from assignor_core.restart import RestartCheck
from streaming.errors import RebalancerError, UsageProblem
from streaming.serve.api.problems import Problem
from streaming.serve.api.requests import TRY_AGAIN, Turns

AGE_MAX_MS = 5_000
KNOWN_MAX = 100
"""Brokers whose newest check is kept."""


class RestartChecks:
    """Runs and stores checks of brokers. `look` connects to Kafka; `clock` returns ms since 1970."""

    def __init__(self, look: Callable[[int], RestartCheck], clock: Callable[[], int]) -> None:
        self._look = look
        self._clock = clock
        self._turns = Turns("look")
        self._known: dict[int, tuple[int, RestartCheck]] = {}

    def of(self, broker: int) -> RestartCheck:
        """The check of this broker, at most `AGE_MAX_MS` old. Raises Problem."""
        with self._turns.place(), self._turns.turn():
            looked_ms, check = self._known.get(broker, (0, None))
            if check is not None and 0 <= self._clock() - looked_ms < AGE_MAX_MS:
                return check
            now_ms = self._clock()
            try:
                check = self._look(broker)
            except UsageProblem as error:
                raise Problem(404, str(error)) from None
            except RebalancerError as error:
                raise Problem(503, str(error), headers=TRY_AGAIN) from None
            self._known.pop(broker, None)
            self._known[broker] = (now_ms, check)
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
            return check
