"""One process at a time: a lock file held by the kernel for as long as its process lives, so a kill leaves none.

The file names the process that has locked it last.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming.errors import TableUnavailable
from streaming.tables.places import local_folder


@contextmanager
def exclusive(folder: str, name: str) -> Iterator[bool]:
    """Yields True while this process alone holds `name` in `folder`; False if another process does. Raises
    TableUnavailable.

    An object store has no such lock: there it is always granted, and Delta's own conflict check refuses the second
    writer.
    """
    place = local_folder(folder)
    if place is None:
        yield True
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        file = _lock_file(place, name).open("a+")
    except OSError as error:
        raise TableUnavailable(f"folder {folder} can't be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield True


def holder(folder: str, name: str) -> str:
    """Who holds the lock that `exclusive` did not get, such as "process 4711 on host-1"."""
    place = local_folder(folder)
    try:
        text = _lock_file(place, name).read_text(errors="replace") if place is not None else ""
    except OSError:
        text = ""
    return text.strip() or "another process"


def _lock_file(place: Path, name: str) -> Path:
    return place / f".{name}.lock"
