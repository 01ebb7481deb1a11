"""Resolves where a setting's folder lies: in the file system of this machine, under whatever spelling, or elsewhere.

A path is taken literally. In a URI `%20` stands for a space, as RFC 3986 has it and delta-rs reads it. (delta-rs can't
make a table in a folder whose name itself holds such an escape.)
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from streaming.errors import UsageProblem

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*)")
_LOCAL = re.compile(r"(//(localhost)?)?(?P<path>/(?!/)[^?#]*)")


def is_uri(place: str) -> bool:
    """Whether the place is spelled as a URI, of a folder or of an object store.

    >>> is_uri("file:///data/cp"), is_uri("./data:cp"), is_uri("data/cp")
    (True, False, False)
    """
    return _URI.fullmatch(place) is not None


def scheme_of(place: str) -> str:
    """Scheme of the URI; `file` for a plain folder.

    >>> scheme_of("s3://bucket/tables"), scheme_of("data/tables"), scheme_of("file:///data/tables")
    ('s3', 'file', 'file')
    """
    uri = _URI.fullmatch(place)
    return uri["scheme"].lower() if uri else "file"


def full_place(place: str) -> str:
    """The place as people need it in a message: a folder from the root on, whatever folder they are in."""
    folder = local_folder(place)
    return place if folder is None else str(folder.absolute())


def local_folder(place: str) -> Path | None:
    """The folder, None where it lies on an object store; raises UsageProblem for a file URI that names none.

    >>> [str(local_folder(place)) for place in ("data/cp", "/data/cp", "file:///data/cp", "s3://bucket/cp")]
    ['data/cp', '/data/cp', '/data/cp', 'None']
    >>> str(local_folder("file:///data/our%20tables")), str(local_folder("/data/our%20tables"))
    ('/data/our tables', '/data/our%20tables')
    """
    if scheme_of(place) != "file":
        return None
    uri = _URI.fullmatch(place)
    if uri is None:
        return Path(place)
    local = _LOCAL.fullmatch(uri["rest"])
    if local is None:
        raise UsageProblem(f"{place} names no folder of this machine: write file:///absolute/path, or the path alone")
    return Path(os.fsdecode(unquote_to_bytes(local["path"])))
