"""Logs: one event a line on standard error, for people or as JSON; values under names that look secret are masked.

Owns how events look, not what is logged. docs/logs.md lists the events.
"""

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from streaming.settings import LogSettings

SECRET_NAME = re.compile(r"password|secret|token|credential|jaas", re.IGNORECASE)
MASK = "**********"


def configure_logging(settings: LogSettings) -> None:
    """Set up structlog for this process; warnings of libraries take the same form."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        mask_secrets,
    ]
    rendering: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if settings.format == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))]
    )
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Looked up anew each time: standard error may be replaced, and closed, while loggers live on.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    _adopt_libraries(common, rendering, level)


def mask_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor of structlog: what stands under a name that looks secret is not shown.

    >>> mask_secrets(None, "info", {"event": "connecting", "sasl_password": "hunter2"})
    {'event': 'connecting', 'sasl_password': '**********'}
    """
    for name in event:
        if SECRET_NAME.search(name):
            event[name] = MASK
    return event


def _adopt_libraries(
    common: list[structlog.typing.Processor], rendering: list[structlog.typing.Processor], level: int
) -> None:
    """The standard library's root logger, which libraries use, from `warning` on: their information is not ours."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING))
    # The client tells of every refused connection several times a second, as errors too; we tell once what it means.
    logging.getLogger("kafka").setLevel(logging.CRITICAL if level > logging.DEBUG else logging.DEBUG)
