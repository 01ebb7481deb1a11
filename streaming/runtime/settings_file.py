"""Whether the settings file has changed, at the cost of one look at its time and size."""

import hashlib
import os
from pathlib import Path
from time import monotonic

LOOK_INTERVAL_S = 5.0
"""Time between two looks. A change counts once two looks in a row have found the same file: somebody may be writing."""

Signature = tuple[int, int, int]
"""Time of the last change (ns), bytes, number of the file."""


class SettingsFile:
    """Remembers which content was read last. Without a file nothing ever changes."""

    def __init__(self, file: Path | None, *, interval_s: float = LOOK_INTERVAL_S) -> None:
        self._file = file
        self._interval_s = interval_s
        self.note_read()

    def note_read(self) -> None:
        """From now on the content of this moment is the known one. Call it before the file is read."""
        self._looked_s = monotonic()
        self._seen = self._signature()
        self._known = self._content() if self._seen else b""
        self._is_read = bool(self._known)

    def has_changed(self) -> bool:
        """Returns whether there is other content than the known one, and nobody is writing it any more. A file that is
        not there, is empty or can't be read has not changed: whoever replaces it may be about to write it, or to give
        the right to read it, which changes neither its time nor its size.
        """
        if self._file is None or monotonic() - self._looked_s < self._interval_s:
            return False
        self._looked_s = monotonic()
        seen, before = self._signature(), self._seen
        self._seen = seen
        if seen is None or seen != before:
            self._is_read = False
            return False
        if self._is_read:
            return False
        content = self._content()
        self._is_read = bool(content)
        return bool(content) and content != self._known

    def _signature(self) -> Signature | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _content(self) -> bytes:
        """A digest of the content; nothing if there is none."""
        assert self._file is not None
        try:
            content = self._file.read_bytes()
        except OSError:
            return b""
        return hashlib.sha256(content).digest() if content.strip() else b""
