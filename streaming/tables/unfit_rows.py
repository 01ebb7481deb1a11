"""Rows that are there and can't be shown, for whoever shows other tables, too: one row must not end them.

What is expected of rows the contract says. This is for what it forgot, and for tables that others have written.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from streaming.errors import TableUnavailable
from streaming.tables.opening import first_line


@contextmanager
def unfit_as_unavailable(*names: str) -> Iterator[None]:
    """What rows of these tables make go wrong, as TableUnavailable."""
    try:
        yield
    except (pa.ArrowException, ValueError, IndexError) as error:
        tables = f"table{'s' if len(names) > 1 else ''} {', '.join(names)}"
        problem = f"{type(error).__name__}: {first_line(error)}"
        raise TableUnavailable(f"{tables}: rows can't be shown: {problem}") from error
