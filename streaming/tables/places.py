"""Resolves where a setting's folder lies: in the file system of this machine, under whatever spelling, or elsewhere.

A path is taken literally, and a URI is decoded (delta-rs can't make a table in a folder whose name itself holds an
escape such as `%20`).
"""

from pathlib import Path

from streaming.errors import UsageProblem
from streaming.settings.fields import path_of, split_uri


def is_uri(place: str) -> bool:
    """Whether the place is spelled as a URI, of a folder or of an object store.

    >>> is_uri("file:///data/cp"), is_uri("./data:cp"), is_uri("data/cp")
    (True, False, False)
    """
    return split_uri(place) is not None


def scheme_of(place: str) -> str:
    """Scheme of the URI; `file` for a plain folder.

    >>> scheme_of("s3://bucket/tables"), scheme_of("data/tables"), scheme_of("file:///data/tables")
    ('s3', 'file', 'file')
    """
    uri = split_uri(place)
    return uri[0] if uri else "file"


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
    path = path_of(place)
    if path is None:
        raise UsageProblem(f"{place} names no folder of this machine: write file:///absolute/path, or the path alone")
    return Path(path)
