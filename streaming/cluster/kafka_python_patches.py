"""kafka-python's admin client with its faults patched: the only module that overrides its private methods.

Each override names the reason. All were seen in kafka-python 3.0.12 (`kafka/admin/`, `kafka/net/manager.py`,
`kafka/net/compat.py`). After an upgrade, check them one by one and remove those that upstream has made needless;
tests/collect/test_admin_client.py fails where a method was renamed.
"""

import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotControllerError,
    RequestTimedOutError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest, DescribeLogDirsRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.cluster.answer_columns import LogDirRows, decode_log_dirs
from streaming.cluster.answers import raise_error
from streaming.cluster.metadata import VERSION_MAX, VERSION_MIN, LiveMetadata, LiveTopic
from streaming.cluster.wire import RawAnswer, RawRequest, TrafficCounters

ASKED_AT_FIRST = 3
"""Most brokers that are tried: the next one once the broker before has used its share of the time or has failed."""
PATIENCE_S = 1.0
"""How long the first contact is tried again while every bootstrap server fails at once, and none hangs. The pauses
between attempts double, so that it ends within 2 s.
"""
CLIENT_ID = "client-id"
ANY_NAME = 2
"""Kafka's match type of quotas: every name, but not the default."""


class NoFirstContact(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """Every bootstrap server has failed, and none by its time limit."""


class SharingManager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Each bootstrap server gets its share of the time, and all are tried before one is tried again.

    3.0.12 takes one bootstrap server at random and waits for it until the whole time is over.
    """

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


class PatchedAdminClient(KafkaAdminClient):  # type: ignore[misc]  # kafka-python has no types
    """An admin client that doesn't keep what has changed: the controller, the brokers, the coordinators of groups.

    One bootstrap server or broker that hangs does not keep it from the others: see `SharingManager`, `first_answer`.
    """

    def __init__(self, **configs: Any) -> None:
        super().__init__(**{"kafka_client": SharingNetClient, **configs})

    def connect_to_any(self) -> None:
        """Wait until a broker has answered: requests to any broker go to one that is connected. Raises KafkaError."""
        self._manager.run(self._async_first_answer)

    def log_dirs_by_broker(
        self, brokers: Iterable[int], partitions: Iterable[tuple[str, int]] | None = None
    ) -> tuple[dict[int, list[LogDirRows]], dict[int, Exception]]:
        """(Log dirs, errors) by broker, with those of `partitions` that each broker holds, or with all.

        All brokers are asked at once, so those that hang cost one `request_timeout_ms` together. In 3.0.12 one broker
        is asked after the other, and the first that doesn't answer ends it. A broker that refuses shows no log dirs.
        """
        wanted: dict[str, list[int]] | None = None
        if partitions is not None:
            wanted = defaultdict(list)
            for topic, partition in partitions:
                wanted[topic].append(partition)
        topics = None if wanted is None else list(wanted.items())

        @cache  # all brokers are asked about the same partitions
        def body(version: int) -> bytes:
            return bytes(DescribeLogDirsRequest(topics=topics).encode(version=version))

        requests = {broker: RawRequest(DescribeLogDirsRequest(topics=topics), body) for broker in brokers}
        answers: dict[int, RawAnswer]
        answers, errors = self._manager.run(self._async_ask_each, requests)
        shown = {}
        for broker, answer in answers.items():
            try:
                _, shown[broker] = decode_log_dirs(answer.version, answer.body)
            except KafkaProtocolError as error:
                errors[broker] = error
        return shown, errors

    def live_topics(self, topics: Iterable[str] | None = None) -> list[LiveTopic]:
        """Returns `topics` (all if None) as one broker shows them, in place of `describe_topics`; raises KafkaError.

        Asked about by name, a topic that is not there or not shown has an error code. In 3.0.12 each partition becomes
        an object, and then a dict.
        """
        row_of = MetadataRequest.MetadataRequestTopic
        rows = None if topics is None else [row_of(name=name) for name in topics]
        request = MetadataRequest(
            topics=rows, allow_auto_topic_creation=False, min_version=VERSION_MIN, max_version=VERSION_MAX
        )
        answer: RawAnswer = self._manager.run(self._async_read, RawRequest(request))
        return self._live_metadata.decode(answer.version, answer.body, whole=topics is None)

    def client_id_quotas(self) -> dict[str, dict[str, float]]:
        """Quotas of client ids alone, by id and name: 3.0.12 has no method for these requests. Raises KafkaError."""
        component = DescribeClientQuotasRequest.ComponentData(entity_type=CLIENT_ID, match_type=ANY_NAME, match=None)
        response = self._manager.run(self._async_read, DescribeClientQuotasRequest([component], strict=True))
        raise_error(response)
        return {
            row.entity[0].entity_name: {quota.key: quota.value for quota in row.values}
            for row in response.entries or ()
            if row.entity[0].entity_name is not None
        }

    def alter_client_id_quotas(self, changes: Mapping[str, Mapping[str, float | None]]) -> None:
        """Set quotas of client ids, or remove (None) them; raises KafkaError."""
        entry = AlterClientQuotasRequest.EntryData
        entries = [
            entry(
                entity=[entry.EntityData(entity_type=CLIENT_ID, entity_name=name)],
                ops=[
                    entry.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in sorted(quotas.items())
                ],
            )
            for name, quotas in changes.items()
        ]
        response = self._manager.run(self._async_send, AlterClientQuotasRequest(entries, validate_only=False))
        for row in response.entries:
            raise_error(row)

    def ask_broker(self, broker: int, request: Any) -> Any:
        """One broker's response to a request that 3.0.12 has no method for; raises KafkaError."""
        raw = RawRequest(request)
        return raw.decoded(self.ask_raw(broker, raw))

    def ask_raw(self, broker: int, request: RawRequest) -> RawAnswer:
        """The bytes of one broker's response, counted in `traffic`; raises KafkaError.

        The client's own limit does not count the time until a connection stands, which doubles with each failure.
        """
        answer: RawAnswer = self._manager.run(self._async_ask_broker, broker, request)
        self.traffic.note(broker, request.sent_bytes, len(answer.body))
        return answer

    @cached_property
    def traffic(self) -> TrafficCounters:
        """What `ask_broker` and `ask_raw` have sent and received."""
        return TrafficCounters()

    @cached_property
    def _live_metadata(self) -> LiveMetadata:
        return LiveMetadata()

    def broker_ids(self) -> list[int]:
        """Brokers that the client knows."""
        return [broker.node_id for broker in self._manager.cluster.brokers()]

    def addresses(self) -> list[str]:
        """host:port of each broker that the client knows, as the brokers advertise it."""
        return [f"{broker.host}:{broker.port}" for broker in self._manager.cluster.brokers()]

    async def _async_first_answer(self) -> None:
        def ask(broker: int) -> Awaitable[Any]:
            return self._sent(MetadataRequest(topics=[], allow_auto_topic_creation=False), broker)

        await first_answer(self._manager, self.broker_ids(), ask, self.config["request_timeout_ms"])

    async def _async_ask_broker(self, broker: int, request: Any) -> Any:
        answer = self._manager.call_soon(self._sent, request, broker)
        limited = self._manager.wait_for(answer, self.config["request_timeout_ms"])
        return await self._refreshing_brokers(limited)

    async def _async_ask_each(
        self, requests: Mapping[int, RawRequest]
    ) -> tuple[dict[int, RawAnswer], dict[int, Exception]]:
        asked = {
            broker: self._manager.call_soon(self._async_ask_broker, broker, request)
            for broker, request in requests.items()
        }
        answers: dict[int, RawAnswer] = {}
        errors: dict[int, Exception] = {}
        for broker, answer in asked.items():
            try:
                answers[broker] = await answer
            except (KafkaError, OSError) as error:
                errors[broker] = error
        return answers, errors

    async def _async_send(self, request: Any) -> Any:
        return await self._manager.send(request)

    async def _async_read(self, request: Any) -> Any:
        return await self._of_any_broker(partial(self._async_send, request))

    async def _describe_cluster(self) -> Any:
        return await self._of_any_broker(super()._describe_cluster)

    async def _get_cluster_metadata(self, topics: Any) -> Any:
        return await self._of_any_broker(partial(super()._get_cluster_metadata, topics))

    async def _of_any_broker(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """In 3.0.12 one broker is asked, which may be one that has just gone, or hangs before the connection is made.
        Then the next one is asked: what only reads may be repeated.
        """
        began_s, limit_s = time.monotonic(), self.config["request_timeout_ms"] / 1000
        for _ in range(ASKED_AT_FIRST - 1):
            try:
                return await read()
            except KafkaConnectionError:
                continue
            except RequestTimedOutError:
                # To wait for a connection takes a part of the time limit, to wait for an answer takes all of it.
                if time.monotonic() - began_s > limit_s / 2:
                    raise
        return await read()

    async def _sent(self, request: Any, broker: int) -> Any:
        return await self._manager.send(request, node_id=broker)

    async def _send_request_to_controller(self, *arguments: Any, **options: Any) -> Any:
        """In 3.0.12 a controller that can't be reached is asked again for ever: its id is kept.

        If the broker it asks next is no controller either, it raises RuntimeError, which is none of Kafka's errors.
        """
        try:
            return await self._refreshing_brokers(super()._send_request_to_controller(*arguments, **options))
        except (KafkaError, OSError):
            self._controller_id = None
            raise
        except RuntimeError as error:
            self._controller_id = None
            raise NotControllerError(str(error)) from error

    async def _find_coordinator_ids(self, *arguments: Any, **options: Any) -> Any:
        """In 3.0.12 coordinators of groups are kept for ever, though brokers hand groups over."""
        self._manager.cluster._coordinators.clear()
        return await super()._find_coordinator_ids(*arguments, **options)

    # In 3.0.12 `_manager.send` raises UnknownBrokerIdError without a request for metadata (see `_refreshing_brokers`).
    # The methods below send to a broker by its id, as the one above does.

    async def _send_alter_configs_requests(self, *arguments: Any, **options: Any) -> Any:
        return await self._refreshing_brokers(super()._send_alter_configs_requests(*arguments, **options))

    async def _async_describe_configs(self, *arguments: Any, **options: Any) -> Any:
        return await self._refreshing_brokers(super()._async_describe_configs(*arguments, **options))

    def _describe_configs_process_responses(self, responses: Iterable[Any], *arguments: Any, **options: Any) -> Any:
        """3.0.12 passes over the error of a resource; only a topic that is gone has no settings."""
        for result in (row for response in responses for row in response.results):
            if for_code(result.error_code) is not UnknownTopicOrPartitionError:
                raise_error(result)
        return super()._describe_configs_process_responses(responses, *arguments, **options)

    async def _async_list_groups(self, *arguments: Any, **options: Any) -> Any:
        return await self._refreshing_brokers(super()._async_list_groups(*arguments, **options))

    async def _async_alter_replica_log_dirs(self, *arguments: Any, **options: Any) -> Any:
        return await self._refreshing_brokers(super()._async_alter_replica_log_dirs(*arguments, **options))

    async def _refreshing_brokers(self, request: Awaitable[Any]) -> Any:
        """Ask for metadata if the broker is unknown: one that was away and is back would stay unknown for minutes."""
        try:
            return await request
        except UnknownBrokerIdError:
            self._manager.cluster.request_update()
            raise
