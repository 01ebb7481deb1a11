"""Which allocator Arrow takes memory from in control.

Arrow's own choice, mimalloc, keeps much of what it has freed. The C library gives large blocks back at once: control
takes a tenth to a fifth less memory with it, for no more CPU. Serve does so at 30 brokers, but not at 100
(docs/measurements/fleet.md), and keeps Arrow's choice.
"""

import os

ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own variable, read once, when pyarrow is imported."""


def give_memory_back() -> None:
    """Let Arrow use the C library's allocator, unless the environment names another; before pyarrow is imported."""
    os.environ.setdefault(ARROW_POOL, "system")
