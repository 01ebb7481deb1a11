"""One executor at a time: a lock file beside the tables, held by the kernel for as long as the process lives."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming.errors import TableUnavailable


@contextmanager
def executor_lock(tables_root: str) -> Iterator[bool]:
    """True while this process may execute plans; False where another one holds the lock. Raises TableUnavailable."""
    if "://" in tables_root:
        # An object store has no lock: there the journal's numbering refuses the second writer.
        yield True
        return
    try:
        Path(tables_root).mkdir(parents=True, exist_ok=True)
        file = (Path(tables_root) / ".executor.lock").open("w")
    except OSError as error:
        raise TableUnavailable(f"tables folder {tables_root} can't be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
