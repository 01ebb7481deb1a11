"""Which brokers and consumer groups one of several collectors reports. Pure.

Each broker and each group belongs to one shard by its id alone. Collectors need not know of each other, and what joins
or leaves changes nothing for the others.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from streaming.collect.partition_table import Flags, Ints
from streaming.settings.fields import shard_numbers

DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number`, from 1 on, of `count`; the whole cluster is 1 of 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def of(cls, text: str) -> Self:
        """Returns the shard of a text as `collect.shard` has it: `2/3`."""
        return cls(*shard_numbers(text))

    @property
    def is_whole(self) -> bool:
        """Whether one collector reports everything."""
        return self.count == 1

    def takes_broker(self, broker: int) -> bool:
        """Whether a broker, with the replicas on it, is of this shard: by the remainder of its id.

        >>> [Shard(1, 3).takes_broker(broker) for broker in (1, 2, 3, 4)]
        [True, False, False, True]
        """
        return (broker - self.number) % self.count == 0

    def takes_brokers(self, brokers: Ints) -> Flags:
        """Returns whether each broker of a column is of this shard: by the remainder of its id."""
        taken: Flags = (brokers - self.number) % self.count == 0
        return taken

    def takes_group(self, name: str) -> bool:
        """Whether a consumer group is of this shard: by a digest of its id, whichever broker coordinates it."""
        if self.is_whole:
            return True
        digest = blake2b(name.encode(), digest_size=DIGEST_BYTES).digest()
        return int.from_bytes(digest, "big") % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


WHOLE = Shard()
