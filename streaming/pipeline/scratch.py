"""The folder of a session's local files: Spark's blocks and state, what Java unpacks, objects on their way to S3.

Spark removes what it has written there as it ends, but nothing where it is killed. Copies of the state can take
gigabytes. So each session has one folder for all of it, and a later start removes the folders of those that are gone.
"""

import atexit
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import structlog

from streaming.errors import SetUpIncomplete, TableUnavailable
from streaming.runtime.locks import exclusive

log = structlog.get_logger()

PREFIX = "rebalancer-spark-"
LOCK = "session"
TRIES = 10


@cache
def scratch_folder() -> Path:
    """This process's own, below TMPDIR or else /tmp; it is removed as the process ends. Raises SetUpIncomplete."""
    parent = Path(tempfile.gettempdir())
    removed = sum(_removed_if_abandoned(folder) for folder in sorted(parent.glob(f"{PREFIX}*")) if _is_ours(folder))
    if removed:
        log.info("scratch_of_killed_pipelines_removed", folders=removed, below=str(parent))
    held = ExitStack()
    try:
        for _ in range(TRIES):
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            # Until it is locked, another process may take it for an abandoned one.
            if held.enter_context(exclusive(str(folder), LOCK)) and folder.is_dir():
                atexit.register(_remove, folder, held)
                return folder
    except (OSError, TableUnavailable) as error:
        raise SetUpIncomplete(f"Spark needs a folder for its local files below {parent} (TMPDIR): {error}") from None
    raise SetUpIncomplete(f"no folder below {parent} (TMPDIR) stays: another process removes each one")


def _is_ours(folder: Path) -> bool:
    """Anybody may write to /tmp: nothing is opened or removed where another user's link would lead."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _removed_if_abandoned(folder: Path) -> bool:
    """Whether it was a folder of a process that is gone."""
    try:
        with exclusive(str(folder), LOCK) as abandoned:
            if abandoned:
                shutil.rmtree(folder)
    except (OSError, TableUnavailable):
        return False
    return abandoned


def _remove(folder: Path, held: ExitStack) -> None:
    """Java may still be removing its own part, so what is gone already is no error."""
    shutil.rmtree(folder, ignore_errors=True)
    held.close()
