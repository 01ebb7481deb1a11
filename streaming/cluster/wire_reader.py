"""Reads the types of Kafka's protocol out of an answer, one after the other. Knows no request."""

import struct
from collections.abc import Callable
from typing import TypeVar

from kafka.errors import KafkaProtocolError

Decoded = TypeVar("Decoded")


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
            if byte < 0x80:
                return value
            shift += 7
