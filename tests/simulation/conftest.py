"""What all stories share."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of lines of control's log show nothing that the trace does not."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)
