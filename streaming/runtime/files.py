"""Who may read the files that this process makes: tables, checkpoints, logs, locks. They name topics and hosts."""

import os

from streaming.settings import ReadableBy

UMASKS: dict[ReadableBy, int] = {"owner": 0o077, "group": 0o027, "everyone": 0o022}


def restrict_new_files(readable_by: ReadableBy) -> None:
    """Makes new files and folders of this process and its children readable by no more than `readable_by`.

    A process that was started with a stricter umask keeps it. What is there already stays as it is.
    """
    os.umask(os.umask(0o077) | UMASKS[readable_by])


def current_umask() -> int:
    """The umask of this process. Python can read it only by setting it: call it before threads are started."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
