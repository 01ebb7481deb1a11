"""Standard error of a whole process, line by line: what a JVM or a library writes there takes the form of our logs.

Everything that is written to file descriptor 2 passes through a pipe of this process, child processes included. With
`log.format: json` a line that is no JSON object becomes one. What a JVM says of itself at each start is left out.
"""

import atexit
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from streaming.runtime.secrets import Masking
from streaming.settings import LogSettings

LINE_BYTES_MAX = 65_536
"""A longer line becomes several."""
END = b"\0end of output\n"
END_WAIT_S = 2.0
CHATTER = re.compile(
    r"WARNING: (Using incubator modules|A restricted method in|java\.lang\.System::load|Use --enable-native-access"
    r"|Restricted methods will be blocked|A terminally deprecated method in|sun\.misc\.Unsafe"
    r"|Please consider reporting this to the maintainers of)"
)
"""Lines that the JVM writes at each start, whatever the settings."""


def shown_line(line: str, log_format: str, masking: Masking, *, now_ms: int) -> str | None:
    """The line as it is logged; None where it says nothing.

    >>> shown_line('{"event": "started"}', "json", Masking(), now_ms=0)
    '{"event": "started"}'
    >>> json.loads(shown_line("Exception in thread", "json", Masking(), now_ms=0) or "")["line"]
    'Exception in thread'
    >>> shown_line("Exception in thread", "console", Masking(), now_ms=0)
    'Exception in thread'
    >>> shown_line("WARNING: Using incubator modules: jdk.incubator.vector", "console", Masking(), now_ms=0)
    """
    if not line.strip() or CHATTER.match(line):
        return None
    if log_format != "json":
        return masking.text(line)
    with suppress(ValueError):
        if isinstance(json.loads(line), dict):
            return line
    now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"line": masking.text(line), "event": "output", "level": "warning", "timestamp": now})


def pass_standard_error_through(settings: LogSettings, secrets: frozenset[str], *, now_ms: Callable[[], int]) -> None:
    """Logs what is written to standard error line by line, from now on until the process ends."""
    masking, log_format = Masking(secrets), settings.format
    terminal = os.dup(2)
    reading, writing = os.pipe()
    sys.stderr.flush()
    os.dup2(writing, 2)

    def pass_on() -> None:
        with open(reading, "rb") as lines:
            while (raw := lines.readline(LINE_BYTES_MAX)) and raw != END:
                shown = shown_line(raw.decode(errors="replace").rstrip("\n"), log_format, masking, now_ms=now_ms())
                if shown is not None:
                    with suppress(OSError):  # as of a log: a line that can't be written is lost
                        os.write(terminal, f"{shown}\n".encode(errors="replace"))

    thread = threading.Thread(target=pass_on, name="standard error", daemon=True)
    thread.start()

    def end() -> None:
        """The JVM may still hold the pipe, so that its end would not come by itself."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os.dup2(terminal, 2)
        os.write(writing, END)
        thread.join(END_WAIT_S)

    atexit.register(end)
