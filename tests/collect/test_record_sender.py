"""Records on a fleet: all arrive as they were sent, those of a leader that hangs cost their number and one limit."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from streaming.cluster.clients import librdkafka_options
from streaming.cluster.record_sender import PythonSender, RecordSender
from streaming.errors import ClusterUnreachable
from streaming.settings import KafkaSettings
from tests.fleet import process
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet

TOPIC = "rebalancer.byte-rate"
TIMEOUT_MS = 2_000
HOPELESS_MS = 60_000

pytestmark = pytest.mark.long  # for the start of a fleet


@pytest.fixture(scope="module")
def fleet() -> Iterator[FleetProcess]:
    with FleetProcess(partial(synthetic_fleet, FleetSize(4, 4, 0), (TOPIC,))) as started:
        yield started


def settings_of(fleet: FleetProcess, timeout_ms: int = 30_000) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=fleet.bootstrap_servers, request_timeout_ms=timeout_ms)


def kept(fleet: Fleet) -> list[bytes]:
    values, fleet.kept[TOPIC] = fleet.kept[TOPIC], []
    return values


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(str(number % 7).encode(), json.dumps({"number": number}).encode()) for number in range(count)]


@contextmanager
def broker_2_hangs(fleet: FleetProcess, sender: RecordSender | PythonSender) -> Iterator[None]:
    """A leader does not answer; `sender` has sent records to every leader before."""
    sender.send(TOPIC, records(100))
    assert sender.flush() == 0
    fleet.run(kept)
    fleet.run(process.freeze_broker, 2)
    try:
        yield
    finally:
        fleet.run(process.resume_broker, 2)


@pytest.mark.parametrize("kind", [RecordSender, PythonSender])
def test_every_record_arrives_once_and_those_of_a_key_in_order(
    fleet: FleetProcess, kind: type[RecordSender | PythonSender]
) -> None:
    sender, sent = kind(settings_of(fleet)), records(5_000)
    assert sender.send(TOPIC, sent) == len(sent)
    assert sender.flush() == 0
    sender.close()
    arrived = [json.loads(value)["number"] for value in fleet.run(kept)]
    assert sorted(arrived) == list(range(5_000))
    for key in range(7):
        assert [number for number in arrived if number % 7 == key] == list(range(key, 5_000, 7))


@pytest.mark.parametrize("kind", [RecordSender, PythonSender])
def test_records_of_a_leader_that_hangs_are_counted_and_hold_up_no_others(
    fleet: FleetProcess, kind: type[RecordSender | PythonSender]
) -> None:
    sender, sent = kind(settings_of(fleet, TIMEOUT_MS)), records(5_000)
    with broker_2_hangs(fleet, sender):
        sender.send(TOPIC, sent)
        lost = sender.flush()
        assert len(fleet.run(kept)) == len(sent) - lost
        assert 0 < lost < len(sent)
    sender.close()


def test_records_for_a_broker_that_hangs_are_given_up_before_their_time_and_later_ones_arrive(
    fleet: FleetProcess,
) -> None:
    sender, sent = RecordSender(settings_of(fleet, HOPELESS_MS)), records(5_000)
    with broker_2_hangs(fleet, sender):
        sender.send(TOPIC, sent)
        began_s = time.monotonic()
        lost = sender.flush(broker_hangs=True)
        assert time.monotonic() - began_s < HOPELESS_MS / 1000, "it did not wait until their time was over"
        assert len(fleet.run(kept)) == len(sent) - lost
        assert 0 < lost < len(sent)
    fleet.run(kept)
    sender.send(TOPIC, sent)
    assert sender.flush() == 0
    sender.close()
    # What was given up may have been on its way.
    assert {json.loads(value)["number"] for value in fleet.run(kept)} == set(range(5_000))


def test_settings_that_librdkafka_refuses_are_one_error_without_their_values(fleet: FleetProcess) -> None:
    settings = settings_of(fleet).model_copy(update={"request_timeout_ms": 2**31})
    with pytest.raises(ClusterUnreachable, match=r"librdkafka refuses the settings of the connection \(_INVALID_ARG\)"):
        RecordSender(settings)


def test_the_connection_is_secured_as_the_settings_ask() -> None:
    settings = KafkaSettings.model_validate({
        "bootstrap_servers": ["a:1", "b:2"], "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "app", "sasl_password": "hunter2", "ssl_ca_file": "/ca", "ssl_certificate_file": "/crt",
        "ssl_key_file": "/key",
    })  # fmt: skip
    assert librdkafka_options(settings) == {
        "bootstrap.servers": "a:1,b:2", "client.id": "kafka-load-rebalancer", "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "app", "sasl.password": "hunter2",
        "ssl.ca.location": "/ca", "ssl.certificate.location": "/crt", "ssl.key.location": "/key",
    }  # fmt: skip
