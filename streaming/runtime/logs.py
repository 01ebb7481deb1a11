"""Logs: one event a line on standard error, for people or as JSON; secrets are masked by name and by value.

Owns how events look, not what is logged. docs/logs.md lists the events.
"""

import logging
import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

from streaming.runtime.printable import printable, printable_lines
from streaming.runtime.secrets import Masking
from streaming.settings import LogSettings

SEVERAL_LINES = ("exception", "stack")
"""Fields of a log line that hold tracebacks."""


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
    rendering: list[structlog.typing.Processor] = [
        _Masked(Masking(secrets)),
        *_renderers(settings),
    ]
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Looked up anew each time: standard error may be replaced, and closed, while loggers live on.
        logger_factory=lambda *_: _Lines(sys.stderr),
    )
    _adopt_libraries(common, rendering, level)


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
