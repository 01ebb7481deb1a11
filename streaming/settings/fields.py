"""Types that fields of settings share, and the base of each section."""

import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(ge=1, le=30 * 86_400_000)]
RETENTION_MAX_MS = 100 * 365 * 86_400_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MEMORY_ROOT = "memory:"
"""What the roots of tables in memory begin with (see `streaming.tables.memory`); no user may set one."""
Port = Annotated[int, Field(ge=0, le=65535)]
PathOrText = TypeVar("PathOrText", str, Path)
Ratio = Annotated[float, Field(ge=0.0, le=1.0)]


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


RegularExpression = Annotated[str, AfterValidator(_regular_expression)]


def _no_home(path: PathOrText) -> PathOrText:
    if str(path).startswith("~"):
        raise ValueError("a leading ~ is not read as a home: write the whole path")
    return path


Location = Annotated[str, AfterValidator(_no_home)]
File = Annotated[Path, AfterValidator(_no_home)]


class Section(BaseModel):
    """A part of the settings: frozen, and a key it doesn't know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
