"""Writers that commit to one Delta table at the same moment."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import deltalake
import pytest

WAIT_S = 120


def at_once(monkeypatch: pytest.MonkeyPatch, *writers: Callable[[], Any]) -> list[Any]:
    """What writers in threads return: each has looked at the table and its transactions before one of them commits."""
    barrier, met = threading.Barrier(len(writers)), threading.local()
    written = deltalake.write_deltalake

    def write_after_all_have_looked(*args: Any, **how: Any) -> None:
        if not getattr(met, "once", False):
            met.once = True
            barrier.wait(WAIT_S)
        written(*args, **how)

    monkeypatch.setattr("streaming.tables.store.write_deltalake", write_after_all_have_looked)
    with ThreadPoolExecutor(len(writers)) as threads:
        return [future.result(WAIT_S) for future in [threads.submit(writer) for writer in writers]]
