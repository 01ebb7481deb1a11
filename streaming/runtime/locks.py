"""One process at a time: a lock file held by the kernel for as long as its process lives, so a kill leaves none."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from streaming.errors import TableUnavailable
from streaming.tables.places import local_folder


@contextmanager
def exclusive(folder: str, name: str) -> Iterator[bool]:
    """True while this process alone holds `name` in `folder`; False where another does. Raises TableUnavailable.

    An object store has no such lock: there it is always granted, and Delta's own conflict check refuses the second
    writer.
    """
    place = local_folder(folder)
    if place is None:
        yield True
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        file = (place / f".{name}.lock").open("w")
    except OSError as error:
        raise TableUnavailable(f"folder {folder} can't be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
