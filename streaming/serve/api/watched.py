"""A file of those who may sign in, as it is now."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from streaming.errors import UsageProblem
from streaming.serve.api.problems import Problem

log = structlog.get_logger()

Row = TypeVar("Row")


class Watched(Generic[Row]):
    """Rows by name or id, read again after each change of the file. `name` is `tokens` or `users`. For one thread."""

    def __init__(self, file: Path | None, read: Callable[[Path], dict[str, Row]], name: str) -> None:
        self._file = file
        self._read = read
        self._name = name
        self._stamp: tuple[int, ...] | None = None
        self._rows: Mapping[str, Row] = {}

    @property
    def is_set(self) -> bool:
        """Whether there is such a file in the settings."""
        return self._file is not None

    def now(self) -> Mapping[str, Row]:
        """The rows; raises Problem 503 where they can't be read, as then nobody can be known."""
        if self._file is None:
            return {}
        try:
            there = self._file.stat()
            stamp = there.st_mtime_ns, there.st_size, there.st_ino, there.st_mode
            if stamp != self._stamp:
                self._rows, self._stamp = self._read(self._file), stamp
        except (OSError, UsageProblem) as error:
            self._stamp = None
            log.warning(f"{self._name}_unreadable", error=str(error))
            raise Problem(503, f"serve.{self._name}_file can't be read: see the log of serve") from None
        return self._rows
