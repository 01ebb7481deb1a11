"""Which allocator Arrow takes memory from, in roles that read tables again and again.

Arrow's own choice, mimalloc, keeps what it has freed: a fifth of serve's memory was that, and it grew with each window
(docs/measurements/fleet.md). The C library gives large blocks back at once.
"""

import os

ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own variable, read once, when pyarrow is imported."""


def give_memory_back() -> None:
    """Let Arrow use the C library's allocator, unless the environment names another; before pyarrow is imported."""
    os.environ.setdefault(ARROW_POOL, "system")
