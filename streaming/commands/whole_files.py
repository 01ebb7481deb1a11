"""Files that commands write: all of a file or nothing."""

import os
from contextlib import suppress
from pathlib import Path

from streaming.errors import UsageProblem


def write_whole(option: str, file: Path, content: bytes) -> None:
    """Write `content`; a reader never finds half of it. Raises UsageProblem that names the `option`.

    What a link leads to is replaced, not the link. A device or a pipe stays what it is and is written to.
    """
    target = Path(os.path.realpath(file))
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise UsageProblem(f"{option} {file}: {error.strerror}") from None


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, file)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
