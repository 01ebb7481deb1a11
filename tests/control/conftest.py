"""What tests of control share: settings over tables in memory, and a clock."""

import pytest

from streaming.settings import Settings
from tests.control.clock import Clock


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return Settings.model_validate({"storage": {"tables": tables_in_memory}})


@pytest.fixture
def clock() -> Clock:
    return Clock()
