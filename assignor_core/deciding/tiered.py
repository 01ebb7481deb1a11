"""What a plan copies of logs whose older part is in remote storage (KIP-405): the local part alone. Pure.

A new replica of such a log begins where the leader's disk does, and takes over what remote storage holds as it is.
"""

from collections.abc import Iterable, Mapping

from assignor_core.live import PartitionKey
from assignor_core.plan import Movement


def local_bytes_note(movements: Iterable[Movement], remote_bytes: Mapping[PartitionKey, float]) -> str | None:
    """The line of a plan that names how few bytes it copies; None if it copies nothing of a tiered log.

    `remote_bytes` is what remote storage alone holds of each leader's log.

    >>> moved = Movement("t", 0, (1, 2), (3, 2), 10.0)
    >>> local_bytes_note([moved], {("t", 0): 90.0})
    '1 movement is of a tiered log and copies local bytes only: 10 of 100 bytes, the rest stays in remote storage'
    """
    copied = [(row, len(set(row.new_replicas) - set(row.old_replicas))) for row in movements]
    tiered = [(row, new) for row, new in copied if new and remote_bytes.get(row.key)]
    if not tiered:
        return None
    local = sum(row.bytes_to_move for row, _ in tiered)
    remote = sum(remote_bytes[row.key] * new for row, new in tiered)
    one = len(tiered) == 1
    what = "1 movement is of a tiered log and copies" if one else f"{len(tiered)} movements are of tiered logs and copy"
    return f"{what} local bytes only: {local:.0f} of {local + remote:.0f} bytes, the rest stays in remote storage"
