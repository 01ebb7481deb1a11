"""The folder of a session's local files: Spark's blocks and state, what Java unpacks, objects on their way to S3.

Spark removes what it has written there as it ends, but nothing where it is killed. Copies of the state can take
gigabytes. So each session has one folder for all of it, and a later start removes the folders of those that are gone.
The lock is one of the folder itself: a lock file could be removed by what clears old files from /tmp, and
systemd-tmpfiles leaves a folder alone that is locked.
"""

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path

import structlog

from streaming.errors import SetUpIncomplete

log = structlog.get_logger()

PREFIX = "rebalancer-spark-"
TRIES = 10


@cache
def scratch_folder() -> Path:
    """Returns this process's own folder, below TMPDIR or else /tmp; it is removed as the process ends. Raises
    SetUpIncomplete.
    """
    try:
        parent = Path(tempfile.gettempdir())
        removed = sum(_removed_if_abandoned(folder) for folder in sorted(parent.glob(f"{PREFIX}*")) if _is_ours(folder))
        if removed:
            log.info("scratch_of_killed_pipelines_removed", folders=removed, below=str(parent))
        for _ in range(TRIES):
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            # Until it is locked, another process may take it for an abandoned one.
            lock = _locked(folder)
            if lock is not None and folder.is_dir():
                atexit.register(_remove, folder, lock)
                return folder
    except OSError as error:
        raise SetUpIncomplete(f"Spark needs a folder for its local files below TMPDIR or /tmp: {error}") from None
    raise SetUpIncomplete(f"no folder below {parent} (TMPDIR) stays: another process removes each one")


def _is_ours(folder: Path) -> bool:
    """Anybody may write to /tmp: nothing is opened or removed where another user's link would lead."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _locked(folder: Path) -> int | None:
    """What keeps the folder locked while it is open; None where another process has locked or removed it."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _removed_if_abandoned(folder: Path) -> bool:
    """Removes the folder of a process that is gone; returns whether the folder was such and is removed."""
    try:
        lock = _locked(folder)
    except OSError:
        return False
    if lock is None:
        return False
    _remove(folder, lock)
    return not folder.exists()


def _remove(folder: Path, lock: int) -> None:
    """Java may still be removing its own part, so what is gone already is no error."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
