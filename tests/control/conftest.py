"""What tests of control share: tables in memory, as a commit to Delta takes longer than what most of them test."""

import uuid
from collections.abc import Iterator

import pytest

from streaming.tables.memory import forget


@pytest.fixture
def tables_in_memory() -> Iterator[str]:
    """A root of the test's own; `tests/tables/test_stores.py` holds such tables to what Delta does."""
    root = f"memory:{uuid.uuid4().hex}"
    yield root
    forget(root)
