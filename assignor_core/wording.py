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
