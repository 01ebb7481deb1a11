"""Our admin client's own requests, on kafka-python's code with nothing but the wire replaced."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient
from kafka.errors import NotControllerError, RequestTimedOutError, SaslAuthenticationFailedError, UnknownBrokerIdError
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import ListGroupsRequest

from streaming.cluster.first_contact import SharingManager
from streaming.cluster.kafka_python_mends import MendedAdminClient


class Wire:
    """kafka-python's connections: answers by `answer`, which may raise; `refreshed` counts requests for metadata."""

    broker_version = (4, 0)

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.cluster = SimpleNamespace(request_update=self._update)
        self.sent: list[Any] = []
        self.refreshed = 0
        self.limits_ms: list[float] = []

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        self.sent.append((type(request).__name__, node_id))
        return self._answer(request)

    def call_soon(self, coroutine: Callable[..., Any], *arguments: Any) -> Any:
        return asyncio.ensure_future(coroutine(*arguments))

    async def wait_for(self, future: Any, timeout_ms: float) -> Any:
        self.limits_ms.append(timeout_ms)
        return await future

    def run(self, coroutine: Callable[..., Any], *arguments: Any) -> Any:
        return asyncio.run(coroutine(*arguments))

    def _update(self) -> None:
        self.refreshed += 1


def client(wire: Wire) -> Any:
    made = cast(Any, object.__new__(MendedAdminClient))
    made._manager, made._controller_id, made.config = wire, 1, {"request_timeout_ms": 7_000}
    return made


def test_all_brokers_are_asked_for_their_log_dirs_and_one_without_an_answer_costs_only_its_own() -> None:
    class Hanging(Wire):
        async def send(self, request: Any, node_id: int | None = None) -> Any:
            answer = await super().send(request, node_id)
            if node_id == 2:
                raise RequestTimedOutError
            return answer

    wire = Hanging(lambda _request: SimpleNamespace(results=[SimpleNamespace(to_dict=lambda: {"log_dir": "/d"})]))
    shown, errors = client(wire).log_dirs_by_broker([1, 2, 3], [("t", 0), ("t", 1)])
    assert shown == {broker: [{"log_dir": "/d"}] for broker in (1, 3)}
    assert {broker: type(error) for broker, error in errors.items()} == {2: RequestTimedOutError}
    assert wire.sent == [("DescribeLogDirsRequest", broker) for broker in (1, 2, 3)]
    assert wire.limits_ms == [7_000] * 3


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.ask_broker(3, ListGroupsRequest()),
        lambda admin: admin.list_groups(broker_ids=[3]),
        lambda admin: admin._manager.run(admin._async_describe_log_dirs, None, [3]),
        lambda admin: admin.alter_replica_log_dirs({("t", 0, 3): "/d"}),
        lambda admin: admin._manager.run(admin._send_request_to_controller, ListGroupsRequest()),
    ],
    ids=["any request", "groups", "log dirs", "movements within a broker", "the controller"],
)
def test_a_broker_it_does_not_know_makes_it_ask_for_metadata(ask: Callable[[Any], Any]) -> None:
    def unknown(_request: Any) -> Any:
        raise UnknownBrokerIdError(3)

    wire = Wire(unknown)
    with pytest.raises(UnknownBrokerIdError):
        ask(client(wire))
    assert wire.refreshed == 1


def test_a_controller_that_can_not_be_found_is_an_error_of_kafkas_and_looked_for_again() -> None:
    wire = Wire(lambda _request: SimpleNamespace(controller_id=2))
    made = client(wire)
    with pytest.raises(NotControllerError, match="Failed to find active controller"):
        wire.run(made._send_request_to_controller, object(), lambda _response: [NotControllerError])
    assert made._controller_id is None


def test_every_private_method_that_is_overridden_exists_upstream() -> None:
    own = {name for name, value in vars(MendedAdminClient).items() if callable(value) and name.startswith("_")}
    added = {
        "__init__",
        "_async_ask_broker",
        "_async_first_answer",
        "_async_leader_offsets",
        "_async_log_dirs_by_broker",
        "_log_dirs_in_time",
        "_async_send",
        "_sent",
    }
    overridden = own - added - {"_refreshing_brokers"}
    assert len(overridden) == 7
    assert [name for name in sorted(overridden) if not hasattr(KafkaAdminClient, name)] == []


def test_a_broker_that_has_refused_a_login_is_asked_again_after_a_pause() -> None:
    settings = {"bootstrap_servers": ["127.0.0.1:1"], "reconnect_backoff_ms": 60_000, "client_id": "c"}
    manager = SharingManager(NetworkSelector(**settings), **settings)
    manager._auth_failures["bootstrap-0"] = SaslAuthenticationFailedError()
    manager.update_backoff("bootstrap-0")
    with pytest.raises(SaslAuthenticationFailedError):
        manager.maybe_raise_auth_failure("bootstrap-0")
    manager.reset_backoff("bootstrap-0")
    manager.maybe_raise_auth_failure("bootstrap-0")
    manager.close()
