"""Files that hold what people and programs sign in with: read whole, replaced in one step, changed one at a time.

Knows nothing of what stands in them.
"""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming.errors import UsageProblem

FILE_BYTES_MAX = 1_000_000
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
LOCK_TRIES = 100
LOCK_PAUSE_S = 0.1


def read_private(file: Path, what: str, *, refused_modes: int = OTHERS_WRITE) -> bytes:
    """What the file holds. `what` begins messages, like `tokens file`.

    Raises OSError, UsageProblem for a mode that has any of `refused_modes`, and ValueError for what is too large.
    """
    with file.open("rb") as opened:
        mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
        content = opened.read(FILE_BYTES_MAX + 1)
    if mode & OTHERS_WRITE:
        raise UsageProblem(f"{what} {file}: others than its owner may write it (mode {mode:04o}): chmod go-w")
    if mode & refused_modes:
        raise UsageProblem(f"{what} {file}: everybody may read it (mode {mode:04o}): chmod o-r")
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes")
    return content


def replace_private(file: Path, content: str, what: str) -> None:
    """Write the file; raises UsageProblem. A new one is its owner's alone; one that is there keeps its readers."""
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            _let_read(handle, file)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageProblem(f"{what} {file}: {error.strerror or error}") from None


@contextmanager
def one_change(file: Path, what: str) -> Iterator[Path]:
    """One change at a time: of two that read the same file, one would be lost. Raises UsageProblem."""
    try:
        lock = file.with_name(f".{file.name}.lock").open("w")
    except OSError as error:
        raise UsageProblem(f"{what} {file}: {error.strerror or error}") from None
    with lock:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_S)
        else:
            waited_s = LOCK_TRIES * LOCK_PAUSE_S
            raise UsageProblem(f"{what} {file}: another command has changed it for {waited_s:.0f} s: try again")
        yield file


def _let_read(handle: int, file: Path) -> None:
    """Lets everybody who may read `file` read the file that replaces it: serve may run as another user. Nobody else
    gets to write it.
    """
    try:
        there = file.stat()
        os.fchown(handle, there.st_uid, there.st_gid)
    except (FileNotFoundError, PermissionError):
        return
    os.fchmod(handle, stat.S_IMODE(there.st_mode) & ~OTHERS_WRITE)
