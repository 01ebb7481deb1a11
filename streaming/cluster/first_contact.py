"""The first contact to a cluster of which a broker hangs: one time limit in all, and the others are reached.

kafka-python 3.0.12 takes one bootstrap server at random and waits for it until the whole time is over; for its first
request it takes any broker at random (`kafka/net/manager.py`, `kafka/net/compat.py`).
"""

import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from kafka.errors import KafkaError, KafkaTimeoutError, NodeNotReadyError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

ASKED_AT_FIRST = 3
"""Most brokers that are tried: the next one once the broker before has used its share of the time or has failed."""
PATIENCE_S = 1.0
"""How long the first contact is tried again while every bootstrap server fails at once, and none hangs. The pauses
between attempts double, so that it ends within 2 s.
"""


class NoFirstContact(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """Every bootstrap server has failed, and none by its time limit."""


class SharingManager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Each bootstrap server gets its share of the time, and all are tried before one is tried again."""

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self._tried: set[str] = set()
        self._began_s = time.monotonic()
        for name in ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"):
            self.config[name] = min(self.config[name], self.config["request_timeout_ms"])

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
        """The connection, made as kafka-python makes it; raises NodeNotReadyError for a bootstrap server whose turn is
        over, NoFirstContact where all have failed and the client has reached no broker yet.
        """
        if self.cluster.is_bootstrap(node_id) and timeout_ms is not None:
            servers = {server.node_id for server in self.cluster.bootstrap_brokers()}
            self._check_hope(servers)
            if self._tried >= servers:
                self._tried = set()
            if node_id in self._tried:
                raise NodeNotReadyError(node_id)
            self._tried.add(node_id)
            timeout_ms = min(timeout_ms, self.config["request_timeout_ms"] / len(servers))
        return super().get_connection(node_id, timeout_ms=timeout_ms, **options)

    def _check_hope(self, servers: set[str]) -> None:
        """3.0.12 tries until the whole time is over. A client that has reached its cluster once does wait for it."""
        is_first = not self.cluster.brokers()
        if is_first and self._backoff.keys() >= servers and time.monotonic() - self._began_s >= PATIENCE_S:
            raise NoFirstContact

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        """Only until the pause after it is over: 3.0.12 never connects again to a broker that has refused a login,
        though the next token, or the broker's next look at its keys, may make it good.
        """
        if self.connection_delay(node_id) > 0:
            super().maybe_raise_auth_failure(node_id)


class SharingNetClient(KafkaNetClient):  # type: ignore[misc]
    """What kafka-python's clients take as `kafka_client`."""

    def __init__(self, **configs: Any) -> None:
        net = NetworkSelector(**configs)
        super().__init__(net=net, manager=SharingManager(net, **configs))


async def first_answer(
    manager: Any, brokers: Iterable[int], ask: Callable[[int], Awaitable[Any]], limit_ms: float
) -> Any:
    """What the first of a few brokers, drawn at random, answers. Raises the last error if none does.

    Where all is well one broker is asked. Requests to any broker then go on to that one: what a client reads is not of
    one broker now and of another, which hears of changes later, the next time.
    """
    drawn = list(brokers)
    random.shuffle(drawn)
    asked = drawn[:ASKED_AT_FIRST]
    if not asked:
        raise NodeNotReadyError("no broker is known")
    first, errors, left = Future(), list[BaseException](), iter(asked)

    def ask_next() -> None:
        broker = None if first.is_done else next(left, None)
        if broker is not None:
            answer = manager.call_soon(ask, broker)
            answer.add_callback(answered)
            answer.add_errback(failed)

    def answered(answer: Any) -> None:
        if not first.is_done:
            first.success(answer)

    def failed(error: BaseException) -> None:
        errors.append(error)
        if len(errors) < len(asked):
            ask_next()
        elif not first.is_done:
            first.failure(error)

    for _ in asked[:-1]:
        ask_next()
        with suppress(KafkaTimeoutError):
            return await manager.wait_for(first, limit_ms / len(asked))
    ask_next()
    return await manager.wait_for(first, limit_ms / len(asked))
