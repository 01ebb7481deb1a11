"""The seam at which a simulation puts tables of its own in the place of Delta's; the product itself puts none there.

A simulation writes thousands of rows a second, which no file system takes. Its root begins with a word and a colon,
like `memory:NAME`, for which it has registered a stand-in. The stand-in and Delta's tables are held to the same
behaviours by one suite of tests (tests/tables/test_stores.py).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from streaming.tables.conditions import Condition
from streaming.tables.times import AtTime

if TYPE_CHECKING:
    from streaming.tables.reader import TableReader


class StandIn(Protocol):
    """What `streaming.tables.store` and `TableReader` do on roots of one kind; arguments and errors are theirs."""

    @property
    def reader(self) -> "type[TableReader]":
        """Class of the reader for these roots."""

    def ensure(self, root: str, name: str) -> None:
        """Creates the table if it does not exist."""

    def exists(self, root: str, name: str) -> bool:
        """Whether the table exists."""

    def write(
        self,
        root: str,
        name: str,
        rows: Sequence[Mapping[str, Any]],
        replaced: Condition | None,
        *,
        transaction_id: str,
        transaction_version: int | AtTime,
    ) -> bool:
        """Add rows in the place of those that fulfil `replaced`; False where this transaction was written before."""

    def delete(self, root: str, name: str, where: Condition) -> int:
        """Delete the rows that fulfil `where`; returns how many."""


_STAND_INS: dict[str, StandIn] = {}


def register(kind: str, stand_in: StandIn) -> None:
    """Makes roots that begin with `kind` and a colon those of `stand_in`, in this process."""
    _STAND_INS[kind] = stand_in


def stand_in_of(root: str) -> StandIn | None:
    """What stands in for Delta below this root; None for every root of a product that runs."""
    return _STAND_INS.get(root.partition(":")[0]) if _STAND_INS else None
