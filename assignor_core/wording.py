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


def either(words: Sequence[str]) -> str:
    """Words as a choice.

    >>> either(["disk"]), either(["bytes in", "bytes out", "disk"])
    ('disk', 'bytes in, bytes out or disk')
    """
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def counted(count: int, one: str, more: str) -> str:
    """A count with the words for one thing, or for more.

    >>> counted(1, "partition is offline", "partitions are offline"), counted(0, "move", "moves")
    ('1 partition is offline', '0 moves')
    """
    return f"{count} {one if count == 1 else more}"


def many(number: int, noun: str) -> str:
    """A number of things whose plural ends with s, with separators as in a table of figures.

    >>> many(1, "record"), many(1_200, "record")
    ('1 record', '1,200 records')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def address_text(host: str, port: int) -> str:
    """Host and port as they stand in a URL: an IPv6 address in brackets (RFC 3986, section 3.2.2).

    >>> address_text("kafka-1", 9092), address_text("::1", 9464)
    ('kafka-1:9092', '[::1]:9464')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bytes_text(size_bytes: float) -> str:
    """A size in the unit that fits, decimal as for disks and networks.

    >>> bytes_text(0), bytes_text(7_200), bytes_text(340e6), bytes_text(20e9), bytes_text(2.5e12)
    ('0 B', '7.2 kB', '340.0 MB', '20.0 GB', '2.5 TB')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:,.1f} {unit}"
    return f"{size_bytes:.0f} B"
