"""Our admin client's own requests, on kafka-python's code with nothing but the wire replaced."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaProtocolError,
    NotControllerError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeConfigsResponse, DescribeLogDirsRequest, ListGroupsRequest
from kafka.protocol.admin.cluster import DescribeLogDirsResponse

from assignor_core.disks import FutureReplica, LogDirDescription
from assignor_core.throttles import LEADER_RATE, LEADER_REPLICAS
from streaming.cluster import kafka_python_patches
from streaming.cluster.admin import Cluster, log_dir_of
from streaming.cluster.kafka_python_patches import PatchedAdminClient, SharingManager
from streaming.cluster.wire import RawAnswer
from streaming.errors import ClusterRequestFailed, ClusterUnreachable

TOPIC, BROKER = 2, 4
SET_ON_ITSELF = {TOPIC: 1, BROKER: 2}
"""Kafka's source of a setting that is set on the resource itself, by kind of resource."""


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
    made = cast(Any, object.__new__(PatchedAdminClient))
    made._manager, made._controller_id, made.config = wire, 1, {"request_timeout_ms": 7_000}
    return made


def test_all_brokers_are_asked_for_their_log_dirs_and_one_without_an_answer_costs_only_its_own() -> None:
    class Hanging(Wire):
        async def send(self, request: Any, node_id: int | None = None) -> Any:
            answer = await super().send(request, node_id)
            if node_id == 2:
                raise RequestTimedOutError
            return answer

    result = DescribeLogDirsResponse.DescribeLogDirsResult
    replicas = [("t", [(0, 30, 0, False), (1, 20, 4, True)])]
    shown_of_all = [result(error_code=0, log_dir="/d", topics=replicas, total_bytes=9, usable_bytes=5)]
    body = bytes(DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=shown_of_all).encode(version=4))
    bodies: list[bytes] = []

    def answer(request: Any) -> RawAnswer:
        request.with_header(correlation_id=1, client_id="c")
        request.API_VERSION = 4
        bodies.append(request.encode(framed=True, header=True))
        # What broker 3 answers is torn off.
        return RawAnswer(4, body[:-9] if len(bodies) == 3 else body)

    wire = Hanging(answer)
    shown, errors = client(wire).log_dirs_by_broker([1, 2, 3, 4], [("t", 0), ("t", 1)])
    future = {("t", 1): FutureReplica(20, 4)}
    expected = LogDirDescription("/d", 9, 5, {("t", 0): 30}, is_cordoned=None, future_replicas=future)
    assert {broker: [log_dir_of(row) for row in rows] for broker, rows in shown.items()} == {
        1: [expected],
        4: [expected],
    }
    assert {broker: type(error) for broker, error in errors.items()} == {2: RequestTimedOutError, 3: KafkaProtocolError}
    assert wire.sent == [("RawRequest", broker) for broker in (1, 2, 3, 4)]
    assert wire.limits_ms == [7_000] * 4
    asked = DescribeLogDirsRequest(topics=[("t", [0, 1])])
    asked.with_header(correlation_id=1, client_id="c")
    assert bodies == [bytes(asked.encode(version=4, framed=True, header=True))] * 4


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.ask_broker(3, ListGroupsRequest()),
        lambda admin: admin.list_groups(broker_ids=[3]),
        lambda admin: _raised(admin.log_dirs_by_broker([3])[1][3]),
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


@pytest.mark.parametrize(
    "read",
    [
        lambda admin: admin.describe_cluster(),
        lambda admin: admin.describe_topics(["t"]),
        lambda admin: admin.client_id_quotas(),
        lambda admin: admin.live_topics([]),
    ],
    ids=["cluster", "topics", "quotas", "live topics"],
)
@pytest.mark.parametrize("error", [KafkaConnectionError("111 ECONNREFUSED"), RequestTimedOutError("connecting")])
def test_what_any_broker_can_tell_is_asked_of_the_next_one_where_the_first_has_just_gone_or_lets_nobody_connect(
    read: Callable[[Any], Any], error: Exception
) -> None:
    class Answered(Exception):
        """Of the third broker."""

    def answer(_request: Any) -> Any:
        if len(wire.sent) < 3:
            raise error
        raise Answered

    wire = Wire(answer)
    with pytest.raises(Answered):
        read(client(wire))

    def nobody(_request: Any) -> Any:
        raise error

    wire = Wire(nobody)
    with pytest.raises(type(error)):
        read(client(wire))
    assert len(wire.sent) == 3


def test_an_answer_that_is_waited_for_in_vain_all_the_time_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter((0.0, 7.0))
    monkeypatch.setattr(kafka_python_patches, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    wire = Wire(lambda _request: _raised(RequestTimedOutError()))
    with pytest.raises(RequestTimedOutError):
        client(wire).describe_cluster()
    assert len(wire.sent) == 1


def _raised(error: Exception) -> None:
    raise error


def test_a_controller_that_can_not_be_found_is_an_error_of_kafkas_and_looked_for_again() -> None:
    wire = Wire(lambda _request: SimpleNamespace(controller_id=2))
    made = client(wire)
    with pytest.raises(NotControllerError, match="Failed to find active controller"):
        wire.run(made._send_request_to_controller, object(), lambda _response: [NotControllerError])
    assert made._controller_id is None


Shown = tuple[int, int, str, dict[str, str]]
"""What is shown of one resource: error code, kind, name, and its own settings."""


def settings_shown(*results: Shown) -> Callable[[Any], Any]:
    """The answer to a request for settings."""
    rows: list[Any] = []
    for code, kind, name, settings in results:
        own: list[Any] = [
            (key, value, False, SET_ON_ITSELF[kind], False, [], 2, None) for key, value in settings.items()
        ]
        rows.append((code, None if code == 0 else "not allowed", kind, name, own))
    body = bytes(DescribeConfigsResponse(throttle_time_ms=0, results=rows).encode(version=4))
    return lambda _request: DescribeConfigsResponse.decode(body, version=4)


def shown_by(answer: Callable[[Any], Any]) -> Cluster:
    made = client(Wire(answer))
    made.describe_cluster = lambda: {"cluster_id": "c", "brokers": [{"broker_id": 1, "rack": None}]}
    return Cluster(made)


def test_settings_that_a_broker_refuses_to_show_do_not_pass_for_settings_that_nobody_has_set() -> None:
    """Else a rate that others have set would be taken for none, replaced, and removed at the end."""
    refused = shown_by(settings_shown((ClusterAuthorizationFailedError.errno, BROKER, "1", {})))
    for read in (refused.throttle_rates, refused.log_dir_rates):
        with pytest.raises(ClusterRequestFailed, match=r"ClusterAuthorizationFailedError.*rebalancer check") as caught:
            read()
        assert caught.value.kafka_error == "ClusterAuthorizationFailedError"
    late = shown_by(settings_shown((RequestTimedOutError.errno, BROKER, "1", {})))
    with pytest.raises(ClusterUnreachable, match="RequestTimedOutError"):
        late.throttle_rates()
    shown = shown_by(settings_shown((0, BROKER, "1", {LEADER_RATE: "5"})))
    assert shown.throttle_rates() == {1: {LEADER_RATE: 5}}


def test_of_topics_one_that_is_gone_has_no_settings_and_one_that_is_refused_is_an_error() -> None:
    there: Shown = (0, TOPIC, "t", {LEADER_REPLICAS: "0:1"})
    gone: Shown = (UnknownTopicOrPartitionError.errno, TOPIC, "gone", {})
    cluster = shown_by(settings_shown(there, gone))
    assert cluster.throttled_replicas(["t", "gone"]) == {("t", LEADER_REPLICAS): "0:1"}
    refused: Shown = (TopicAuthorizationFailedError.errno, TOPIC, "secret", {})
    with pytest.raises(ClusterRequestFailed, match="TopicAuthorizationFailedError"):
        shown_by(settings_shown(there, refused)).throttled_replicas(["t", "secret"])


def test_every_private_method_that_is_overridden_exists_upstream() -> None:
    own = {name for name, value in vars(PatchedAdminClient).items() if callable(value) and name.startswith("_")}
    added = {
        "__init__",
        "_async_ask_broker",
        "_async_first_answer",
        "_async_leader_offsets",
        "_async_ask_each",
        "_async_read",
        "_async_send",
        "_of_any_broker",
        "_sent",
    }
    overridden = own - added - {"_refreshing_brokers"}
    assert len(overridden) == 9
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
