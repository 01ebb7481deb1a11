"""Logs: one event a line on standard error, for people or as JSON; no secret is ever handed to it."""

import logging
import sys

import structlog

from streaming.settings import LogSettings


def configure_logging(settings: LogSettings) -> None:
    """Set up structlog for this process; other libraries' warnings go the same way."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    renderer = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=max(level, logging.WARNING), format="%(asctime)s %(name)s %(message)s")
    # The client tells of every refused connection several times a second; we tell once what it means.
    logging.getLogger("kafka").setLevel(logging.ERROR if level > logging.DEBUG else logging.DEBUG)
