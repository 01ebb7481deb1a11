"""Words that many messages share. Imports nothing."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def first_named(items: Sequence[Item], most: int, name: Callable[[Item], str] = str) -> str:
    """The first `most` items by `name`, and how many more there are.

    >>> first_named([1, 2, 3], 3), first_named([1, 2, 3, 4], 2)
    ('1, 2, 3', '1, 2 and 2 more')
    """
    names = ", ".join(map(name, items[:most]))
    return f"{names} and {len(items) - most} more" if len(items) > most else names


def counted(count: int, one: str, more: str) -> str:
    """A count with the words for one thing, or for more.

    >>> counted(1, "partition is offline", "partitions are offline"), counted(0, "move", "moves")
    ('1 partition is offline', '0 moves')
    """
    return f"{count} {one if count == 1 else more}"
