"""Kafka's protocol below kafka-python's classes: requests whose answers stay bytes, and a reader of types.

Whoever sent a request decodes the answer, in its own thread. Requests and bytes are counted by broker. A request relies
on what kafka-python's connections call (3.0.12, `kafka/net/connection.py`, `kafka/protocol/parser.py`): a version, a
header, its bytes, and the class of its response.
"""

import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka.errors import KafkaProtocolError

Decoded = TypeVar("Decoded")
SIZE = struct.Struct(">i")
THROTTLE = struct.Struct(">i")
SEVERAL_BYTES = 0x80
"""From here on a length of flexible versions has more than one byte."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """The bytes of a response without its header; kafka-python reads how long the broker wants us to wait."""

    version: int
    body: bytes = field(repr=False)
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class WireTraffic:
    """Requests that one broker has answered, and bytes to it and from it."""

    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(slots=True)
class TrafficCounters:
    """Traffic by broker since the last `taken`. For many threads."""

    _counts: dict[int, WireTraffic] = field(default_factory=lambda: defaultdict(WireTraffic))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, broker: int, sent_bytes: int, received_bytes: int) -> None:
        """One request that was answered."""
        with self._lock:
            was = self._counts[broker]
            self._counts[broker] = WireTraffic(
                was.requests + 1, was.sent_bytes + sent_bytes, was.received_bytes + received_bytes
            )

    def taken(self) -> Mapping[int, WireTraffic]:
        """What was counted; then it counts from 0 on."""
        with self._lock:
            counts, self._counts = self._counts, defaultdict(WireTraffic)
        return counts


class RawRequest:
    """A request of kafka-python as its connection sends it; `body` makes its bytes in place of kafka-python."""

    def __init__(self, request: Any, body: Callable[[int], bytes] | None = None) -> None:
        self.request = request
        self.header: _Header | None = None
        self.sent_bytes = 0
        self._body = body

    def __getattr__(self, name: str) -> Any:
        """Returns attributes of kafka-python's request: its key, and the versions that its maker allows."""
        return getattr(self.request, name)

    @property
    def API_VERSION(self) -> int | None:  # noqa: N802  # kafka-python's name
        """Version of the request; None until the connection has chosen one."""
        version: int | None = self.request.API_VERSION
        return version

    @API_VERSION.setter
    def API_VERSION(self, version: int) -> None:  # noqa: N802
        self.request.API_VERSION = version

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Called before it is encoded."""
        self.request.with_header(correlation_id=correlation_id, client_id=client_id)
        self.header = _Header(correlation_id, self)

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """The bytes on the wire."""
        if self._body is None:
            frame = bytes(self.request.encode(framed=framed, header=header))
        else:
            version = self.request.API_VERSION
            head = self.request.encode_header(flexible=self.request.flexible_version_q(version))
            payload = head + self._body(version)
            frame = SIZE.pack(len(payload)) + payload
        self.sent_bytes = len(frame)
        return frame

    def parse_header(self, buffer: Any) -> Any:
        """The response's header, as kafka-python's class of it reads it."""
        return self._response_class().parse_header(buffer)

    def decode(self, buffer: Any) -> RawAnswer:
        """The rest of the response, as it is."""
        body, version = buffer.read(), self.request.API_VERSION
        first = self._response_class().json["fields"][0]
        is_first = first["name"] == "ThrottleTimeMs" and version >= int(first["versions"].partition("+")[0])
        return RawAnswer(version, body, THROTTLE.unpack_from(body)[0] if is_first else 0)

    def decoded(self, answer: RawAnswer) -> Any:
        """The answer as kafka-python has it."""
        return self._response_class().decode(answer.body)

    def _response_class(self) -> Any:
        return self.request.header.get_response_class()


@dataclass(frozen=True, slots=True)
class _Header:
    """What the connection keeps of a request until it is answered."""

    correlation_id: int
    request: RawRequest

    def get_response_class(self) -> RawRequest:
        """What decodes the response: only its two methods are used."""
        return self.request


def decoded(decode: "Callable[[Reader], Decoded]", body: bytes, *, flexible: bool) -> Decoded:
    """What `decode` makes of an answer; raises KafkaProtocolError where the answer ends too early."""
    try:
        return decode(Reader(body, flexible))
    except (IndexError, ValueError, struct.error) as error:
        raise KafkaProtocolError(f"an answer of {len(body)} bytes can't be read: {error}") from None


class Reader:
    """Kafka's types from a place in an answer on; raises IndexError, ValueError or struct.error behind its end."""

    def __init__(self, body: bytes, flexible: bool) -> None:
        self.body = body
        self.flexible = flexible
        self.place = 0

    def skip(self, size: int) -> None:
        """Leave out so many bytes; `size` may itself be read."""
        self.place += size

    def int16(self) -> int:
        """Two bytes."""
        value: int = struct.unpack_from(">h", self.body, self.place)[0]
        self.place += 2
        return value

    def int32(self) -> int:
        """Four bytes."""
        value: int = struct.unpack_from(">i", self.body, self.place)[0]
        self.place += 4
        return value

    def int64(self) -> int:
        """Eight bytes."""
        value: int = struct.unpack_from(">q", self.body, self.place)[0]
        self.place += 8
        return value

    def length(self) -> int:
        """Number of elements, or of bytes; 0 for null. Bounded by the answer: each element has a byte at least."""
        count = self.varint() - 1 if self.flexible else self.int32()
        if count > len(self.body) - self.place:
            raise ValueError(f"{count} elements announced, {len(self.body) - self.place} bytes left")
        return max(0, count)

    def text(self) -> str:
        """A text; "" for null."""
        return self.text_bytes().decode()

    def tags(self) -> None:
        """Leave out tagged fields; versions that are not flexible have none."""
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.skip(self.varint())

    def text_bytes(self) -> bytes:
        """A text as it stands; empty for null."""
        return self.taken(max(0, self.varint() - 1 if self.flexible else self.int16()))

    def taken(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        taken = self.body[self.place : self.place + size]
        if len(taken) < size:
            raise IndexError("the answer ends too early")
        self.place += size
        return taken

    def varint(self) -> int:
        """An unsigned number of seven bits a byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.body[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            if byte < SEVERAL_BYTES:
                return value
            shift += 7
