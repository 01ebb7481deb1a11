"""One pipeline at a time on the same checkpoints, and on the same tables: a lock in a folder. On an object store
checkpoints have a lease; tables have nothing.

Nothing on an object store ends with a process. So a pipeline that was killed there keeps its lease until that has run
out, and the next one waits for it; where the lease is renewed meanwhile, the other one lives.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from streaming.errors import RefusedForSafety
from streaming.runtime.locks import exclusive
from streaming.tables.conditional_puts import check_conditional_put
from streaming.tables.places import local_folder

POLL_S = 1.0
LEASE_MS = 30_000
PATIENCE_S = 60.0
"""Time to wait for the right, seconds: longer than a lease lasts after its holder was killed, by the margins and
requests of who waits for it.
"""

StillOurs = Callable[[], None]
"""Function to be called again and again: keeps the right, and raises RefusedForSafety once another pipeline has it."""


class OneHolder(Protocol):
    """The part of a lease that is used here."""

    @property
    def held(self) -> bool:
        """Whether this process holds the right; False once another process has taken it over."""

    def try_acquire(self) -> bool:
        """Take it if it is free or has run out; to be called again and again. Raises TableUnavailable."""

    def progress(self) -> None:
        """The process works: without this it loses the lease in time."""

    def kept(self) -> AbstractContextManager[None]:
        """Renew it in the background, give it back at the end."""


LeaseOn = Callable[[str], OneHolder]
"""The lease on the checkpoints at a URI."""


@contextmanager
def only_pipeline(
    checkpoints: str, lease_on: LeaseOn | None = None, stopping: threading.Event | None = None
) -> Iterator[StillOurs]:
    """While this holds no other pipeline can use these checkpoints; raises RefusedForSafety where one does.

    `lease_on` is for object stores; once `stopping` is set, the lease of another is waited for no longer.
    """
    if local_folder(checkpoints) is None and lease_on is not None:
        check_conditional_put(checkpoints)
        lease = lease_on(checkpoints)
        _acquire(lease, checkpoints, stopping or threading.Event())
        with lease.kept():
            yield lambda: _check(lease, checkpoints)
        return
    with exclusive(checkpoints, "pipeline") as is_ours:
        if not is_ours:
            raise _another(checkpoints)
        yield lambda: None


@contextmanager
def only_writer(root: str) -> Iterator[None]:
    """While this holds no pipeline with other checkpoints can write the tables in this folder; raises RefusedForSafety
    where one does, and on a store that would lose one of two commits: batches and upkeep write from two threads.

    Each closes what its own watermark has passed, and makes hours of it. A second one that is minutes behind, as that
    of another cluster, would lose its samples of these windows without a word.
    """
    check_conditional_put(root)
    with exclusive(root, "tables") as is_ours:
        if not is_ours:
            raise RefusedForSafety(
                f"another pipeline is writing the tables in {root}: give each its own storage.tables"
            )
        yield


def _acquire(lease: OneHolder, checkpoints: str, stopping: threading.Event) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not lease.try_acquire():
        if time.monotonic() > deadline or stopping.wait(POLL_S):
            raise _another(checkpoints)


def _check(lease: OneHolder, checkpoints: str) -> None:
    lease.progress()
    if not lease.held:
        raise RefusedForSafety(f"another pipeline has taken over the checkpoints in {checkpoints}")


def _another(checkpoints: str) -> RefusedForSafety:
    return RefusedForSafety(f"another pipeline is running on the checkpoints in {checkpoints}")
