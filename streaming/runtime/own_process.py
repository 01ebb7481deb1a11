"""What this process is to its machine: who runs and ends it, who may read its files, how it gives memory back."""

import os
import pwd
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from streaming.settings import ReadableBy

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
UMASKS: dict[ReadableBy, int] = {"owner": 0o077, "group": 0o027, "everyone": 0o022}
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own variable, read once, when pyarrow is imported."""
NO_SIGN_IN = (1 << 32) - 1
"""The kernel's audit id of a process that no sign-in has begun (proc(5))."""


class StopHandler:
    """Handles SIGTERM and SIGINT, and knows whether one of them has come."""

    def __init__(self, stop: Callable[[int], None]) -> None:
        """`stop` is called with the number of each signal."""
        self.was_called = False
        self._stop = stop

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.was_called = True
        self._stop(number)


def stop_on_signals(stop: Callable[[int], None]) -> None:
    """From now on SIGTERM and SIGINT call `stop` with their number."""
    handler = StopHandler(stop)
    for number in STOP_SIGNALS:
        signal.signal(number, handler)


def stopped_by_signals() -> threading.Event:
    """Returns an event that SIGTERM and SIGINT set from now on."""
    stopping = threading.Event()
    stop_on_signals(lambda _number: stopping.set())
    return stopping


def taken(requests: "queue.SimpleQueue[None]") -> bool:
    """Returns whether requests lay in the queue, which a signal handler fills, and takes all of them out."""
    found = not requests.empty()
    while not requests.empty():
        requests.get()
    return found


def restrict_new_files(readable_by: ReadableBy) -> None:
    """Makes new files and folders of this process and its children readable by no more than `readable_by`.

    A process that was started with a stricter umask keeps it. What is there already stays as it is.
    """
    os.umask(os.umask(0o077) | UMASKS[readable_by])


def current_umask() -> int:
    """Returns the umask of this process. Linux shows it (proc(5)). Elsewhere it can be read only by setting it: a file
    that another thread makes at that instant is for its owner alone.
    """
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], base=8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def give_memory_back() -> None:
    """Let Arrow use the C library's allocator, unless the environment names another; before pyarrow is imported.

    Arrow's own choice, mimalloc, keeps much of what it has freed. The C library gives large blocks back at once:
    control takes a tenth to a fifth less memory with it, for no more CPU. Serve does so at 30 brokers, but not at 100
    (docs/measurements/fleet.md), and keeps Arrow's choice.
    """
    os.environ.setdefault(ARROW_POOL, "system")


def has_own_terminal() -> bool:
    """Returns whether somebody sits at a terminal in front of this process. Once the terminal is closed nobody does."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def os_user() -> str:
    """Name of the user of this process; if that user became another one, as with sudo, also who had signed in."""
    user_id, signed_in_id = os.getuid(), _signed_in_id()
    name = _name(user_id)
    if signed_in_id is None or signed_in_id == user_id:
        return name
    return f"{name}, signed in as {_name(signed_in_id)}"


def _signed_in_id() -> int | None:
    try:
        user_id = int(Path("/proc/self/loginuid").read_text())
    except (OSError, ValueError):  # no Linux, or a kernel without audit
        return None
    return None if user_id == NO_SIGN_IN else user_id


def _name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:  # a container may have no such user
        return f"uid {user_id}"
