"""Whether an object store refuses the second of two commits of one version, as lease and journal need it to.

A store that ignores the condition of a put takes both, and the first is lost without a word: two controls would both
hold the lease. So the store is tried, by the very commits of delta-rs, below a name of its own that is removed again.
"""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum, auto
from threading import Barrier

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from streaming.errors import RefusedForSafety, TableUnavailable
from streaming.tables.object_stores import S3_SCHEMES, storage_options
from streaming.tables.opening import first_line
from streaming.tables.places import scheme_of

WRITERS = 4
ROUNDS_MAX = 6
PROBE = ".rebalancer-check-"
LOG = "_delta_log"


class _Outcome(Enum):
    WON = auto()
    REFUSED = auto()
    """The put was refused, and another commit stands in its place."""
    SAW_IT = auto()
    """Another writer was so much earlier that this one did not even try."""


def try_conditional_put(root: str) -> tuple[bool | None, str]:
    """Whether the store at `root` can hold tables, and why not; None where no two writers met. Raises TableUnavailable.

    Some writers make one table at the same moment, each in a thread. Each that gets no refusal must have written
    an entry of the log of its own.
    """
    for _ in range(ROUNDS_MAX):
        uri = f"{root.rstrip('/')}/{PROBE}{uuid.uuid4().hex}"
        try:
            won, refused, entries = _race(uri)
        except (DeltaError, OSError) as error:
            raise TableUnavailable(f"{root} can't be written: {first_line(error)}") from None
        if won > entries:
            return False, (
                f"{root} ignores conditional puts (If-None-Match): {won} writers got the answer that they had made "
                f"{entries} objects, so two controls could hold one lease. Use a store that refuses the second put"
            )
        if refused or entries > 1:
            return True, f"{root}: of two puts of one object the second is refused"
    return None, f"{root}: no two of {WRITERS} writers met in {ROUNDS_MAX} rounds: try again"


def check_conditional_put(root: str) -> None:
    """Raises RefusedForSafety where tables below `root` could lose a commit; TableUnavailable. No folder is tried."""
    if scheme_of(root) not in S3_SCHEMES:
        return
    passed, detail = try_conditional_put(root)
    if passed is False:
        raise RefusedForSafety(detail)


def _race(uri: str) -> tuple[int, int, int]:
    """How many writers got the answer that theirs is written, how many were refused, and how many entries there are."""
    start = Barrier(WRITERS)
    with ThreadPoolExecutor(WRITERS) as writers:
        outcomes = list(writers.map(_make, [uri] * WRITERS, [start.wait] * WRITERS))
    files = PyFileSystem(DeltaStorageHandler(uri, storage_options(uri)))
    try:
        entries = len([file for file in files.get_file_info(FileSelector(LOG)) if file.is_file])
    finally:
        with suppress(DeltaError, OSError):
            files.delete_dir(LOG)
    return outcomes.count(_Outcome.WON), outcomes.count(_Outcome.REFUSED), entries


def _make(uri: str, wait: Callable[[], int]) -> _Outcome:
    wait()
    try:
        DeltaTable.create(uri, pa.schema([("tried", pa.int64())]), mode="error", storage_options=storage_options(uri))
    except CommitFailedError:
        return _Outcome.REFUSED
    except DeltaError as error:
        if "already exists" not in str(error):
            raise
        return _Outcome.SAW_IT
    return _Outcome.WON
