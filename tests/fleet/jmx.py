"""The JMX page of each broker over HTTP, as jmx_exporter gives it with the rules of `deploy/jmx/kafka-broker.yaml`."""

import asyncio
from collections.abc import Iterator
from typing import cast

from streaming.contract.rates import RATES
from tests.fleet.fleet import HOST, Fleet

METERS = {rate.stem: rate.meter.lower() for rate in RATES}
PREFIX = "kafka_server_brokertopicmetrics_"
PRODUCE_P99_MS = 5.0
HEAD_END = b"\r\n\r\n"
HEAD_BYTES_MAX = 65_536


def page(fleet: Fleet, broker_id: int) -> str:
    """Meters of one broker; one that has counted nothing, as nobody reads a topic, is left out as by Kafka."""
    return "".join(_lines(fleet, broker_id))


def _lines(fleet: Fleet, broker_id: int) -> Iterator[str]:
    counters = fleet.counted()
    totals, topics = counters.totals.get(broker_id, {}), counters.topics.get(broker_id, {})
    yield (
        "# HELP kafka_network_requestmetrics_totaltimems_p99 Attribute exposed for management\n"
        "# TYPE kafka_network_requestmetrics_totaltimems_p99 gauge\n"
        f'kafka_network_requestmetrics_totaltimems_p99{{request="Produce"}} {PRODUCE_P99_MS}\n'
    )
    for stem, meter in METERS.items():
        name = f"{PREFIX}{meter}_total"
        yield f"# HELP {name} Attribute exposed for management\n# TYPE {name} counter\n{name} {totals.get(stem, 0.0)}\n"
        for topic, counts in topics.items():
            if counts.get(stem):
                yield f'{name}{{topic="{topic}"}} {counts[stem]}\n'
    name = "kafka_server_replicamanager_underreplicatedpartitions"
    yield f"# TYPE {name} gauge\n{name} {_under_replicated(fleet, broker_id)}.0\n"


def _under_replicated(fleet: Fleet, broker_id: int) -> int:
    led = (row for rows in fleet.held_by(broker_id).values() for _, row in rows if row.leader == broker_id)
    return sum(len(row.isr) < len(row.replicas) for row in led)


async def listen(fleet: Fleet, broker_id: int) -> asyncio.Server:
    """Serve the page on a free port of loopback until the server is closed."""
    return await asyncio.get_running_loop().create_server(lambda: _Request(fleet, broker_id), HOST, 0)


class _Request(asyncio.Protocol):
    """A connection: each request is answered with the page, whatever it asks for."""

    def __init__(self, fleet: Fleet, broker_id: int) -> None:
        self._fleet = fleet
        self._broker_id = broker_id
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's name
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        while HEAD_END in self._received:
            del self._received[: self._received.index(HEAD_END) + len(HEAD_END)]
            self._answer()
        if len(self._received) > HEAD_BYTES_MAX and self._transport is not None:
            self._transport.abort()

    def _answer(self) -> None:
        broker = self._fleet.contents.brokers[self._broker_id]
        if not broker.running:
            if not broker.frozen and self._transport is not None:
                self._transport.abort()
            return
        self._fleet.requests["JMX"] += 1
        asyncio.get_running_loop().call_later(self._fleet.faults.delay_s.get(self._broker_id, 0.0), self._send)

    def _send(self) -> None:
        body = page(self._fleet, self._broker_id).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
        if self._transport is not None:
            self._transport.write(head.encode() + body)
