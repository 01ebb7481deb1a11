"""Files that commands write: all of a file or nothing."""

import os
from pathlib import Path

from streaming.errors import UsageProblem


def write_whole(option: str, file: Path, content: bytes) -> None:
    """Write `content`; a reader never finds half of it. Raises UsageProblem that names the `option`."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageProblem(f"{option} {file}: {error.strerror}") from None
