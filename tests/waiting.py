"""Waiting for something to become true, bounded."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

DEADLINE_S = 300.0
"""Generous: a machine may be busy with other tests."""


def until(
    what: str, probe: Callable[[], Answer | None], deadline_s: float = DEADLINE_S, *, pause_s: float = 0.2,
    state: Callable[[], str] = str,
) -> Answer:  # fmt: skip
    """The first true answer of `probe`; without one in time the failure says `what`, and what is `told` then."""
    deadline = time.monotonic() + deadline_s
    while not (answer := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {deadline_s:.0f} s {state()}"
        time.sleep(pause_s)
    return answer
