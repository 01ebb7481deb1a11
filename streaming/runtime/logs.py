"""Logs: one event a line on standard error, for people or as JSON; secrets are masked by name and by value.

Owns how events look, not what is logged. docs/logs.md lists the events. What a JVM or a library writes to standard
error takes the form of our logs, too: everything that is written to file descriptor 2 passes through a pipe of this
process, child processes included. With `log.format: json` a line that is no JSON object becomes one. What a JVM writes
of itself at each start is left out.
"""

import atexit
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TextIO, TypeVar

import structlog

from streaming.runtime.printable import printable, printable_lines
from streaming.runtime.secrets import Masking
from streaming.settings import LogSettings

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
SEVERAL_LINES = ("exception", "stack")
"""Fields of a log line that hold tracebacks."""
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
_maskings: list[Masking] = []
"""What hides secrets in the logs of this process."""


def configure_logging(
    settings: LogSettings, secrets: frozenset[str] = frozenset(), kafka_cluster: str | None = None
) -> None:
    """Set up structlog for this process; warnings of libraries take the same form. `secrets` are never shown.

    Each line has `kafka_cluster`, if it is given: where several clusters write to one log.
    """
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        *([_of_cluster(kafka_cluster)] if kafka_cluster is not None else []),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    # The last before rendering, when all that is shown is there. Tracebacks are plain text by then: structlog's own
    # for people would show the local variables of every frame.
    _maskings[:] = [Masking(secrets)]
    rendering: list[structlog.typing.Processor] = [_Masked(_maskings[0]), *_renderers(settings)]
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Looked up again each time: standard error may be replaced, and closed, while loggers live on.
        logger_factory=lambda *_: _Lines(sys.stderr),
    )
    _adopt_libraries(common, rendering, level)


def mask_too(secrets: frozenset[str]) -> None:
    """From now on the logs of this process show none of these secrets either."""
    for masking in _maskings:
        masking.add(secrets)


def with_log_fields(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Returns `function` for another thread to call: its log lines have the fields that are bound in this thread, such
    as the cluster. A new thread has none of them.
    """
    fields = structlog.contextvars.get_contextvars()

    @wraps(function)
    def bound(*arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        with structlog.contextvars.bound_contextvars(**fields):
            return function(*arguments, **options)

    return bound


class _Lines(structlog.PrintLogger):
    """Lines that can't be written, as where the disk is full, are lost: they end no work of who logs."""

    def msg(self, message: str) -> None:
        with suppress(OSError, ValueError):  # ValueError: the file is closed
            super().msg(message)

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


class _Handler(logging.StreamHandler[TextIO]):
    """Handler of libraries' log lines: a line that can't be written is lost and ends no work of the library."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        if not isinstance(sys.exc_info()[1], OSError | ValueError):
            super().handleError(record)  # it writes to standard error, too


def _renderers(settings: LogSettings) -> list[structlog.typing.Processor]:
    if settings.format == "json":
        return [structlog.processors.JSONRenderer()]
    return [
        _printable,
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty() and not os.environ.get("NO_COLOR"),
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]


def _of_cluster(name: str) -> structlog.typing.Processor:
    """Processor of structlog: names the cluster that the process works for."""

    def add(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("kafka_cluster", name)
        return event

    return add


def _printable(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor of structlog: names of others can't act on the terminal. Inside lists Python escapes them itself."""
    return {
        name: (printable_lines if name in SEVERAL_LINES else printable)(value) if isinstance(value, str) else value
        for name, value in event.items()
    }


class _Masked:
    """Processor of structlog: no secret of an event is shown."""

    def __init__(self, masking: Masking) -> None:
        self._masking = masking

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {name: self._masking.named(name, value) for name, value in event.items()}


def _adopt_libraries(
    common: list[structlog.typing.Processor], rendering: list[structlog.typing.Processor], level: int
) -> None:
    """The standard library's root logger, which libraries use, from `warning` on: their information is not ours."""
    handler = _Handler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING))
    # The client logs every refused connection several times a second, as errors too; we log once what it means. Below
    # `info` it logs its whole configuration, the password too.
    logging.getLogger("kafka").setLevel(logging.CRITICAL if level > logging.DEBUG else logging.INFO)


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
    _maskings.append(masking)
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
